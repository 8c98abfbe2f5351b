"""CPU work in processes of its own: all cores are used, and a handler that crashes, hangs or eats memory hurts nobody.

python app.py
"""

import os

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")
MB = 1024 * 1024


@hf.task(isolation="process", timeout=60, memory_limit=512 * MB, max_attempts=1)
def count_primes(below: int) -> int:
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
    return sum(sieve)


@hf.task(isolation="process", max_attempts=1)
def crash() -> None:
    os.abort()  # as a faulty C library would


@hf.task(isolation="process", timeout=1, max_attempts=1)
def hang() -> None:
    while True:  # not even Python code between which one could stop it politely
        pass


if __name__ == "__main__":
    counts = [count_primes.enqueue(10**exponent) for exponent in range(2, 7)]
    bad = [crash.enqueue(), hang.enqueue()]
    hf.work(concurrency=os.cpu_count(), until_idle=True)
    print("primes:", [job.result() for job in counts])
    for job in bad:
        record = job.refresh()
        print(record.status, record.error)
    hf.close()

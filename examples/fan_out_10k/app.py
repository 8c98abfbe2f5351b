"""Ten thousand jobs in one go, and a line that says how far they are.

python app.py [JOBS]
"""

import sys

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")


@hf.task(queue="squares")
def square(n: int) -> int:
    return n * n


def main(count: int) -> None:
    jobs = square.enqueue_many((n,) for n in range(count))  # a commit for each thousand
    print(f"{len(jobs)} jobs are durable")
    worker = hf.worker()
    worker.start()
    done = 0
    while done < count:
        jobs[min(done + count // 10, count - 1)].wait(timeout=60)  # a tenth further
        done = sum(n for status, n in hf.queue("squares").counts().items() if status == "COMPLETED")
        print(f"{done / count:4.0%}", end="\r" if sys.stdout.isatty() else "\n", flush=True)
    worker.drain()
    worker.join()
    print("sum:", sum(job.result() for job in jobs))
    hf.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)

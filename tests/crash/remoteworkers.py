"""Workers of a coordinator, as processes: forked from one that has imported everything, and heard through their pipe.

    remoteworkers.py URL COUNT LEASE_S

Prints a line for each worker (`worker PID`), for each execution that begins (`began JOB TOKEN PID`), for what its log
says of the coordinator (`log PID EVENT`) and for its end (`ended PID CODE`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys

from holdfast import Holdfast


class Heard(logging.Handler):
    """Prints what a worker says, by name."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(f"log {os.getpid()} {record.getMessage()}")


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def work(url: str, lease_s: float) -> None:
    log = logging.getLogger("holdfast.worker")
    log.addHandler(Heard())
    log.propagate = False
    hf = Holdfast(url)

    @hf.task(name="step", max_expiries=100, lease=lease_s)
    def step(n: int, linger_s: float) -> int:
        at = hf.current
        tell(f"began {at.job.job_id} {at.token} {os.getpid()}")
        at.wait_cancelled(linger_s)
        return n

    @hf.workflow(name="total")
    async def total(n: int) -> int:
        return await step.call(n, 0.0) + await step.call(n + 1, 0.0)

    hf.work(concurrency=2)


def main(url: str, count: int, lease_s: float) -> int:
    pids = []
    for _ in range(count):
        if (pid := os.fork()) == 0:
            try:
                work(url, lease_s)
            except BaseException as problem:  # noqa: BLE001 - whatever it is, it is told
                tell(f"log {os.getpid()} broken {problem!r}")
                os._exit(1)
            os._exit(0)
        pids.append(pid)
        tell(f"worker {pid}")
    # Whoever asks this one to end asks all of them.
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGTERM) for pid in pids])
    while pids:
        pid, status = os.wait()
        pids.remove(pid)
        tell(f"ended {pid} {os.waitstatus_to_exitcode(status)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))

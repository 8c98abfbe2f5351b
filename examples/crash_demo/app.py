"""A worker is killed with SIGKILL in the middle of its jobs; the next one finishes them.

    python app.py

`holdfast demo` shows the same with more workers, and proves from outside that nothing was lost.
"""

import os
import signal
import subprocess
import sys

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")


@hf.task
def paint(picture: int) -> str:
    if picture == 3 and hf.current.run_no == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # the power goes out, the kernel is out of memory, somebody trips
    return f"picture {picture}, run {hf.current.run_no}"


def main() -> None:
    jobs = paint.enqueue_many([(picture,) for picture in range(6)])  # durable when it returns
    worker = [sys.executable, "-c", "from app import hf; hf.work(concurrency=1)"]
    killed = subprocess.run(worker, check=False)
    done = sum(job.status == "COMPLETED" for job in jobs)
    print(f"the first worker ended by signal {-killed.returncode}; {done} of {len(jobs)} jobs are done")

    second = hf.worker(concurrency=1)  # takes over what the dead one held
    second.start()
    for job in jobs:
        job.wait(timeout=60)
    second.drain()
    second.join()
    for job in jobs:
        print(job.status, job.result(), [str(run.status) for run in job.runs()])
    hf.close()


if __name__ == "__main__":
    main()

"""A coordinator, two workers that know nothing but its URL, and a kill in between.

python app.py
"""

import os
import subprocess
import sys
from pathlib import Path

from holdfast import Holdfast

HOLDFAST = Path(sys.executable).with_name("holdfast")
started: list[subprocess.Popen[str]] = []
hf = Holdfast(os.environ.get("COORDINATOR", "http://127.0.0.1:8480"))  # all that tells this from a program on a file


@hf.task(lease=5)
def paint(picture: int) -> str:
    return f"picture {picture}"


def start(*command: str, says: str, **env: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command of ours; give it, and the line in which it says that it is there."""
    process = subprocess.Popen([HOLDFAST, *command], env={**os.environ, **env}, stderr=subprocess.PIPE, text=True)
    started.append(process)
    assert process.stderr is not None
    return process, next(line for line in process.stderr if says in line)


def serve(port: str = "0") -> tuple[subprocess.Popen[str], str]:
    """Start a coordinator; give it, and its URL, when it answers."""
    options = ("--store", "wal:jobs", "--port", port, "--access", "access.json")
    coordinator, line = start("serve", *options, says=" serves ")
    return coordinator, line.split()[0]


def main() -> None:
    coordinator, url = serve()
    hf.configure(url)
    options = ("--concurrency", "2")
    workers = [start("worker", "app:hf", *options, says=" works on ", COORDINATOR=url)[0] for _ in range(2)]
    jobs = paint.enqueue_many([(picture,) for picture in range(20)])  # durable over there when it returns
    jobs[0].wait(timeout=60)

    coordinator.kill()
    coordinator.communicate()
    coordinator, _ = serve(url.rpartition(":")[2])
    more = paint.enqueue(20)

    print([job.result(timeout=60) for job in (*jobs, more)][-1])
    print({str(job.status) for job in (*jobs, more)}, "attempts:", {job.refresh().attempts for job in (*jobs, more)})
    for worker in workers:
        worker.terminate()  # each gives back what it has not begun
    print("workers ended with", {worker.wait(timeout=60) for worker in workers})
    hf.close()
    coordinator.terminate()
    coordinator.communicate(timeout=60)
    print("coordinator ended with", coordinator.returncode)


if __name__ == "__main__":
    try:
        main()
    finally:
        for process in started:
            process.kill()  # whoever has ended does not mind

"""A coordinator, two workers that know nothing but its URL, and a kill in between.

python app.py
"""

import os
import subprocess
import sys
from pathlib import Path

from holdfast import Holdfast

started: list[subprocess.Popen[str]] = []
hf = Holdfast(os.environ.get("COORDINATOR", "http://127.0.0.1:8480"))  # all that tells this from a program on a file


@hf.task(lease=5)
def paint(picture: int) -> str:
    return f"picture {picture}"


def start(*command: str | Path, **env: str) -> subprocess.Popen[str]:
    started.append(subprocess.Popen(command, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True))
    return started[-1]


def serve(port: str = "0") -> tuple[subprocess.Popen[str], str]:
    """Start a coordinator; give it, and its URL, when it answers."""
    program = Path(sys.executable).with_name("holdfast")
    coordinator = start(program, "serve", "--store", "wal:jobs", "--port", port, "--access", "access.json")
    assert coordinator.stderr is not None
    return coordinator, next(line.split()[0] for line in coordinator.stderr if " serves " in line)


def main() -> None:
    coordinator, url = serve()
    hf.configure(url)
    program = "from app import hf; hf.work(concurrency=2)"
    workers = [start(sys.executable, "-c", program, COORDINATOR=url) for _ in range(2)]
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

"""A clean-up every night: each night's job enqueues the next, under an id that a second run cannot make again.

    python app.py

A night lasts a second here. Several workers, restarts and repeated runs still give one clean-up a night.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")
NIGHT = timedelta(seconds=1)
NIGHTS = 3


@hf.task
def clean_up(folder: str, at: datetime, night: int) -> int:
    plan(folder, at + NIGHT, night + 1)  # first, so that a failing clean-up does not end the chain
    old = [file for file in Path(folder).glob("*.log") if file.stat().st_mtime < at.timestamp()]
    for file in old:
        file.unlink(missing_ok=True)
    return len(old)


def plan(folder: str, at: datetime, night: int) -> None:
    """Enqueue a night's clean-up; a second call finds the first one's job."""
    if night <= NIGHTS:
        clean_up.options(id=f"clean-up-{night}", not_before=at).enqueue(folder, at, night)


if __name__ == "__main__":
    logs = Path("logs")
    logs.mkdir(exist_ok=True)
    for number in range(3):
        (logs / f"{number}.log").touch()
    now = datetime.now(UTC)  # noqa: TID251 - your own program may ask for the time
    plan(str(logs), now + timedelta(seconds=0.5), 1)
    plan(str(logs), now + timedelta(seconds=0.5), 1)  # started twice: still one chain
    worker = hf.worker()
    worker.start()
    hf.job("clean-up-1").wait(timeout=60)
    for night in range(1, NIGHTS + 1):
        print(f"night {night}: {hf.job(f'clean-up-{night}').result(timeout=60)} files removed")
    worker.drain()
    worker.join()
    print("jobs:", len(hf.jobs()))
    hf.close()

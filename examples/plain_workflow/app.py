"""A workflow without `async`: the calls block, and survive all the same.

    python app.py

The same history, the same rules. `begin` starts something that is waited for later.
"""

from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")


@hf.task
def fetch(source: str) -> list[int]:
    return [len(source), len(source) * 2]


def total(numbers: list[int]) -> int:
    return sum(numbers)


@hf.workflow
def report(sources: list[str]) -> str:
    pending = [fetch.begin(source) for source in sources]  # side by side
    numbers = [number for one in pending for number in one.result()]
    added: int = hf.step(total, numbers)  # here and now; recorded
    hf.sleep(0.01)  # a timer that survives; it may be a month
    return f"{len(sources)} sources, total {added}"


if __name__ == "__main__":
    run = report.start(["north", "south", "west"])
    worker = hf.worker()
    worker.start()
    print(run.result(timeout=60))
    worker.stop()
    worker.join()
    hf.close()

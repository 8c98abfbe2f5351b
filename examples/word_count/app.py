"""Fan out, fan in: a job for each text, side by side, and one that adds up what they found.

    python app.py

The last job is made in the commit that ends the group: exactly once, whatever is killed meanwhile.
"""

from collections import Counter

from holdfast import Holdfast
from holdfast.errors import WorkFailed

hf = Holdfast("sqlite:jobs.db")
TEXTS = {
    "one": "the quick brown fox jumps over the lazy dog",
    "two": "the dog sleeps and the fox waits",
    "three": "",
}


@hf.task(max_attempts=1)
def count(name: str) -> dict[str, int]:
    if not TEXTS[name]:
        raise ValueError(f"{name} is empty")
    return dict(Counter(TEXTS[name].split()))


@hf.task
def add_up() -> str:
    group = hf.current_group
    assert group is not None
    total: Counter[str] = Counter()
    missing = 0
    for found in group.results(return_exceptions=True):
        if isinstance(found, WorkFailed):
            missing += 1
        else:
            total.update(found)
    most = ", ".join(f"{word} {times}" for word, times in total.most_common(3))
    return f"{group.status}: {most}; {missing} text could not be read"


if __name__ == "__main__":
    end = add_up.options(id="add-up-1").job()
    group = hf.fan_out(count, [(name,) for name in TEXTS], name="word count", then=end)
    hf.work(until_idle=True)
    print(group.status, hf.job("add-up-1").result(timeout=5), sep="\n")
    hf.close()

"""The linter finds clocks, randomness, I/O and sets in workflow functions, and leaves steps alone."""

import asyncio
import random
import time
from datetime import UTC, datetime

from holdfast.workflows.api import context as hf
from holdfast.workflows.determinism.lint import lint


async def careless(names):
    started = time.time()  # noqa: TID251 - what is to be found
    if random.random() > 1:
        print(datetime.now(UTC))  # noqa: TID251 - the same
    for name in set(names):
        await asyncio.sleep(len(name))
    return [started, *[name for name in {"a", "b"}]]  # noqa: C416, PLC0208 - the same


async def careful(names):
    await hf.step(lambda: open("x").read())  # noqa: SIM115, PTH123 - never called
    await hf.step.options(name="t")(time.time)  # noqa: TID251 - the same
    for name in sorted(set(names)):
        await asyncio.sleep(len(name))
    return hf.now(), hf.random(), len(set(names))


def test_what_no_replay_repeats_is_named_with_its_line():
    found = lint(careless)
    first = careless.__code__.co_firstlineno
    lines = [int(text.split(":")[1]) - first for text in found]
    assert lines == sorted(lines)
    said = [text.split(": ", 1)[1].split("(")[0].split(" ")[0] for text in found]
    assert sorted(said) == ["datetime.now", "iterates", "iterates", "print", "random.random", "time.time"]
    assert all(__file__ in text for text in found)


def test_steps_sorted_sets_and_functions_without_source_are_left_alone():
    assert lint(careful) == []
    assert lint(len) == []

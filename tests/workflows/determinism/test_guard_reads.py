"""In tests, workflow code that reads a clock or randomness directly is told so, with the line."""

import asyncio
import gc
import logging
import os
import random
import secrets
import sysconfig
import time
import uuid
import warnings
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import WorkflowCodeError
from holdfast.workflows.api import context as hf
from holdfast.workflows.determinism.guard import Guard
from support.flows import World

READS = {
    "time.time": (time.time, "hf.now"),  # noqa: TID251 - the mistake in question
    "time.time_ns": (time.time_ns, "hf.now"),
    "time.monotonic": (time.monotonic, "hf.now"),
    "time.perf_counter": (time.perf_counter, "hf.now"),
    "time.process_time": (time.process_time, "hf.now"),
    "time.clock_gettime": (lambda: time.clock_gettime(time.CLOCK_REALTIME), "hf.now"),
    "datetime.now": (lambda: datetime.now(UTC), "hf.now"),  # noqa: TID251 - the same
    "date.today": (lambda: date.today(), "hf.now"),  # noqa: DTZ011, PLW0108 - the mistake in question
    "random.random": (random.random, "hf.random"),
    "random.choice": (lambda: random.choice([1, 2]), "hf.random"),
    "random.shuffle": (lambda: random.shuffle([1, 2]), "hf.random"),
    "random.SystemRandom": (lambda: random.SystemRandom().random(), "hf.random"),
    "secrets.token_hex": (secrets.token_hex, "hf.uuid"),
    "uuid.uuid1": (uuid.uuid1, "hf.uuid"),
    "uuid.uuid4": (uuid.uuid4, "hf.uuid"),
    "os.urandom": (lambda: os.urandom(4), "hf.uuid"),
    "open": (lambda: open(__file__), "hf.step"),  # noqa: PTH123, SIM115 - the mistake in question
    "Path.read_text": (Path(__file__).read_text, "hf.step"),
    "Path.exists": (Path(__file__).exists, "hf.step"),
    "os.listdir": (lambda: os.listdir("."), "hf.step"),  # noqa: PTH208 - the same
    "os.unlink": (lambda: os.unlink("nothing there"), "hf.step"),  # noqa: PTH108 - the same
    "input": (input, "hf.step"),
}


@pytest.mark.parametrize("name", list(READS))
def test_it_is_found_where_it_is_done(name):
    read, instead = READS[name]

    async def main() -> None:
        await asyncio.sleep(1)
        read()

    world = World(watch=True)
    with pytest.raises(WorkflowCodeError) as caught:
        world.run(world.workflow(main))
    assert caught.value.facts["type_name"] == "WorkflowNotAllowed"
    first = caught.value.message.splitlines()[0]
    assert instead in first
    assert "test_guard_reads.py:" in first


def test_what_the_runtime_gives_is_no_mistake(caplog):
    caplog.set_level(logging.INFO, "holdfast.workflow")

    def clock() -> float:
        return time.time()  # noqa: TID251 - in a step it is none

    world = World(watch=True)
    activity = world.activity(clock)

    async def main() -> int:
        hf.log.info("begun")
        async with asyncio.timeout(60):
            await asyncio.gather(activity.call(), hf.step(clock), asyncio.sleep(1))
        found = [hf.now(), hf.random(), hf.uuid(), hf.rng().random(), hf.rng().choice([1, 2])]
        return len(found)

    assert world.run(world.workflow(main)) == 5
    assert len(caplog.records) == 1


def test_what_serves_a_warning_a_log_line_or_an_import_is_no_mistake(tmp_path, monkeypatch):
    (tmp_path / "reads_a_clock.py").write_text("import time\nBEGUN = time.time()\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def main() -> int:
        import reads_a_clock  # noqa: PLC0415 - within a turn, on purpose

        logging.getLogger("mine").warning("told")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            warnings.warn("careful", stacklevel=1)
            warnings.formatwarning("careful", UserWarning, __file__, 1)
        return len(told) + bool(reads_a_clock.BEGUN)

    world = World(watch=True)
    assert world.run(world.workflow(main)) == 2


def test_what_watches_the_collection_of_garbage_is_no_mistake():
    seen = []
    watcher = exec_elsewhere("import time\ndef watcher(phase, info): seen.append(time.perf_counter())", seen)
    gc.callbacks.append(watcher)

    async def main() -> int:
        gc.collect()
        return len(seen)

    world = World(watch=True)
    try:
        assert world.run(world.workflow(main)) >= 2
    finally:
        gc.callbacks.remove(watcher)


def exec_elsewhere(source, seen):
    """Give `watcher` of a program that is a library, as the one of a test tool is."""
    names = {"seen": seen}
    exec(compile(source, sysconfig.get_path("purelib") + "/watcher.py", "exec"), names)
    return names["watcher"]


def test_all_turns_of_a_process_can_be_watched_and_only_they():
    told = []
    app = Holdfast("memory:")

    @app.task
    def clock() -> float:
        return time.time()  # noqa: TID251 - in a task it is none

    @app.workflow
    async def hasty() -> bool:
        time.time()  # noqa: TID251 - the mistake in question
        return await clock.call() > 0

    @app.workflow
    def hasty_too() -> bool:
        return uuid.uuid4().version == 4

    app.workflows.guard = Guard(on_read=lambda found: told.append(found.facts["location"]))
    try:
        runs = [hasty.start(), hasty_too.start()]
        app.work(until_idle=True)
        assert [run.result(timeout=0) for run in runs] == [True, True]
    finally:
        app.close()
    assert {place.rpartition(".")[2] for place in told} == {"hasty", "hasty_too"}
    assert all(place.startswith("test_guard_reads.py:") for place in told)

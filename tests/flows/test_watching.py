"""In tests, workflow code that reads a clock or randomness directly is told so, with the line."""

import asyncio
import logging
import os
import random
import time
import uuid
from datetime import UTC, date, datetime

import pytest

from holdfast.flows import face as hf
from holdfast.testing.flows import World

READS = {
    "time.time": (time.time, "hf.now"),  # noqa: TID251 - the mistake in question
    "time.monotonic": (time.monotonic, "hf.now"),
    "datetime.now": (lambda: datetime.now(UTC), "hf.now"),  # noqa: TID251 - the same
    "date.today": (lambda: date.today(), "hf.now"),  # noqa: DTZ011, PLW0108 - the mistake in question
    "random.random": (random.random, "hf.random"),
    "random.choice": (lambda: random.choice([1, 2]), "hf.random"),
    "uuid.uuid4": (uuid.uuid4, "hf.uuid"),
    "os.urandom": (lambda: os.urandom(4), "hf.uuid"),
}


@pytest.mark.parametrize("name", list(READS))
def test_it_is_found_where_it_is_done(name):
    read, instead = READS[name]

    async def main() -> None:
        await asyncio.sleep(1)
        read()

    world = World(watch=True)
    details = world.run(world.workflow(main))
    assert details.type_name == "holdfast.errors.WorkflowNotAllowed"
    assert instead in details.message


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

"""The catalogue of asyncio programs on real stores: all of them at once in one world, under faults of our choice."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from asyncioprograms import PROGRAMS, STUBS

from holdfast.model.workitems import QueueMessage
from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.faults import Fault, What
from holdfast.testing.crashsafe.faulty import FaultyWorld
from holdfast.testing.crashsafe.grounds import ground_for
from holdfast.testing.crashsafe.judging import demand_replay, demand_rules

CAST = Cast(*(program.workflow for program in PROGRAMS), stubs=STUBS)
#: Moves after which a world is taken to go round in circles.
MOST = 50_000


def prove(store: str, plan: Iterable[Fault]) -> FaultyWorld:
    """Run every program as an instance of its own; each must come to its result, and what was kept must be sound."""
    ground = ground_for(store)()
    try:
        world = FaultyWorld(CAST, tuple(plan), ground=ground)
        for program in PROGRAMS:
            world.start(program.workflow, instance=program.name)
            for name, data in program.signals:
                world.post(QueueMessage(instance=program.name, name=name, data=msgspec.json.encode(data).decode()))
        world.drive(MOST)
        for program in PROGRAMS:
            outcome = world.outcome(program.name)
            assert outcome.output is not None, f"{program.name}: {outcome}"
            assert msgspec.json.decode(outcome.output) == program.result, program.name
        for recorded in world.recorded():
            demand_rules(recorded.events)
            demand_replay(CAST.definitions, recorded)
        world.demand_sound()
    finally:
        ground.clear()
    return world


def crashes(when: What, first: int, every: int, last: int) -> list[Fault]:
    return [Fault(when, number) for number in range(first, last, every)]


def in_order(seed: int) -> Fault:
    return Fault(What.OTHER_ORDER, seed)

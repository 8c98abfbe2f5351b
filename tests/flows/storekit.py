"""Workflows on real stores under faults of our choice: the catalogue of programs, all in one world, or any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from asyncioprograms import PROGRAMS, STUBS

from holdfast.model.workitems import QueueMessage
from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.faults import Fault, What
from holdfast.testing.crashsafe.faulty import INSTANCE, FaultyWorld
from holdfast.testing.crashsafe.grounds import ground_for
from holdfast.testing.crashsafe.judging import demand_replay, demand_rules

CAST = Cast(*(program.workflow for program in PROGRAMS), stubs=STUBS)
#: Moves after which a world is taken to go round in circles.
MOST = 50_000


def prove(store: str, plan: Iterable[Fault]) -> FaultyWorld:
    """Run every program as an instance of its own; each must come to its result, and what was kept must be sound."""

    def begin(world: FaultyWorld) -> None:
        for program in PROGRAMS:
            world.start(program.workflow, instance=program.name)
            for name, data in program.signals:
                signal(world, name, data, program.name)

    world, results = run_on(store, CAST, plan, begin, [program.name for program in PROGRAMS])
    assert results == {program.name: program.result for program in PROGRAMS}
    return world


def run_on(
    store: str,
    cast: Cast,
    plan: Iterable[Fault],
    begin: Callable[[FaultyWorld], None],
    instances: Sequence[str] = (INSTANCE,),
) -> tuple[FaultyWorld, dict[str, Any]]:
    """Run what `begin` starts to its end; give what the instances returned. Everything that was kept must be sound."""
    ground = ground_for(store)()
    try:
        world = FaultyWorld(cast, tuple(plan), ground=ground)
        begin(world)
        world.drive(MOST)
        results = {}
        for instance in instances:
            outcome = world.outcome(instance)
            assert outcome.output is not None, f"{instance}: {outcome}"
            results[instance] = msgspec.json.decode(outcome.output)
        for recorded in world.recorded():
            demand_rules(recorded.events)
            demand_replay(cast.definitions, recorded)
        world.demand_sound()
    finally:
        ground.clear()
    return world, results


def signal(world: FaultyWorld, name: str, data: Any, instance: str = INSTANCE) -> None:
    """Have a signal sent as soon as its turn comes."""
    world.post(QueueMessage(instance=instance, name=name, data=msgspec.json.encode(data).decode()))


def crashes(when: What, first: int, every: int, last: int) -> list[Fault]:
    return [Fault(when, number) for number in range(first, last, every)]


def in_order(seed: int) -> Fault:
    return Fault(What.OTHER_ORDER, seed)

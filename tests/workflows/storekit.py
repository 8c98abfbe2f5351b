"""Workflows on real stores under faults of our choice: programs of the catalogue, together or alone, or any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import msgspec
from asyncioprograms import PROGRAMS, STUBS, Program

from holdfast.clock import Clock
from holdfast.model.workflows.work_items import QueueMessage
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.faults import Fault, What
from holdfast.testing.crashsafe.faulty import INSTANCE, FaultyWorld
from holdfast.testing.crashsafe.grounds import Ground, ground_for
from holdfast.testing.crashsafe.judging import demand_replay, demand_rules

CAST = Cast(*(program.workflow for program in PROGRAMS), stubs=STUBS)
#: Moves after which a world is taken to go round in circles.
MOST = 50_000


class Outliving:
    """A ground whose store outlives processes, as a server's does; only every so many crashes take it with them."""

    def __init__(self, ground: Ground, every: int, already: int) -> None:
        self._ground, self._every, self._crashes = ground, every, already
        self._store: Store | None = None
        #: How often a crash took the store too, so that it was opened from what it had made durable.
        self.reopened = 0

    def open(self, clock: Clock) -> Store:
        self._store = self._store or self._ground.open(clock)
        return self._store

    def crash(self) -> None:
        self._crashes += 1
        if self._crashes % self._every == 0:
            self._ground.crash()
            self._store = None
            self.reopened += 1
        elif isinstance(self._store, SqliteStore):
            self._store.sessions.close()  # as the kernel does for a process that dies

    def clear(self) -> None:
        self._ground.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.clear()


def prove(store: str | Ground, plan: Iterable[Fault], programs: Sequence[Program] = PROGRAMS) -> FaultyWorld:
    """Run programs as instances side by side; each must come to its result, and what was kept must be sound."""

    def begin(world: FaultyWorld) -> None:
        for program in programs:
            world.start(program.workflow, instance=program.name)
            for name, data in program.signals:
                signal(world, name, data, program.name)

    world, results = run_on(store, CAST, plan, begin, [program.name for program in programs])
    assert results == {program.name: program.result for program in programs}
    return world


def run_on(
    store: str | Ground,
    cast: Cast,
    plan: Iterable[Fault],
    begin: Callable[[FaultyWorld], None],
    instances: Sequence[str] = (INSTANCE,),
) -> tuple[FaultyWorld, dict[str, Any]]:
    """Run what `begin` starts to its end; give what the instances returned. Everything that was kept must be sound.

    A ground that is given is left as it is, to be looked at.
    """
    ground = ground_for(store)() if isinstance(store, str) else store
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
        if isinstance(store, str):
            ground.clear()
    return world, results


def signal(world: FaultyWorld, name: str, data: Any, instance: str = INSTANCE) -> None:
    """Have a signal sent as soon as its turn comes."""
    world.post(QueueMessage(instance=instance, name=name, data=msgspec.json.encode(data).decode()))


def crashes(when: What, first: int, every: int, last: int) -> list[Fault]:
    return [Fault(when, number) for number in range(first, last, every)]


def in_order(seed: int) -> Fault:
    return Fault(What.OTHER_ORDER, seed)

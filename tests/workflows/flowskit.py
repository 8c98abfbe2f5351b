"""How a workflow is shown to come out alike: in many orders, resident or replayed, crashed at every commit."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event
from holdfast.workflows.api.workflow import Workflow
from holdfast.workflows.runtime.execution import Execution
from support.flows import World

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
#: Orders of completion that a program is tried in, if it has as many, and how many it is replayed in at every turn.
ORDERS = 1000
REPLAYED = 200 if SOAK else 20

#: Choice → the choices behind it.
_Choices = dict[int, "_Choices"]

#: Registers what it needs in a world, and gives the workflow to start.
Build = Callable[[World], Workflow[..., Any]]


class Untried:
    """The choices of worlds, at random, but never the same series twice; and it knows when there is no other."""

    def __init__(self) -> None:
        self._chance = random.Random(0)
        #: What can be chosen first, and behind each choice what next; a choice with nothing untried behind it is gone.
        self._first: _Choices = {}
        #: The series so far: what there was to choose from, and what was chosen.
        self._series: list[tuple[_Choices, int]] = []

    def randrange(self, wide: int) -> int:
        choices = self._series[-1][0][self._series[-1][1]] if self._series else self._first
        if not choices:
            choices.update((choice, {}) for choice in range(wide))
        chosen = self._chance.choice(list(choices))
        self._series.append((choices, chosen))
        return chosen

    def randint(self, least: int, most: int) -> int:
        return least + self.randrange(most - least + 1)

    def end(self) -> bool:
        """End a series, and tell whether there is another."""
        left = False
        while self._series and not left:
            choices, chosen = self._series.pop()
            del choices[chosen]
            left = bool(choices)
        self._series.clear()
        return left


def run(build: Build, seed: int = 0, choices: Untried | None = None, **options: Any) -> World:
    world = World(seed, **options)
    if choices is not None:
        world._rng = choices  # type: ignore[assignment]  # all that a world asks of chance
    workflow = build(world)
    world.start(workflow)
    stage(world)
    world.settle()
    return world


def stage(world: World) -> None:
    """Send what a build has left to be sent from outside."""
    for send in getattr(world, "from_outside", ()):
        send()


def assert_alike(build: Build, orders: int = ORDERS) -> None:
    """One result in every order; the same events whether resident or replayed at every turn; crashes change nothing.

    If there are more orders than are asked for, they are drawn at random, and no two of them are alike.
    """
    expected = run(build).result()
    choices = Untried()
    for number in range(orders):
        assert run(build, choices=choices).result() == expected, f"order {number}"
        if not choices.end():
            break
    for seed in range(min(orders, REPLAYED)):
        resident, replayed = run(build, seed), run(build, seed, sticky=False)
        assert events(replayed) == events(resident), f"seed {seed}"
        assert replayed.commit_log == resident.commit_log, f"seed {seed}"
    assert_crash_safe(build, expected)
    assert_every_prefix_agrees(build, resident)


def assert_crash_safe(build: Build, expected: Any, seed: int = 0) -> None:
    for number in range(run(build, seed).commits):
        for when in ("before", "after"):
            for sticky in (True, False):
                crashed = run(build, seed, sticky=sticky, crashes=[(number, when)])
                assert crashed.result() == expected, f"crash {when} commit {number}"


def assert_every_prefix_agrees(build: Build, world: World) -> None:
    """Cut a history anywhere: the code gives exactly the commands that were recorded next."""
    for instance, row in world.rows.items():
        for execution_id, history in row.histories.items():
            replay_prefixes(build, instance, execution_id, history)


def replay_prefixes(build: Build, instance: str, execution_id: int, history: Sequence[Event]) -> None:
    for cut in range(1, len(history)):
        execution = replayed(build, instance, execution_id, history[:cut])
        assert execution.blocked is None, execution.blocked
        given = [(event.kind, event.source_event_id) for event in execution.outbox.events]
        following = [(event.kind, event.source_event_id) for event in history[cut : cut + len(given)]]
        assert given == following, f"after event {cut}"
        execution.close()


def replayed(build: Build, instance: str, execution_id: int, history: Sequence[Event]) -> Execution:
    world = World()
    build(world)
    started = history[0].kind
    assert isinstance(started, event_kinds.OrchestrationStarted)
    definition = world.definitions.get(started.name, started.version)
    assert definition is not None
    execution = Execution(definition, world.definitions, instance, execution_id, {})
    execution.replay(history, is_copy=True)
    return execution


def events(world: World) -> dict[tuple[str, int], list[Event]]:
    return {
        (instance, execution_id): history
        for instance, row in world.rows.items()
        for execution_id, history in row.histories.items()
    }


def kinds_of(history: Sequence[Event]) -> list[str]:
    return [type(event.kind).__name__ for event in history]

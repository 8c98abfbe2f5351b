"""The runs, one after the other, and the report on the first that fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import InvalidValue
from holdfast.flows.matching import describe_event
from holdfast.flows.watching import watching
from holdfast.flows.workflows import Workflow
from holdfast.testing.crashsafe.cast import Cast, Stubs
from holdfast.testing.crashsafe.faults import Plan, Size, What, fewest, plan_of
from holdfast.testing.crashsafe.faulty import INSTANCE, FaultyWorld, Signal
from holdfast.testing.crashsafe.judging import Broken, Outcome, Recorded, demand_replay, demand_rules
from holdfast.testing.crashsafe.rehashing import Place, place_of, replay_elsewhere

#: Moves of the run without faults; others may take MORE times as many, and SPARE beyond.
MOST_MOVES, MORE, SPARE = 100_000, 5, 60
#: Events of a history that a report shows at its end.
SHOWN = 60

Check = Callable[[FaultyWorld], object]


def assert_crash_safe(
    workflow: Workflow[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    seeds: int = 100,
    signals: Sequence[Signal] = (),
    stubs: Stubs | None = None,
    check: Check | None = None,
    outcomes: Iterable[Any] | None = None,
    store: str = "memory:",
    seed: int | None = None,
) -> None:
    """Show that a workflow comes to the same end whatever goes wrong; raise AssertionError with a report if not.

    One run without faults; for each of its commits one that crashes just before and one just after; `seeds` more that
    mix crashes, messages and activities that come twice, other orders, clock jumps, replays at every turn and under
    other hash seeds. Each must end as the first did, or in one of `outcomes` (values, or classes of exceptions).

    `signals` are `(name, data)`, or `(name, data, seconds after the start)`. `stubs` are functions by the name of the
    activity they stand for; a function that gives them is called before each run. `check(world)` is called after each:
    `world.calls` are all executions of activities and steps. With `seed`, only that run is done.

    Raises InvalidValue for a store other than `memory:`, UnknownTask for an activity without function.
    """
    if store != "memory:":
        raise InvalidValue(
            f"store: {store!r}: runs are made in memory only. Nothing was run.", hint="Leave it out.", field="store"
        )
    allowed = None if outcomes is None else tuple(outcomes)
    trial = Trial(workflow, args, dict(kwargs or {}), tuple(signals), stubs, check, allowed)
    trial.first()
    if seed is not None:
        trial.prove([seed])
    else:
        trial.prove(range(1, trial.size.systematic + seeds + 1))
    for warning in trial.warnings:
        warnings.warn(warning, stacklevel=2)


class Trial:
    """All runs of one workflow with one input."""

    def __init__(  # noqa: PLR0917 - the arguments of `assert_crash_safe`, in their order
        self,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        signals: tuple[Signal, ...],
        stubs: Stubs | None,
        check: Check | None,
        outcomes: tuple[Any, ...] | None,
    ) -> None:
        self._cast = Cast(workflow, stubs)
        self._args, self._kwargs = args, kwargs
        self._signals = signals
        self._check = check
        self._outcomes = outcomes
        self._place: Place | None = place_of(workflow)
        self.size = Size(commits=0, messages=0, activities=0, moves=0)
        self._expected: Outcome | None = None
        #: Code that reads a clock or randomness, by line.
        self._reads: dict[str, None] = {}
        self._world: FaultyWorld | None = None

    @property
    def warnings(self) -> list[str]:
        """What should be known though every run ended well."""
        said = list(self._reads)
        if self._place is None:
            name = self._cast.workflow.name
            said.append(f"workflow {name!r} is no variable of its module: not replayed under other hash seeds")
        return said

    def first(self) -> None:
        """Run without faults: the outcome that others are held to, and where faults can strike."""
        with watching(lambda found: self._reads.setdefault(str(found))):
            broken = self._broken(())
        if broken is not None:
            raise AssertionError(self._report(0, broken, ()))
        assert self._world is not None
        self.size = self._world.size()
        self._expected = self._world.outcome()

    def prove(self, numbers: Iterable[int]) -> None:
        """Do these runs. Raises AssertionError with the report on the first that fails."""
        by_hash: dict[int, dict[bytes, int]] = {}
        for number in numbers:
            plan = plan_of(number, self.size)
            broken = self._broken(plan)
            if broken is not None:
                raise AssertionError(self._shrunk(number, plan, broken))
            hash_seed = _hash_seed(plan)
            if hash_seed is not None and self._world is not None:
                known = by_hash.setdefault(hash_seed, {})
                for recorded in self._world.recorded():
                    known.setdefault(msgspec.json.encode(recorded), number)
        for hash_seed, histories in by_hash.items():
            self._prove_hashes(hash_seed, histories)

    def _prove_hashes(self, hash_seed: int, histories: dict[bytes, int]) -> None:
        if self._place is None:
            return
        decode = msgspec.json.Decoder(Recorded).decode
        verdicts = replay_elsewhere(self._place, hash_seed, [decode(text) for text in histories])
        if verdicts:
            number = list(histories.values())[verdicts[0].at]
            plan = plan_of(number, self.size)
            raise AssertionError(self._shrunk(number, plan, Broken(verdicts[0].kind, verdicts[0].text)))

    # --- one run ------------------------------------------------------------------------------------------------------

    def _broken(self, plan: Plan, *, elsewhere: bool = False) -> Broken | None:
        """Run under a plan, and give what it broke; with `elsewhere` in another process, too."""
        self._world = world = FaultyWorld(self._cast, plan, self._signals)
        try:
            world.start(self._cast.workflow, *self._args, **self._kwargs)
            world.drive(MOST_MOVES if self._expected is None else MORE * self.size.moves + SPARE)
            self._judge(world)
            hash_seed = _hash_seed(plan)
            if elsewhere and hash_seed is not None and self._place is not None:
                for verdict in replay_elsewhere(self._place, hash_seed, world.recorded()):
                    return Broken(verdict.kind, verdict.text)
        except Broken as broken:
            return broken
        return None

    def _judge(self, world: FaultyWorld) -> None:
        ended = world.outcome()
        for recorded in world.recorded():
            demand_rules(recorded.events)
            demand_replay(self._cast.definitions, recorded)
        if self._outcomes is not None:
            if not ended.is_one_of(self._outcomes):
                raise Broken("ends otherwise", f"it {ended}, which is none of the outcomes given")
        elif self._expected is not None and ended != self._expected:
            raise Broken("ends otherwise", f"it {ended}; without faults it {self._expected}")
        if self._check is not None:
            try:
                self._check(world)
            except Exception as problem:
                raise Broken("check failed", f"check: {type(problem).__name__}: {problem}") from problem

    # --- the report ---------------------------------------------------------------------------------------------------

    def _shrunk(self, number: int, plan: Plan, broken: Broken) -> str:
        def still_fails(fewer: Plan) -> bool:
            found = self._broken(fewer, elsewhere=True)
            return found is not None and found.kind == broken.kind

        least = fewest(plan, still_fails)
        again = self._broken(least, elsewhere=True)
        return self._report(number, again or broken, least, plan)

    def _report(self, number: int, broken: Broken, least: Plan, plan: Plan = ()) -> str:
        workflow = self._cast.workflow
        lines = [f"workflow {workflow.name!r} {workflow.version} is not crash-safe: {broken.kind}", f"  {broken.text}"]
        lines.append(f"seed {number}: {_worded(plan)}")
        if least != plan:
            lines.append(f"fewest faults that still fail: {_worded(least)}")
        if not least and number:
            lines.append("It fails without any fault when run again: it depends on something outside of its history.")
        lines += [f"note: {found}" for found in self._reads]
        lines += self._history()
        given = "".join(
            [f", args={self._args!r}" if self._args else "", f", kwargs={self._kwargs!r}" if self._kwargs else ""]
        )
        others = any((self._signals, self._check, self._outcomes))
        rest = ", …" if others else ""
        lines.append(
            f"repeat it: assert_crash_safe({workflow.definition.function.__name__}{given}{rest}, seed={number})"
        )
        return "\n".join(lines)

    def _history(self) -> list[str]:
        row = None if self._world is None else self._world.rows.get(INSTANCE)
        if row is None or not row.histories:
            return ["history: nothing was recorded"]
        events = row.histories[row.execution_id]
        cut = [f"  … {len(events) - SHOWN} events"] if len(events) > SHOWN else []
        shown = [f"  {event.event_id:>4}  {describe_event(event)}" for event in events[-SHOWN:]]
        return [f"history, execution {row.execution_id}:", *cut, *shown]


def _hash_seed(plan: Plan) -> int | None:
    return next((fault.at for fault in plan if fault.what is What.OTHER_HASHES), None)


def _worded(plan: Plan) -> str:
    return "; ".join(map(str, plan)) or "no faults"

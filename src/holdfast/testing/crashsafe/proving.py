"""The runs, one after the other, and the report on the first that fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.model.workflows.history import Event
from holdfast.testing.crashsafe.cast import Cast, Stubs
from holdfast.testing.crashsafe.faults import Plan, Size, What, fewest, plan_of
from holdfast.testing.crashsafe.faulty import FaultyWorld, Signal
from holdfast.testing.crashsafe.grounds import ground_for
from holdfast.testing.crashsafe.judging import Broken, Outcome, Recorded, demand_replay, demand_rules
from holdfast.testing.crashsafe.rehashing import Place, place_of, refuse_in_replay, replay_elsewhere
from holdfast.workflows.api.workflow import Workflow
from holdfast.workflows.determinism.guard import Guard
from holdfast.workflows.determinism.history_match import describe_event

#: Moves of the run without faults; others may take MORE times as many, and SPARE beyond.
MOST_MOVES, MORE, SPARE = 100_000, 5, 60
#: Events of a history that a report shows at its end.
SHOWN = 60
DEFAULT_STORE = "memory:"
NOTHING = Size(commits=0, messages=0, activities=0, moves=0)

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
    store: str = DEFAULT_STORE,
    seed: int | None = None,
) -> None:
    """Show that a workflow comes to the same end whatever goes wrong; raise AssertionError with a report if not.

    One run without faults; for each of its commits one that crashes just before and one just after; `seeds` more that
    mix crashes, messages and activities that come twice, other orders, clock jumps, replays at every turn and under
    other hash seeds. Each must end as the first did, or in one of `outcomes` (values, or classes of exceptions).

    `signals` are `(name, data)`, or `(name, data, seconds after the start)`. `stubs` are functions by the name of the
    activity they stand for; a function that gives them is called before each run. `check(world)` is called after each:
    `world.calls` are all executions of activities and steps. With `seed`, only that run is done.

    Each run has a `store` of its own, of the kind named (`memory:`, `sqlite:`, `wal:`, `dir:`), which goes with it. A
    crash loses all that this store had not made durable.

    Raises InvalidValue for another store, UnknownTask for an activity without function, InvalidOperation if the
    workflow's module calls this when it is imported.
    """
    refuse_in_replay()
    allowed = None if outcomes is None else tuple(outcomes)
    trial = Trial(workflow, args, dict(kwargs or {}), tuple(signals), stubs, check, allowed, store)
    trial.first()
    if seed is not None:
        trial.prove([seed])
    else:
        trial.prove(range(1, trial.size.systematic + seeds + 1))
    for warning in trial.warnings:
        warnings.warn(warning, stacklevel=2)


@dataclass
class Left:
    """What is known of a run when its store is gone."""

    size: Size = NOTHING
    outcome: Outcome | None = None
    #: All executions of all instances.
    recorded: list[Recorded] = field(default_factory=list)
    #: Of the instance under test.
    history: list[Event] = field(default_factory=list)


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
        store: str,
    ) -> None:
        self._cast = Cast(workflow, stubs=stubs)
        self._store = store
        self._ground = ground_for(store)
        self._args, self._kwargs = args, kwargs
        self._signals, self._stubs = signals, stubs
        self._check = check
        self._outcomes = outcomes
        self._place: Place | None = place_of(workflow)
        self.size = NOTHING
        self._expected: Outcome | None = None
        #: Code that reads a clock or randomness, by line.
        self._reads: dict[str, None] = {}
        self._left = Left()

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
        guard = Guard(on_read=lambda found: self._reads.setdefault(str(found)))
        broken = self._broken((), guard=guard)
        if broken is not None:
            raise AssertionError(self._report(0, broken, ()))
        self.size, self._expected = self._left.size, self._left.outcome

    def prove(self, numbers: Iterable[int]) -> None:
        """Do these runs. Raises AssertionError with the report on the first that fails."""
        by_hash: dict[int, dict[bytes, int]] = {}
        for number in numbers:
            plan = plan_of(number, self.size)
            broken = self._broken(plan)
            if broken is not None:
                raise AssertionError(self._shrunk(number, plan, broken))
            hash_seed = _hash_seed(plan)
            if hash_seed is not None:
                known = by_hash.setdefault(hash_seed, {})
                for recorded in self._left.recorded:
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

    def _broken(self, plan: Plan, *, elsewhere: bool = False, guard: Guard | None = None) -> Broken | None:
        """Run guarded under a plan, and return what it broke; with `elsewhere` in another process, too."""
        ground = self._ground()
        try:
            with self._cast.definitions.guarded_by(guard or Guard()):
                self._run(FaultyWorld(self._cast, plan, self._signals, ground))
            hash_seed = _hash_seed(plan)
            if elsewhere and hash_seed is not None and self._place is not None:
                for verdict in replay_elsewhere(self._place, hash_seed, self._left.recorded):
                    return Broken(verdict.kind, verdict.text)
        except Broken as broken:
            return broken
        finally:
            ground.clear()
        return None

    def _run(self, world: FaultyWorld) -> None:
        self._left = left = Left()
        world.start(self._cast.workflow, *self._args, **self._kwargs)
        try:
            world.drive(MOST_MOVES if self._expected is None else MORE * self.size.moves + SPARE)
        finally:
            left.size, left.recorded, left.history = world.size(), world.recorded(), world.history()
        left.outcome = world.outcome()
        self._judge(world, left.outcome)

    def _judge(self, world: FaultyWorld, ended: Outcome) -> None:
        world.demand_sound()
        for recorded in self._left.recorded:
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
        lines.append(
            f"repeat it: assert_crash_safe({workflow.definition.function.__name__}{self._given()}, seed={number})"
        )
        return "\n".join(lines)

    def _given(self) -> str:
        """Write the arguments that make this trial; functions are for the reader to put in."""
        values = {"args": self._args, "kwargs": self._kwargs, "signals": list(self._signals)}
        written = [f"{name}={value!r}" for name, value in values.items() if value]
        if self._outcomes is not None:
            names = [one.__name__ if isinstance(one, type) else repr(one) for one in self._outcomes]
            written.append(f"outcomes=[{', '.join(names)}]")
        written += [
            f"{name}=…" for name, there in (("stubs", self._stubs), ("check", self._check)) if there is not None
        ]
        if self._store != DEFAULT_STORE:
            written.append(f"store={self._store!r}")
        return "".join(f", {one}" for one in written)

    def _history(self) -> list[str]:
        events = self._left.history
        if not events:
            return ["history: nothing was recorded"]
        cut = [f"  … {len(events) - SHOWN} events"] if len(events) > SHOWN else []
        shown = [f"  {event.event_id:>4}  {describe_event(event)}" for event in events[-SHOWN:]]
        return [f"history, execution {events[0].execution_id}:", *cut, *shown]


def _hash_seed(plan: Plan) -> int | None:
    return next((fault.at for fault in plan if fault.what is What.OTHER_HASHES), None)


def _worded(plan: Plan) -> str:
    return "; ".join(map(str, plan)) or "no faults"

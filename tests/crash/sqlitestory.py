"""A life of a `sqlite:` store for the crash tests, and the oracle that judges what is left of it.

The life is a list of steps, each one transaction or none, with fixed ids, times and chance. Run once on `memory:` it
gives the state after each step. Whatever happens to the SQLite store, what is found afterwards must be one of these
states, whole: not before the last step that was acknowledged, not behind the one that was under way.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import pytest

from holdfast.engine import Engine, engine
from holdfast.errors import InvalidValue, StoreError, StoreFailed, StoreFull
from holdfast.model.commands import (
    ArchiveTemplate,
    Backfill,
    Cancel,
    CancelGroup,
    Command,
    Complete,
    CreateGroup,
    DeleteSchedule,
    DeleteTemplate,
    Enqueue,
    Expire,
    Extend,
    Fail,
    Fire,
    Lease,
    Move,
    NewJob,
    PauseQueue,
    PauseSchedule,
    Prune,
    PutSchedule,
    PutTemplate,
    Release,
    ResumeSchedule,
    Retention,
    Trigger,
    Update,
    UpdateSchedule,
    UseTemplate,
)
from holdfast.model.events import JobChanges
from holdfast.model.jobs import KeyHold, RetryMode
from holdfast.model.outcomes import Grant, Leased, Outcome, Refusal
from holdfast.model.records import TABLES, Record
from holdfast.model.schedules import NewSchedule, ScheduleChanges
from holdfast.model.templates import JobOptions, NewTemplate
from holdfast.model.times import later, stamp
from holdfast.rules.invariants import violations
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import START, ManualClock
from holdfast.testing.conformance.harness import Told, tables_of, told
from support.simvfs import SimVfs

DATABASE = "jobs.db"
DAY = 86_400.0


class Step(NamedTuple):
    """What a client does at one time."""

    #: Seconds since the beginning.
    at: float
    #: Sent together: one commit.
    commands: tuple[Command, ...] = ()
    does: Literal["send", "trim", "snapshot", "reopen", "look", "linger", "go on"] = "send"


class State(NamedTuple):
    """Everything a store shows; the feed from its oldest event on."""

    tables: dict[str, list[Record]]
    #: Numbers of the last event, and of the last one that was trimmed.
    seq: int
    trimmed: int
    feed: list[Told]


# --- the life ---------------------------------------------------------------------------------------------------------


def new(job_id: str, size: int = 0, **options) -> NewJob:
    params = msgspec.Raw(msgspec.json.encode({"pad": "x" * size} if size else {}))
    return NewJob(job_id=job_id, job_type="work", params=params, **options)


def life() -> Generator[Step, list[Outcome], None]:
    """Jobs of every kind, from their beginning to their removal; each step is sent the outcomes of the model."""
    yield Step(
        0,
        (
            Enqueue(
                cmd="e1",
                jobs=(
                    new("a1", retry_mode=RetryMode.CHAIN, max_attempts=3),
                    new("a2", priority=5),
                    new("a3", key="k3", key_hold=KeyHold.ACTIVE),
                    new("a4", 70_000),  # larger than a record: a blob, put before the commit that names it
                ),
            ),
        ),
    )
    yield Step(
        1,
        (
            Enqueue(cmd="e2", jobs=(new("b1"),)),
            Enqueue(cmd="e3", jobs=(new("b2", delay_s=20),)),
            Cancel(cmd="c1", job_id="a4", reason="no longer wanted"),
            PauseQueue(cmd="p1", queue="slow", reason="full"),
        ),
    )
    a2, a1, a3 = granted((yield Step(2, (Lease(cmd="l1", worker_id="w1", n=3),))))
    yield Step(3, (Complete(job_id=a2.job.job_id, token=a2.token, result=msgspec.Raw(b'{"ok":true}')),))
    yield Step(
        3, (Fail(job_id=a1.job.job_id, token=a1.token, error="boom"), Extend(job_id=a3.job.job_id, token=a3.token))
    )
    yield Step(4, does="snapshot")
    yield Step(5, (Fail(job_id=a3.job.job_id, token=a3.token, error="boom"), Update(**edit("b1", priority=3))))
    yield Step(6, does="linger")
    yield Step(7, tuple(Enqueue(cmd=f"f{n}", jobs=(new(f"c{n}", 3000),)) for n in range(3)))
    b1, c0 = granted((yield Step(8, (Lease(cmd="l2", worker_id="w2", n=2),))))
    yield Step(9, (Release(cmd="r1", job_id=c0.job.job_id, token=c0.token, begun=True), Move(**move("c2"))))
    # Its jobs wait in a queue that is paused: the second fire meets the first one's job.
    yield Step(10, (template("t", queue="slow"), schedule("s", template_id="t"), schedule("once", job_type="work")))
    # A group whose second member waits, is cancelled with the third, and makes room for the callback.
    members = tuple(new(f"g{n}", queue="grouped", retry_mode=RetryMode.CHAIN) for n in range(3))
    make = CreateGroup(cmd="g", group_id="g", members=members, callback=new("called", queue="grouped"))
    (g0,) = granted((yield Step(10, (make, grouped("l5"))))[-1:])
    ends = (Complete(job_id="g0", token=g0.token), CancelGroup(cmd="cg", group_id="g", reason="enough"))
    (called,) = granted((yield Step(10, (*ends, grouped("l6"))))[-1:])
    yield Step(10, (Complete(job_id=called.job.job_id, token=called.token),))
    yield Step(9, does="look")
    yield Step(9, does="go on")
    # b1's lease lapses; what was delayed comes back. The schedule is due twice, a little late, and made up for.
    yield Step(70, (Expire(), fire("s", 30), fire("s", 50), backfill("s", 10, 70)))
    grants = granted((yield Step(71, (Lease(cmd="l3", worker_id="w1", n=20),))))
    assert {"a3", "b1", "b2"} < {grant.job.job_id for grant in grants}, "the life has changed"
    assert b1.token < grants[0].token
    yield Step(72, tuple(Complete(job_id=grant.job.job_id, token=grant.token) for grant in grants))
    yield Step(73, does="reopen")
    yield Step(
        10 * DAY,
        (
            Prune(retention=Retention(done_s=DAY, failed_s=20 * DAY)),
            fire("s", 70),  # days of fires were missed
            Trigger(schedule_id="s", job_id="s-now"),
            UseTemplate(template_id="t", job_id="t-now"),
            UpdateSchedule(cmd="us", schedule_id="once", changes=ScheduleChanges(name="hourly", interval_s=3600)),
        ),
    )
    yield Step(10 * DAY, does="trim")
    yield Step(10 * DAY, (Enqueue(cmd="e9", jobs=(new("z1", 5000, key="k3"),)),))
    yield Step(10 * DAY, does="snapshot")
    (z1,) = granted((yield Step(10 * DAY + 1, (Lease(cmd="l4", worker_id="w1", n=1),))))
    yield Step(
        10 * DAY + 2,
        (
            Complete(job_id=z1.job.job_id, token=z1.token),
            ArchiveTemplate(cmd="at", template_id="t"),  # pauses its schedule
            DeleteSchedule(cmd="ds", schedule_id="s"),
            DeleteTemplate(cmd="dt", template_id="t"),
            PauseSchedule(cmd="ps", schedule_id="once", reason="enough"),
            ResumeSchedule(cmd="rs", schedule_id="once"),
        ),
    )
    yield Step(10 * DAY + 3, does="reopen")


def grouped(cmd: str) -> Lease:
    return Lease(cmd=cmd, worker_id="w1", n=5, queues=("grouped",))


def template(name: str, **options) -> PutTemplate:
    content = NewTemplate(name=name, job_type="work", options=JobOptions(**options))
    return PutTemplate(template_id=name, template=content)


def schedule(name: str, **target) -> PutSchedule:
    """Every twenty seconds."""
    return PutSchedule(schedule_id=name, schedule=NewSchedule(name=name, interval_s=20, **target))


def fire(schedule_id: str, at: float) -> Fire:
    return Fire(schedule_id=schedule_id, expected=later(stamp(START), at))


def backfill(schedule_id: str, since: float, until: float) -> Backfill:
    times = (later(stamp(START), since), later(stamp(START), until))
    return Backfill(schedule_id=schedule_id, backfill_id="b", since=times[0], until=times[1])


def edit(job_id: str, **changes) -> dict:
    return {"cmd": f"u-{job_id}", "job_id": job_id, "changes": JobChanges(**changes)}


def move(job_id: str) -> dict:
    return {"cmd": f"m-{job_id}", "job_id": job_id, "to": "first"}


def granted(outcomes: list[Outcome]) -> tuple[Grant, ...]:
    (outcome,) = outcomes
    assert isinstance(outcome, Leased)
    return outcome.grants


# --- running it -------------------------------------------------------------------------------------------------------


class Client:
    """An engine on a store, with time and chance set anew for each step: a step sent again decides the same."""

    def __init__(self, store: Store) -> None:
        self.clock = ManualClock()
        self.engine = Engine(store, clock=self.clock)

    def take(self, at: int, step: Step) -> list[Outcome]:
        self.clock.set_wall(START + timedelta(seconds=step.at))
        with fixed_chance(at):
            if step.does == "trim":
                self.engine.store.trim(later(stamp(START), step.at - DAY), 1000)
            elif step.does == "snapshot":
                self.engine.store.snapshot()
            elif step.does == "look":
                with self.engine.read() as view:
                    assert list(tables_of(view)) == list(TABLES)
            elif step.commands:
                outcomes = self.engine.submit_many(step.commands)
                refused = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
                assert not refused, refused
                return outcomes
        return []


@contextmanager
def fixed_chance(at: int) -> Iterator[None]:
    drawn = itertools.count(at * 1_000_003 + 1)
    before, engine._seed = engine._seed, lambda: next(drawn)
    try:
        yield
    finally:
        engine._seed = before


def rehearsed() -> tuple[list[Step], list[State]]:
    """Run the life on `memory:`; gives its steps, and the state before the first and after each."""
    client = Client(MemoryStore())
    steps: list[Step] = []
    states = [sound_state_of(client.engine.store)]
    story = life()
    step = next(story)
    while True:
        outcomes = client.take(len(steps), step)
        steps.append(step)
        states.append(sound_state_of(client.engine.store))
        try:
            step = story.send(outcomes)
        except StopIteration:
            return steps, states


def sound_state_of(store: Store) -> State:
    with store.read() as view:
        assert list(violations(view)) == []
    return state_of(store)


def state_of(store: Store) -> State:
    with store.read() as view:
        tables, seq = tables_of(view), view.seq
    try:
        return State(tables, seq, 0, told(store, 0))
    except InvalidValue as problem:
        trimmed = problem.facts["trimmed"]
    # What it says of itself is true: the feed begins there, and not one earlier.
    with pytest.raises(InvalidValue):
        store.feed(trimmed - 1)
    return State(tables, seq, trimmed, told(store, trimmed))


class Book:
    """What the client sent and was told, kept outside the store."""

    def __init__(self) -> None:
        #: Step → how many calls had been made when it was sent, and when it was acknowledged.
        self.sent: dict[int, int] = {}
        self.yes: dict[int, int] = {}
        self.errors: list[StoreError] = []

    def bounds(self, calls: int | None = None) -> tuple[int, int]:
        """Give the fewest and the most steps that may be there; `calls` looks back to when only so many were made."""
        acked = [at for at, mark in self.yes.items() if calls is None or mark <= calls]
        sent = [at for at, mark in self.sent.items() if calls is None or mark <= calls]
        low = max(acked, default=-1) + 1
        return low, max([low, *(at + 1 for at in sent)])


def run(vfs: SimVfs, steps: list[Step], *, closes: bool = False) -> Book:
    """Live until the end, or until the store is done for; then ask it for a little more, which it must refuse.

    In the end the process dies, or `closes` its store first. Only typed errors may come out. A full disk is answered by
    sending the same again, once.
    """
    book = Book()
    store: SqliteStore | None = None
    lingering: list = []
    try:
        store = SqliteStore.open(vfs.folder / DATABASE)
        client = Client(store)
        for at, step in enumerate(steps):
            if step.does == "linger":
                # A reader that stays: the log cannot be started anew while it does.
                lingering.append(store.read())
                lingering[0].__enter__()
            if step.does in {"go on", "reopen"}:
                while lingering:
                    lingering.pop().__exit__(None, None, None)
            if step.does == "reopen":
                store.close()
                store = SqliteStore.open(vfs.folder / DATABASE)
                client = Client(store)
            book.sent[at] = len(vfs.calls)
            try:
                try:
                    client.take(at, step)
                except StoreFull as error:
                    book.errors.append(error)
                    client.take(at, step)
            except StoreError as error:
                if step.does == "look":
                    book.errors.append(error)
                    continue
                if isinstance(error, StoreFailed):
                    demand_refusals(client, steps, at)
                raise
            book.yes[at] = len(vfs.calls)
    except StoreError as error:
        book.errors.append(error)
    finally:
        if store is not None and closes:
            while lingering:
                lingering.pop().__exit__(None, None, None)
            store.close()
        vfs.die()
        while lingering:
            lingering.pop().__exit__(None, None, None)
        if store is not None:
            bury(store)
    return book


def bury(store: SqliteStore) -> None:
    """Close what a dead process had open, as the system does; nothing is written by that."""
    for db in (*store._readers, store._watch, store._writer):
        if db is not None:
            db.close()


def demand_refusals(client: Client, steps: list[Step], at: int) -> None:
    """After a failed commit nothing is acknowledged, neither the same again nor anything else."""
    later_steps = [n for n in range(at, len(steps)) if steps[n].commands][:2]
    for n in later_steps:
        try:
            client.take(n, steps[n])
        except StoreError:
            continue
        raise AssertionError(f"step {n} was acknowledged by a store that had failed at step {at}")


# --- judging it -------------------------------------------------------------------------------------------------------


class Oracle:
    """Judges folders by the states of the model."""

    def __init__(self) -> None:
        self.steps, self.states = rehearsed()
        self._abandoned: list[SqliteStore] = []

    def examine(self, folder: Path, low: int, high: int, *, to_the_end: bool = False) -> int:
        """Open what is left and demand everything; gives how many steps were there.

        The store's check asks for what must always hold, of what was found and of what it became in the end.
        """
        store = SqliteStore.open(folder / DATABASE)
        try:
            assert store.check() == []
            found = state_of(store)
        finally:
            store.close()
        fitting = [n for n in range(low, high + 1) if self.states[n] == found]
        assert fitting, self._misfit(found, low, high)
        there = fitting[-1]
        store = SqliteStore.open(folder / DATABASE)
        try:
            assert state_of(store) == found, "another opening found something else"
            self._send_again(store, fitting[0], high, to_the_end=to_the_end)
            assert store.check() == []
        finally:
            store.close()
        return there

    def open_and_find(self, folder: Path, low: int, high: int) -> int:
        """Open what is left and stay; what was under way is sent again. Gives how many steps are there."""
        store = SqliteStore.open(folder / DATABASE)
        self._abandoned.append(store)
        found = sound_state_of(store)
        fitting = [n for n in range(low, high + 1) if self.states[n] == found]
        assert fitting, self._misfit(found, low, high)
        if fitting[-1] == high:
            # Answered from what is there, without a commit.
            Client(store).take(high - 1, self.steps[high - 1])
        return fitting[-1]

    def abandon(self) -> None:
        """Close what `open_and_find` left open, once its process is dead."""
        while self._abandoned:
            bury(self._abandoned.pop())

    def close_found(self) -> None:
        """Close what `open_and_find` left open, as a program does in the end."""
        while self._abandoned:
            self._abandoned.pop().close()

    def _send_again(self, store: SqliteStore, found: int, high: int, *, to_the_end: bool) -> None:
        """What was acknowledged last and what was under way, once more; then, if asked, all the rest of the life."""
        client = Client(store)
        for at in range(max(found - 1, 0), len(self.steps) if to_the_end else min(high, len(self.steps))):
            client.take(at, self.steps[at])
            expected = self.states[max(found, at + 1)]
            assert state_of(store) == expected, f"step {at}, sent again, did not give one effect"

    def _misfit(self, found: State, low: int, high: int) -> str:
        others = [n for n, state in enumerate(self.states) if state == found]
        kind = "acknowledged, and lost" if others and max(others) < low else "neither"
        return f"{kind}: expected the state after {low} to {high} steps, found that after {others or 'none'}"

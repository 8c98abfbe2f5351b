"""The same random history on every store gives the same answers, the same feed and the same state.

`memory:` is the model. Commands, time and chance are the same for all: one clock, the same ids, and draws that are
counted instead of drawn. Stores are reopened in between, with engines that remember nothing. Numbers of events are
compared by their order, since `wal:` uses some up for notes of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from holdfast.engine import Engine, engine, maintenance
from holdfast.model.commands import (
    ArchiveTemplate,
    Backfill,
    Bury,
    Cancel,
    CancelGroup,
    ClaimDeliveries,
    Command,
    Complete,
    CreateGroup,
    DeleteSchedule,
    DeleteTemplate,
    DeleteWebhook,
    EndDelivery,
    EndSession,
    EndSessions,
    Enqueue,
    Extend,
    Fail,
    GiveUp,
    Lease,
    Move,
    NewJob,
    Normalize,
    PauseDispatch,
    PauseQueue,
    PauseSchedule,
    ProbeWebhook,
    Prune,
    PutSchedule,
    PutTemplate,
    PutWebhook,
    Redeliver,
    Release,
    ReleaseReservation,
    RenewReservation,
    Reserve,
    ResetSchedule,
    ResumeDispatch,
    ResumeQueue,
    ResumeSchedule,
    Retention,
    Retry,
    RotateSecret,
    SetQueue,
    Snooze,
    StartDirect,
    Trigger,
    Update,
    UpdateSchedule,
    UpdateWebhook,
    UseTemplate,
)
from holdfast.model.events import DeliveryCreated, GroupChanged, JobChanges, JobCreated, QueueChanges, ScheduleFired
from holdfast.model.groups import GroupMode, GroupStatus, OnFailure
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Backoff, Job, JobStatus, KeyHold, KeyScope, RetryMode
from holdfast.model.outcomes import Claim, Claimed, Leased, Outcome
from holdfast.model.records import Authority, Queue
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, NewTemplate, Template
from holdfast.model.times import FIRST, FOREVER, Timestamp, later, stamp
from holdfast.model.webhooks import RUN_EVENTS, Delivery, DeliveryStatus, NewWebhook, WebhookChanges
from holdfast.rules.explain import explain
from holdfast.rules.groups.fold import OVER
from holdfast.rules.invariants import violations
from holdfast.rules.jobs.limits import next_opening
from holdfast.rules.state import Lane
from holdfast.stores.dir import DirStore
from holdfast.stores.memory.indexes import ready_by_task
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.protocol import DeliveryQuery, GroupQuery, JobQuery, Store, View
from holdfast.stores.sqlite import SqliteStore, ready_rows
from holdfast.stores.wal import WalStore
from holdfast.testing.clock import START, ManualClock
from holdfast.testing.conformance.harness import Told, tables_of, told
from support.unsynced import Unsynced

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
HISTORIES = 5_000 if SOAK else 100
STEPS = 30 if SOAK else 14
#: Steps between two comparisons of everything; answers and feed are compared at each.
DEEP = 5

#: Durability is judged elsewhere: where there is a disk in memory, syncs cost nothing.
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

replace = msgspec.structs.replace

# --- what may happen --------------------------------------------------------------------------------------------------

URL = "https://receiver.example/"
NAMES = [f"j{number}" for number in range(9)]
job_ids = st.sampled_from(NAMES).map(JobId)
queues = st.sampled_from(["default", "default", "default", "other"])
namespaces = st.sampled_from(["", "", "", "", "x"])
#: Few command ids, so that they are met again, with the same content and with another.
cmds = st.sampled_from(["", "", "", "c1", "c2", "c3"])
numbers = st.integers(0, 1_000)
payloads = st.sampled_from([b"{}", b'{"n":1}', b'{"n": 2}', b"[]", b'{"n":NaN}']).map(msgspec.Raw)
seconds = st.sampled_from([None, None, None, 0, 1, 10, 100])
holds = st.sampled_from([*KeyHold])
limit_keys = st.sampled_from([None, None, "l1", "l2"])


@st.composite
def new_jobs(draw: st.DrawFn) -> NewJob:
    hold = draw(holds)
    # A bare job now and then, so that shrinking ends in something readable.
    if draw(st.booleans()):
        return NewJob(job_id=draw(job_ids), job_type="work", params=msgspec.Raw(b"{}"))
    return NewJob(
        job_id=draw(job_ids),
        job_type=draw(st.sampled_from(["work", "work", "rest"])),
        params=draw(payloads),
        namespace=draw(namespaces),
        queue=draw(queues),
        priority=draw(st.sampled_from([0, 0, 0, 5, -1, 101])),
        delay_s=draw(seconds),
        ttl_s=draw(seconds),
        timeout_s=draw(st.sampled_from([None, None, 3])),
        lease_s=draw(st.sampled_from([30, 5, 100])),
        retry_mode=draw(st.sampled_from([*RetryMode])),
        max_attempts=draw(st.integers(1, 3)),
        max_expiries=draw(st.integers(1, 3)),
        backoff=draw(st.sampled_from([Backoff(), Backoff(base_s=0, jitter=0), Backoff(base_s=5)])),
        key=draw(st.sampled_from([None, None, "k1", "k2"])),
        key_scope=draw(st.sampled_from([*KeyScope])),
        key_hold=hold,
        key_window_s=60 if hold is KeyHold.WINDOW else None,
        on_conflict=draw(st.sampled_from(["return", "reject", "replace"])),
        limit_key=draw(limit_keys),
        key_limit=draw(st.integers(1, 2)),
        tags=draw(st.sampled_from([None, {"a": "b"}])),
    )


@st.composite
def changes(draw: st.DrawFn) -> JobChanges:
    every: dict[str, st.SearchStrategy[Any]] = {
        "params": payloads,
        "queue": queues,
        "priority": st.sampled_from([0, 5, -1]),
        "not_before": st.sampled_from([None, 5, 100]).map(lambda s: None if s is None else later(stamp(START), s)),
        "expires_at": st.sampled_from([None, 20, 200]).map(lambda s: None if s is None else later(stamp(START), s)),
        "lease_s": st.sampled_from([5, 60]),
        "max_attempts": st.integers(1, 4),
        "limit_key": limit_keys,
        "key_limit": st.integers(1, 2),
        "tags": st.sampled_from([None, {"c": "d"}]),
    }
    names = draw(st.sets(st.sampled_from(sorted(every)), max_size=3))
    return JobChanges(**{name: draw(every[name]) for name in sorted(names)})


@st.composite
def queue_limits(draw: st.DrawFn) -> QueueChanges:
    every: dict[str, st.SearchStrategy[Any]] = {
        "max_running": st.sampled_from([None, 1, 2]),
        "rate_count": st.sampled_from([None, 1, 2]),
        "rate_scope": st.sampled_from(["queue", "key"]),
        "aging_s": st.sampled_from([None, 0.5, 10]),
    }
    names = draw(st.sets(st.sampled_from(sorted(every)), min_size=1, max_size=3))
    fields = {name: draw(every[name]) for name in sorted(names)}
    if "rate_count" in fields:
        fields["rate_period_s"] = None if fields["rate_count"] is None else draw(st.sampled_from([1, 30, 100.5]))
    return QueueChanges(**fields)


GROUPS = ["g1", "g2", "g3"]
group_ids = st.sampled_from(GROUPS)


@st.composite
def new_groups(draw: st.DrawFn) -> CreateGroup:
    """Give a group of jobs that are new, each with an id of its own and a life of its own."""
    number = draw(numbers)
    members = [
        NewJob(
            job_id=JobId(f"m{number}-{at}"),
            job_type="work",
            params=msgspec.Raw(b"{}"),
            retry_mode=draw(st.sampled_from([*RetryMode])),
            max_attempts=draw(st.integers(1, 2)),
            max_expiries=draw(st.integers(1, 2)),
            backoff=draw(st.sampled_from([Backoff(base_s=0, jitter=0), Backoff(base_s=5)])),
            delay_s=draw(seconds),
            ttl_s=draw(seconds),
            priority=draw(st.sampled_from([0, 0, 5])),
            key=draw(st.sampled_from([None, None, None, "k1"])),
            limit_key=draw(limit_keys),
        )
        for at in range(draw(st.integers(0, 4)))
    ]
    end = NewJob(job_id=JobId(f"m{number}-end"), job_type="work", params=msgspec.Raw(b"{}"), max_attempts=1)
    return CreateGroup(
        cmd=draw(cmds),
        group_id=draw(group_ids),
        members=tuple(members),
        name=draw(st.sampled_from([None, "n"])),
        mode=draw(st.sampled_from(GroupMode)),
        on_failure=draw(st.sampled_from(OnFailure)),
        callback=end if members and draw(st.booleans()) else None,
    )


SCHEDULES = ["s1", "s2", "s3"]
schedule_ids = st.sampled_from(SCHEDULES)
template_ids = st.sampled_from(["t1", "t2"])
small = st.sampled_from([b"null", b"{}", b'{"n":1}', b'{"m":[2]}', b"[]"]).map(msgspec.Raw)
options = st.sampled_from([JobOptions(), JobOptions(), JobOptions(max_attempts=1, queue="other"), JobOptions(ttl_s=5)])
moments = st.sampled_from([None, None, None, 60, 7200]).map(lambda s: None if s is None else later(stamp(START), s))
kinds_of_time = st.sampled_from(
    [
        {"interval_s": 10},
        {"interval_s": 60.5},
        {"interval_s": 0},
        {"cron_expression": "*/5 * * * *"},
        {"cron_expression": "30 1 * * *", "timezone": "Europe/Berlin"},
        {"run_at": later(stamp(START), 100)},
    ]
)


@st.composite
def new_schedules(draw: st.DrawFn) -> NewSchedule:
    template_id = draw(st.sampled_from([None, None, "t1", "t2"]))
    return NewSchedule(
        name=draw(st.sampled_from(SCHEDULES)),
        namespace=draw(namespaces),
        template_id=template_id,
        job_type="work" if template_id is None else None,
        **draw(kinds_of_time),
        param_overrides=draw(small),
        options=draw(options),
        queue=draw(st.sampled_from([None, None, "other"])),
        catch_up=draw(st.sampled_from(CatchUp)),
        catch_up_window_s=draw(st.sampled_from([None, 100])),
        grace_s=draw(st.sampled_from([60, 0])),
        overlap=draw(st.sampled_from(Overlap)),
        jitter_s=draw(st.sampled_from([0, 0, 5.5])),
        start_at=draw(moments),
        end_at=draw(moments),
    )


@st.composite
def schedule_changes(draw: st.DrawFn) -> ScheduleChanges:
    every: dict[str, st.SearchStrategy[Any]] = {
        "name": st.sampled_from(SCHEDULES),
        "interval_s": st.sampled_from([20, None]),
        "cron_expression": st.sampled_from(["* * * * *", None]),
        "timezone": st.sampled_from(["UTC", "Asia/Kolkata", "Nowhere"]),
        "param_overrides": small,
        "queue": st.sampled_from([None, "other"]),
        "overlap": st.sampled_from(Overlap),
        "catch_up": st.sampled_from(CatchUp),
        "end_at": moments,
        "jitter_s": st.sampled_from([0, 3]),
    }
    names = draw(st.sets(st.sampled_from(sorted(every)), max_size=3))
    return ScheduleChanges(**{name: draw(every[name]) for name in sorted(names)})


ttls = st.sampled_from([1, 10, 100])
sessions = st.sampled_from([None, "s1", "s2"])


def leases() -> st.SearchStrategy[Lease]:
    return st.builds(
        Lease,
        cmd=cmds,
        worker_id=st.sampled_from(["w1", "w2"]),
        queues=st.sampled_from([("default",), ("default",), ("default", "other"), ("other", "default", "other")]),
        job_types=st.sampled_from([None, None, ("work",), ("rest", "sleep")]),
        n=st.integers(1, 3),
        lease_s=st.sampled_from([None, None, 10]),
        namespace=namespaces,
        session_id=st.sampled_from([None, "s1", "s2"]),
    )


class StoresAgree(RuleBasedStateMachine):
    """One history, told to every store."""

    histories = 0
    commands = 0
    reopenings = 0
    fires = 0
    directs = 0
    #: Ends of groups.
    ends = 0
    #: Deliveries that were owed.
    debts = 0
    _empty: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        type(self).histories += 1
        self.path = Path(tempfile.mkdtemp(prefix="holdfast-agree-", dir=FAST))
        self.clock = ManualClock()
        self.latest = stamp(START)
        self._drawn = count()
        self._patch = mock.patch.object(engine, "_seed", self._draw)
        self._patch.start()
        self._turn = 0
        shutil.copy(self._new_database(), self.path / "jobs.db")
        self.memory = MemoryStore()
        self.engines: dict[str, Engine] = {}
        self.feeds: dict[str, list[Told]] = {}
        self.followed: dict[str, int] = {}
        self.numbers: dict[str, dict[int, int]] = {}
        self.tokens: list[tuple[JobId, Token]] = []
        self.heirs: list[JobId] = []
        self.claims: list[Claim] = []
        self._open()

    @classmethod
    def _new_database(cls) -> Path:
        """Make an empty database once: building its tables is the larger part of opening a new one."""
        if cls._empty is None:
            place = tempfile.mkdtemp(prefix="holdfast-empty-")
            atexit.register(shutil.rmtree, place, ignore_errors=True)
            cls._empty = Path(place) / "empty.db"
            SqliteStore.open(cls._empty).close()
        return cls._empty

    def _open(self) -> None:
        # The journal's own notes get a time that never comes after an event's.
        long_ago = ManualClock(START.replace(year=2000))
        stores: dict[str, Store] = {
            "memory": self.memory,
            "wal": WalStore.open(self.path / "jobs", clock=long_ago),
            "dir": DirStore.open(self.path / "dir", fs=Unsynced(self.path / "dir", create=True)),
            "sqlite": SqliteStore.open(self.path / "jobs.db"),
        }
        for name, store in stores.items():
            self._same_chance()
            self.engines[name] = Engine(store, clock=self.clock)

    def teardown(self) -> None:
        try:
            self.compare_everything()
            for opened in self.engines.values():
                assert opened.store.check() == []
        finally:
            for opened in self.engines.values():
                opened.close()
            self._patch.stop()
            shutil.rmtree(self.path, ignore_errors=True)

    # --- the same for all ---------------------------------------------------------------------------------------------

    def _draw(self) -> int:
        return next(self._drawn)

    def _same_chance(self) -> None:
        self._drawn = count(self._turn * 1_000)

    def each(self, action: Any) -> Any:
        """Do the same on every engine; demand the same answer and the same events."""
        self._turn += 1
        self.latest = max(self.latest, stamp(self.clock.now()))
        answers = {}
        for name, opened in self.engines.items():
            self._same_chance()
            answers[name] = _plain(action(opened))
        expected = answers["memory"]
        for name, answer in answers.items():
            assert answer == expected, f"{name}: {answer}\nmemory: {expected}"
        self._compare_feeds()
        with self.memory.read() as view:
            assert list(violations(view)) == []
        if self._turn % DEEP == 0:
            self.compare_everything()
        return expected

    def send(self, command: Command) -> Outcome:
        return self.send_all([command])[0]

    def send_all(self, commands: list[Command]) -> list[Outcome]:
        type(self).commands += len(commands)
        outcomes: list[Outcome] = self.each(lambda opened: opened.submit_many(commands))
        for outcome in outcomes:
            if isinstance(outcome, Leased):
                self.tokens += [(grant.job.job_id, grant.token) for grant in outcome.grants]
            elif isinstance(outcome, Claimed):
                self.claims += outcome.claims
        return outcomes

    def _compare_feeds(self) -> None:
        fresh: dict[str, list[tuple[Timestamp, Any]]] = {}
        for name, opened in self.engines.items():
            feed = self.feeds.setdefault(name, [])
            order = self.numbers.setdefault(name, {0: 0})
            entries = told(opened.store, self.followed.get(name, 0))
            with opened.read() as view:
                self.followed[name] = view.seq
            for entry in entries:
                order[entry.seq] = len(order)
            feed += entries
            fresh[name] = [(entry.ts, entry.event) for entry in entries]
        for name, entries in fresh.items():
            assert entries == fresh["memory"], f"{name}: {entries}\nmemory: {fresh['memory']}"
        type(self).ends += sum(isinstance(event, GroupChanged) and event.status in OVER for _, event in fresh["memory"])
        type(self).debts += sum(isinstance(event, DeliveryCreated) for _, event in fresh["memory"])
        type(self).fires += sum(isinstance(event, ScheduleFired) for _, event in fresh["memory"])
        self.heirs += [
            event.job.job_id
            for _, event in fresh["memory"]
            if isinstance(event, JobCreated) and event.job.retry_of is not None
        ]

    def compare_everything(self) -> None:
        shown = {name: self._shown(name) for name in self.engines}
        for name, parts in shown.items():
            for part, content in parts.items():
                assert content == shown["memory"][part], f"{name}, {part}: {content}\nmemory: {shown['memory'][part]}"

    def _shown(self, name: str) -> dict[str, Any]:
        store = self.engines[name].store
        with store.write() as batch:
            # What a Lease has made ready stays so until reopening, on some stores beyond; here it is so on all.
            batch.promote(self.latest, 10_000)
        with store.read() as view:
            assert list(violations(view)) == []
            tables = tables_of(view)
            # One that says nothing is as good as none: a store may forget a pause that was over before any lease.
            tables["meta"] = [row for row in tables["meta"] if row != Authority()]
            return {
                **{table: [self._numbered(name, row) for row in rows] for table, rows in tables.items()},
                **_orders(view, self.latest),
            }

    def _numbered(self, name: str, record: Any) -> Any:
        if isinstance(record, Delivery):
            body = msgspec.json.decode(record.body)
            body["seq"] = self.numbers[name][body["seq"]]
            return replace(record, body=msgspec.json.encode(body).decode())
        return replace(record, seq=self.numbers[name][record.seq]) if isinstance(record, Job) else record

    # --- commands -----------------------------------------------------------------------------------------------------

    @initialize(
        jobs=st.lists(new_jobs(), min_size=1, max_size=3),
        interval=st.sampled_from([10, 60.5, 3600]),
        overlap=st.sampled_from(Overlap),
        catch_up=st.sampled_from([CatchUp.LATEST, CatchUp.NONE]),
        group=new_groups(),
    )
    def begin(
        self, jobs: list[NewJob], interval: float, overlap: Overlap, catch_up: CatchUp, group: CreateGroup
    ) -> None:
        self.send(PutWebhook(webhook_id="w1", webhook=NewWebhook(url=URL, secrets=("a-secret",))))
        self.send(Enqueue(jobs=tuple(jobs)))
        self.send(group)
        # Two good schedules from the start: most histories are too short to come by one.
        policies: dict[str, Any] = {"interval_s": interval, "overlap": overlap, "catch_up": catch_up}
        template = NewTemplate(name="n1", job_type="rest", default_params=msgspec.Raw(b'{"n":1}'))
        self.send_all(
            [
                PutTemplate(template_id="t1", template=template),
                PutSchedule(schedule_id="s1", schedule=NewSchedule(name="s1", job_type="work", **policies)),
                PutSchedule(schedule_id="s2", schedule=NewSchedule(name="s2", template_id="t1", **policies)),
            ]
        )

    @rule(jobs=st.lists(new_jobs(), min_size=1, max_size=3), cmd=cmds)
    def enqueue(self, jobs: list[NewJob], cmd: str) -> None:
        self.send(Enqueue(cmd=cmd, jobs=tuple(jobs)))

    @rule(command=leases())
    def lease(self, command: Lease) -> None:
        self.send(command)

    @rule(first=leases(), jobs=st.lists(new_jobs(), min_size=1, max_size=2), second=leases())
    def lease_enqueue_and_lease_in_one_batch(self, first: Lease, jobs: list[NewJob], second: Lease) -> None:
        self.send_all([first, Enqueue(jobs=tuple(jobs)), second])

    def _report(self, kind: int, number: int, delay: float) -> Command:
        # Mostly the newest tokens, sometimes an old one, sometimes that of another job.
        job_id, token = self.tokens[-1 - (number % min(len(self.tokens), 4))]
        if number % 11 == 10:
            job_id = self.tokens[0][0]
        match kind:
            case 0 | 1 | 2:
                return Complete(job_id=job_id, token=token, result=msgspec.Raw(b'{"done":%d}' % number))
            case 3 | 4 | 5:
                return Fail(job_id=job_id, token=token, error=f"boom {number}", fatal=number % 7 == 6)
            case 6:
                return Fail(job_id=job_id, token=token, error="later", retry_after_s=delay)
            case 7:
                return Snooze(job_id=job_id, token=token, delay_s=delay)
            case 8:
                return GiveUp(job_id=job_id, token=token, reason="enough")
            case 9 | 10:
                begun, back = bool(number % 2), number > 500
                return Release(job_id=job_id, token=token, begun=begun, delay_s=delay, given_back=back)
            case _:
                return Extend(job_id=job_id, token=token)

    @precondition(lambda self: self.tokens)
    @rule(reports=st.lists(st.tuples(st.integers(0, 12), numbers, st.sampled_from([0, 5, 60])), min_size=1, max_size=3))
    def report(self, reports: list[tuple[int, int, float]]) -> None:
        self.send_all([self._report(*each) for each in reports])

    @rule(
        kind=st.integers(0, 5),
        cmd=cmds,
        job_id=job_ids,
        other=job_ids,
        edit=changes(),
        to=st.sampled_from(["first", "last"]),
    )
    def edit(self, kind: int, cmd: str, job_id: JobId, other: JobId, edit: JobChanges, to: Any) -> None:
        match kind:
            case 0 | 1:
                self.send(Update(cmd=cmd, job_id=job_id, changes=edit))
            case 2:
                self.send(Move(cmd=cmd, job_id=job_id, before=other))
            case 3:
                self.send(Move(cmd=cmd, job_id=job_id, after=other))
            case 4:
                self.send(Move(cmd=cmd, job_id=job_id, to=to))
            case _:
                self.send(Normalize(cmd=cmd, queue="default"))

    @rule(kind=st.integers(0, 3), cmd=cmds, job_id=job_ids, number=numbers)
    def end_by_wish(self, kind: int, cmd: str, job_id: JobId, number: int) -> None:
        if self.heirs and number % 3 == 0:
            job_id = self.heirs[number % len(self.heirs)]
        match kind:
            case 0:
                self.send(Cancel(cmd=cmd, job_id=job_id, reason="no"))
            case 1:
                self.send(Cancel(cmd=cmd, job_id=job_id, force=True))
            case 2:
                self.send(Bury(cmd=cmd, job_id=job_id, reason="poison"))
            case _:
                new = JobId(f"j{number % 9}" if number % 5 == 0 else f"again{number}")
                self.send(Retry(cmd=cmd, job_id=job_id, new_job_id=new))
                self.heirs.append(new)

    @rule(kind=st.integers(0, 3), cmd=cmds, queue=queues, namespace=namespaces)
    def pause_or_resume(self, kind: int, cmd: str, queue: str, namespace: str) -> None:
        match kind:
            case 0:
                self.send(PauseQueue(cmd=cmd, queue=queue, namespace=namespace, reason="why not"))
            case 1:
                self.send(ResumeQueue(cmd=cmd, queue=queue, namespace=namespace))
            case 2:
                self.send_all([PauseDispatch(cmd=cmd), Lease(worker_id="w3", n=2), ResumeDispatch()])
            case _:
                self.send(ResumeQueue(cmd=cmd, queue=queue))

    @rule(cmd=cmds, queue=queues, namespace=namespaces, limits=queue_limits())
    def limit(self, cmd: str, queue: str, namespace: str, limits: QueueChanges) -> None:
        self.send(SetQueue(cmd=cmd, queue=queue, namespace=namespace, changes=limits))

    @precondition(lambda self: self.tokens)
    @rule(kind=st.integers(0, 12), number=numbers, before=queue_limits(), after=queue_limits(), command=leases())
    def report_limit_and_lease_in_one_batch(
        self, kind: int, number: int, before: QueueChanges, after: QueueChanges, command: Lease
    ) -> None:
        first, second = (SetQueue(queue="default", changes=limits) for limits in (before, after))
        self.send_all([first, self._report(kind, number, 0), second, command, command])

    # --- groups -------------------------------------------------------------------------------------------------------

    @rule(command=new_groups(), joining=st.lists(job_ids, max_size=2), lease=leases())
    def create_group(self, command: CreateGroup, joining: list[JobId], lease: Lease) -> None:
        with self.memory.read() as view:
            waiting = [job.job_id for job in view.queued("", "default") if job.group_id is None]
        # Mostly of those that can join, sometimes any.
        members = (*command.members, *waiting[:1], *joining)
        self.send_all([replace(command, members=members), command, command, lease])

    @rule(cmd=cmds, group_id=group_ids, running=st.booleans())
    def cancel_group(self, cmd: str, group_id: str, *, running: bool) -> None:
        self.send(CancelGroup(cmd=cmd, group_id=group_id, running=running, reason="no more"))

    @rule(number=numbers, kind=st.integers(0, 2))
    def a_member_ends_by_wish(self, number: int, kind: int) -> None:
        with self.memory.read() as view:
            members = [job.job_id for job in view.all(Job) if job.group_id is not None and not job.has_ended]
        if members:
            job_id = members[number % len(members)]
            self.send((Cancel(job_id=job_id), Cancel(job_id=job_id, force=True), Bury(job_id=job_id))[kind])

    # --- reservations and direct executions ---------------------------------------------------------------------------

    @rule(kind=st.integers(0, 3), number=numbers, queue=queues, ttl_s=ttls, session_id=sessions, command=leases())
    def reserve(self, kind: int, number: int, queue: str, ttl_s: float, session_id: str | None, command: Lease) -> None:
        # Few ids, so that they are met again; each is good for one reservation.
        known = f"r{number % 25}"
        match kind:
            case 0 | 1:
                mine = Reserve(reservation_id=known, queue=queue, reserved_by="me", ttl_s=ttl_s, session_id=session_id)
                self.send_all([mine, command])
            case 2:
                self.send_all([RenewReservation(reservation_id=known, ttl_s=ttl_s), command])
            case _:
                self.send_all([command, ReleaseReservation(reservation_id=known), command])

    @rule(
        job=new_jobs(),
        number=numbers,
        ttl_s=ttls,
        session_id=sessions,
        clears=st.booleans(),
        report=st.tuples(st.integers(0, 12), numbers, st.just(0)),
        command=leases(),
    )
    def start_directly(
        self,
        job: NewJob,
        number: int,
        ttl_s: float,
        session_id: str | None,
        report: tuple[int, int, float],
        command: Lease,
        *,
        clears: bool,
    ) -> None:
        known = f"r{number % 25}"
        if clears:  # what runs there would be in the way
            with self.memory.read() as view:
                running = sorted(view.running(job.namespace, job.queue))
            self.send_all([Cancel(job_id=one, force=True) for one in running])
        place: dict[str, Any] = {"namespace": job.namespace, "queue": job.queue}
        outcomes = self.send_all(
            [
                Reserve(reservation_id=known, reserved_by="me", ttl_s=ttl_s, session_id=session_id, **place),
                StartDirect(reservation_id=known, job=job, worker_id="here", session_id=session_id),
                command,
            ]
        )
        if isinstance(outcomes[1], Leased) and outcomes[1].grants:
            type(self).directs += 1
            follows = [self._report(*report)] if number % 2 else []
            self.send_all([*follows, command, ReleaseReservation(reservation_id=known), command])

    # --- webhooks -----------------------------------------------------------------------------------------------------

    @rule(
        kind=st.integers(0, 5),
        cmd=cmds,
        webhook_id=st.sampled_from(["w1", "w1", "w2"]),
        namespace=namespaces,
        events=st.lists(st.sampled_from(RUN_EVENTS), unique=True, max_size=3).map(tuple),
        queue=st.one_of(st.none(), queues),
        flag=st.booleans(),
        command=leases(),
    )
    def webhook(
        self,
        kind: int,
        cmd: str,
        webhook_id: str,
        namespace: str,
        events: tuple[str, ...],
        queue: str | None,
        command: Lease,
        *,
        flag: bool,
    ) -> None:
        wanted = None if queue is None else (queue,)
        match kind:
            case 0 | 1:
                new = NewWebhook(url=URL, namespace=namespace, events=events, queues=wanted, secrets=("a-secret",))
                first: Command = PutWebhook(cmd=cmd, webhook_id=webhook_id, webhook=new, replace=flag)
            case 2:
                changes = WebhookChanges(events=events, queues=wanted, enabled=flag)
                first = UpdateWebhook(cmd=cmd, webhook_id=webhook_id, changes=changes)
            case 3:
                first = RotateSecret(cmd=cmd, webhook_id=webhook_id, secret="another-secret" if flag else None)
            case 4:
                first = ProbeWebhook(cmd=cmd, webhook_id=webhook_id, delivery_id=f"d{len(events)}")
            case _:
                first = DeleteWebhook(cmd=cmd, webhook_id=webhook_id)
        self.send_all([command, first, command])

    @rule(kind=st.integers(0, 5), number=numbers, status=st.sampled_from([200, 204, 302, 410, 500, None]), cmd=cmds)
    def deliver(self, kind: int, number: int, status: int | None, cmd: str) -> None:
        if kind < 2 or not self.claims:
            self.send(ClaimDeliveries(limit=1 + number % 5))
            return
        claim = self.claims[number % len(self.claims)]
        if kind == 2:
            self.send(Redeliver(cmd=cmd, delivery_id=claim.delivery_id))
        else:
            ended = EndDelivery(
                cmd=cmd,
                delivery_id=claim.delivery_id,
                claimed_until=claim.claimed_until,
                status=status,
                error="no route" if status is None else None,
            )
            self.send_all([ended, ClaimDeliveries(limit=1)])

    # --- schedules and templates --------------------------------------------------------------------------------------

    @rule(
        cmd=cmds,
        schedule_id=schedule_ids,
        schedules=st.lists(new_schedules(), min_size=1, max_size=2),
        again=st.booleans(),
    )
    def put_schedule(self, cmd: str, schedule_id: str, schedules: list[NewSchedule], *, again: bool) -> None:
        puts: list[Command] = [
            PutSchedule(cmd=cmd, schedule_id=schedule_id, schedule=new, replace=again) for new in schedules
        ]
        self.send_all(puts)

    @rule(cmd=cmds, template_id=template_ids, params=small, chosen=options, again=st.booleans(), number=numbers)
    def put_template(
        self, cmd: str, template_id: str, params: Any, chosen: JobOptions, number: int, *, again: bool
    ) -> None:
        new = NewTemplate(name=f"n{number % 2}", job_type="work", default_params=params, options=chosen)
        version = number % 3 or None
        self.send(PutTemplate(cmd=cmd, template_id=template_id, template=new, replace=again, version=version))

    @rule(kind=st.integers(0, 3), cmd=cmds, template_id=template_ids, job_id=job_ids, params=small)
    def use_template(self, kind: int, cmd: str, template_id: str, job_id: JobId, params: Any) -> None:
        match kind:
            case 0:
                self.send(ArchiveTemplate(cmd=cmd, template_id=template_id))
            case 1:
                self.send(DeleteTemplate(cmd=cmd, template_id=template_id))
            case _:
                self.send(UseTemplate(template_id=template_id, job_id=job_id, params=params))

    @rule(
        kind=st.integers(0, 8),
        cmd=cmds,
        schedule_id=schedule_ids,
        edit=schedule_changes(),
        job_id=job_ids,
        params=small,
        number=numbers,
    )
    def edit_schedule(
        self,
        kind: int,
        cmd: str,
        schedule_id: str,
        edit: ScheduleChanges,
        job_id: JobId,
        params: Any,
        number: int,
    ) -> None:
        match kind:
            case 0 | 1:
                version = number % 4 or None
                self.send(UpdateSchedule(cmd=cmd, schedule_id=schedule_id, changes=edit, version=version))
            case 2:
                self.send(PauseSchedule(cmd=cmd, schedule_id=schedule_id, reason="why not"))
            case 3:
                self.send(ResumeSchedule(cmd=cmd, schedule_id=schedule_id))
            case 4:
                self.send(ResetSchedule(cmd=cmd, schedule_id=schedule_id))
            case 5:
                self.send(DeleteSchedule(cmd=cmd, schedule_id=schedule_id))
            case 6:
                self.send(Trigger(schedule_id=schedule_id, job_id=job_id, params=params))
            case _:
                now = stamp(self.clock.now())
                since = later(now, -number)
                self.send(Backfill(schedule_id=schedule_id, backfill_id="b", since=since, until=now, limit=3))

    @rule(by=st.sampled_from([10, 61, 3600, 30_000]), command=leases())
    def time_passes_schedules_fire_and_work_is_leased(self, by: float, command: Lease) -> None:
        self.clock.advance(by)
        self.each(maintenance.tick)
        self.send(command)

    # --- time and maintenance -----------------------------------------------------------------------------------------

    @rule(by=st.sampled_from([0.000001, 1, 5, 10, 30, 100, 3600]))
    def time_passes(self, by: float) -> None:
        self.clock.advance(by)

    @rule(by=st.sampled_from([-4, -60, -4000, 3, 60, 7200]))
    def the_clock_is_set(self, by: float) -> None:
        self.clock.set_wall(self.clock.now() + timedelta(seconds=by))

    @rule(keep=st.sampled_from([None, 0, 50]))
    def tick(self, keep: float | None) -> None:
        kept = Retention() if keep is None else Retention(done_s=keep, failed_s=2 * keep, deliveries_s=keep)
        # The feed is trimmed by each store in its own way; nothing here gets that old.
        self.each(lambda opened: maintenance.tick(opened, kept))

    @rule(limit=st.integers(1, 3))
    def sweep_a_little(self, limit: int) -> None:
        self.send(Prune(retention=Retention(done_s=5, failed_s=5), limit=limit))

    @rule(session_id=st.sampled_from(["s1", "s2", "s3"]))
    def end_sessions(self, session_id: str) -> None:
        self.send(EndSessions(session_id=session_id))

    @rule(session_id=st.sampled_from(["s1", "s2", "s3"]))
    def end_one_session(self, session_id: str) -> None:
        self.send(EndSession(session_id=session_id))

    @rule(recovers=st.booleans())
    def reopen(self, *, recovers: bool) -> None:
        type(self).reopenings += 1
        for name in ("wal", "dir", "sqlite"):
            self.engines[name].close()
        self._open()
        self.compare_everything()
        if recovers:
            # What recovery does on a store with one process; on all, so that they stay comparable.
            self.send(EndSessions(session_id="s9"))
            self.each(lambda opened: maintenance.tick(opened).expired)

    @rule()
    def snapshot(self) -> None:
        self.each(lambda opened: opened.store.snapshot())


def _plain(answer: Any) -> Any:
    """Take event numbers out of an answer: they are compared where their order is known."""
    if isinstance(answer, list):
        return [_plain(part) for part in answer]
    if isinstance(answer, Leased):
        return replace(answer, grants=tuple(replace(grant, job=replace(grant.job, seq=0)) for grant in answer.grants))
    return answer


QUEUES = ("default", "other")


def _orders(view: View, now: Timestamp) -> dict[str, Any]:
    """Give every order a store can be asked in, as ids."""
    spaces = [(namespace, queue) for namespace in ("", "x") for queue in ("default", "other")]
    return {
        "counts": list(view.counts()),
        "due": {lane: [_name(row) for row in view.due(lane, FOREVER)] for lane in Lane},
        "next due": {lane: view.next_due(lane) for lane in Lane},
        "ended": [
            (queue, [job.job_id for job in view.ended(*queue, failed=failed, until=FOREVER)])
            for queue in view.ended_queues()
            for failed in (False, True)
        ],
        "ended beyond": [
            view.ended_beyond(*queue, failed=failed, keep=keep)
            for queue in view.ended_queues()
            for failed in (False, True)
            for keep in (0, 2)
        ],
        "ready": [
            [job.job_id for job in view.ready(namespace, ("default", "other"), None, now)] for namespace in ("", "x")
        ],
        "free": [
            [job.job_id for job in view.ready(*space, None, now, free=True)] for space in (("", QUEUES), ("x", QUEUES))
        ],
        "ready to rest": [_of_tasks(view, queues, ("rest", "sleep"), now) for queues in (("default",), QUEUES)],
        "ready to work": [_of_tasks(view, queues, ("rest", "work"), now) for queues in (("other",), QUEUES)],
        "bands": [
            (space, rank, [job.job_id for job in view.band(*space, rank)])
            for space in spaces
            for rank in view.bands(*space)
        ],
        "edges": [
            view.edge(*space, rank, last=last) for space in spaces for rank in (0, -5, 1) for last in (True, False)
        ],
        "neighbours": {
            job.job_id: [_name(view.beside(job, after=after)) for after in (True, False)]
            for space in spaces
            for rank in view.bands(*space)
            for job in view.band(*space, rank)
        },
        "listed": [job.job_id for job in view.jobs(JobQuery())],
        "first page": [job.job_id for job in view.jobs(JobQuery(queue="default", job_type="work", limit=3))],
        "runs": {job.job_id: [run.run_id for run in view.runs(job.job_id)] for job in view.all(Job)},
        "successors": {job.job_id: [heir.job_id for heir in view.successors(job.job_id)] for job in view.all(Job)},
        "local": [job.job_id for job in view.local_leases()],
        "running": [sorted(view.running(*space)) for space in spaces],
        "limited": [sorted(view.running_with(namespace, key)) for namespace in ("", "x") for key in ("l1", "l2")],
        "queued": [[job.job_id for job in view.queued(*space)] for space in spaces],
        "starts": [
            (list(view.starts(*name, key, FIRST)), list(view.starts(*name, key, later(now, -30), skip=1)))
            for name in ((queue.namespace, queue.name) for queue in view.all(Queue) if queue.rate_count is not None)
            for key in (None, "l1", "l2")
        ],
        "opening": [next_opening(view, namespace, ("default", "other"), now) for namespace in ("", "x")],
        "reasons": {job.job_id: explain(view, job, now) for job in view.all(Job)},
        "of schedules": {
            name: (view.active_of(name), sorted(view.running_of(name)), view.by_name(Schedule, "", name))
            for name in SCHEDULES
        },
        "of templates": {name: (view.schedules_of(name), view.by_name(Template, "", "n1")) for name in ("t1", "t2")},
        "of groups": {
            name: (
                [[job.job_id for job in view.members(name, status)] for status in (None, *JobStatus)],
                _name(view.turn_of(name)),
            )
            for name in GROUPS
        },
        "live groups": [group.group_id for group in view.live_groups()],
        "groups": [
            [group.group_id for group in view.groups(GroupQuery(status=status, limit=2))]
            for status in (None, *GroupStatus)
        ],
        "webhooks": [list(view.webhooks(namespace)) for namespace in ("", "x")],
        "deliveries": [
            [one.delivery_id for one in view.deliveries(DeliveryQuery(webhook_id=name, status=status, limit=limit))]
            for name in ("w1", "w2")
            for status, limit in ((None, 3), *((status, 50) for status in DeliveryStatus))
        ],
        "reserved": [(view.reservation(*space), view.direct(*space)) for space in spaces],
        "granted": {cmd: [job.job_id for job in view.granted_by(cmd)] for cmd in ("c1", "c2", "c3")},
    }


def _of_tasks(view: View, queues: Sequence[str], tasks: Sequence[str], now: Timestamp) -> list[str]:
    """Name the ready jobs of some tasks, which are those of all that are of these."""
    for free in (False, True):
        found = [job.job_id for job in view.ready("", queues, tasks, now, free=free)]
        everything = view.ready("", queues, None, now, free=free)
        assert found == [job.job_id for job in everything if job.job_type in tasks]
    return found


def _name(record: Any) -> Any:
    match record:
        case None:
            return None
        case Job():
            return record.job_id
        case Delivery():
            return record.delivery_id
        case _:
            return record


def test_random_histories_are_the_same_on_every_store(monkeypatch):
    # Lines here are short, and what comes behind many is to be met.
    monkeypatch.setattr(ready_by_task, "PASSED", 1)
    monkeypatch.setattr(ready_by_task, "PASSED_EACH", 1)
    monkeypatch.setattr(ready_rows, "PASSED", 1)
    StoresAgree.histories = StoresAgree.commands = StoresAgree.reopenings = StoresAgree.fires = StoresAgree.ends = 0
    StoresAgree.directs = StoresAgree.debts = 0
    run_state_machine_as_test(StoresAgree, settings=settings(max_examples=HISTORIES, stateful_step_count=STEPS))
    print(
        f"{StoresAgree.histories} histories, {StoresAgree.commands} commands on each store, "
        f"{StoresAgree.reopenings} reopenings, {StoresAgree.fires} fires, {StoresAgree.ends} ends of groups, "
        f"{StoresAgree.directs} direct executions, {StoresAgree.debts} deliveries"
    )
    # Chance decides how often, and short runs begin with small histories; that it happens at all is what is asked.
    for often in (StoresAgree.ends, StoresAgree.directs, StoresAgree.debts, StoresAgree.fires):
        assert often > (HISTORIES / 20 if SOAK else 0)
    assert StoresAgree.histories >= HISTORIES

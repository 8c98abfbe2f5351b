"""Folding: every event in every status, as the contract's state table has it; no clock, no chance, no guessing."""

import builtins
import datetime as dt
import os
import random
import time
import uuid

import msgspec
import pytest
from flowworld import flowing
from world import START, World, content, new, replay

from holdfast.errors import CorruptState
from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import Authority, DoneCommand, HeldKey, Queue
from holdfast.model.schedules import CatchUp, NewSchedule, Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, NewTemplate
from holdfast.model.times import later
from holdfast.model.webhooks import NewWebhook
from holdfast.rules.decide import decide
from holdfast.rules.fold import _FOLDS, fold
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.invariants import violations
from holdfast.rules.random_source import Draws

STATUSES = list(JobStatus)
# Rows and columns of the state table; None: folding the pair raises CorruptState.
#                                QUEUED       RUNNING      COMPLETED    FAILED       DEAD         CANCELLED
TABLE = {
    "job:created":              (None,        None,        None,        None,        None,        None),
    "lease:granted":            ("RUNNING",   None,        None,        None,        None,        None),
    "lease:extended":           (None,        "RUNNING",   None,        None,        None,        None),
    "job:completed":            (None,        "COMPLETED", None,        None,        None,        None),
    "job:failed QUEUED":        (None,        "QUEUED",    None,        None,        None,        None),
    "job:failed FAILED":        (None,        "FAILED",    None,        None,        None,        None),
    "job:failed CANCELLED":     (None,        "CANCELLED", None,        None,        None,        None),
    "job:failed RUNNING":       (None,        None,        None,        None,        None,        None),
    "job:failed COMPLETED":     (None,        None,        None,        None,        None,        None),
    "job:failed DEAD":          (None,        None,        None,        None,        None,        None),
    "job:snoozed QUEUED":       (None,        "QUEUED",    None,        None,        None,        None),
    "job:snoozed CANCELLED":    (None,        "CANCELLED", None,        None,        None,        None),
    "job:snoozed RUNNING":      (None,        None,        None,        None,        None,        None),
    "job:snoozed COMPLETED":    (None,        None,        None,        None,        None,        None),
    "job:snoozed FAILED":       (None,        None,        None,        None,        None,        None),
    "job:snoozed DEAD":         (None,        None,        None,        None,        None,        None),
    "lease:released QUEUED":    (None,        "QUEUED",    None,        None,        None,        None),
    "lease:released CANCELLED": (None,        "CANCELLED", None,        None,        None,        None),
    "lease:released RUNNING":   (None,        None,        None,        None,        None,        None),
    "lease:released COMPLETED": (None,        None,        None,        None,        None,        None),
    "lease:released FAILED":    (None,        None,        None,        None,        None,        None),
    "lease:released DEAD":      (None,        None,        None,        None,        None,        None),
    "lease:expired QUEUED":     (None,        "QUEUED",    None,        None,        None,        None),
    "lease:expired FAILED":     (None,        "FAILED",    None,        None,        None,        None),
    "lease:expired DEAD":       (None,        "DEAD",      None,        None,        None,        None),
    "lease:expired CANCELLED":  (None,        "CANCELLED", None,        None,        None,        None),
    "lease:expired RUNNING":    (None,        None,        None,        None,        None,        None),
    "lease:expired COMPLETED":  (None,        None,        None,        None,        None,        None),
    "job:cancel_requested":     (None,        "RUNNING",   None,        None,        None,        None),
    "job:cancelled":            ("CANCELLED", None,        None,        None,        None,        None),
    "job:cancelled token":      (None,        "CANCELLED", None,        None,        None,        None),
    "job:dead":                 ("DEAD",      "DEAD",      None,        None,        None,        None),
    "job:skipped":              ("CANCELLED", None,        None,        None,        None,        None),
    "job:updated":              ("QUEUED",    None,        None,        None,        None,        None),
    "job:moved":                ("QUEUED",    None,        None,        None,        None,        None),
    "job:pruned":               (None,        None,        "GONE",      "GONE",      "GONE",      "GONE"),
    "job:mended":               (None,        None,        None,        None,        None,        None),
}  # fmt: skip
CELLS = [(name, status, to) for name, row in TABLE.items() for status, to in zip(STATUSES, row, strict=True)]
LATER = later(START, 60)


def make(status):
    """Give a world whose job `j` has the status, and the token it has or had."""
    world = World()
    if status is JobStatus.QUEUED:
        world.enqueue("j")
        return world, 1
    token = world.start("j", max_expiries=1)
    match status:
        case JobStatus.COMPLETED:
            world.do(c.Complete(job_id="j", token=token))
        case JobStatus.FAILED:
            world.do(c.Fail(job_id="j", token=token, error="e", fatal=True))
        case JobStatus.DEAD:
            world.wait(30)
            world.do(c.Expire())
        case JobStatus.CANCELLED:
            world.do(c.GiveUp(job_id="j", token=token))
    return world, token


def event_of(name, token, next_token):
    kind, *words = name.split()
    to = JobStatus(words[0]) if words and words[0] in STATUSES else None
    held = {"job_id": "j", "token": token}
    match kind:
        case "job:created":
            return ev.JobCreated(job=Job("j", "t", msgspec.Raw(b"{}"), START))
        case "lease:granted":
            return ev.LeaseGranted(
                job_id="j", token=next_token, run_id="r", run_no=next_token, worker_id="w", lease_expires_at=LATER
            )
        case "lease:extended":
            return ev.LeaseExtended(**held, lease_expires_at=LATER)
        case "job:completed":
            return ev.JobCompleted(**held)
        case "job:failed":
            return ev.JobFailed(**held, error="e", error_kind="exception", to=to)
        case "job:snoozed":
            return ev.JobSnoozed(**held, not_before=LATER, to=to)
        case "lease:released":
            return ev.LeaseReleased(**held, begun=True, to=to)
        case "lease:expired":
            return ev.LeaseExpired(**held, reason="timeout", counted=True, to=to)
        case "job:cancel_requested":
            return ev.JobCancelRequested(job_id="j")
        case "job:cancelled":
            return ev.JobCancelled(job_id="j", token=token if words else None)
        case "job:dead":
            return ev.JobDead(job_id="j")
        case "job:skipped":
            return ev.JobSkipped(job_id="j", run_id="r", reason="expired")
        case "job:updated":
            return ev.JobUpdated(job_id="j", changes=ev.JobChanges(timeout_s=5))
        case "job:moved":
            return ev.JobMoved(job_id="j", position=7)
        case "job:pruned":
            return ev.JobPruned(job_id="j")
        case "job:mended":
            return ev.JobMended(job_id="j", run_id="r", to=JobStatus.FAILED, attempts=1, expiries=0, snoozes=0)
    raise AssertionError(kind)


def test_the_table_has_every_event_about_a_job():
    about = {kind.__struct_config__.tag for kind in ev.Event.__args__ if hasattr(kind, "job_id")} | {"job:created"}
    about.remove("schedule:fired")
    assert {name.split()[0] for name in TABLE} == about


def test_every_event_can_be_folded():
    assert set(_FOLDS) == set(ev.Event.__args__)


@pytest.mark.parametrize(("name", "status", "to"), CELLS)
def test_each_event_in_each_status_is_applied_or_corrupt(name, status, to):
    world, token = make(status)
    event = event_of(name, token, 1 if status is JobStatus.QUEUED else 2)
    before, seq = content(world.tables), world.tables.seq
    if to is None:
        with pytest.raises(CorruptState) as caught:
            world.tables.add([event], world.now)
        assert caught.value.facts == {"seq": seq + 1}
        assert content(world.tables) == before
        assert world.tables.seq == seq
        return
    world.tables.add([event], world.now)
    job = world.job()
    assert ("GONE" if job is None else job.status) == to
    assert list(violations(world.tables)) == []


@pytest.mark.parametrize("name", [name for name in TABLE if not name.startswith("job:created")])
def test_an_event_about_no_job_is_corrupt(name):
    world = World()
    with pytest.raises(CorruptState, match="there is no job j"):
        world.tables.add([event_of(name, 1, 1)], world.now)


# --- what else is asserted --------------------------------------------------------------------------------------------


def corrupt(world, *events):
    with pytest.raises(CorruptState) as caught:
        world.tables.add(events, world.now)
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "lease:extended",
        "job:completed",
        "job:failed FAILED",
        "job:snoozed QUEUED",
        "lease:released QUEUED",
        "lease:expired DEAD",
    ],
)
def test_an_event_with_another_token_than_the_lease_is_corrupt(name):
    world, token = make(JobStatus.RUNNING)
    assert "token" in corrupt(world, event_of(name, token + 1, 0))


def test_a_running_job_cancelled_with_another_token_is_corrupt():
    world, token = make(JobStatus.RUNNING)
    assert "another token" in corrupt(world, ev.JobCancelled(job_id="j", token=token + 1))


def test_a_job_not_created_queued_is_corrupt():
    job = Job("j", "t", msgspec.Raw(b"{}"), START)
    assert "not created QUEUED" in corrupt(
        World(), ev.JobCreated(job=msgspec.structs.replace(job, status=JobStatus.FAILED))
    )
    assert "not created QUEUED" in corrupt(World(), ev.JobCreated(job=msgspec.structs.replace(job, token=1)))


def test_a_token_that_does_not_grow_is_corrupt():
    world, token = make(JobStatus.COMPLETED)
    world.enqueue("k")
    grant = ev.LeaseGranted(job_id="k", token=token, run_id="r", run_no=1, worker_id="w", lease_expires_at=LATER)
    assert "does not exceed" in corrupt(world, grant)


def test_a_run_number_that_skips_is_corrupt():
    world, _ = make(JobStatus.QUEUED)
    grant = ev.LeaseGranted(job_id="j", token=9, run_id="r", run_no=2, worker_id="w", lease_expires_at=LATER)
    assert "skips from run 0" in corrupt(world, grant)


@pytest.mark.parametrize("seconds", [30, 29])
def test_an_extension_that_does_not_extend_is_corrupt(seconds):
    world, token = make(JobStatus.RUNNING)
    assert "backwards" in corrupt(
        world, ev.LeaseExtended(job_id="j", token=token, lease_expires_at=later(START, seconds))
    )


def test_a_lease_without_its_run_is_corrupt():
    world, token = make(JobStatus.RUNNING)
    world.tables.put(Run, world.run().run_id, None)
    assert "no run for its lease" in corrupt(world, ev.JobCompleted(job_id="j", token=token))


def test_a_run_that_ends_twice_is_corrupt():
    world, token = make(JobStatus.RUNNING)
    world.tables.put(Run, world.run().run_id, msgspec.structs.replace(world.run(), status="LOST"))
    assert "ends twice" in corrupt(world, ev.JobCompleted(job_id="j", token=token))


def test_params_changed_after_the_first_lease_are_corrupt():
    world, token = make(JobStatus.RUNNING)
    world.do(c.Release(job_id="j", token=token, begun=False))
    changes = ev.JobChanges(params=msgspec.Raw(b'{"a":1}'))
    assert "frozen" in corrupt(world, ev.JobUpdated(job_id="j", changes=changes))


def test_a_second_automatic_successor_is_corrupt():
    world = World()
    token = world.start("j", retry_mode="chain")
    world.do(c.Fail(job_id="j", token=token, error="e"))
    (heir,) = world.tables.successors("j")
    twin = msgspec.structs.replace(heir, job_id="twin")
    assert "already has the successor" in corrupt(world, ev.JobCreated(job=twin))


def test_a_group_of_events_that_fails_in_its_middle_leaves_nothing():
    world, token = make(JobStatus.RUNNING)
    before = content(world.tables)
    corrupt(world, ev.JobCompleted(job_id="j", token=token), ev.JobCompleted(job_id="j", token=token))
    assert content(world.tables) == before


# --- events that touch no job -----------------------------------------------------------------------------------------


def test_pauses_keys_and_remembered_commands_are_kept_and_removed():
    world = World()
    at = Stamp(1, START)

    def apply(event):
        for kind, key, record in fold(world.tables, event, at):
            world.tables.put(kind, key, record)

    apply(ev.QueuePaused(namespace="", queue="q", reason="why"))
    assert world.tables.get(Queue, "\0q") == Queue("", "q", paused=True, pause_reason="why")
    apply(ev.QueueResumed(namespace="", queue="q"))
    assert world.tables.get(Queue, "\0q") == Queue("", "q")
    apply(ev.QueueResumed(namespace="", queue="never paused"))
    apply(ev.DispatchPaused(reason="why"))
    assert world.tables.get(Authority, "") == Authority(dispatch_paused=True, dispatch_reason="why")
    apply(ev.DispatchResumed())
    assert world.tables.get(Authority, "") == Authority()
    apply(ev.CommandDone(cmd="c", digest="d", outcome=msgspec.Raw(b"null")))
    assert world.tables.get(DoneCommand, "c") == DoneCommand("c", "d", msgspec.Raw(b"null"), START)
    apply(ev.CommandForgotten(forgotten="c"))
    assert world.tables.get(DoneCommand, "c") is None
    world.enqueue("j", key="k", key_hold="forever")
    apply(ev.KeyDropped(namespace="", unique_key="task t k"))
    assert list(world.tables.all(HeldKey)) == []


# --- purity, and every prefix -----------------------------------------------------------------------------------------


def happy():
    """Work as it should go: enqueue, lease, extend, complete; a queue paused and resumed; moves and edits."""
    world = World()
    for number in range(4):
        world.enqueue(f"h{number}", key=f"k{number}", tags={"n": str(number)})
    world.do(c.Update(job_id="h3", changes=ev.JobChanges(priority=3, params=msgspec.Raw(b'{"x":1}')), cmd="u"))
    world.do(c.Move(job_id="h2", before="h0", cmd="m"))
    world.do(c.PauseQueue(queue="default", reason="lunch"))
    world.do(c.ResumeQueue(queue="default"))
    world.do(c.PauseDispatch(reason="lunch"))
    world.do(c.ResumeDispatch())
    world.do(c.Normalize(queue="default"))
    world.do(c.SetQueue(queue="default", changes=ev.QueueChanges(max_running=9, aging_s=60)))
    world.do(c.SetQueue(queue="default", changes=ev.QueueChanges(rate_count=99, rate_period_s=1)))
    grants = world.lease(4, cmd="l", session_id="s")
    world.wait(10)
    for grant in grants:
        world.do(c.Extend(job_id=grant.job.job_id, token=grant.token))
        world.do(c.Complete(job_id=grant.job.job_id, token=grant.token, result=msgspec.Raw(b"[1]")))
    plan_and_fire(world)
    world.enqueue("joins", queue="grouped")
    members = (new("g0", queue="grouped", retry_mode="chain"), "joins", new("g2", queue="grouped"))
    world.do(c.CreateGroup(group_id="g", members=members, callback=new("called", queue="grouped")))
    for _ in range(4):
        (grant,) = world.lease(4, queues=("grouped",))
        world.do(c.Complete(job_id=grant.job.job_id, token=grant.token))
    tell_others(world)
    world.wait(8 * 86_400)
    world.do(c.Prune())
    return world


def tell_others(world):
    """A webhook and its deliveries from beginning to end."""
    world.do(c.PutWebhook(webhook_id="w", webhook=NewWebhook(url="https://a.example/", secrets=("secret-one",))))
    world.do(c.RotateSecret(webhook_id="w", secret="secret-two"))
    world.do(c.Complete(job_id="told", token=world.start("told", queue="told")))
    for status in (500, 200):
        (claim,) = world.do(c.ClaimDeliveries()).claims
        world.do(c.EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, status=status))
        world.wait(5)
    world.do(c.DeleteWebhook(webhook_id="w"))


def plan_and_fire(world):
    """Schedules and templates from beginning to end."""
    world.do(c.PutTemplate(template_id="t", template=NewTemplate(name="t", job_type="t")))
    again = NewTemplate(name="t", job_type="t", options=JobOptions(priority=2), default_params=msgspec.Raw(b'{"a":1}'))
    world.do(c.PutTemplate(template_id="t", template=again, replace=True))
    new = NewSchedule(name="s", template_id="t", interval_s=60, jitter_s=20, catch_up=CatchUp.LATEST)
    world.do(c.PutSchedule(schedule_id="s", schedule=new))
    world.do(c.UpdateSchedule(schedule_id="s", changes=ScheduleChanges(interval_s=600, queue="slow")))
    for _ in range(2):
        world.wait(7200)
        world.do(c.Fire(schedule_id="s", expected=world.tables.get(Schedule, "s").next_fire_at))
    world.do(c.PauseSchedule(schedule_id="s", reason="r"))
    world.do(c.ResumeSchedule(schedule_id="s"))
    world.do(c.ArchiveTemplate(template_id="t"))
    world.do(c.DeleteSchedule(schedule_id="s"))
    world.do(c.DeleteTemplate(template_id="t"))


def _reserved(world):
    """A queue held for a direct execution; given back, and once left to time."""
    held = {"queue": "alone", "reserved_by": "me"}
    world.do(c.Reserve(reservation_id="r1", **held))
    world.wait(30)
    world.do(c.RenewReservation(reservation_id="r1"))
    job = new("direct", queue="alone")
    (grant,) = world.do(c.StartDirect(reservation_id="r1", job=job, worker_id="here")).grants
    world.do(c.Complete(job_id="direct", token=grant.token))
    world.do(c.ReleaseReservation(reservation_id="r1"))
    world.do(c.Reserve(reservation_id="r2", **held))
    world.wait(60)
    world.do(c.Expire())


def unhappy():
    """Work as it also goes: failures, lost leases, late reports, cancellations, burials, skips, chains, retries."""
    world = World()
    for mode in ("requeue", "chain"):
        for how in ("fail", "lose", "snooze", "release", "cancel", "force", "bury", "give_up", "restart", "late"):
            job_id = f"{mode}-{how}"
            token = world.start(job_id, retry_mode=mode, key=job_id, queue=job_id, max_attempts=2, key_hold="queued")
            held = {"job_id": job_id, "token": token}
            match how:
                case "fail":
                    world.do(c.Fail(**held, error="boom", details=msgspec.Raw(b"{}")))
                case "lose":
                    world.wait(31)
                    world.do(c.Expire())
                case "snooze":
                    world.do(c.Snooze(**held, delay_s=5))
                case "release":
                    world.do(c.Release(**held, begun=True, delay_s=3, given_back=True))
                case "cancel":
                    world.do(c.Cancel(job_id=job_id, reason="r"))
                    world.do(c.Fail(**held, error="stopped"))
                case "force":
                    world.do(c.Cancel(job_id=job_id, force=True))
                case "bury":
                    world.do(c.Bury(job_id=job_id, reason="r"))
                case "give_up":
                    world.do(c.GiveUp(**held, reason="r"))
                case "restart":
                    world.do(c.Release(**held, begun=False))
                    world.lease(queues=(job_id,), session_id="before")
                    world.do(c.EndSessions(session_id="now"))
                case "late":
                    world.wait(30)
                    assert world.tell(c.Complete(**held)).code == "lease_lost"
            world.wait(60)
            for grant in world.lease(10, queues=(job_id,)):
                world.do(c.Fail(job_id=grant.job.job_id, token=grant.token, error="boom again"))
    world.enqueue("stale", ttl_s=5)
    world.wait(5)
    world.do(c.Expire())
    world.enqueue("stale2", ttl_s=5, queue="late")
    world.wait(5)
    world.lease(queues=("late",))
    world.do(c.Retry(job_id="requeue-fail", new_job_id="by-hand", cmd="r"))
    world.do(c.Cancel(job_id="by-hand", cmd="x"))
    world.enqueue("w", key="w", key_hold="window", key_window_s=1)
    _reserved(world)
    world.wait(40 * 86_400)
    world.do(c.Prune())
    return world


@pytest.mark.parametrize("story", [happy, unhappy, flowing])
def test_every_prefix_of_a_log_replays_to_the_valid_state_it_had_then(story):
    world = story()
    states = World().tables
    told = {type(event) for event in happy().events() + unhappy().events() + flowing().events()}
    assert told == set(ev.Event.__args__) - {ev.JobMended, ev.RunDropped}  # only damage brings these
    for length in range(len(world.groups) + 1):
        replayed = replay(world.groups[:length])
        if length:
            first, ts, events = world.groups[length - 1]
            states.begin(lambda *_: None)
            states.add(events, ts)
            assert (states.seq, states.ts) == (replayed.seq, replayed.ts) == (first + len(events) - 1, ts)
        assert content(replayed) == content(states)
        assert list(violations(replayed)) == []
    assert content(replayed) == content(world.tables)


@pytest.mark.parametrize("story", [happy, unhappy])
def test_two_replays_give_equal_bytes(story):
    groups = story().groups

    def image():
        tables = replay(groups)
        return msgspec.json.encode([[kind, list(tables.all(kind))] for kind in ()]) + b"".join(
            msgspec.json.encode(record) for kind in tables.records for record in tables.all(kind)
        )

    assert image() == image()


@pytest.mark.parametrize("story", [happy, unhappy])
def test_deciding_and_folding_read_no_clock_no_chance_and_no_file(story, monkeypatch):
    expected = story().groups

    def forbidden(*_args, **_kwargs):
        raise AssertionError("the rules asked the machine")

    class Timeless(dt.datetime):
        now = utcnow = today = classmethod(forbidden)

    for module, names in {
        time: ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "gmtime", "localtime"),
        random: ("random", "randint", "getrandbits", "choice"),
        uuid: ("uuid1", "uuid4"),
        os: ("urandom", "getrandom"),
        builtins: ("open",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, forbidden)
    monkeypatch.setattr(dt, "datetime", Timeless)
    monkeypatch.setattr("holdfast.model.times.datetime", Timeless)
    world = story()
    groups = world.groups
    same = content(replay(groups)) == content(world.tables)
    monkeypatch.undo()
    assert same
    assert groups == expected


def test_the_same_state_command_time_and_chance_give_the_same_decision():
    world = World()
    token = world.start("j", retry_mode="chain")
    command = c.Fail(job_id="j", token=token, error="e")
    first, second = (decide(world.tables, command, world.now, Draws(world.now, 5)) for _ in range(2))
    assert first == second
    assert decide(world.tables, command, world.now, Draws(world.now, 6)) != first


def test_deciding_changes_nothing():
    world = World()
    world.enqueue("j")
    before = content(world.tables)
    for command in (c.Lease(worker_id="w"), c.Cancel(job_id="j"), c.Enqueue(jobs=(new("k"),))):
        assert world.decide(command).events
    assert content(world.tables) == before

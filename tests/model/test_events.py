"""The event union: every event survives encoding, what is not one is refused, foreign ones are left alone."""

import sys

import msgspec
import pytest
from flowsamples import EVENTS

from holdfast.errors import BadEvent, UnknownEvent
from holdfast.model import events as ev
from holdfast.model.groups import Group, GroupStatus
from holdfast.model.jobs import Backoff, Job, JobStatus
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Overlap, Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, Template
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import DeliveryStatus, Webhook, WebhookChanges

NOW = Timestamp("2026-01-01T00:00:00.000000Z")
HELD = {"job_id": "j", "token": 7}
NEXT = {"next_fire_at": NOW, "next_trigger_at": NOW}
TEMPLATE = Template("t", "n", "send", NOW, options=JobOptions(priority=1, tags={"a": "b"}))
SCHEDULE = Schedule("s", "n", NOW, job_type="send", cron_expression="* * * * *", overlap=Overlap.QUEUE, **NEXT)

EVERY = [
    ev.JobCreated(job=Job("j", "t", msgspec.Raw(b'{"a":1}'), NOW, tags={"k": "v"}, backoff=Backoff(jitter=0))),
    ev.LeaseGranted(**HELD, run_id="r", run_no=1, worker_id="w", lease_expires_at=NOW),
    ev.LeaseExtended(**HELD, lease_expires_at=NOW),
    ev.LeaseExpired(**HELD, reason="timeout", counted=True, to=JobStatus.QUEUED),
    ev.LeaseReleased(**HELD, begun=False, to=JobStatus.QUEUED, given_back=True),
    ev.JobCompleted(**HELD, result=msgspec.Raw(b"[1]"), exit_code=0),
    ev.JobFailed(**HELD, error="e", error_kind="exception", to=JobStatus.FAILED, successor="j2"),
    ev.JobSnoozed(**HELD, not_before=NOW, to=JobStatus.QUEUED, position=0),
    ev.JobCancelRequested(job_id="j", reason="r"),
    ev.JobCancelled(job_id="j", token=7, gave_up=True),
    ev.JobSkipped(job_id="j", run_id="r", reason="expired"),
    ev.JobDead(job_id="j", reason="r"),
    ev.JobUpdated(job_id="j", changes=ev.JobChanges(params=msgspec.Raw(b"{}"), not_before=None, tags=None), rank=0),
    ev.JobMoved(job_id="j", position=-50),
    ev.JobPruned(job_id="j"),
    ev.JobMended(job_id="j", run_id="r", to=JobStatus.FAILED, attempts=1, expiries=0, snoozes=0, successor="j2"),
    ev.RunDropped(run_id="r"),
    ev.QueuePaused(namespace="", queue="q", reason="r"),
    ev.QueueResumed(namespace="", queue="q"),
    ev.QueueSet(namespace="", queue="q", changes=ev.QueueChanges(max_running=None, rate_scope="key", aging_s=0.5)),
    ev.QueueNormalized(namespace="", queue="q", rank=0),
    ev.DispatchPaused(reason="r"),
    ev.DispatchResumed(),
    ev.TemplateCreated(template=TEMPLATE),
    ev.TemplateUpdated(template_id="t", name="n", job_type="t", version=2, default_params=msgspec.Raw(b"{}")),
    ev.TemplateArchived(template_id="t", version=3),
    ev.TemplateDeleted(template_id="t"),
    ev.ScheduleCreated(schedule=SCHEDULE),
    ev.ScheduleUpdated(schedule_id="s", version=2, **NEXT, changes=ScheduleChanges(run_at=None, grace_s=5.0)),
    ev.ScheduleFired(schedule_id="s", fire_at=NOW, job_id="j", **NEXT, is_last=True),
    ev.ScheduleMissed(schedule_id="s", count=3, until=NOW, next_fire_at=None, next_trigger_at=None),
    ev.SchedulePaused(schedule_id="s", version=3, reason="r"),
    ev.ScheduleResumed(schedule_id="s", version=4, **NEXT),
    ev.ScheduleDeleted(schedule_id="s"),
    ev.ReservationAcquired(reservation=Reservation("r", "q", "me", NOW, NOW, session_id="s")),
    ev.ReservationRenewed(reservation_id="r", expires_at=NOW),
    ev.ReservationReleased(reservation_id="r"),
    ev.ReservationExpired(reservation_id="r", reason="restart"),
    ev.ReservationPruned(reservation_id="r"),
    ev.GroupCreated(group=Group("g", NOW, name="n", callback=msgspec.Raw(b"{}")), joined=(("j", 3),)),
    ev.GroupChanged(group_id="g", status=GroupStatus.PARTIAL),
    ev.GroupPruned(group_id="g"),
    ev.WebhookCreated(webhook=Webhook("w", "u", NOW, events=("e",), queues=("q",), secrets=("hush",))),
    ev.WebhookUpdated(webhook_id="w", changes=WebhookChanges(queues=None, secrets=("hush", "hush"))),
    ev.WebhookDeleted(webhook_id="w"),
    ev.DeliveryCreated(delivery_id="d", webhook_id="w", run_id="r", event="job.run.lost"),
    ev.DeliveryClaimed(delivery_id="d", claimed_until=NOW),
    ev.DeliveryEnded(delivery_id="d", to=DeliveryStatus.PENDING, attempts=1, next_attempt_at=NOW, last_status=500),
    ev.DeliveryPruned(delivery_id="d"),
    *EVENTS,
    ev.KeyDropped(namespace="", unique_key="task t k"),
    ev.CommandDone(cmd="c", digest="d", outcome=msgspec.Raw(b"null")),
    ev.CommandForgotten(forgotten="c", cmd="c2", actor="me"),
]


def test_every_kind_of_event_is_exercised_here():
    assert [type(event) for event in EVERY] == list(ev.Event.__args__)


@pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
def test_an_event_written_and_read_is_the_same_event(event):
    raw = ev.encode_event(event)
    assert ev.decode_event(raw, seq=1, file="f") == event
    assert ev.decode_event(msgspec.Raw(raw), seq=1, file="f") == event
    assert b"\n" not in raw


def test_types_are_nouns_and_past_tense_verbs_and_unique():
    tags = [kind.__struct_config__.tag for kind in ev.Event.__args__]
    assert len(set(tags)) == len(tags)
    nouns = {"job", "lease", "queue", "dispatch", "template", "schedule", "reservation", "group", "key", "command"}
    nouns |= {"webhook", "delivery", "run"}
    nouns |= {"message", "turn", "history", "instance", "decision", "affinity", "handlers"}
    assert {tag.split(":")[0] for tag in tags} == nouns


def test_an_unknown_type_is_refused_and_named():
    with pytest.raises(UnknownEvent, match="job:teleported") as caught:
        ev.decode_event(b'{"type":"job:teleported"}', seq=12, file="log")
    assert caught.value.facts == {"file": "log", "seq": 12}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"job:moved","job_id":"j"}',  # a field is missing
        b'{"type":"job:moved","job_id":"j","position":"1"}',  # a field is mistyped
        b'{"type":"lease:expired","job_id":"j","token":1,"reason":"x","counted":true,"to":"ASLEEP"}',
        b'{"job_id":"j"}',  # no type
        b'{"type":7}',
        b"[]",
        b"",
        b"\xff",
        b'{"type":"job:moved"',
        b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_refused_and_placed(raw):
    with pytest.raises(BadEvent) as caught:
        ev.decode_event(raw, seq=3, file="log")
    assert caught.value.facts == {"file": "log", "seq": 3}


@pytest.mark.parametrize("kind", ["x:note", "journal:opened"])
def test_events_of_foreign_namespaces_are_left_alone(kind):
    assert ev.decode_event(b'{"type":"%s","whatever":[1]}' % kind.encode(), seq=1, file="f") is None


def test_changes_tell_unset_from_none():
    changes = ev.JobChanges(not_before=None, priority=0)
    assert changes.given() == {"not_before": None, "priority": 0}
    assert ev.JobChanges().given() == {}


def test_no_secret_is_in_what_an_event_shows_of_itself():
    assert not any("hush" in repr(event) for event in EVERY)


def test_what_reads_events_is_made_by_one_thread_while_others_wait(monkeypatch):
    """Two that made it at once ended the process: one of them read with classes that the other had half read."""
    name, waited = "holdfast.model.events.decode", []

    def made(kind):
        waited.append(sys.modules[name].__spec__._initializing)  # whoever imports it now waits
        return kind

    ev._decoder.cache_clear()
    with monkeypatch.context() as patched:
        patched.delitem(sys.modules, name, raising=False)
        patched.delattr(ev, "decode", raising=False)
        patched.setattr(msgspec.json, "Decoder", made)
        ev._decoder()
        del sys.modules[name]
    ev._decoder.cache_clear()
    assert waited == [True]
    assert ev.decode_event(ev.encode_event(ev.JobPruned(job_id="j")), seq=1, file="f") == ev.JobPruned(job_id="j")

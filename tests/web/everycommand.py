"""A history with every kind of command somebody elsewhere may send, by ids and tokens that are always the same."""

from __future__ import annotations

import msgspec

from holdfast.model import commands as c
from holdfast.model.error_details import Category, ErrorDetails
from holdfast.model.events.jobs import JobChanges
from holdfast.model.events.queues import QueueChanges
from holdfast.model.schedules import NewSchedule, ScheduleChanges
from holdfast.model.templates import NewTemplate
from holdfast.model.times import later, stamp
from holdfast.model.webhooks import NewWebhook, WebhookChanges
from holdfast.model.workflows import commands as f
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.decisions import decision_id
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityExecute,
    QueueMessage,
    StartOrchestration,
)
from holdfast.testing.clock import START
from holdfast.testing.conformance.harness import new_job

NOW = stamp(START)


def raw(struct):
    return msgspec.Raw(msgspec.json.encode(struct))


def message(item):
    return f.NewMessage(item=raw(item))


def begin(name):
    return message(StartOrchestration(instance=name, orchestration="flow", input="{}"))


def signal(name):
    return message(QueueMessage(instance=name, name="s", data="1"))


ANSWER = message(QueueMessage(instance="i", name="@decision/4", data='{"chosen":"yes","by":"me"}'))


def event(event_id, kind, name):
    return Event(event_id=event_id, instance=name, execution_id=1, timestamp_ms=1, kind=kind)


def first(name):
    return event(1, event_kinds.OrchestrationStarted(name="flow", version="1.0.0", input="{}"), name)


def delta(*events):
    return f.Delta(events=tuple(f.NewEvent(event=raw(one)) for one in events))


def activity(job_id):
    item = ActivityExecute(instance="i", execution_id=1, id=7, name="act", input="{}")
    return f.NewActivity(job_id=job_id, item=raw(item))


def completion(number=7):
    return message(ActivityCompleted(instance="i", execution_id=1, id=number, result="1"))


ENDED = f.Metadata(status=InstanceStatus.COMPLETED, output=msgspec.Raw(b'"o"'))
GIVEN_UP = ErrorDetails(category=Category.APPLICATION, kind="Cancelled", message="given up")


def jobs(*names, **options):
    return c.Enqueue(jobs=tuple(new_job(name, **options) for name in names))


def lease(n=1, **more):
    return c.Lease(worker_id="w", n=n, **more)


#: In this order. Leases and locks are numbered from 1 on, as they are granted.
HISTORY = [
    jobs("a", "b", "c", "d", "e", "f"),
    lease(6),
    c.Extend(job_id="a", token=1, lease_s=60.0),
    c.Complete(job_id="a", token=1, result=msgspec.Raw(b"1")),
    c.Fail(job_id="b", token=2, error="no", retry_after_s=5.0),
    c.Snooze(job_id="c", token=3, delay_s=5.0),
    c.GiveUp(job_id="d", token=4, reason="never"),
    c.Release(job_id="e", token=5, begun=True),
    c.Cancel(job_id="f", reason="stop"),
    c.Cancel(job_id="f", force=True),
    c.Bury(job_id="e", reason="bad"),
    c.Retry(job_id="e", new_job_id="e2"),
    jobs("g", "h", queue="slow"),
    c.Move(job_id="h", before="g"),
    c.Update(job_id="g", changes=JobChanges(priority=5)),
    c.Normalize(queue="slow"),
    c.PauseQueue(queue="slow", reason="later"),
    c.ResumeQueue(queue="slow"),
    c.SetQueue(queue="slow", changes=QueueChanges(max_running=1)),
    c.PauseDispatch(reason="now"),
    c.ResumeDispatch(),
    c.Reserve(reservation_id="r", queue="own", reserved_by="me"),
    c.RenewReservation(reservation_id="r", ttl_s=120.0),
    c.StartDirect(reservation_id="r", job=new_job("direct", queue="own"), worker_id="w"),
    c.Complete(job_id="direct", token=7),
    c.ReleaseReservation(reservation_id="r"),
    c.PutTemplate(template_id="t", template=NewTemplate(name="t", job_type="work")),
    c.UseTemplate(template_id="t", job_id="templated"),
    c.ArchiveTemplate(template_id="t"),
    c.PutTemplate(template_id="u", template=NewTemplate(name="u", job_type="work")),
    c.DeleteTemplate(template_id="u"),
    c.PutSchedule(schedule_id="s", schedule=NewSchedule(name="s", job_type="work", interval_s=3600.0)),
    c.UpdateSchedule(schedule_id="s", changes=ScheduleChanges(queue="slow")),
    c.PauseSchedule(schedule_id="s"),
    c.ResumeSchedule(schedule_id="s"),
    c.ResetSchedule(schedule_id="s"),
    c.Trigger(schedule_id="s", job_id="triggered"),
    c.Backfill(schedule_id="s", backfill_id="b", since=later(NOW, -7200), until=NOW),
    c.DeleteSchedule(schedule_id="s"),
    c.PutWebhook(webhook_id="w", webhook=NewWebhook(url="https://example.com/", made_secret="s" * 40)),
    c.RotateSecret(webhook_id="w", secret="t" * 40),
    c.ProbeWebhook(webhook_id="w", delivery_id="probe"),
    c.UpdateWebhook(webhook_id="w", changes=WebhookChanges(enabled=False)),
    c.Redeliver(delivery_id="probe"),
    c.DeleteWebhook(webhook_id="w"),
    c.CreateGroup(group_id="many", members=(new_job("m1", queue="many"), new_job("m2", queue="many"))),
    c.CancelGroup(group_id="many", running=True),
    f.AnnounceHandlers(handlers=("flow", "flow 1.0.0")),
    f.StartInstance(message=begin("i")),
    f.FetchTurn(lock_s=30.0),
    f.TellInstance(message=signal("i")),
    f.FetchMore(token=8),
    f.RenewTurn(token=8, lock_s=60.0),
    f.AckTurn(token=8, execution_id=1, delta=delta(first("i"))),
    f.SendMessage(message=signal("i")),
    f.FetchTurn(lock_s=30.0),
    f.AbandonTurn(token=9, given_back=True),
    f.FetchTurn(lock_s=30.0),
    f.ParkMessages(token=10, messages=()),
    f.AckTurn(token=10, execution_id=1, delta=delta()),
    f.AppendHistory(
        instance_id="i",
        execution_id=1,
        delta=delta(event(2, event_kinds.OrchestrationCancelRequested(reason="r"), "i")),
    ),
    f.StartActivity(activity=activity("act")),
    f.FetchActivity(worker_id="w", lease_s=30.0, queues=("default",)),
    f.RenewActivity(token=11, lease_s=60.0),
    f.AbandonActivity(token=11, given_back=True),
    f.FetchActivity(worker_id="w", lease_s=30.0, queues=("default",)),
    f.AckActivity(token=12, completion=completion(), result=msgspec.Raw(b"1")),
    f.RenewSessions(owner_ids=("w",), lock_s=30.0, idle_s=60.0),
    f.CleanSessions(),
    f.AnswerDecision(decision_id=decision_id("i", 1, 4), message=ANSWER),
    f.ForkInstance(instance_id="i", fork="copy", execution_id=1, until=1, begins=delta(first("copy"))),
    f.FailInstance(instance_id="i", execution_id=1, last_event_id=1, ending=delta()),
    f.ResetInstance(instance_id="i", history_id=1, last_event_id=1, until=1, begins=delta(first("i"))),
    f.ImportInstance(
        instance_id="imported",
        executions=(f.Ended(execution_id=1, status=InstanceStatus.FAILED, delta=delta(first("imported"))),),
    ),
    f.PruneExecutions(instance_id="imported", keep_last=1),
    f.DeleteEnded(instance_ids=("imported",)),
    f.DeleteInstances(instance_ids=("i",), force=True),
]
#: Forgets what is over, and with it by which ids it would be known again.
LAST = c.Prune(retention=c.Retention(done_s=0, failed_s=0))

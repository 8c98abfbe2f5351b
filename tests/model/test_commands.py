"""Commands are data: each survives being sent."""

import msgspec
import pytest
from flowsamples import COMMANDS

from holdfast.model import commands as c
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.groups import GroupMode, OnFailure
from holdfast.model.jobs import Backoff, KeyHold, KeyScope, RetryMode
from holdfast.model.schedules import NewSchedule, Overlap, ScheduleChanges
from holdfast.model.templates import NewTemplate
from holdfast.model.webhooks import NewWebhook, WebhookChanges
from holdfast.model.workflows import commands as f

RAW = msgspec.Raw(b'{"a":1}')
MESSAGE = f.NewMessage(item=RAW, instance_id="i", kind="StartOrchestration", orchestration="flow", digest="d")
HELD = {"job_id": "j", "token": 7}
EVERY = [
    c.Enqueue(
        cmd="c",
        actor="me",
        jobs=(
            c.NewJob(job_id="j", job_type="t", params=RAW),
            c.NewJob(
                job_id="k",
                job_type="t",
                params=RAW,
                key="x",
                key_scope=KeyScope.QUEUE,
                key_hold=KeyHold.WINDOW,
                key_window_s=5,
                retry_mode=RetryMode.CHAIN,
                backoff=Backoff(jitter=0),
                on_conflict="replace",
            ),
        ),
    ),
    c.Lease(worker_id="w", queues=("a", "b"), job_types=("t",), n=3, lease_s=5, session_id="s"),
    c.Extend(**HELD, lease_s=10),
    c.Complete(**HELD, result=RAW, artifacts=RAW, exit_code=0),
    c.Fail(**HELD, error="e", error_kind="timeout", retry_after_s=1),
    c.Snooze(**HELD, delay_s=1),
    c.GiveUp(**HELD, reason="r"),
    c.Release(**HELD, begun=True, given_back=True),
    c.Cancel(job_id="j", force=True),
    c.Bury(job_id="j", reason="r"),
    c.Update(job_id="j", changes=JobChanges(not_before=None, priority=3)),
    c.Move(job_id="j", to="first"),
    c.Normalize(queue="q"),
    c.Retry(job_id="j", new_job_id="k", params=RAW, priority=0),
    c.PauseQueue(queue="q", reason="r"),
    c.ResumeQueue(queue="q"),
    c.SetQueue(queue="q", changes=QueueChanges(max_running=None, rate_count=1, rate_period_s=0.5, rate_scope="key")),
    c.PauseDispatch(reason="r"),
    c.ResumeDispatch(),
    c.Reserve(reservation_id="r", queue="q", reserved_by="me", ttl_s=5.5, session_id="s"),
    c.RenewReservation(reservation_id="r", ttl_s=5.5),
    c.ReleaseReservation(reservation_id="r"),
    c.StartDirect(reservation_id="r", job=c.NewJob(job_id="j", job_type="t", params=RAW), worker_id="w"),
    c.PutTemplate(template_id="t", template=NewTemplate(name="n", job_type="t"), replace=True, version=3),
    c.ArchiveTemplate(template_id="t"),
    c.DeleteTemplate(template_id="t"),
    c.UseTemplate(template_id="t", job_id="j", params=RAW),
    c.PutSchedule(schedule_id="s", schedule=NewSchedule(name="n", job_type="t", interval_s=5.0, overlap=Overlap.QUEUE)),
    c.UpdateSchedule(schedule_id="s", changes=ScheduleChanges(end_at=None, param_overrides=RAW), version=2),
    c.PauseSchedule(schedule_id="s", reason="r"),
    c.ResumeSchedule(schedule_id="s"),
    c.ResetSchedule(schedule_id="s"),
    c.DeleteSchedule(schedule_id="s"),
    c.Trigger(schedule_id="s", job_id="j", params=RAW),
    c.Backfill(schedule_id="s", backfill_id="b", since="a", until="b", limit=5),
    c.Fire(schedule_id="s", expected="a"),
    c.Replan(schedule_id="s", expected="a"),
    c.PutWebhook(
        webhook_id="w",
        webhook=NewWebhook(url="u", events=("e",), queues=("q",), secrets=("s",), made_secret="m"),
        replace=True,
        allow=("10.0.0.0/8",),
    ),
    c.UpdateWebhook(webhook_id="w", changes=WebhookChanges(queues=None, secrets=("a", "b")), allow=("::/0",)),
    c.RotateSecret(webhook_id="w", secret="s"),
    c.DeleteWebhook(webhook_id="w"),
    c.ProbeWebhook(webhook_id="w", delivery_id="d"),
    c.ClaimDeliveries(limit=3),
    c.EndDelivery(delivery_id="d", claimed_until="t", status=500, error="e"),
    c.Redeliver(delivery_id="d"),
    c.CreateGroup(
        group_id="g",
        members=(c.NewJob(job_id="j", job_type="t", params=RAW), "k"),
        name="n",
        mode=GroupMode.CONCURRENT,
        on_failure=OnFailure.SKIP,
        callback=c.NewJob(job_id="z", job_type="t", params=RAW),
    ),
    c.CancelGroup(group_id="g", running=True, reason="r"),
    c.MendGroups(limit=7),
    c.Mend(chains=True, limit=7),
    c.DropRuns(runs=("r", "s")),
    c.Expire(jump=c.ClockJump("a", "b"), overdue=(c.Overdue("j", 7),)),
    c.EndSessions(session_id="s"),
    c.EndSession(session_id="s", limit=7),
    c.Prune(retention=c.Retention(done_s=1), limit=5),
    *COMMANDS,
]


def test_every_command_is_exercised_here():
    assert [type(command) for command in EVERY] == list(c.Command.__args__)


@pytest.mark.parametrize("command", EVERY, ids=lambda command: type(command).__name__)
def test_a_command_sent_and_received_is_the_same_command(command):
    assert msgspec.json.decode(msgspec.json.encode(command), type=c.Command) == command


@pytest.mark.parametrize(
    "command",
    [
        c.PutWebhook(webhook_id="w", webhook=NewWebhook(url="u", secrets=("hush",), made_secret="hush")),
        c.UpdateWebhook(webhook_id="w", changes=WebhookChanges(secrets=("hush",))),
        c.RotateSecret(webhook_id="w", secret="hush"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_no_secret_is_in_what_a_command_shows_of_itself(command):
    assert "hush" not in repr(command)
    assert b"hush" in msgspec.json.encode(command)

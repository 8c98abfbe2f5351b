"""One command of every kind, each with the state it needs. What holds for all commands is checked over this list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.model.commands import (
    Bury,
    Cancel,
    CancelGroup,
    ClaimDeliveries,
    Command,
    Complete,
    CreateGroup,
    DeleteWebhook,
    EndDelivery,
    EndSession,
    EndSessions,
    Enqueue,
    Expire,
    Extend,
    Fail,
    GiveUp,
    Lease,
    Move,
    Normalize,
    PauseDispatch,
    PauseQueue,
    ProbeWebhook,
    Prune,
    PutWebhook,
    Redeliver,
    Release,
    ReleaseReservation,
    RenewReservation,
    Reserve,
    ResumeDispatch,
    ResumeQueue,
    Retention,
    Retry,
    RotateSecret,
    SetQueue,
    Snooze,
    StartDirect,
    Update,
    UpdateWebhook,
)
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Claim, Claimed
from holdfast.model.webhooks import NewWebhook, WebhookChanges
from holdfast.testing.conformance.harness import Harness, new_job

A, B, C = JobId("a"), JobId("b"), JobId("c")


def _queued(h: Harness) -> None:
    h.enqueue_many(new_job("a"), new_job("b"), new_job("c"))


def _enqueue(h: Harness) -> Command:
    del h
    return Enqueue(cmd="x", jobs=(new_job("a", params={"n": 1}), new_job("b", key="k")))


def _lease(h: Harness) -> Command:
    _queued(h)
    return Lease(cmd="x", worker_id="w1", n=2)


def _extend(h: Harness) -> Command:
    h.enqueue("a")
    grant = h.take()
    h.advance(20)
    return Extend(cmd="x", job_id=A, token=grant.token)


def _complete(h: Harness) -> Command:
    h.enqueue("a", key="k")
    return Complete(cmd="x", job_id=A, token=h.take().token, result=msgspec.Raw(b'"ok"'))


def _fail(h: Harness) -> Command:
    h.enqueue("a")
    return Fail(cmd="x", job_id=A, token=h.take().token, error="boom")


def _fail_in_chain(h: Harness) -> Command:
    h.enqueue("a", retry_mode="chain", key="k")
    return Fail(cmd="x", job_id=A, token=h.take().token, error="boom")


def _snooze(h: Harness) -> Command:
    h.enqueue("a")
    return Snooze(cmd="x", job_id=A, token=h.take().token, delay_s=60)


def _give_up(h: Harness) -> Command:
    h.enqueue("a")
    return GiveUp(cmd="x", job_id=A, token=h.take().token, reason="enough")


def _release(h: Harness) -> Command:
    h.enqueue("a")
    return Release(cmd="x", job_id=A, token=h.take().token, begun=True)


def _cancel(h: Harness) -> Command:
    _queued(h)
    return Cancel(cmd="x", job_id=A, reason="not wanted")


def _cancel_running(h: Harness) -> Command:
    h.enqueue("a")
    h.take()
    return Cancel(cmd="x", job_id=A, force=True)


def _bury(h: Harness) -> Command:
    _queued(h)
    return Bury(cmd="x", job_id=A, reason="poison")


def _update(h: Harness) -> Command:
    _queued(h)
    return Update(cmd="x", job_id=A, changes=JobChanges(priority=5, queue="other"))


def _move(h: Harness) -> Command:
    _queued(h)
    return Move(cmd="x", job_id=C, before=B)


def _normalize(h: Harness) -> Command:
    _queued(h)
    h.ask(Move(job_id=C, before=B))
    return Normalize(cmd="x", queue="default")


def _set_queue(h: Harness) -> Command:
    _queued(h)
    h.take()
    return SetQueue(cmd="x", queue="default", changes=QueueChanges(max_running=2, aging_s=60))


def _retry(h: Harness) -> Command:
    h.enqueue("a")
    h.ask(Cancel(job_id=A))
    return Retry(cmd="x", job_id=A, new_job_id=B)


def _pause_queue(h: Harness) -> Command:
    del h
    return PauseQueue(cmd="x", queue="default", reason="maintenance")


def _resume_queue(h: Harness) -> Command:
    h.ask(PauseQueue(queue="default"))
    return ResumeQueue(cmd="x", queue="default")


def _pause_dispatch(h: Harness) -> Command:
    del h
    return PauseDispatch(cmd="x", reason="maintenance")


def _resume_dispatch(h: Harness) -> Command:
    h.ask(PauseDispatch())
    return ResumeDispatch(cmd="x")


def _reserve(h: Harness) -> Command:
    h.ask(Reserve(reservation_id="old", queue="default", reserved_by="me"))
    h.advance(60)
    return Reserve(cmd="x", reservation_id="r", queue="default", reserved_by="me")


def _reserved(h: Harness) -> None:
    h.ask(Reserve(reservation_id="r", queue="default", reserved_by="me"))


def _renew_reservation(h: Harness) -> Command:
    _reserved(h)
    h.advance(20)
    return RenewReservation(cmd="x", reservation_id="r")


def _release_reservation(h: Harness) -> Command:
    _reserved(h)
    return ReleaseReservation(cmd="x", reservation_id="r")


def _start_direct(h: Harness) -> Command:
    _reserved(h)
    return StartDirect(cmd="x", reservation_id="r", job=new_job("a", key="k"), worker_id="here")


def _expire(h: Harness) -> Command:
    _reserved(h)
    h.advance(31)
    h.enqueue("a", queue="other")
    h.take(queues=("other",))
    h.enqueue("b", ttl_s=10)
    h.advance(30)
    return Expire(cmd="x")


def _end_sessions(h: Harness) -> Command:
    h.enqueue("a")
    h.take(session_id="an earlier opening")
    return EndSessions(cmd="x", session_id="this opening")


def _end_session(h: Harness) -> Command:
    h.enqueue("a")
    h.take(session_id="a dead opening")
    return EndSession(cmd="x", session_id="a dead opening")


def _prune(h: Harness) -> Command:
    h.enqueue("a")
    h.ask(Cancel(job_id=A))
    h.advance(10)
    return Prune(cmd="x", retention=Retention(done_s=1, failed_s=1))


def webhook(h: Harness, webhook_id: str = "hook", **fields: Any) -> None:
    """Make a webhook that wants everything, unless told otherwise."""
    new = NewWebhook(**{"url": "https://receiver.example/hook", "secrets": ("a-secret-of-ours",), **fields})
    h.ask(PutWebhook(webhook_id=webhook_id, webhook=new))


def _owe(h: Harness) -> None:
    webhook(h)
    h.enqueue("a")
    h.complete(h.take())


def _claim_one(h: Harness) -> Claim:
    outcome = h.ask(ClaimDeliveries())
    assert isinstance(outcome, Claimed)
    return outcome.claims[0]


def _fail_with_webhook(h: Harness) -> Command:
    webhook(h)
    return _fail_in_chain(h)


def _put_webhook(h: Harness) -> Command:
    del h
    new = NewWebhook(url="https://receiver.example/", secrets=("a-secret-of-ours",))
    return PutWebhook(cmd="x", webhook_id="hook", webhook=new)


def _update_webhook(h: Harness) -> Command:
    webhook(h)
    return UpdateWebhook(cmd="x", webhook_id="hook", changes=WebhookChanges(enabled=False))


def _rotate_secret(h: Harness) -> Command:
    webhook(h)
    return RotateSecret(cmd="x", webhook_id="hook", secret="another-secret")  # noqa: S106 - no one's


def _delete_webhook(h: Harness) -> Command:
    webhook(h)
    return DeleteWebhook(cmd="x", webhook_id="hook")


def _probe_webhook(h: Harness) -> Command:
    webhook(h)
    return ProbeWebhook(cmd="x", webhook_id="hook", delivery_id="d")


def _claim_deliveries(h: Harness) -> Command:
    _owe(h)
    return ClaimDeliveries(cmd="x")


def _end_delivery(h: Harness) -> Command:
    _owe(h)
    claim = _claim_one(h)
    return EndDelivery(cmd="x", delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, status=500)


def _redeliver(h: Harness) -> Command:
    _owe(h)
    claim = _claim_one(h)
    h.ask(EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, status=200))
    return Redeliver(cmd="x", delivery_id=claim.delivery_id)


def _prune_deliveries(h: Harness) -> Command:
    _redeliver(h)
    h.advance(10)
    return Prune(cmd="x", retention=Retention(deliveries_s=1))


def _create_group(h: Harness) -> Command:
    h.enqueue("a")
    return CreateGroup(cmd="x", group_id="g", members=(new_job("b"), A, new_job("c")), callback=new_job("z"))


def _fail_in_group(h: Harness) -> Command:
    h.ask(_create_group(h))
    return Fail(cmd="x", job_id=B, token=h.take().token, error="boom", fatal=True)


def _cancel_group(h: Harness) -> Command:
    h.ask(_create_group(h))
    h.take()
    return CancelGroup(cmd="y", group_id="g", running=True, reason="no")


def _prune_group(h: Harness) -> Command:
    h.ask(_create_group(h))
    h.ask(CancelGroup(group_id="g"))
    h.complete(h.take())
    h.advance(10)
    return Prune(cmd="x", retention=Retention(done_s=1, failed_s=1))


#: Name → how to bring the store into a state in which the command writes something, and the command itself.
SAMPLES: dict[str, Callable[[Harness], Command]] = {
    "enqueue": _enqueue,
    "lease": _lease,
    "extend": _extend,
    "complete": _complete,
    "fail": _fail,
    "fail in a chain": _fail_in_chain,
    "snooze": _snooze,
    "give up": _give_up,
    "release": _release,
    "cancel": _cancel,
    "cancel by force": _cancel_running,
    "bury": _bury,
    "update": _update,
    "move": _move,
    "normalize": _normalize,
    "set queue": _set_queue,
    "retry": _retry,
    "pause queue": _pause_queue,
    "resume queue": _resume_queue,
    "pause dispatch": _pause_dispatch,
    "resume dispatch": _resume_dispatch,
    "reserve": _reserve,
    "renew reservation": _renew_reservation,
    "release reservation": _release_reservation,
    "start direct": _start_direct,
    "expire": _expire,
    "end sessions": _end_sessions,
    "end one session": _end_session,
    "prune": _prune,
    "create group": _create_group,
    "fail in a group": _fail_in_group,
    "cancel group": _cancel_group,
    "prune group": _prune_group,
    "fail with a webhook": _fail_with_webhook,
    "put webhook": _put_webhook,
    "update webhook": _update_webhook,
    "rotate secret": _rotate_secret,
    "delete webhook": _delete_webhook,
    "probe webhook": _probe_webhook,
    "claim deliveries": _claim_deliveries,
    "end delivery": _end_delivery,
    "redeliver": _redeliver,
    "prune deliveries": _prune_deliveries,
}

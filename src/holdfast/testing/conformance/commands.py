"""One command of every kind, each with the state it needs. What holds for all commands is checked over this list."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.model.commands import (
    Bury,
    Cancel,
    Command,
    Complete,
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
    Prune,
    Release,
    ResumeDispatch,
    ResumeQueue,
    Retention,
    Retry,
    SetQueue,
    Snooze,
    Update,
)
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.ids import JobId
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


def _expire(h: Harness) -> Command:
    h.enqueue("a")
    h.take()
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
    "expire": _expire,
    "end sessions": _end_sessions,
    "end one session": _end_session,
    "prune": _prune,
}

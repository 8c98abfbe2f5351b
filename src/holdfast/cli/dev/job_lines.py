"""A line for each job that ended here, as developers want to see it: what, how long, and if it failed, why.

And for each turn of an instance (`flownews`).
"""

from __future__ import annotations

import sys
import threading

from holdfast.cli.dev.workflow_lines import age_of, line_of_turn
from holdfast.cli.render import status_labels
from holdfast.cli.render.tables import shrink
from holdfast.cli.render.terminal import Screen, safe, say, screen
from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.model.events import (
    Event,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobSnoozed,
    LeaseExpired,
    LeaseReleased,
    TurnCommitted,
    decode_event,
)
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.times import Timestamp, seconds_between
from holdfast.stores.protocol import View

#: Seconds after which the feed is looked at though nobody rang.
PAUSE_S = 60.0


def follow(engine: Engine, worker_id: str) -> None:
    """Write lines from now on, in a thread of its own, for as long as the store is open."""
    with engine.read() as view:
        after = view.seq
    looks = screen("auto", sys.stderr)
    threading.Thread(target=_serve, args=(engine, worker_id, after, looks), name="news", daemon=True).start()


def _serve(engine: Engine, worker_id: str, after: int, looks: Screen) -> None:
    try:
        while True:
            engine.store.wait(after, PAUSE_S)
            entries = list(engine.store.feed(after))
            with engine.read() as view:
                for entry in entries:
                    after = entry.seq
                    event = decode_event(entry.event, seq=entry.seq, file="feed")
                    text = None if event is None else line_of(event, entry.ts, view, looks, worker_id)
                    if text is not None:
                        say(text)
    except HoldfastError:
        return  # closed; the worker tells of everything else


def line_of(event: Event, at: Timestamp, view: View, looks: Screen, worker_id: str) -> str | None:
    """Write what an event says about a run of this worker, or about an instance; or None."""
    match event:
        case TurnCommitted():
            return line_of_turn(event, at, view, looks)
        case JobCompleted() | JobFailed() | JobSnoozed() | LeaseReleased() | LeaseExpired() | JobCancelled():
            found = _run(view, event.job_id, event.token)
        case _:
            return None
    if found is None or found[1].worker_id != worker_id:
        return None
    job, run = found
    look, said = _said(event)
    took = age_of(seconds_between(run.started_at, at))
    which = looks.faint(f"{safe(job.job_id[:13])} {took}")
    head = f"{looks.faint(at[11:19])} {looks.glyph(look)} {safe(job.job_type)} {which}"
    return f"{head}  {shrink(safe(said), 200)}" if said else head


def _run(view: View, job_id: JobId, token: Token | None) -> tuple[Job, Run] | None:
    job = view.get(Job, job_id)
    run = None if job is None or token is None else view.run_by_token(job_id, token)
    return None if job is None or run is None else (job, run)


def _said(event: Event) -> tuple[status_labels.Look, str]:
    match event:
        case JobFailed():
            # The last line of a traceback names the exception.
            why = event.error.strip().rpartition("\n")[2]
            if event.to is JobStatus.QUEUED and event.not_before is not None:
                return status_labels.BACKOFF, f"{why}; again at {event.not_before[11:19]}"
            return status_labels.FAILED, why
        case JobSnoozed():
            return status_labels.DELAYED, f"snoozed until {event.not_before[11:19]}"
        case LeaseReleased():
            return status_labels.READY, "released, to be run again"
        case LeaseExpired():
            return status_labels.LOST, "its lease was lost"
        case JobCancelled():
            return status_labels.CANCELLED, event.reason or "cancelled"
        case _:
            return status_labels.COMPLETED, ""

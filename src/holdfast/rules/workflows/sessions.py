"""Sessions of activities: which worker the jobs of one session go to, for how long, and when that is forgotten.

A session is taken with the first of its jobs and held for a time, not for a job: one that has lapsed does not void a
lease that lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from holdfast.model.commands import OverdueHold
from holdfast.model.events import AffinityClaimed, AffinityExtended, AffinityRemoved, Event
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Swept
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.commands import CleanSessions, RenewSessions
from holdfast.model.workflows.instances import Affinity
from holdfast.rules.decision import Decision, answer
from holdfast.rules.state import Lane, State


def may_take(state: State, job: Job, owner_id: str | None, now: Timestamp) -> bool:
    """Tell whether an owner of sessions may take this job: its session is free, lapsed, or the owner's."""
    if job.affinity is None:
        return True
    if owner_id is None:
        return False
    affinity = state.get(Affinity, job.affinity)
    return affinity is None or affinity.locked_until <= now or affinity.owner_id == owner_id


def claim(state: State, job: Job, owner_id: str | None, seconds: float, now: Timestamp) -> Iterator[Event]:
    """Take the job's session, or keep it longer."""
    if job.affinity is None or owner_id is None:
        return
    affinity = state.get(Affinity, job.affinity)
    until = later(now, seconds)
    if affinity is None or affinity.owner_id != owner_id or affinity.locked_until <= now:
        yield AffinityClaimed(session=job.affinity, owner_id=owner_id, locked_until=until)
    else:
        yield AffinityExtended(session=job.affinity, locked_until=max(until, affinity.locked_until), active=True)


def heard_of(state: State, job: Job, now: Timestamp) -> Iterator[Event]:
    """Note that the session of a job is at work, while it lives."""
    affinity = None if job.affinity is None else state.get(Affinity, job.affinity)
    if affinity is not None and affinity.locked_until > now:
        yield AffinityExtended(session=affinity.session, locked_until=affinity.locked_until, active=True)


def decide_renew_sessions(state: State, command: RenewSessions, now: Timestamp) -> Decision:
    """Keep the sessions that live and were at work lately; revive none."""
    since, until = later(now, -command.idle_s), later(now, command.lock_s)
    kept = [
        AffinityExtended(session=found.session, locked_until=max(until, found.locked_until), cmd=command.cmd)
        for found in state.affinities(command.owner_ids)
        if found.locked_until > now and found.last_activity_at >= since
    ]
    return answer(Swept(count=len(kept)), *kept)


def overdue_sessions(state: State, overdue: Iterable[OverdueHold], now: Timestamp, cmd: str) -> Iterator[Event]:
    """End the holds whose seconds have passed by a monotonic clock, although the wall clock was set back."""
    for hold in dict.fromkeys(overdue):
        found = state.get(Affinity, hold.id)
        if found is not None and found.locked_until == hold.until and found.locked_until > now:
            yield AffinityExtended(session=hold.id, locked_until=now, cmd=cmd)


def decide_clean_sessions(state: State, command: CleanSessions, now: Timestamp) -> Decision:
    """Forget lapsed sessions that no waiting or running job names."""
    lapsed = (found for found in state.due(Lane.AFFINITY, now) if isinstance(found, Affinity))
    gone = islice((found for found in lapsed if not state.is_spoken_of(found.session)), command.limit)
    removed = [AffinityRemoved(session=found.session, cmd=command.cmd) for found in gone]
    return answer(Swept(count=len(removed), more=len(removed) == command.limit), *removed)

"""Maintenance: what time asks for, sent along the ordinary path. Recovery is its first round.

`recover` mends what damage left and ends what an earlier opening left behind; `end_dead_sessions` what a process that
died meanwhile did; `tick` ends what has lapsed, fires what is due and removes what retention no longer keeps. A second
pass at the same time writes nothing. Any process may run it; none has to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from holdfast.engine.engine import Engine
from holdfast.engine.file_adoption import adopt
from holdfast.engine.guarded_clock import Reading
from holdfast.engine.hold_lengths import granted_lengths, was_set_back
from holdfast.engine.isolated_steps import Steps
from holdfast.engine.schedule_rounds import FireRound, fire_due
from holdfast.errors import StoreFailed
from holdfast.model.commands import EndSession, EndSessions, Expire, Mend, MendGroups, Prune, Retention
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Mended, Swept
from holdfast.model.reservations import Reservation
from holdfast.model.times import FOREVER, Timestamp, later
from holdfast.model.workflows.instances import Affinity, Turn
from holdfast.rules.far_expiries import far_expiries
from holdfast.rules.jobs.retention import FEED_S, LOGS_S, has_old
from holdfast.rules.reservations.commands import local_holders
from holdfast.rules.state import Lane
from holdfast.rules.validation import problem_with
from holdfast.stores.protocol import View

log = logging.getLogger(__name__)

#: Lanes in which something lapses, and those that a tick looks after.
LAPSING = (Lane.LEASE, Lane.TTL, Lane.RESERVATION, Lane.TURN)
TICKING = (*LAPSING, Lane.SCHEDULE)
#: Most records one commit of the tick touches, so that it never blocks work for long.
LIMIT = 500
#: A blob that nobody names is kept so long, for whoever is about to. Seconds.
ORPHAN_S = 86_400
#: Seconds between two looks for such blobs.
SWEEP_EVERY_S = 3600.0
#: Most blobs, or lines, that one step forgets: the steps are many, the work of others comes between.
SWEEP = 100


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one round did."""

    #: Leases, reservations, locks of instances and queued jobs that time ended.
    expired: int = 0
    #: Local leases, reservations and locks of earlier openings.
    ended_sessions: int = 0
    #: Nominal times of schedules that came, or were made up for; and those that were missed.
    fired: int = 0
    missed: int = 0
    #: Schedules may still be due: a round of firing lasts a moment.
    more: bool = False
    pruned: int = 0
    #: Groups that lacked what the end of a member should have brought.
    mended: int = 0
    #: What damage had left: leases without a run, jobs that ran on after their run, chains without their next job.
    lost_runs: int = 0
    settled: int = 0
    carried_on: int = 0
    #: Wishes that lay in hand-made files, fulfilled.
    adopted: int = 0
    #: Events dropped from the feed.
    trimmed: int = 0
    #: Lines of runs, or files of them, and blobs that were forgotten.
    swept: int = 0
    #: Steps that failed, while the others went on.
    failed: tuple[str, ...] = ()


def recover(engine: Engine) -> Report:
    """Mend what damage left, end what an earlier opening left behind, then whatever has lapsed. Before dispatch."""
    if not engine.is_authority:
        return Report()
    steps = Steps()
    # First: what is broken could not even be ended.
    broken = steps.do("mend", lambda: mend(engine), Mended())
    ended = steps.do("sessions", lambda: _end_sessions(engine), 0)
    groups = steps.do("groups", lambda: _mend_groups(engine), 0)
    expired = steps.do("lapsed", lambda: end_lapsed(engine), 0)
    adopted = steps.do("files", lambda: adopt(engine), 0)
    return Report(
        ended_sessions=ended,
        expired=expired,
        mended=groups,
        lost_runs=broken.runs,
        settled=broken.jobs,
        carried_on=broken.chains,
        adopted=adopted,
        failed=steps.end(),
    )


def _end_sessions(engine: Engine) -> int:
    """End what earlier openings held, where the lock of this one proves them gone."""
    if engine.store.promises.many_processes or engine.session_id is None:
        return 0
    unbegun = _unbegun(engine, sorted(_foreign_sessions(engine)))
    return _all(engine, EndSessions(session_id=engine.session_id, limit=LIMIT, unbegun=unbegun))


def _mend_groups(engine: Engine) -> int:
    """Give groups what a torn commit would have left out. Looked at first, as in `mend`."""
    sweep = MendGroups(limit=LIMIT)
    return _all(engine, sweep) if engine.would_change(sweep) else 0


def mend(engine: Engine, *, chains: bool = False) -> Mended:
    """Bring what damage left back to states that are known; with `chains` also where a retry is missing.

    Looked at first: whoever opens a whole store does not wait for others who write.
    """
    found = Mended()
    if not engine.is_authority:
        return found
    command = Mend(chains=chains, limit=LIMIT)
    while found != Mended() or engine.would_change(command):
        outcome = engine.ask(command)
        assert isinstance(outcome, Mended)
        found = Mended(
            runs=found.runs + outcome.runs, jobs=found.jobs + outcome.jobs, chains=found.chains + outcome.chains
        )
        if not outcome.more:
            break
    if found != Mended():
        log.warning("store.mended", extra={"runs": found.runs, "jobs": found.jobs, "chains": found.chains})
    return found


def end_dead_sessions(engine: Engine) -> int:
    """End what processes of this machine hold that have died, without waiting for it to lapse."""
    foreign = _foreign_sessions(engine)
    gone = engine.store.sessions.gone(foreign) if foreign else ()
    return sum(
        _all(engine, EndSession(session_id=session, limit=LIMIT, unbegun=_unbegun(engine, [session])))
        for session in sorted(gone)
    )


def _foreign_sessions(engine: Engine) -> set[str]:
    """Give the other openings that hold something."""
    with engine.read() as view:
        held = chain(local_holders(view), view.local_turns())
        return {holder.session_id for holder in held if holder.session_id not in (engine.session_id, None)}


def _unbegun(engine: Engine, sessions: Sequence[str]) -> tuple[Token, ...]:
    """Give the leases and locks of dead openings whose work had certainly not begun."""
    held: dict[str | None, list[tuple[str | None, Token]]] = {session: [] for session in sessions}
    with engine.read() as view:
        for job in view.local_leases():
            if job.session_id in held and job.token is not None:
                held[job.session_id].append((job.worker_id, job.token))
        for turn in view.local_turns():
            if turn.session_id in held and turn.token is not None:
                held[turn.session_id].append((None, turn.token))
    return tuple(token for session in sessions for token in engine.store.sessions.unbegun(session, held[session]))


def tick(engine: Engine, retention: Retention | None = None, *, fires: bool = True) -> Report:
    """End what has lapsed, fire what is due unless others are to do that, and remove what is old."""
    kept = retention or Retention()
    refusal = problem_with(Prune(retention=kept, limit=LIMIT))
    if refusal is not None:
        raise refusal.error()
    steps = Steps()
    expired = steps.do("lapsed", lambda: end_lapsed(engine), 0)
    nothing = FireRound(0, 0, more=False)
    fired, missed, more = steps.do("schedules", lambda: fire_due(engine), nothing) if fires else nothing
    pruned = steps.do("retention", lambda: _prune(engine, kept), 0)
    trimmed = steps.do("feed", lambda: _trim(engine, kept), 0)
    swept = steps.do("content", lambda: _sweep(engine, kept), 0)
    return Report(
        expired=expired,
        fired=fired,
        missed=missed,
        more=more,
        pruned=pruned,
        trimmed=trimmed,
        swept=swept,
        failed=steps.end(),
    )


def next_wake(engine: Engine) -> Timestamp | None:
    """Give the next time at which a tick will find something lapsed or due, or None."""
    with engine.read() as view:
        return next_of(view, TICKING)


def next_of(view: View, lanes: Iterable[Lane]) -> Timestamp | None:
    """Give the earliest time of these lanes, or None."""
    return min((when for lane in lanes if (when := view.next_due(lane)) is not None), default=None)


def end_lapsed(engine: Engine) -> int:
    """End what time has ended, and nothing else; give how much that was."""
    reading = engine.look()
    if engine.stepped_back and engine.is_authority:
        _time_far_holds(engine, reading)
        engine.stepped_back = False
    overdue = _Overdue(engine, reading)
    with engine.read() as view:
        wake = next_of(view, LAPSING)
    orders = [*overdue.orders()]
    if not orders and (wake is None or wake > reading.now):
        return 0
    try:
        return sum(_all(engine, order) for order in orders or [Expire(limit=LIMIT, jump=engine.jump)])
    except BaseException:
        overdue.watch_again()  # the next round looks after them: a busy store must not make them immortal
        raise


class _Overdue:
    """What is over by the monotonic clock, although the wall clock, set back, has not reached its expiry."""

    def __init__(self, engine: Engine, reading: Reading) -> None:
        self._engine = engine
        self._monotonic = reading.monotonic
        self.leases = engine.watch.overdue(reading.monotonic)
        self.turns = engine.turn_watch.overdue(reading.monotonic)
        holds = engine.hold_watch.overdue(reading.monotonic)
        self.reservations, self.sessions = holds[Reservation], holds[Affinity]
        if not engine.is_set_back:
            # While the wall clock only went forward, it is the better judge: it knows of extensions by other processes.
            self.leases, self.turns, self.reservations, self.sessions = (), (), (), ()

    def orders(self) -> Iterator[Expire]:
        """Walk the commands that end them, each of a bounded size."""
        jump = self._engine.jump
        for at in _slices(self.leases):
            yield Expire(limit=LIMIT, jump=jump, overdue=self.leases[at : at + LIMIT])
        for at in _slices(self.turns):
            yield Expire(limit=LIMIT, jump=jump, overdue_turns=self.turns[at : at + LIMIT])
        for at in _slices(self.reservations):
            yield Expire(limit=LIMIT, jump=jump, overdue_reservations=self.reservations[at : at + LIMIT])
        for at in _slices(self.sessions):
            yield Expire(limit=LIMIT, jump=jump, overdue_sessions=self.sessions[at : at + LIMIT])

    def watch_again(self) -> None:
        """Have the next round find the same."""
        engine, now = self._engine, self._monotonic
        for lease in self.leases:
            engine.watch.limit(lease.job_id, lease.token, now)
        for token in self.turns:
            engine.turn_watch.limit(token, now)
        for kind, holds in ((Reservation, self.reservations), (Affinity, self.sessions)):
            for hold in holds:
                engine.hold_watch.limit((kind, hold.id), hold.until, 0.0, now)


def _slices(found: Sequence[object]) -> range:
    return range(0, len(found), LIMIT)


def _time_far_holds(engine: Engine, reading: Reading) -> None:
    """Time from now on, by the monotonic clock, what has an expiry that the clock, set back, has moved out of reach."""
    if not was_set_back(engine.store, reading.now):
        return
    engine.was_set_back = True
    lengths = granted_lengths(engine.store)
    with engine.read() as view:
        for hold in far_expiries(view, reading.now, lengths):
            # Another process times its own, and hears of their renewals; if it dies, its session ends.
            if hold.session_id not in (None, engine.session_id):
                continue
            kind, name = hold.key
            if kind is Job and hold.token is not None:
                engine.watch.limit(JobId(name), hold.token, reading.monotonic + hold.length_s)
            elif kind is Turn and hold.token is not None:
                deadline = reading.monotonic + hold.length_s
                engine.turn_watch.limit(hold.token, deadline, hold.until, hold.length_s)
            else:
                engine.hold_watch.limit(hold.key, hold.until, hold.length_s, reading.monotonic)


def _prune(engine: Engine, kept: Retention) -> int:
    """Remove what retention no longer keeps; a look tells whether there is any."""
    now = engine.look().now
    with engine.read() as view:
        is_due = has_old(view, kept, now)
    return _all(engine, Prune(retention=kept, limit=LIMIT)) if is_due else 0


def _trim(engine: Engine, kept: Retention) -> int:
    """Drop old events until none is left: a busy store makes more of them in a minute than one step takes."""
    before = later(engine.look().now, -(FEED_S if kept.feed_s is None else kept.feed_s))
    upto = 0
    if kept.feed_max is not None:
        with engine.read() as view:
            upto = view.seq - kept.feed_max
    total = step = engine.store.trim(before, LIMIT, upto=upto)
    while step >= LIMIT:
        step = engine.store.trim(before, LIMIT, upto=upto)
        total += step
    return total


def _sweep(engine: Engine, kept: Retention) -> int:
    """Once an hour, forget old lines and blobs that no record names. If they stay for longer, work goes on."""
    reading = engine.look()
    if reading.monotonic < engine.next_sweep:
        return 0
    engine.next_sweep = reading.monotonic + SWEEP_EVERY_S
    store, now = engine.store, reading.now
    try:
        lines = _repeat(store.logs.sweep, later(now, -(LOGS_S if kept.logs_s is None else kept.logs_s)))
        return lines + _repeat(store.blobs.sweep, _unclaimed_before(engine, now))
    except StoreFailed as problem:
        log.warning("store.not_swept", extra={"error": problem.message})
        return 0


def _unclaimed_before(engine: Engine, now: Timestamp) -> Timestamp:
    """Give the time since when a blob may still come to be named.

    A run that goes on for days puts its artifacts when it makes them, and names them only at its end.
    """
    with engine.read() as view:
        runs = [record.started_at for record in view.due(Lane.LEASE, FOREVER) if isinstance(record, Job)]
    return min([later(now, -ORPHAN_S), *(started for started in runs if started is not None)])


def _repeat(step: Callable[[Timestamp, int], int], before: Timestamp) -> int:
    total = count = step(before, SWEEP)
    while count >= SWEEP:
        count = step(before, SWEEP)
        total += count
    return total


def _all(engine: Engine, sweep: Expire | EndSessions | EndSession | MendGroups | Prune) -> int:
    """Send a sweep until it finds nothing more; return how much it did."""
    total = 0
    while True:
        outcome = engine.ask(sweep)
        assert isinstance(outcome, Swept)
        total += outcome.count
        if not outcome.more or not outcome.count:
            return total

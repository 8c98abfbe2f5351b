"""The pump: the one thread of a worker that talks to the store.

A cycle collects what has ended, renews leases that are a third old, asks for as much new work as there is room for, and
sends all of it in one commit. Then it sleeps until a handler ends, the watcher stirs, or a time comes: a heartbeat, a
timeout, a delayed job, a lapsed lease. While nothing happens it neither reads nor writes.

A store that is elsewhere is asked by a messenger, and meanwhile handlers are stopped that must be. What it did not
answer is sent again, the same to the letter, until 60 s after the leases it speaks of have ended.

Runs no handler itself, and knows nothing of how one is run. What it has seen is its `outlook`; the times of its way out
are those of its `ending`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import mend, tick
from holdfast.engine.schedule_rounds import replan
from holdfast.errors import AlreadyReported, JobNotFound, LeaseLost, StoreBusy, StoreFull, UnknownLease
from holdfast.failpoints import reach
from holdfast.model.commands import Command, Extend, Lease, Retention
from holdfast.model.outcomes import Extended, Leased, Refusal
from holdfast.model.outcomes import Outcome as Reply
from holdfast.workers.background_duties import Chores
from holdfast.workers.handlers.large_params import complete
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.handlers.outcome import ErrorKind, Outcome, Raised, Released, Returned, command_of
from holdfast.workers.lone_work import LoneWork, has_trial, runs_alone
from holdfast.workers.poller import Outlook
from holdfast.workers.remote_calls import Answered, Messenger
from holdfast.workers.shutdown import Ending
from holdfast.workers.slots import Ended, Slots
from holdfast.workers.store_watcher import Watcher
from holdfast.workers.work_filter import Scope
from holdfast.workers.workflow_turns import Errand, NoTurns, Turns

log = logging.getLogger("holdfast.worker")

#: Leases one command may ask for.
MOST = 100
#: Work is leased this far ahead of free slots, in seconds of handlers on average; longer ones are not worth it.
AHEAD_S = 0.05
#: And no more than so many for each slot: what is leased counts as running, for limits and for other workers.
AHEAD = 8
#: What waits for a slot longer than this is given back, for others to run. Seconds.
PATIENCE_S = 0.5
#: Seconds between two rounds of retention.
SWEEP_S = 60.0
#: While a time of day is waited for, the clock is read so often at least: it may leap, and waiting does not. Seconds.
NAP_S = 15.0
#: Seconds between two tries on a store that is busy or full.
RETRY_S = 1.0
#: No handler is taken to be shorter, seconds.
_SHORTEST_S = 1e-6
_NEVER = float("inf")
#: Refusals of a report that no other report would fare better with.
_GONE = {LeaseLost.code, UnknownLease.code, AlreadyReported.code, JobNotFound.code}


class _Left(Exception):
    """The worker ends although its store has not answered."""


class Pump:
    """Moves work between one store and the slots of one worker."""

    def __init__(  # noqa: PLR0917 - what a worker is made of
        self,
        engine: Engine,
        slots: Slots,
        scope: Scope,
        retention: Retention | None,
        chores: Chores | None = None,
        turns: Turns | None = None,
        *,
        until_idle: bool = False,
    ) -> None:
        """Serve these slots; without `retention` the tick is left to others."""
        self._engine = engine
        self._chores = chores or Chores(engine, slots.poke)
        self._slots = slots
        self._turns: Turns = turns or NoTurns()
        self._scope = scope
        self._retention = retention
        self._until_idle = until_idle
        self._watcher = Watcher(engine.store, self._stir, self._chores.hear, engine.time.clock.monotonic)
        self._messenger = Messenger(engine, self._meanwhile)
        #: Outcomes whose report is not durable yet.
        self._outbox: list[Ended] = []
        self._outlook = Outlook(engine, scope, ticks=retention is not None)
        self._lone_work = LoneWork()
        #: When retention is due (monotonic).
        self._sweep_at = _NEVER if retention is None else 0.0
        #: The fires of schedules were compared with the rules of their zones, which may be newer.
        self._is_replanned = False
        self._is_mended = False
        #: How often the clock had stepped when it was last asked.
        self._steps = 0
        self._mean_s = 1.0
        self._ending = Ending()
        #: No more leases, but no end either.
        self._is_quiet = False
        #: Leases that were lost while their handlers ran.
        self.lost = 0
        #: Reports that are durable, and among them jobs given back while their handlers ran.
        self.reported = self.released = 0

    # --- wishes, from any thread --------------------------------------------------------------------------------------

    def drain(self, grace_s: float) -> None:
        """Lease no more, give handlers `grace_s` seconds to end, then ask them to stop and release the rest."""
        self._ending.ask(grace_s)
        self.quiet()
        self._messenger.urge()

    def quiet(self) -> None:
        """Lease no more; what runs goes on."""
        self._is_quiet = True
        self._turns.drain()
        self._chores.drain()
        self._slots.poke()

    def hurry(self) -> None:
        """Wait for nothing any more."""
        self._ending.hurry()
        self._chores.hurry()
        self.drain(0)

    def _stir(self) -> None:
        self._outlook.fade()
        self._slots.poke()

    @property
    def is_draining(self) -> bool:
        """Tell whether someone has asked for shutdown."""
        return self._ending.is_asked

    @property
    def unreported(self) -> int:
        """Count the outcomes whose report is not durable."""
        return len(self._outbox)

    @property
    def is_away(self) -> bool:
        """Tell whether the store is elsewhere and has not answered."""
        return self._messenger.is_away

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until drained, or with `until_idle` until there is nothing to do. Raises what the store raised."""
        self._watcher.start()
        try:
            while not self._is_over():
                try:
                    self._mend_once()
                    # A cycle may find that all is over; then there is nothing to rest for.
                    if not self.cycle() and not self._is_over():
                        self._rest()
                except self._messenger.losses as problem:
                    self._outlook.fade()
                    self._messenger.pause(problem)
                except (StoreBusy, StoreFull) as problem:
                    # Certainly nothing was written, so the same may be sent again. Leases go on by their own time.
                    if self._ending.is_hurried:
                        raise
                    log.warning("store.refused", extra={"problem": problem.message})
                    self._outlook.fade()
                    self._slots.wait(RETRY_S)
        except _Left:
            self._leave()
        finally:
            self._watcher.close()
            self._messenger.close()

    # --- a store elsewhere --------------------------------------------------------------------------------------------

    def _meanwhile(self) -> None:
        """Do what cannot wait until a store elsewhere answers. Raises when it is time to end without its answer."""
        now = self._now()
        self._enforce(now)
        self._turns.enforce(now)
        self._shut_down(now)
        self._collect(now)
        if self._ending.is_unheard(now, is_quiet=self._slots.is_quiet()):
            raise _Left

    def _leave(self) -> None:
        """End without an answer. Raises what the store ended in, if something was left unsaid."""
        problem = self._messenger.problem
        if self._outbox or not self._turns.is_quiet:
            raise problem or StoreBusy("the store was asked, and did not answer before the worker had to end.")

    def _submit(self, commands: Sequence[Command], held: Sequence[Assignment]) -> Answered | None:
        """Send commands until they are answered, or it is no use any more because the leases are long over."""
        shortest_s = min((one.grant.lease_s for one in held), default=_NEVER)
        ends_at = max((one.lost_at for one in held), default=self._now())
        return self._messenger.submit(commands, ends_at, shortest_s)

    def _mend_once(self) -> None:
        """Before anything is dispatched, carry on what damage had broken off."""
        if not self._is_mended:
            mend(self._engine, chains=True)
            self._is_mended = True

    def cycle(self) -> bool:
        """Send what there is to send; tell whether there was anything."""
        now = self._now()
        self._notice_steps()
        self._enforce(now)
        self._turns.enforce(now)
        self._shut_down(now)
        self._collect(now)
        running = self._slots.held()
        if not self.is_away and self._messenger.call(lambda: self._chores.run(now, running)):
            self._outlook.begin_anew()
        running = self._slots.held()
        renewals = [held for held in running if held.renew_at <= now and held.stop is not Stop.LOST]
        if self._lone_work.is_due(now):
            self._outlook.begin_anew()
        room = self._room(running, now) if self._outlook.hope else 0
        errands = self._turns.errands(now, len(running))
        if not self._may_fetch(running, room, now):
            errands = [errand for errand in errands if errand.kind != "fetch"]
        if not (self._outbox or renewals or room or errands):
            return self._maintain(now)
        self._send(renewals, room, errands, now)
        self._maintain(now)
        return True

    def _is_over(self) -> bool:
        return self.is_draining and not self._outbox and self._slots.is_quiet() and self._turns.is_quiet

    def _now(self) -> float:
        return self._engine.look().monotonic

    def _notice_steps(self) -> None:
        """After a suspend or a correction of the clock, look again: what was far may be due."""
        steps = sum(self._engine.time.steps.values())
        if steps != self._steps:
            self._steps = steps
            self._outlook.clock_stepped()

    def _room(self, held: Sequence[Assignment], now: float) -> int:
        if self._is_quiet or runs_alone(held) or self._turns.makes_way(now):
            return 0
        ahead = int(self._slots.size * min(AHEAD, AHEAD_S / max(self._mean_s, _SHORTEST_S)))
        return min(MOST, self._slots.room(ahead if self._mean_s < AHEAD_S else 0))

    def _may_fetch(self, running: Sequence[Assignment], room: int, now: float) -> bool:
        """Tell whether turns may be fetched. Who is empty, and asks for no job, has nothing to make way for."""
        is_empty = not running and not room and self._turns.is_quiet
        return is_empty or self._lone_work.may_fetch(running, now)

    # --- what has ended -----------------------------------------------------------------------------------------------

    def _collect(self, now: float) -> None:
        ended = self._slots.collect()
        self._outbox.extend(ended)
        for assignment, _ in ended:
            if assignment.started_at is not None:
                # A mean that forgets: a slow handler ends the leasing ahead at once, fast ones bring it back.
                took_s = (assignment.ended_at or now) - assignment.started_at
                self._mean_s += (took_s - self._mean_s) / 8

    def _enforce(self, now: float) -> None:
        """Stop what has run too long or lost its lease; give back what has waited too long."""
        for held in self._slots.held():
            times_out_at = held.times_out_at
            if times_out_at is not None and times_out_at <= now:
                self._stop(held, Stop.TIMEOUT)
            elif held.lost_at <= now:
                # Whatever it still ends in is reported: the authority decides.
                self._stop(held, Stop.LOST)
        since = self._slots.waiting_since()
        # While the store is away nobody else could have them.
        if since is not None and now - since >= PATIENCE_S and not self.is_away:
            self._mean_s = 1.0
            self._release_waiting()

    def _stop(self, held: Assignment, why: Stop) -> None:
        if not held.ask_to_stop(why):
            return
        log.info("run.stopping", extra={"job": held.grant.job.job_id, "run": held.grant.run_id, "why": str(why)})
        if held.started_at is None and self._slots.forget(held):
            self._outbox.append((held, held.stopped()))
        else:
            self._slots.stop(held)

    def _release_waiting(self) -> None:
        self._outbox.extend((waiting, Released(begun=False)) for waiting in self._slots.withdraw())

    def _shut_down(self, now: float) -> None:
        """Go one step on the way out, if someone asked for it."""
        step = self._ending.step(now)
        if step.gives_back:
            self._release_waiting()
        if step.stops:
            for held in self._slots.held():
                self._stop(held, Stop.SHUTDOWN)
            self._turns.stop()
        if step.releases:
            # Handlers that ended meanwhile are not held any more; their outcomes are collected next.
            self._outbox.extend((held, Released(begun=True)) for held in self._slots.held() if self._slots.forget(held))

    # --- one commit ---------------------------------------------------------------------------------------------------

    def _send(self, renewals: list[Assignment], room: int, errands: Sequence[Errand], now: float) -> None:
        reports = self._outbox[:MOST]
        if reports:
            self._messenger.call(lambda: self._chores.flush(held.notes for held, _ in reports))
        commands: list[Command] = [command_of(held.grant, outcome, held.notes) for held, outcome in reports]
        commands += [_extension(held) for held in renewals]
        # After the reports, which wake instances; before the lease, which may find the activities they ask for.
        commands += [errand.command for errand in errands]
        if room:
            self._outlook.asking()
            # As the rules find it in this commit: what it reports is no longer held, and a turn it fetches is.
            holds = len(self._outbox) - len(reports) + (bool(errands) and errands[-1].kind == "fetch")
            commands.append(self._lease(room, holds, now))
        reach("pump.sending")
        answered = self._submit(commands, [*(held for held, _ in reports), *renewals])
        self._outbox = self._outbox[len(reports) :]
        self._outlook.fade()
        if answered is None:
            self._drop(reports)
            return
        replies, sent_at = answered
        for (held, outcome), reply in zip(reports, replies, strict=False):
            self._reported(held, outcome, reply)
        for held, reply in zip(renewals, replies[len(reports) :], strict=False):
            self._renewed(held, reply, sent_at)
        if errands:
            first = len(reports) + len(renewals)
            self._turns.answered(errands, replies[first : first + len(errands)], sent_at)
        if room:
            self.take(replies[-1], room, sent_at)
        reach("pump.sent")

    def _drop(self, reports: Sequence[Ended]) -> None:
        """Report these no more: their leases ended long ago, and others have the jobs."""
        for held, _ in reports:
            self.lost += 1
            self._slots.unmark(held)
            log.warning("report.dropped", extra={"job": held.grant.job.job_id, "run": held.grant.run_id})

    def _lease(self, room: int, holds: int, now: float) -> Lease:
        """Make a lease of up to `room` jobs. `holds` is what the worker holds beside its assignments and turns."""
        held = self._slots.held()
        return Lease(
            worker_id=self._scope.worker_id,
            namespace=self._scope.namespace,
            queues=self._scope.queues,
            job_types=self._scope.tasks.names(),
            n=room,
            session_id=self._engine.session_id,
            holds=holds + len(held) + (not self._turns.is_quiet),
            on_trial=has_trial(held, now),
        )

    def _reported(self, held: Assignment, outcome: Outcome, reply: Reply) -> None:
        if not isinstance(reply, Refusal):
            self._slots.unmark(held)
            self.reported += 1
            self.released += isinstance(outcome, Released) and outcome.begun
        elif reply.code in _GONE:
            self._lose(held, reply)
        elif held.notes.forget():
            self._outbox.append((held, outcome))  # should the notes be what was refused, no run fails for them
        elif isinstance(outcome, Released):
            raise reply.error()  # a release alone has nothing that could be wrong
        elif isinstance(outcome, Raised) and outcome.retry_after_s is None:
            self._outbox.append((held, Released(begun=True)))
        else:
            # What the handler gave cannot be kept: a result too large, a delay that is none.
            kind: ErrorKind = "bad_result" if isinstance(outcome, Returned) else "exception"
            self._outbox.append((held, Raised(reply.message, kind)))

    def _renewed(self, held: Assignment, reply: Reply, now: float) -> None:
        if isinstance(reply, Extended):
            held.renewed(now, reply.lease_s)
            if reply.cancel:
                self._stop(held, Stop.CANCEL)
        else:
            assert isinstance(reply, Refusal)
            self._lose(held, reply)

    def _lose(self, held: Assignment, reply: Refusal) -> None:
        """Take it from the authority that it is over: stop the handler, discard what it gives."""
        self.lost += 1
        grant = held.grant
        log.warning("lease.lost", extra={"job": grant.job.job_id, "run": grant.run_id, "code": reply.code})
        self._slots.forget(held)
        self._slots.unmark(held)
        self._stop(held, Stop.LOST)

    def take(self, reply: Reply, room: int, now: float) -> None:
        """Run what was granted, by a command that was sent at `now` (monotonic). Raises a refusal."""
        if isinstance(reply, Refusal):
            raise reply.error()
        assert isinstance(reply, Leased)
        granted: list[Assignment] = []
        reports = len(self._outbox)
        for grant in reply.grants:
            spec = self._scope.tasks.get(grant.job.job_type)
            assert spec is not None
            held = Assignment(grant, spec, now, self._chores.notes(grant.run_id))
            problem = self._completed(held)
            if problem is not None:
                self._outbox.append((held, problem))
            else:
                granted.append(held)
        ready = self._in_time(granted)
        self._slots.add(ready, not_begun=[held.grant.token for held, _ in self._outbox[reports:]])
        self._lone_work.note(reply, now)
        self._outlook.leased(some=bool(reply.grants), all_wanted=len(reply.grants) == room)

    def _completed(self, held: Assignment) -> Outcome | None:
        """Give the handler all its parameters, or the outcome of one that cannot begin."""
        if self.is_draining and not self._engine.is_authority:
            return Released(begun=False)  # it was granted while the worker was told to stop
        try:
            return self._messenger.ask(lambda: complete(held, self._engine.store))
        except StoreBusy:
            return Released(begun=False)

    def _in_time(self, granted: list[Assignment]) -> list[Assignment]:
        """Extend leases of which half was over when their grant arrived, before their handlers begin."""
        while late := [held for held in granted if self._now() > (held.granted_at + held.lost_at) / 2]:
            answered = self._submit([_extension(held) for held in late], late)
            if answered is None:  # nobody knows of them any more
                return [held for held in granted if held not in late]
            for held, reply in zip(late, answered.replies, strict=True):
                if isinstance(reply, Extended) and not reply.cancel:
                    held.granted_at = answered.sent_at
                    held.renewed(answered.sent_at, reply.lease_s)
                elif isinstance(reply, Extended):
                    held.ask_to_stop(Stop.CANCEL)
                    self._outbox.append((held, held.stopped()))
                else:
                    assert isinstance(reply, Refusal)
                    self._lose(held, reply)
            granted = [held for held in granted if held.stop is None]
        return granted

    # --- looking and resting ------------------------------------------------------------------------------------------

    def _maintain(self, now: float) -> bool:
        """Run the tick if something has lapsed, at most once a second, and retention once a minute."""
        outlook = self._outlook
        if now < min(outlook.tick_at, self._sweep_at):
            return False
        if not self._is_replanned:
            replan(self._engine)
            self._is_replanned = True
        # On the way out nothing is begun any more: what is due is fired by others, or at the next start.
        more = tick(self._engine, self._retention, fires=not self.is_draining).more
        # What is still due is not left to the next look: work is sent and leased in between, and no second is lost.
        outlook.tick_at, self._sweep_at = _NEVER, now if more else now + SWEEP_S
        outlook.hope = outlook.hope or more
        outlook.fade()
        return True

    def _rest(self) -> None:
        """Sleep until there is something to do."""
        now = self._now()
        running, outlook = self._slots.held(), self._outlook
        room = self._room(running, now)
        may_fetch = self._may_fetch(running, 0, now)
        wants_look = bool(room) or (self._turns.wants_look and may_fetch)
        if (wants_look and not outlook.is_fresh) or (outlook.is_partial and now >= outlook.look_at):
            self._messenger.hear(self.look)
            if self._outbox or (outlook.hope and room) or (self._turns.has_hope and may_fetch):
                return
        if self._until_idle and self._is_idle(now):
            self.drain(0)
            return
        wake_at = self._wake_at(room)
        if outlook.is_fresh:
            self._watcher.arm(outlook.seq)
        self._slots.wait(None if wake_at == _NEVER else max(0.0, wake_at - self._now()))
        self._watcher.disarm()
        if room:
            outlook.wake(self._now())

    def _is_idle(self, now: float) -> bool:
        """Tell whether nothing runs, is due or is on its way."""
        quiet = self._outlook.is_fresh and self._slots.is_quiet() and self._outlook.delayed_at > now
        is_busy = self._chores.is_sending(now) or self._chores.has_files
        return quiet and self._turns.is_quiet and not is_busy

    def look(self) -> None:
        """See what there is: work, its times, and whether what runs here may go on."""
        now = self._now()
        self._chores.neighbours.stir(now)
        running = self._slots.held()
        seen = self._outlook.look(
            now, self._room(running, now), running, lambda view, at: self._turns.look(view, at, now)
        )
        if seen is None:
            return
        self._chores.expect_delivery(seen.delivery_at)
        for one, job in seen.running:
            if job is None or job.token != one.grant.token:
                one.renew_at = now  # the authority tells what became of it
            elif job.cancel_requested_at is not None:
                self._stop(one, Stop.CANCEL)

    def _wake_at(self, room: int) -> float:
        """Give the next time at which something must be done."""
        outlook = self._outlook
        times = [outlook.tick_at, self._sweep_at, self._ending.due_at, self._turns.due_at()]
        if min(outlook.tick_at, outlook.delayed_at) < _NEVER:
            times.append(self._now() + NAP_S)
        if room:
            times += (outlook.delayed_at, self._lone_work.ask_at)
        if outlook.is_partial:
            times.append(outlook.look_at)
        running = self._slots.held()
        times.append(self._chores.due_at(is_busy=bool(running)))
        for held in running:
            times.append(held.renew_at if held.stop is not Stop.LOST else _NEVER)
            if held.stop is None:
                times.append(held.lost_at)
                times.append(held.times_out_at or _NEVER)
        since = self._slots.waiting_since()
        if since is not None:
            times.append(since + PATIENCE_S)
        return min(times)


def _extension(held: Assignment) -> Extend:
    return Extend(job_id=held.grant.job.job_id, token=held.grant.token)

"""The desk of turns: what the pump, which alone talks to the store, sees of the threads that run turns.

The pump asks for errands, sends them all in one commit with everything else, and brings the answers. Threads advance
stints (`players`), and what a stint wants done becomes an errand in the ledger, or a step. The order that matters: a
message that is fetched while a commit is being made would be deleted by it unread; so neither begins while the other is
under way.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.errors import LeaseLost, UnknownLease
from holdfast.failpoints import reach
from holdfast.model.outcomes import Brought, Fetched, Refusal
from holdfast.model.outcomes import Outcome as Reply
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workflows.commands import AnnounceHandlers, FetchMore, FetchTurn, RenewTurn
from holdfast.stores.protocol import View
from holdfast.workers.workflow_turns import NEVER, Errand
from holdfast.workers.workflow_turns.abandon import Parting
from holdfast.workers.workflow_turns.fetch_policy import MOST, Outlook
from holdfast.workers.workflow_turns.pending_commands import LINGER_S, Ledger
from holdfast.workers.workflow_turns.runner import Players
from holdfast.workers.workflow_turns.step_executors import WorkerStage
from holdfast.workers.workflow_turns.thread_pool import Crew
from holdfast.workers.workflow_turns.turn_io import Archive
from holdfast.workers.workflow_turns.turn_state import (
    BROKEN_S,
    IDLE_S,
    LOCK_S,
    RENEW_S,
    Came,
    Committed,
    Idled,
    Opened,
    Playing,
    Stint,
)
from holdfast.workers.workflow_turns.wakeup import Alarm
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.runtime.execution_cache import Residents

log = logging.getLogger("holdfast.worker")

#: Turns run at once, by default.
TURNS = 8
#: A turn that waits for a thread longer is given back, for others to run. Seconds.
PATIENCE_S = 0.5
_GONE = {LeaseLost.code, UnknownLease.code}


class TurnDesk:
    """The turns of one worker. Called by the pump's thread alone, but for `now`."""

    def __init__(
        self,
        engine: Engine,
        definitions: Definitions,
        poke: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], Future[None]],
        *,
        turns: int = TURNS,
        residents: int = 1000,
    ) -> None:
        """Run turns of what is defined; `poke` wakes the pump, `spawn` runs a coroutine on the worker's loop."""
        self._engine = engine
        self._crew = Crew(turns)
        self._residents = Residents(residents)
        self._outlook = Outlook(turns)
        self._lock = threading.Lock()
        self._alarm = Alarm(self._lock, self.now, poke)
        self._ledger = Ledger(self._lock, self._alarm)
        self._stints, self._outbox = self._ledger.stints, self._ledger.outbox
        self._archive = Archive(engine, self._residents)
        self._playing = Playing(
            definitions,
            engine.store.blobs,
            self._now_ms,
            may_send=self._ledger.may_send,
            command_of=self._archive.command_of,
        )
        self._parting = Parting(self._ledger, self._crew, self._residents)
        self._players = Players(
            self._crew,
            self._ledger,
            self._playing,
            archive=self._archive,
            parting=self._parting,
            alarm=self._alarm,
            stage=WorkerStage(self._crew, self._alarm, spawn),
            outlook=self._outlook,
        )
        #: What is to be sent was held back for turns that are coming; once.
        self._lingers = False
        handlers = [name for one in definitions.all() for name in (one.name, f"{one.name} {one.version}")]
        self._outbox.append(Errand("announce", AnnounceHandlers(handlers=tuple(dict.fromkeys(handlers)))))
        #: Turns whose last commit is durable; those given back.
        self.committed = self.abandoned = 0

    # --- sending ------------------------------------------------------------------------------------------------------

    def errands(self, now: float) -> Sequence[Errand]:
        """Give what is to be sent now; asked again, what is not answered is given again."""
        with self._lock:
            self._lingers = bool(self._outbox) and not self._lingers and self._coming > 0
            errands = [] if self._lingers else list(itertools.islice(self._outbox, MOST))
            for stint in self._stints.values():
                if stint.is_fetching:
                    self._fetched_nothing(stint)  # the store was busy, and nothing was sent
                if stint.is_coming and stint.code.is_slow(now - IDLE_S):
                    self._ledger.expect(stint, coming=False)  # a long replay, say: others are not to wait for it
                if stint.is_gone or stint.is_sending:
                    continue
                if stint.renew_at <= now and not stint.code.is_late:
                    errands.append(Errand("renew", RenewTurn(token=stint.token, lock_s=LOCK_S), stint))
                if stint.wants_more and stint.is_begun:
                    stint.wants_more, stint.is_fetching = False, True
                    errands.append(Errand("more", FetchMore(token=stint.token), stint))
            # Those that end with this commit make room for others in the same.
            ending = sum(errand.is_last for errand in errands)
            room = self._room(ending) if self._outlook.hope and not self._lingers else 0
        if room:
            fetch = FetchTurn(lock_s=LOCK_S, n=room, session_id=self._engine.session_id)
            errands.append(Errand("fetch", fetch))
        return errands

    def _fetched_nothing(self, stint: Stint) -> None:
        stint.is_fetching, stint.wants_more = False, True
        self._players.put(stint, Came(()))

    def answered(self, errands: Sequence[Errand], replies: Sequence[Reply], now: float) -> None:
        """Take the answers to errands, in their order."""
        with self._lock:
            for _ in itertools.takewhile(lambda errand: errand.kind not in _UNQUEUED, errands):
                self._outbox.popleft()
        for errand, reply in zip(errands, replies, strict=True):
            if errand.kind == "fetch":
                self._fetched(errand, reply, now)
            elif errand.stint is not None:
                self._answered(errand, errand.stint, reply, now)
        reach("turns.answered")

    def _answered(self, errand: Errand, stint: Stint, reply: Reply, now: float) -> None:
        if isinstance(reply, Refusal):
            self._refused(errand, stint, reply)
            return
        match errand.kind:
            case "ack" | "abandon" if errand.is_last:
                self.committed += errand.kind == "ack"
                self.abandoned += errand.kind == "abandon"
                with self._lock:
                    self._ledger.end(stint)
            case "ack":
                with self._lock:
                    stint.is_sending = False
                    stint.tagged.clear()
                    if errand.extends:
                        stint.renew_at, stint.lost_at = now + RENEW_S, now + LOCK_S
                    self._players.put(stint, Committed())
            case "renew":
                stint.renew_at, stint.lost_at = now + RENEW_S, now + LOCK_S
            case "more":
                assert isinstance(reply, Brought)
                with self._lock:
                    stint.is_fetching = False
                    stint.tagged.update(message.seq for message in reply.messages)
                    self._players.put(stint, Came(reply.messages))
            case _:
                pass

    def _refused(self, errand: Errand, stint: Stint, reply: Refusal) -> None:
        if errand.kind in {"abandon", "park"}:
            if errand.is_last:
                with self._lock:
                    self._ledger.end(stint)
        elif reply.code in _GONE:
            self._parting.lose(stint, reply.message)
        else:
            self._parting.cannot_keep(stint, reply.message)

    def _fetched(self, errand: Errand, reply: Reply, now: float) -> None:
        if isinstance(reply, Refusal):
            raise reply.error()
        assert isinstance(reply, Fetched)
        assert isinstance(errand.command, FetchTurn)
        found = () if reply.turn is None else (reply.turn, *reply.others)
        self._outlook.fetched(len(found), errand.command.n)
        at = self._engine.look().now
        with self._lock:
            for locked in found:
                stint = Stint(
                    locked,
                    age_s=0.0 if locked.since is None else seconds_between(locked.since, at),
                    renew_at=now + RENEW_S,
                    lost_at=now + LOCK_S,
                    fetched_at=now,
                    tagged={message.seq for message in locked.messages},
                )
                self._stints[locked.token] = stint
                self._players.put(stint, Opened(partial(self._archive.open, locked)))

    # --- looking and resting ------------------------------------------------------------------------------------------

    def look(self, view: View, at: Timestamp, now: float) -> None:
        """See whether something came in for instances, here or anywhere."""
        self._outlook.look(view, at, now)
        with self._lock:
            mine = [stint for stint in self._stints.values() if stint.steps and not stint.is_gone]
            room = self._room()
        for stint in mine:
            if any(message.seq not in stint.tagged for message in view.visible(stint.instance, at)):
                stint.wants_more = True
        if room:
            self._outlook.hope_again(view, at)

    def enforce(self, now: float) -> None:
        """Do what time asks for."""
        if self._outlook.mail_came(now):
            with self._lock:
                for stint in self._stints.values():
                    stint.wants_more = stint.wants_more or bool(stint.steps)
        late: list[Stint] = []
        with self._lock:
            due = self._alarm.due(now)
            for stint in list(self._stints.values()):
                if stint.idle_at <= now:
                    stint.idle_at = NEVER
                    self._players.put(stint, Idled())
                elif not stint.is_begun and not stint.is_gone and now - stint.fetched_at >= PATIENCE_S:
                    self._outlook.tire()
                    self._ledger.send_back(stint, None, counted=False)
                if self._is_late(stint, now):
                    late.append(stint)
        for work in due:
            work()
        for stint in late:
            self._break_off(stint)
        for stint in list(self._stints.values()):
            if stint.lost_at <= now and not stint.is_sending and not stint.is_gone:
                self._parting.lose(stint, "its lock could not be renewed in time")

    def _is_late(self, stint: Stint, now: float) -> bool:
        limit = 0.0 if stint.definition is None else stint.definition.turn_timeout_s
        since = stint.code.since
        return bool(limit) and since is not None and now - since >= limit and not stint.is_gone

    def _break_off(self, stint: Stint) -> None:
        """Take a turn that does not give its thread back for dead: it counts."""
        execution = stint.execution
        ident, stack = stint.code.break_off(None if execution is None else execution.thread_id)
        log.error("turn.overran", extra={"instance": stint.instance, "stack": stack})
        self._crew.write_off(ident)
        seconds = 0.0 if stint.definition is None else stint.definition.turn_timeout_s
        self._parting.give_back(
            stint, f"a turn took longer than {seconds:g} s without a running step", counted=True, delay_s=BROKEN_S
        )

    def due_at(self) -> float:
        """Give when `enforce` or `errands` has something to do. Whoever makes that earlier pokes the pump."""
        with self._lock:
            times = [self._outlook.mail_at if self._room() or self._stints else NEVER]
            if self._outbox or self._coming:
                times.append(self.now() + LINGER_S)
            for stint in self._stints.values():
                if stint.is_gone:
                    continue
                times += (stint.idle_at, stint.renew_at)
                if not stint.is_begun:
                    times.append(stint.fetched_at + PATIENCE_S)
                since = stint.code.since
                if since is not None and stint.definition is not None and stint.definition.turn_timeout_s:
                    times.append(since + stint.definition.turn_timeout_s)
            return self._alarm.sleep(min(times))

    @property
    def wants_look(self) -> bool:
        """Tell whether more turns could be run than there are."""
        return self._room() > 0

    @property
    def has_hope(self) -> bool:
        """Tell whether a fetch is worth a try, and there is room."""
        return self._outlook.hope and self._room() > 0

    @property
    def is_quiet(self) -> bool:
        """Tell whether no turn is under way, and nothing is to be sent."""
        return not self._stints and not self._outbox

    def _room(self, ending: int = 0) -> int:
        return self._outlook.room(len(self._stints) - ending)

    @property
    def _coming(self) -> int:
        """Count the turns that may have something to send in a moment."""
        return self._ledger.coming

    @property
    def lost(self) -> int:
        """Count the turns that were lost to others."""
        return self._parting.lost

    def now(self) -> float:
        """Give the monotonic time."""
        return self._engine.time.clock.monotonic()

    def _now_ms(self) -> int:
        return int(self._engine.time.clock.now().timestamp() * 1000)

    # --- the end ------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Fetch no more; give back what has not begun."""
        self._outlook.is_draining = self._playing.is_draining = True
        with self._lock:
            for stint in list(self._stints.values()):
                if not stint.is_begun and not stint.is_gone:
                    self._ledger.send_back(stint, None, counted=False)

    def stop(self) -> None:
        """Give everything back, uncounted, without waiting for any step."""
        for stint in list(self._stints.values()):
            if not stint.is_gone and not stint.is_sending:
                self._parting.give_back(stint, None, counted=False)

    def close(self) -> None:
        """Let go of all threads and residents."""
        for stint in list(self._stints.values()):
            self._parting.drop(stint)
        with suppress(RuntimeError):  # no thread at all: then what is resident ends with the process
            self._crew.put(self._residents.clear)
        self._crew.close()


#: Kinds of errands that are made when they are asked for, and do not wait in the outbox.
_UNQUEUED = {"renew", "more", "fetch"}

"""Group commit: many callers, one write and one sync for all that waits.

Knows threads and numbers; what a batch does to the disk is `log_tail`'s business. A waiter whose record is durable
returns. Else the first becomes leader: it takes the whole buffer, releases the lock, commits, retakes the lock,
raises `durable`, wakes exactly those who are satisfied and hands leadership to one who is not. The others sleep each
on a gate of their own. One batch is in flight at a time, and no lock is held during I/O.

Whatever ends a leader (a full disk, a failed sync, a KeyboardInterrupt) ends in one of three ways: the batch is back
in the buffer and somebody else leads, or the flusher retries it, or the journal has failed and everybody is told.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread

from holdfast.clock import Clock
from holdfast.errors import StoreClosed, StoreError, StoreFailed, StoreFull
from holdfast.failpoints import reach
from holdfast.journal.fs_errors import lacking
from holdfast.journal.log_tail import SyncFailed, Tail
from holdfast.journal.options import JournalOptions
from holdfast.journal.records import bodies, tails
from holdfast.journal.tickets import State, Ticket, Waiter

log = logging.getLogger(__name__)

#: Space may come back; these are waited out.
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Ticks of the flusher without work, after which it sleeps until the next append.
_IDLE_TICKS = 100


class GroupCommit:
    """The buffer of appended groups and the threads that wait for them."""

    def __init__(self, tail: Tail, clock: Clock, options: JournalOptions, last_ts: bytes) -> None:
        self._tail = tail
        self._monotonic = clock.monotonic
        self._options = options
        self._buffer_bytes = options.buffer_bytes
        self._flush_records = options.flush_records
        self._flushes = options.flush_after_s is not None
        self._lock = Lock()
        #: The number of the first buffered record, and the lines of all that are, up to their sums. Always replaced
        #: together, and appended to in one step: an interrupt between two steps must not make numbers and lines differ.
        self._buffer: tuple[int, list[bytes]] = (tail.end.seq, [])
        self._buffered_bytes = 0
        #: A batch that has to be written again, before what is buffered.
        self._returned: list[bytes] = []
        #: What follows each event, and the time and version it was made for.
        self._tails = (b"", b"")
        self._tails_for = (b"", 0)
        #: When the oldest buffered record came; monotonic seconds.
        self._oldest = 0.0
        self._leader: Waiter | None = None
        self._waiters: list[Waiter] = []
        self._callbacks: list[tuple[Ticket, Callable[[Ticket], object]]] = []
        self._last_ts = last_ts
        self._failure: Callable[[], StoreError] | None = None
        self._closing = self._closed = self._full = False
        #: What the last write lacked, while it is full, and what to do.
        self.lacking = ("", "")
        #: Attempts on a full disk since the last success.
        self._retries = 0
        self._flusher: Thread | None = None
        self._bell = Event()
        self._armed = False
        self._stopped = Event()
        self.relaxed = options.durability == "relaxed"
        self.durable = tail.end.seq - 1

    @property
    def appended(self) -> int:
        """The last record that has a number."""
        first, lines = self._buffer
        return first + len(lines) - 1

    @property
    def state(self) -> State:
        """What can be expected of the journal now."""
        if self._failure is not None:
            return "failed"
        if self._closed:
            return "closed"
        return "full" if self._full else "open"

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, events: list[bytes], ts: bytes, v: int, *, last: bool = False) -> Ticket:
        """Give a group its numbers and buffer it. With `last`, nothing can be appended after it."""
        while self._buffered_bytes > self._buffer_bytes:
            self.wait(self.appended)
        with self._lock:
            if self._closing or self._full or self._failure is not None:
                raise self._refusal()
            begin, lines = self._buffer
            before = len(lines)
            first = begin + before
            # Time never runs backwards in the log, whatever the callers' clocks did.
            if ts is not self._last_ts:
                self._last_ts = ts = max(ts, self._last_ts)
            if not before:
                self._oldest = self._monotonic()
            if not before or self._tails_for[0] is not ts or self._tails_for[1] != v:
                self._tails, self._tails_for = tails(ts, begin, v), (ts, v)
            if len(events) == 1:
                lines.append(b'{"seq":%d,"event":%b%b' % (first, events[0], self._tails[1]))
                self._buffered_bytes += len(events[0]) + 100
            else:
                lines += bodies(events, first, self._tails)
                self._buffered_bytes += sum(map(len, events)) + 100 * len(events)
            if last:
                self._closing = True
            elif self._flushes and (not self._armed or before >= self._flush_records):
                # The append after the hundredth rings: whoever appends a hundred and then flushes needs nobody's help.
                self._arm()
        return Ticket(self, first, first + len(events) - 1)

    # --- waiting and leading ------------------------------------------------------------------------------------------

    def wait(self, seq: int, timeout: float | None = None) -> None:
        """Return when record `seq` is durable; lead if nobody does."""
        if self.durable >= seq:
            return
        me = Waiter(seq)
        deadline = None if timeout is None else self._monotonic() + timeout
        try:
            while self.durable < seq and self._take_turn(me, deadline):
                self._lead()
                self._pass_on(me)
        except BaseException:
            self._pass_on(me)
            raise

    def exclusively(self, action: Callable[[Tail], None]) -> None:
        """Run `action` while no batch is in flight; what waits meanwhile goes on afterwards."""
        me = Waiter(0)
        try:
            self._take_turn(me, None)
            action(self._tail)
        except SyncFailed as error:
            self._fail(f"{error}.", error)
            raise self._refusal() from error
        finally:
            self._pass_on(me)

    def _take_turn(self, me: Waiter, deadline: float | None) -> bool:
        """Sleep until satisfied (False) or leading (True). Raises when neither will happen, or not in time."""
        while True:
            with self._lock:
                if self._leader is me:
                    return True
                if self._is_satisfied(me):
                    return False
                if self._failure is not None or self._closed:
                    raise self._refusal()
                if self._leader is None and not self._full:
                    self._leader = me
                    return True
                me.shut()
                if me not in self._waiters:
                    self._waiters.append(me)
            if not me.sleep(-1 if deadline is None else max(deadline - self._monotonic(), 0)):
                raise TimeoutError(f"record {me.seq} was not durable in time; its outcome is unknown")
            # Whoever was woken knows why without the lock, which the next leader wants now: `durable` only grows, and
            # only a leader itself ends its turn.
            if self._leader is me:
                return True
            if self._is_satisfied(me):
                return False

    def _is_satisfied(self, waiter: Waiter) -> bool:
        return 0 < waiter.seq <= self.durable

    def _lead(self) -> None:
        """Commit what is buffered now, as the leader."""
        if self._options.linger_s:
            self._stopped.wait(self._options.linger_s)
        batch: list[bytes] = []
        try:
            with self._lock:
                batch, self._returned = self._returned, []
                if not batch:
                    first, batch = self._buffer
                    self._buffer = (first + len(batch), [])
                    self._buffered_bytes = 0
            reach("journal.leading")
            if batch:
                self._tail.commit(batch)
            self._retries, self._full = 0, False
        except SyncFailed as error:
            self._tail.counters.flush_errors_total += 1
            with suppress(OSError):  # best effort: what is cut is not acknowledged, nor is what stays
                self._tail.cut_back()
            self._fail(f"{error}. What was in flight is not acknowledged; reopening shows whether it is there.", error)
        except OSError as error:
            self._tail.counters.flush_errors_total += 1
            self._returned = batch
            self._meet_write_error(error)
        except BaseException:
            # Interrupted, perhaps even after the sync: if the end did not move, the batch is written again as it is,
            # and its lines leave the file.
            if self._tail.end.seq - 1 == self.durable:
                self._returned = batch
                self._cut_back_or_fail()
            raise
        finally:
            if self._failure is None:
                self.durable = self._tail.end.seq - 1

    def _pass_on(self, me: Waiter) -> None:
        """End a turn, or the wish for one: wake the satisfied in order, and let one of the others lead.

        Nobody may be stranded by whoever leaves, so this holds for leaders that succeeded, failed or were interrupted.
        """
        woken: list[Waiter] = []
        called: list[tuple[Ticket, Callable[[Ticket], object]]] = []
        try:
            with self._lock:
                if me in self._waiters:
                    self._waiters.remove(me)
                if self._leader is me and not self._waiters and not self._callbacks:
                    self._leader = None
                elif self._leader is me:
                    durable = self.durable
                    woken = sorted((one for one in self._waiters if 0 < one.seq <= durable), key=_by_seq)
                    heirs = [one for one in self._waiters if not 0 < one.seq <= durable]
                    self._leader = None
                    if heirs and not self._full and self._failure is None:
                        # The lowest number leads next, so that who wants to be alone with the tail (0) comes first. It
                        # is woken first: its sync then runs while the satisfied go about their business.
                        self._leader = min(heirs, key=_by_seq)
                        heirs.remove(self._leader)
                        woken.insert(0, self._leader)
                    self._waiters = heirs
                    called = self._settled_callbacks()
        finally:
            _wake(woken)
        _call(called)

    # --- when it goes wrong -------------------------------------------------------------------------------------------

    def _cut_back_or_fail(self) -> bool:
        try:
            self._tail.cut_back()
        except OSError as error:
            self._fail(f"A batch could be neither written nor removed: {error}.", error)
            return False
        return True

    def _meet_write_error(self, error: OSError) -> None:
        """After a failed write: wait for space if that is all that lacks, else fail."""
        if not self._cut_back_or_fail():
            return
        what, hint = lacking(error)
        if error.errno not in _NO_SPACE:
            self._fail(f"Writing the log failed: {error}. The batch was removed again.", error)
        elif self._retries >= self._options.full_retries:
            stayed = what.replace("is full", "stayed full")
            self._fail(f"{stayed}: {error}. Nothing that waited was written.", error, StoreFull)
        else:
            with self._lock:
                self._retries += 1
                if not self._full:
                    self._full, self.lacking = True, (what, hint)
                    log.warning("journal.full", extra={"error": str(error), "buffered": self.appended - self.durable})
                has_flusher = self._arm()
            if not has_flusher:
                self._fail(f"{what}: {error}. Nobody is there to wait for space.", error, StoreFull)

    def _fail(self, message: str, cause: BaseException, kind: type[StoreError] = StoreFailed) -> None:
        """End the journal: everybody who waits, and every later call, is told."""
        with self._lock:
            if self._failure is None:
                log.error("journal.failed", extra={"error": message})
                self._failure = lambda: _because(kind(message), cause)
            woken, self._waiters = self._waiters, []
            called = self._settled_callbacks()
        _wake(woken)
        _call(called)

    def _refusal(self) -> StoreError:
        if self._failure is not None:
            return self._failure()
        if self._full and not self._closed:
            what, hint = self.lacking
            return StoreFull(f"{what}; nothing was stored.", hint=hint)
        return StoreClosed("The journal is closed; nothing was stored.", hint="Open it again.")

    def check_open(self) -> None:
        """Raise unless the journal can still be used; a full disk does not stop readers."""
        if self._closed or self._failure is not None:
            raise self._refusal()

    def verdict(self, seq: int) -> StoreError | None:
        """Give the error a waiter for `seq` would get now."""
        return self._refusal() if self.durable < seq and self.state in {"failed", "closed"} else None

    # --- callbacks ----------------------------------------------------------------------------------------------------

    def call_later(self, ticket: Ticket, callback: Callable[[Ticket], object]) -> bool:
        """Keep a callback until its ticket is done, and let the flusher see to it; False if it is done already."""
        with self._lock:
            if ticket.done():
                return False
            has_flusher = self._arm()
            if has_flusher:
                self._callbacks.append((ticket, callback))
        if not has_flusher:
            with suppress(StoreError):  # the ticket knows it, and the callback asks the ticket
                self.wait(ticket.last_seq)
        return has_flusher

    def _settled_callbacks(self) -> list[tuple[Ticket, Callable[[Ticket], object]]]:
        if not self._callbacks:
            return []
        settled = sorted((one for one in self._callbacks if one[0].done()), key=lambda one: one[0].last_seq)
        self._callbacks = [one for one in self._callbacks if not one[0].done()]
        return settled

    # --- the flusher --------------------------------------------------------------------------------------------------

    def _arm(self) -> bool:
        """Wake the flusher; called with the lock held. False if there is none and the system gives no thread for it."""
        if self._flusher is None:
            flusher = Thread(target=self._run_flusher, name="holdfast-journal-flush", daemon=True)
            try:
                flusher.start()
            except RuntimeError as error:
                log.warning("journal.no_flusher", extra={"error": str(error)})
                return False
            self._flusher = flusher
        self._armed = True
        self._bell.set()
        return True

    def _run_flusher(self) -> None:
        """Flush what nobody waits for, and retry what a full disk refused."""
        idle = 0
        try:
            while not self._stopped.is_set() and self._failure is None:
                if self._full:
                    self._stopped.wait(self._options.full_retry_s)
                else:
                    self._bell.wait(self._options.flush_after_s if idle < _IDLE_TICKS else None)
                    self._bell.clear()
                idle = 0 if self._flush_if_due() else idle + 1
                if idle >= _IDLE_TICKS:
                    with self._lock:
                        # Only with an empty buffer: an append that saw the flusher armed did not ring.
                        self._armed = self._has_work()
                        idle = 0 if self._armed else idle
        except BaseException as error:  # noqa: BLE001 - top of a thread: without it, records nobody waits for would stay
            self._fail(f"The flushing thread died: {error!r}.", error)

    def _flush_if_due(self) -> bool:
        """Lead one batch if its time has come; True while there is anything buffered."""
        me = Waiter(self.appended)
        with self._lock:
            if not self._has_work():
                return False
            if self._leader is not None or not self._is_due():
                return True
            self._leader = me
        try:
            self._lead()
        finally:
            self._pass_on(me)
        return True

    def _has_work(self) -> bool:
        return bool(self._returned or self._buffer[1])

    def _is_due(self) -> bool:
        after = self._options.flush_after_s
        return (
            self._full
            or bool(self._callbacks)
            or self.appended - self.durable >= self._flush_records
            or (after is not None and self._monotonic() - self._oldest >= after)
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Refuse everything from now on; whoever still waits is told."""
        with self._lock:
            self._closing = self._closed = True
            woken, self._waiters = self._waiters, []
            called = self._settled_callbacks()
            flusher = self._flusher
        self._stopped.set()
        self._bell.set()
        _wake(woken)
        _call(called)
        if flusher is not None:
            flusher.join(timeout=10)

    def abandon_in_child(self) -> None:
        """In a forked child: closed, without touching a lock some other thread may have held at the fork."""
        self._lock = Lock()
        self._waiters, self._callbacks = [], []
        self._flusher = self._leader = None
        self._closing = self._closed = True


def _by_seq(waiter: Waiter) -> int:
    return waiter.seq


def _wake(waiters: list[Waiter]) -> None:
    try:
        for waiter in waiters:
            waiter.wake()
    except BaseException:
        for waiter in waiters:  # interrupted in between: the rest must be woken all the same
            waiter.wake()
        raise


def _because(error: StoreError, cause: BaseException) -> StoreError:
    error.__cause__ = cause
    return error


def _call(callbacks: list[tuple[Ticket, Callable[[Ticket], object]]]) -> None:
    for ticket, callback in callbacks:
        try:
            callback(ticket)
        except Exception:  # users' code: one bad callback must not take the others' acknowledgement
            log.exception("journal.callback", extra={"seq": ticket.last_seq})

"""Threads for turns: a small pool that runs turns and sync steps, and code that does not give its thread back.

Work runs in the order it was handed in.

Most of that work is short and is Python's own, and threads that share one interpreter get in each other's way. So one
of them works while the others rest; what has to wait nevertheless gets a thread more, again and again: that is how work
that blocks has all of them. A thread whose work was short rests again, unless nobody else has come for work since.

While the process computes all the time, what takes long waits for the interpreter, as one thread more would: then it
joins later. It does join, for what computes may be something that lets others run.

Threads are made when they are first needed, and are daemons. One that is stuck is written off: another takes its place,
and it ends when it comes back.

An exception is raised in the thread of a turn that takes too long, which nothing else can do. The order that matters:
whoever runs the code says that it has left, then looks whether it is late; whoever is late with it says so, then looks
whether it has left. So none of both can miss the other, and the exception strikes only inside.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from queue import SimpleQueue

from holdfast.clock import SystemClock
from holdfast.errors import TurnTimeout
from holdfast.workflows.api.error_conversion import tell

log = logging.getLogger("holdfast.worker")

#: Seconds that work waits for the threads at work before another one joins them.
PATIENCE_S = 0.004
#: And in a process that computes all the time. Seconds.
LONGEST_S = 0.05
#: Work that takes less has blocked nothing. Seconds.
SHORT_S = 0.001
#: Seconds of processor in one second, of all threads, from which on a process computes all the time. Far more than one
#: is work that lets others run, and says nothing of the interpreter.
BUSY, MANY = 0.8, 1.5


#: Not the application's clock: how long work took is a matter of this machine.
_clock = SystemClock()


class _Duty(Enum):
    """What a thread is called for."""

    WORK = "work"
    #: Wait for a moment, and work if something still waits then.
    WATCH = "watch"
    END = "end"


class _Span:
    """A time that has begun with this."""

    def __init__(self) -> None:
        self.began, self._spent = _clock.monotonic(), _clock.processor()

    @property
    def took_s(self) -> float:
        """Seconds since then."""
        return _clock.monotonic() - self.began

    @property
    def was_busy(self) -> bool:
        """Whether the process has computed all the time, so that threads wait for the interpreter."""
        took_s = self.took_s
        return BUSY * took_s <= _clock.processor() - self._spent <= MANY * took_s


class ThreadPool:
    """Up to `size` threads. Any thread may hand in work."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._calls: SimpleQueue[_Duty] = SimpleQueue()
        #: Threads there are, without those written off; among them those that wait for a call, and those at work.
        self._threads = self._resting = self._working = 0
        self._has_lookout = False
        self._closing = threading.Event()
        #: Who came for work last.
        self._latest = 0
        #: Threads within a piece of work; and those that are no longer counted.
        self._inside: set[int] = set()
        self._written_off: set[int] = set()

    def put(self, work: Callable[[], None]) -> None:
        """Have it done as soon as a thread is free. Raises RuntimeError if the system has no thread at all."""
        with self._lock:
            self._waiting.append(work)
            try:
                self._call()
            except RuntimeError:
                if not self._threads:
                    self._waiting.pop()
                    raise

    def write_off(self, ident: int) -> None:
        """Count a thread no longer: what it does may never end. One that has come to an end meanwhile stays."""
        with self._lock:
            if ident in self._inside:
                self._inside.remove(ident)
                self._written_off.add(ident)
                self._threads -= 1
                self._working -= 1
                with suppress(RuntimeError):  # no thread now; perhaps when the next work is handed in
                    self._call()  # what waits counted on this thread

    def close(self) -> None:
        """Let the threads end, busy ones when all is done."""
        self._closing.set()
        with self._lock:
            count = self._threads + len(self._written_off)
        for _ in range(count):
            self._calls.put(_Duty.END)

    def _call(self) -> None:
        """Have somebody come for what waits: one to work if nobody does, else one to watch. The lock is held."""
        if not self._waiting or (self._working and self._has_lookout):
            return
        duty = _Duty.WATCH if self._working else _Duty.WORK
        if self._resting:
            self._calls.put(duty)
            self._resting -= 1
        elif self._threads < self._size:
            threading.Thread(target=self._serve, args=(duty,), name="holdfast-turn", daemon=True).start()
            self._threads += 1
        else:
            return  # whoever is at work comes for it
        if duty is _Duty.WORK:
            self._working += 1
        else:
            self._has_lookout = True

    def _serve(self, duty: _Duty) -> None:
        while duty is not _Duty.END:
            if (duty is _Duty.WORK or self._is_needed()) and not self._work():
                return
            duty = self._calls.get()

    def _is_needed(self) -> bool:
        """Wait for a moment. What waits then has waited for it, or comes after much that did not take long."""
        span = _Span()
        while not self._closing.wait(PATIENCE_S) and self._waiting and span.was_busy and span.took_s < LONGEST_S:
            pass
        with self._lock:
            self._has_lookout = False
            if self._waiting:
                self._working += 1
                return True
            self._resting += 1
            return False

    def _work(self) -> bool:
        """Do what waits; False if this thread was written off meanwhile."""
        ident = threading.get_ident()
        is_spare = False
        span = _Span()
        while True:
            with self._lock:
                if ident in self._written_off:
                    self._written_off.remove(ident)
                    return False
                self._inside.discard(ident)
                if not self._waiting or (is_spare and self._working > 1 and self._latest != ident):
                    self._working -= 1
                    self._resting += 1
                    self._call()  # whoever else works may be stuck by now
                    return True
                work = self._waiting.popleft()
                self._inside.add(ident)
                self._latest = ident
                if self._waiting:
                    with suppress(RuntimeError):  # then those there are must do
                        self._call()
            began = _clock.monotonic()
            if began - span.began >= SHORT_S:  # not for each piece of work: to ask for the processor's time takes long
                span = _Span()
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - a fault of ours: it must not take the thread with it
                tell(log, "turn.broken", problem)
            is_spare = _clock.monotonic() - began < SHORT_S or span.was_busy


class Code:
    """The code of one turn, while a thread runs it."""

    def __init__(self) -> None:
        #: When it was entered (monotonic), and by which thread; None: nobody is inside.
        self.since: float | None = None
        self._ident = 0
        #: It was broken off; whatever it gives from here on does not count.
        self.is_late = False
        #: Set once the exception was raised; there is none until then, as hardly any turn is late.
        self._raised: threading.Event | None = None

    def run(self, work: Callable[[], None], now: float) -> bool:
        """Run it here; tell whether it came to its end in time."""
        try:
            try:
                self._ident = threading.get_ident()
                self.since = now
                work()
            finally:
                self.since = None
                if self.is_late and self._raised is not None:
                    self._raised.wait()
        except TurnTimeout:
            self.since = None
        finally:
            if self.is_late:
                _swallow()
        return not self.is_late

    def break_off(self, ident: int | None = None) -> tuple[int, str]:
        """Raise TurnTimeout in the thread that is inside, or in `ident` that works for it; give which, and where."""
        raised = self._raised = threading.Event()
        self.is_late = True
        target = ident or self._ident
        frame = sys._current_frames().get(target)  # noqa: SLF001 - documented, and the only way to see another thread
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        if self.since is not None:
            _raise_in(target)
        raised.set()
        return self._ident, stack


def _raise_in(ident: int) -> None:
    """Have a thread raise at one of its next instructions."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(TurnTimeout))


def _swallow() -> None:
    """Let what was raised here strike now, if it has not.

    Taking it back instead would leave the interpreter looking for it for ever, in every thread: slower, and on 3.11
    without end as soon as a debugger or profiler is on.
    """
    try:
        _raise_in(threading.get_ident())
        while True:
            pass
    except TurnTimeout:
        pass

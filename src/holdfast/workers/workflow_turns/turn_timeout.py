"""A turn that does not give its thread back: an exception is raised in that thread, which nothing else can do.

The order that matters: whoever runs the code says that it has left, then looks whether it is late; whoever is late with
it says so, then looks whether it has left. So none of both can miss the other, and the exception strikes only inside.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable

from holdfast.errors import TurnTimeout


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

    def is_slow(self, before: float) -> bool:
        """Tell whether a thread is inside since before a time."""
        since = self.since
        return since is not None and since < before

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

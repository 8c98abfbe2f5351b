"""A thread that sleeps in the store until something new is there, so that the pump need not look.

It says only "look again". It listens while armed: a pump at work disturbs nobody, least of all itself. When a pause
brought nothing, it asks for what people wish of the worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, StoreClosed
from holdfast.stores.deadline import keeping_to
from holdfast.stores.protocol import Store

#: How long a watcher sleeps before it sees that it was closed, in seconds.
PAUSE_S = 1.0
#: Seconds after which one that gives no answer is left to the pump. Not sooner: a slow one is not to be asked for more.
SILENT_S = 10.0


class Watcher:
    """Tells once, for each time it is armed, that there is an event above a number."""

    def __init__(
        self,
        store: Store,
        stirred: Callable[[], None],
        paused: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """Call `stirred` when there is something new, `paused` after each pause in which there was not."""
        self._store = store
        self._monotonic = monotonic or SystemClock().monotonic
        self._stirred = stirred
        self._paused = paused
        self._changed = threading.Condition()
        self._after: int | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._serve, name="holdfast-watcher", daemon=True).start()

    def arm(self, after: int) -> None:
        """Listen for events above `after`."""
        with self._changed:
            self._after = after
            self._changed.notify_all()

    def disarm(self) -> None:
        """Stop listening."""
        with self._changed:
            self._after = None

    def close(self) -> None:
        """Let the thread end, within a pause."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._after is not None)
                if self._closed or self._after is None:
                    return
                after = self._after
            try:
                # Whether a store elsewhere is away the pump finds out, and says so.
                with keeping_to(self._monotonic() + SILENT_S):
                    came = self._store.wait(after, PAUSE_S)
            except StoreClosed:
                # The pump will meet that itself, with something to report.
                self._stirred()
                return
            except HoldfastError:
                # Perhaps for a moment only: no descriptor left, say. Meanwhile all look by themselves, now and then.
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, PAUSE_S)
                self._paused()
                came = True
            with self._changed:
                if self._closed:
                    return
                told = came and self._after == after
                if told:
                    self._after = None
            if told:
                self._stirred()
            elif not came:
                self._paused()

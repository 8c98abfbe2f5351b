"""Killing a process at a named point, to see what the next one makes of it.

The function runs in a forked child, so that it may be any function of the test. SIGKILL, not an exception: nothing is
cleaned up, as in a power cut for this process alone. Close what the parent has open before: a child does not share it.
"""

from __future__ import annotations

import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from holdfast.app.application import Holdfast
from holdfast.failpoints import listening
from holdfast.model.jobs import Run
from holdfast.testing.clock import ManualClock
from holdfast.testing.jobs import drain

#: Seconds a child may take to reach its point.
PATIENCE_S = 60.0


def killed_at(point: str, function: Callable[[], object], *, nth: int = 1, patience: float = PATIENCE_S) -> None:
    """Run `function` in a child process and kill it the `nth` time it comes to `point`.

    Raises AssertionError if it ended without coming there, or did not within `patience` seconds.
    """
    with warnings.catch_warnings():
        # Python warns of threads that a child does not get. It starts its own, and uses none of the parent's.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _live_and_die(point, function, nth)
    watch = os.pidfd_open(pid)
    try:
        ready = select.poll()  # `select` knows no descriptor above 1,023
        ready.register(watch, select.POLLIN)
        in_time = bool(ready.poll(patience * 1000))
    finally:
        os.close(watch)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if not in_time:
        raise AssertionError(f"the child did not come to {point!r} within {patience:g} s; it was killed elsewhere.")
    code = os.waitstatus_to_exitcode(status)
    if code != -signal.SIGKILL:
        raise AssertionError(f"the child ended with code {code} without coming to {point!r} {nth} times.")


def _live_and_die(point: str, function: Callable[[], object], nth: int) -> None:
    """Be the child: never return."""
    times = count(1)

    def die() -> None:
        if next(times) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        with listening(point, die):
            function()
        code = 0
    except BaseException:  # noqa: BLE001 - told, and the child ends: the parent's code must not run twice
        traceback.print_exc()
    finally:
        os._exit(code)


class Crash:
    """A SQLite file of a test, an application on it, and workers that die. The fixture `holdfast_crash` gives one."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        """Keep the store in `directory`; a child goes on from where `clock` stands."""
        #: The store, for a `Holdfast` of your own or `use`.
        self.url = f"sqlite:{directory / 'jobs.db'}"
        #: An application on it.
        self.app = Holdfast(self.url, clock=clock, guard_workflows=True)

    def kill(self, point: str, function: Callable[[], object] | None = None, *, nth: int = 1) -> None:
        """Kill a child process that comes to `point` while it calls `function`, by default while it works.

        Points are places in Holdfast, such as `pump.sending` and `engine.committed`, or your own: call
        `holdfast.failpoints.reach("charged")` in a handler.
        """
        self.app.close()
        killed_at(point, function or self._work, nth=nth)

    def _work(self) -> None:
        self.app.work(until_idle=True)

    def restart(self) -> list[Run]:
        """Work as after the crash, in this process, past lapsing leases and backoffs; give the runs."""
        return drain(self.app, until="empty")

    def close(self) -> None:
        """Let go of the store."""
        self.app.close()

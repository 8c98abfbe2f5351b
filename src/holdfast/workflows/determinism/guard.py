"""The guard: refuses and reports calls of workflow code that no replay could repeat.

A guard is in force where somebody asked for it (`Definitions.guard`): `Holdfast(guard_workflows=True)`, `holdfast dev`,
`holdfast workflows check` and `holdfast.testing`. A worker has none by default.

It is a profile function of the thread that runs workflow code, set while that code runs. Nothing is replaced in any
module, other threads do not see it, and nothing of it is left afterwards. The price is a Python call for every call and
return in the thread.

Three things to know of `sys.setprofile`:
- It shows calls made by Python code. A C function that calls another, as in `map(time.sleep, …)`, is not seen.
- The interpreter drops a profile function that raises. So the guard is set again before each callback of the loop, and
  when the exception it raised is freed.
- A thread has one. That of somebody else is put back afterwards.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from holdfast.workflows.determinism.call_site import is_library
from holdfast.workflows.determinism.garbage import is_collecting
from holdfast.workflows.determinism.restrictions import (
    CONDITION_WAIT,
    NAMES,
    PYTHON,
    Restriction,
    read_of,
    refusal,
    restriction_of,
)

_ASYNCIO = str(Path(asyncio.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[2]) + os.sep
#: No result of a workflow depends on what an import, a log line or a warning does.
_INCIDENTAL = {"<frozen importlib._bootstrap>", logging.__file__, warnings.__file__, traceback.__file__}


class Guard:
    """Refuses restricted calls by raising WorkflowNotAllowed in the code that makes them."""

    def __init__(self, on_read: Callable[[Exception], None] | None = None) -> None:
        """Call `on_read` for each read of a clock, randomness or a file, with the error that describes it.

        What `on_read` raises is raised in the workflow code. Without it, reads are not looked at.
        """
        self._on_read = on_read

    def enter(self) -> None:
        """Guard this thread from here on, or again."""
        _thread.guard = self
        if _can_restore(sys.getprofile()):
            sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            if called.__name__ in NAMES:
                self._look_at_function(frame, called)
        elif event == "call" and (found := PYTHON.get(frame.f_code)) is not None:
            is_look_only = frame.f_code is CONDITION_WAIT and frame.f_locals.get("timeout") == 0
            if not is_look_only and _is_by_workflow(frame):
                for value in frame.f_locals.values():
                    if isinstance(value, Coroutine):
                        value.close()  # nobody will ever await it
                _refuse(found)

    def _look_at_function(self, frame: FrameType, called: Any) -> None:
        refused = restriction_of(called)
        if refused is not None and _is_by_workflow(frame):
            _refuse(refused)
        read = None if self._on_read is None else read_of(called)
        if read is not None and _is_by_workflow(frame, asyncio_counts=False):
            assert self._on_read is not None
            self._on_read(refusal(*read))


class Guarded(NamedTuple):
    """What was in force in a thread."""

    guard: Guard | None
    profile: Any


class _Thread(threading.local):
    guard: Guard | None = None


_thread = _Thread()


def guarded() -> Guarded:
    """Return what is in force in this thread."""
    return Guarded(_thread.guard, sys.getprofile())


def leave(before: Guarded) -> None:
    """Put this thread back to what was in force before."""
    _thread.guard = before.guard
    if _can_restore(before.profile):
        sys.setprofile(before.profile)


def _can_restore(profile: Any) -> bool:
    """Tell whether `sys.setprofile` would take it: a profiler written in C, as cProfile on 3.11, is left alone."""
    return profile is None or callable(profile)


def _refuse(found: Restriction) -> None:
    problem = refusal(*found)
    # The code may catch it and go on: guard it again then.
    weakref.finalize(problem, _guard_again).atexit = False
    try:
        raise problem
    finally:
        del problem  # or its traceback would keep it, by this frame


def _guard_again() -> None:
    if _thread.guard is not None:
        _thread.guard.enter()


def _is_by_workflow(frame: FrameType, *, asyncio_counts: bool = True) -> bool:
    """Tell whether workflow code makes a call, itself or by a library.

    False for calls by the runtime, an import, a log line, a warning or the garbage collector; and, unless
    `asyncio_counts`, for those that asyncio makes for itself.
    """
    if is_collecting():
        return False
    collectors = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    at: FrameType | None = frame
    is_users = False
    while at is not None:
        code = at.f_code
        file = code.co_filename
        if file in _INCIDENTAL or code in collectors:
            return False
        if file.startswith(_OURS):
            return is_users  # beyond it is what runs the turn
        if not is_users and file.startswith(_ASYNCIO) and not asyncio_counts:
            return False
        is_users = is_users or not is_library(file)
        at = at.f_back
    return is_users

"""Clocks, randomness and files read directly within a turn: found as they are called, for tests and `holdfast dev`.

Looks at every call of a C function in this thread while it is on, which is slow; a worker never does it. What the
runtime, asyncio, log handlers and imports do in passing is left alone: no result depends on it.
"""

from __future__ import annotations

import asyncio
import builtins
import gc
import io
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.workflows.determinism import restrictions
from holdfast.workflows.determinism.call_site import is_incidental, is_library
from holdfast.workflows.determinism.restrictions import is_inside, refusal

_ASYNCIO = str(Path(asyncio.__file__).parent)
_OURS = str(Path(__file__).parents[2])
_CLOCK = ("read a clock", "use hf.now()")
_CHANCE = ("draw from randomness that no replay repeats", "use hf.uuid(), hf.random() or hf.rng()")
_FILES = ("reach files or the terminal", "do it in hf.step(fn, …) or in a task")

#: C function → what it does, what to use instead.
_FUNCTIONS: dict[Any, tuple[str, str]] = {
    getattr(time, name): _CLOCK
    for name in (
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "process_time",
        "process_time_ns",
        "thread_time",
        "thread_time_ns",
        "clock_gettime",
        "clock_gettime_ns",
        "localtime",
        "gmtime",
    )
    if hasattr(time, name)  # not every system has them all
}
_FUNCTIONS |= {getattr(os, name): _CHANCE for name in ("urandom", "getrandom") if hasattr(os, name)}
if (_generate_time_safe := getattr(uuid, "_generate_time_safe", None)) is not None:  # what uuid1 is made of
    _FUNCTIONS[_generate_time_safe] = _CHANCE
_FUNCTIONS |= dict.fromkeys((builtins.open, builtins.input, io.open_code), _FILES)
_FUNCTIONS |= {
    getattr(os, name): _FILES
    for name in (
        "open",
        "stat",
        "lstat",
        "listdir",
        "scandir",
        "mkdir",
        "rmdir",
        "unlink",
        "remove",
        "rename",
        "replace",
    )
}
#: Names of class methods that read the clock.
_NOW = {"now", "utcnow", "today"}
_SHARED_RANDOM = getattr(random, "_inst", None)


@contextmanager
def watching(tell: Callable[[Exception], None] | None = None) -> Iterator[None]:
    """Find what workflow code in here reads of clocks, chance and files: raise WorkflowNotAllowed, or `tell` it."""
    before = sys.getprofile()
    sys.setprofile(_looker(tell))
    try:
        yield
    finally:
        sys.setprofile(before)


def watch_turns(tell: Callable[[Exception], None] | None) -> None:
    """Do so in all turns that begin in this process from now on, in whatever thread; None ends it."""
    restrictions.look = None if tell is None else _looker(tell)


def _looker(tell: Callable[[Exception], None] | None) -> Callable[[FrameType, str, Any], None]:
    def look(frame: FrameType, event: str, found: Any) -> None:
        if event != "c_call" or not is_inside():
            return
        what = _meaning(found)
        if what is None or _is_in_passing(frame):
            return
        problem = refusal(*what)
        if tell is None:
            raise problem
        tell(problem)

    return look


def _is_in_passing(frame: FrameType) -> bool:
    """Tell whether this is done for the runtime or asyncio, an import or a log line, and not for workflow code."""
    at: FrameType | None = frame
    # Whoever watches the collection of garbage is called in the middle of anything.
    collecting = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while at is not None:
        if at.f_code in collecting:
            return True
        file = at.f_code.co_filename
        if file.startswith((_ASYNCIO, _OURS)):
            return True
        if not is_library(file):
            return is_incidental()
        at = at.f_back
    return True


def _meaning(found: Any) -> tuple[str, str] | None:
    try:
        known = _FUNCTIONS.get(found)
    except TypeError:  # a method of an unhashable object
        return None
    if known is not None:
        return known
    owner = getattr(found, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, datetime | date) and found.__name__ in _NOW:
        return _CLOCK
    return _CHANCE if _SHARED_RANDOM is not None and owner is _SHARED_RANDOM else None

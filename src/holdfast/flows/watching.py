"""Clocks and randomness read directly within a turn: found as they are called, for tests and `holdfast dev`.

Looks at every call of a C function in this thread while it is on, which is slow; a worker never does it. Reads by the
interpreter's own modules that no result depends on (asyncio, logging) are left alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.flows.forbidden import is_inside, refusal

_QUIET = (
    str(Path(asyncio.__file__).parent),
    str(Path(logging.__file__).parent),
    str(Path(__file__).parent.parent),
    "<frozen importlib",
)
_CLOCK = ("read a clock", "use hf.now()")
_CHANCE = ("draw from randomness that no replay repeats", "use hf.uuid(), hf.random() or hf.rng()")

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
        "localtime",
        "gmtime",
    )
} | {os.urandom: _CHANCE}
#: Names of class methods that read the clock.
_NOW = {"now", "utcnow", "today"}
_SHARED_RANDOM = getattr(random, "_inst", None)


@contextmanager
def watching(tell: Callable[[Exception], None] | None = None) -> Iterator[None]:
    """Find direct reads of clocks and randomness by workflow code in here: raise WorkflowNotAllowed, or `tell` it."""

    def look(frame: FrameType, event: str, found: Any) -> None:
        if event != "c_call" or not is_inside() or frame.f_code.co_filename.startswith(_QUIET):
            return
        what = _meaning(found)
        if what is None:
            return
        problem = refusal(*what)
        if tell is None:
            raise problem
        tell(problem)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


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

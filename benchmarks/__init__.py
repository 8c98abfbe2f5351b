"""Benchmarks: ours beside the bare limit of the same machine, in the same run. Ratios travel; rates do not.

`python -m benchmarks NAME`, from the top of the repository, prints them. A row says what was measured, ours, the bare
limit, and what we require; nothing here fails a build, because a busy machine is no bug.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_TOP = str(Path(__file__).parents[1])
_TEXT = "{:<46} {:>14} {:>14} {:>8}  {:<22} {}"


class Row(NamedTuple):
    """One measurement."""

    name: str
    ours: float
    unit: str
    #: The same work without our layers, or by a peer; None where there is no such thing.
    bare: float | None
    #: What we ask of it, in words.
    required: str
    holds: bool

    @staticmethod
    def heading(beside: str = "bare") -> str:
        """Give the line above the rows."""
        return _TEXT.format("", "ours", beside, "ratio", "required", "")

    @property
    def ratio(self) -> float | None:
        """Ours to what it is measured beside."""
        return self.ours / self.bare if self.bare else None

    def line(self) -> str:
        """Give the row for people."""
        bare = "" if self.bare is None else f"{self.bare:,.4g}" if self.bare < 100 else f"{self.bare:,.0f}"
        ours = f"{self.ours:,.4g}" if self.ours < 100 else f"{self.ours:,.0f}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        verdict = "MISSED" if not self.holds else "ok" if self.required else ""
        return _TEXT.format(self.name, f"{ours} {self.unit}", bare, ratio, self.required, verdict)


def seconds(work: Callable[[], object]) -> float:
    """Time one call, with the collector's backlog cleared before it."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def seconds_of(work: Callable[[], object]) -> float:
    """Time one short call, leaving the collector alone: with a million records it would cost more than the call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median(measure: Callable[[], float], times: int = 5) -> float:
    """Give the median of several measurements."""
    return statistics.median(measure() for _ in range(times))


def machine() -> str:
    """Name what the figures were measured on."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def child_env(**variables: str) -> dict[str, str]:
    """Return this process's environment, with `variables`, for a child process that imports `benchmarks`."""
    path = os.pathsep.join(filter(None, (_TOP, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **variables}

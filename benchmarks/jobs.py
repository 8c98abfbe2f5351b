"""How fast jobs go from enqueue to completed, and how soon an idle worker starts one; beside Huey in the same run.

One worker process, a no-op task, every acknowledgement durable. The producer is another process, except on `wal:`,
which one process has to itself. All parties take turns; rates are medians of the turns, latencies those of all turns
together. Huey's SqliteHuey is measured with synchronous FULL, which promises what we promise, and OFF, which promises
nothing after a power cut. It loses the job that a killed worker had; it has no call that enqueues many.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import NamedTuple, Self

from benchmarks import Row, child_env

#: How long a party has to end, seconds.
PATIENCE_S = 120


class Sizes(NamedTuple):
    """How much is measured."""

    #: Turns of each party.
    turns: int = 3
    #: Jobs of a turn: enqueued many at once, and one by one.
    many: int = 10_000
    single: int = 2_000
    #: Jobs of a turn whose latency is taken.
    latency: int = 200
    #: Seconds four idle workers are watched.
    idle_s: float = 10.0


class Process:
    """A party in a process of its own."""

    def __init__(self, kind: str, path: Path, ticks: tuple[int, int], access_token: str = "") -> None:
        out, into = ticks
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "benchmarks.party", kind, str(path), str(into), str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=ticks,
            env=child_env(HOLDFAST_ACCESS_TOKEN=access_token),
            text=True,
        )
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it; it leaves its work where it is."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        try:
            self._child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def ask(self, line: str) -> float | list[float]:
        """Have one thing done; give its answer."""
        self.tell(line)
        return self.answer()

    def tell(self, line: str) -> None:
        """Have one thing begun."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def answer(self) -> float | list[float]:
        """Wait for the answer to what was told."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark ended ({self._child.wait(PATIENCE_S)})")
        found: float | list[float] = json.loads(line)
        return found


class Stage:
    """One party set up afresh: its store, its worker, its producer."""

    def __init__(self, kind: str, place: Path) -> None:
        self._kind = kind
        self._place = place
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start the processes, and let one job go through."""
        self._place.mkdir()
        self._stack.callback(shutil.rmtree, self._place, ignore_errors=True)
        ticks = os.pipe()
        for end in ticks:
            self._stack.callback(os.close, end)
        path = self._place / "jobs"
        self.worker = self._stack.enter_context(Process(self._kind, path, ticks))
        self.worker.ask("work")
        alone = self._kind == "wal"
        self.producer = self.worker if alone else self._stack.enter_context(Process(self._kind, path, ticks))
        self.producer.ask("put 1")
        self.worker.ask("done 1")
        return self

    def __exit__(self, *error: object) -> None:
        """End them, and remove the store."""
        self._stack.close()

    def rate(self, verb: str, count: int) -> float:
        """Give jobs per second from the first enqueue to the last completion."""
        began = self.producer.ask(f"{verb} 0")
        self.producer.tell(f"{verb} {count}")
        if self.producer is self.worker:
            self.producer.answer()
            ended = self.worker.ask(f"done {count + 1}")
        else:
            ended = self.worker.ask(f"done {count + 1}")
            self.producer.answer()
        assert isinstance(began, float)
        assert isinstance(ended, float)
        return count / (ended - began)

    def latencies(self, count: int) -> list[float]:
        """Give the milliseconds from the call of enqueue to the start of the handler."""
        found = self.producer.ask(f"latency {count}")
        assert isinstance(found, list)
        return [1000 * each for each in found]


def peer() -> str | None:
    """Name the peer that is measured beside us, if it is installed."""
    return None if find_spec("huey") is None else f"Huey {version('huey')} (SqliteHuey, synchronous=FULL, one thread)"


def run(directory: Path, sizes: Sizes) -> Iterator[Row]:
    """Measure everything; takes about two minutes with the usual sizes."""
    plan: dict[str, tuple[str, str, int]] = {
        "many": ("sqlite", "many", sizes.many),
        "single": ("sqlite", "put", sizes.single),
        "wal": ("wal", "many", sizes.many),
    }
    if peer():
        plan |= {kind: (kind, "put", sizes.single) for kind in ("huey-full", "huey-off")}
    rates: dict[str, list[float]] = {name: [] for name in plan}
    waits: dict[str, list[float]] = {kind: [] for kind, verb, _ in plan.values() if kind != "huey-off"}
    for turn in range(sizes.turns):
        for name, (kind, verb, count) in plan.items():
            with Stage(kind, directory / f"{name}-{turn}") as stage:
                rates[name].append(stage.rate(verb, count))
        for kind, found in waits.items():
            with Stage(kind, directory / f"latency-{kind}-{turn}") as stage:
                found.extend(stage.latencies(sizes.latency))
    yield from _throughput({name: statistics.median(found) for name, found in rates.items()})
    yield from _latency(waits)
    yield from _idle(directory, sizes.idle_s)


def _throughput(rates: dict[str, float]) -> Iterator[Row]:
    full, off = rates.get("huey-full"), rates.get("huey-off")
    many, single, wal = rates["many"], rates["single"], rates["wal"]
    yield Row("sqlite: enqueue_many to completed", many, "jobs/s", full, ">= 5,000/s", many >= 5_000)
    yield Row("sqlite: enqueue one by one to completed", single, "jobs/s", full, "", holds=True)
    if off is not None:
        yield Row("  the same, beside Huey without fsync", single, "jobs/s", off, "", holds=True)
    yield Row("wal: enqueue_many to completed", wal, "jobs/s", full, "", holds=True)


def _latency(waits: dict[str, list[float]]) -> Iterator[Row]:
    theirs = waits.get("huey-full")
    for scheme in ("sqlite", "wal"):
        for percent, limit in ((50, 3.0), (99, 15.0)):
            ours = _percentile(waits[scheme], percent)
            bare = None if theirs is None else _percentile(theirs, percent)
            name = f"{scheme}: enqueue to start, idle, p{percent}"
            yield Row(name, ours, "ms", bare, f"<= {limit:g} ms", ours <= limit)


def _percentile(found: list[float], percent: int) -> float:
    return sorted(found)[min(len(found) - 1, len(found) * percent // 100)]


# --- doing nothing ----------------------------------------------------------------------------------------------------


def _idle(directory: Path, seconds: float) -> Iterator[Row]:
    """Watch four workers that have nothing to do."""
    ours, wrote = _idle_of("sqlite", directory / "idle-sqlite", seconds)
    theirs = _idle_of("huey-full", directory / "idle-huey", seconds)[0] if peer() else None
    yield Row("sqlite: CPU of four idle workers", ours, "%", theirs, "< 0.5 %", ours < 0.5)
    yield Row("sqlite: bytes they write", wrote, "bytes", None, "0", wrote == 0)


def _idle_of(kind: str, place: Path, seconds: float) -> tuple[float, float]:
    """Give the percent of one core they use together, and the bytes they wrote."""
    with ExitStack() as stack:
        first = stack.enter_context(Stage(kind, place))
        ticks = os.pipe()
        for end in ticks:
            stack.callback(os.close, end)
        others = [stack.enter_context(Process(kind, place / "jobs", ticks)) for _ in range(3)]
        for other in others:
            other.ask("work")
        workers = [first.worker.pid, *(other.pid for other in others)]
        Event().wait(min(2.0, seconds))  # starting up is not idling
        began, cpu, wrote = time.monotonic(), _cpu_s(workers), _written(workers)
        Event().wait(seconds)
        share = (_cpu_s(workers) - cpu) / (time.monotonic() - began)
        return 100 * share, _written(workers) - wrote


def _cpu_s(pids: list[int]) -> float:
    # Its fields after the name, which may hold blanks: utime and stime are the 12th and 13th of them.
    fields = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for pid in pids]
    return sum(int(found[11]) + int(found[12]) for found in fields) / os.sysconf("SC_CLK_TCK")


def _written(pids: list[int]) -> float:
    """Give the bytes handed to `write` so far, whatever the file."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines()]
    return float(sum(int(line.partition(":")[2]) for line in lines if line.startswith("wchar")))

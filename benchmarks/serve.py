"""What a coordinator gives over HTTP: `holdfast serve` as a process of its own, called from other processes.

Every answer is durable and every request shows an access token. Rates and latencies are those of the callers; beside
them is the processor time of the coordinator, which says more where a machine is busy. Bare is the same batches through
an engine in this process: what is between the two is HTTP and another process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from benchmarks import Row, child_env
from benchmarks.callers import Callers, Measured
from benchmarks.jobs import Process
from holdfast import Holdfast, Retention
from holdfast.engine.engine import Engine
from holdfast.stores.http.wire import MOST_COMMANDS
from holdfast.stores.opening import open_store

SCHEMES = ("wal", "sqlite")
#: The command line, by the same interpreter.
_HOLDFAST = (sys.executable, "-c", "from holdfast.cli import main; main()")
#: Seconds that a process has to end.
PATIENCE_S = 60


class Sizes(NamedTuple):
    """How much is measured."""

    #: Jobs enqueued in batches; one by one; one by one by our own client; worked off.
    batched: int = 20_480
    alone: int = 6_400
    threads: int = 3_200
    worked: int = 3_000
    #: Long polls, and jobs of an idle worker, whose latency is taken.
    latency: int = 200
    #: Connections, and threads, that call at once.
    callers: int = 64
    #: Rounds of everything of each connection between two looks at the memory, seconds between these, and seconds that
    #: are watched. The pace is one that most machines keep: what retention has not removed yet depends on it.
    rounds: int = 25
    pace_s: float = 5.0
    soak_s: float = 0.0
    #: Jobs that are there before on `sqlite:`, so that the pages it keeps are full; its records fill while it warms up.
    filling: int = 120_000
    #: Ended jobs that are kept of those that are watched: of completed and of failed ones so many each.
    kept: int = 1000


class Coordinator:
    """`holdfast serve` on a fresh store."""

    def __init__(self, scheme: str, place: Path) -> None:
        place.mkdir()
        self._place = place
        access = str(place / "access.json")
        made = ["access", "add", "--name", "bench", "--role", "admin", "--access", access]
        self.access_token = subprocess.run(  # noqa: S603 - our own interpreter and program
            [*_HOLDFAST, *made], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()
        # How much one access token may ask is limited for strangers; here it is what is measured.
        limits = ("--limit", "rate=1000000")
        command = ["serve", "--store", f"{scheme}:{place / 'jobs'}", "--port", "0", "--access", access, *limits]
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [*_HOLDFAST, *command], stderr=subprocess.PIPE, text=True
        )
        self.pid = self._child.pid
        assert self._child.stderr is not None
        said = self._child.stderr.readline()
        if " serves " not in said:
            raise RuntimeError(f"the coordinator did not start: {said}{self._child.communicate()[1]}")
        self.url = said.split(" ")[0]

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it, and remove the store."""
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
        shutil.rmtree(self._place, ignore_errors=True)

    def cpu_s(self) -> float:
        """Give the processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Give the bytes it has in memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Calling:
    """A process of callers."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "benchmarks.callers", coordinator.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_env(HOLDFAST_ACCESS_TOKEN=coordinator.access_token),
            text=True,
        )

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(PATIENCE_S)
        assert self._child.stdout is not None
        self._child.stdout.close()

    def ask(self, *words: object) -> Measured:
        """Have one thing measured."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(" ".join(map(str, words)) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the callers ended ({self._child.wait(PATIENCE_S)})")
        return msgspec.convert(json.loads(line), Measured)


def run(directory: Path, sizes: Sizes, schemes: Sequence[str] = SCHEMES) -> Iterator[Row]:
    """Measure everything on each store; takes about a minute with the usual sizes."""
    for scheme in schemes:
        bare = _bare(scheme, directory / f"bare-{scheme}", sizes.batched)
        with Coordinator(scheme, directory / scheme) as coordinator, Calling(coordinator) as calling:
            calling.ask("alone", 640, sizes.callers)  # what is done for the first time is not measured
            yield from _enqueues(scheme, coordinator, calling, sizes, bare)
            yield from _work(scheme, coordinator, calling, sizes)
            yield from _bytes(scheme, calling)


def soak(directory: Path, sizes: Sizes, schemes: Sequence[str] = SCHEMES) -> Iterator[Row]:
    """Watch the memory of a coordinator that is asked for everything, once it is full and warm, a quarter as long.

    It is to stay where it is. Retention keeps the newest jobs: on `wal:`, where all are in memory, no more of them.
    """
    for scheme in schemes:
        with Coordinator(scheme, directory / f"soak-{scheme}") as coordinator, Calling(coordinator) as calling:
            with Holdfast(coordinator.url, access_token=coordinator.access_token) as hf:
                hf.queue("default").set(retention=Retention(done_max=sizes.kept, failed_max=sizes.kept))
            if scheme == "sqlite":
                calling.ask("batched", sizes.filling)
            rounds, looks = _looks(coordinator, calling, sizes)
            warming = min(len(looks) - 1, max(1, sum(at < sizes.soak_s / 4 for at, _ in looks)))
            warm, most = (max(size for _, size in some) for some in (looks[:warming], looks[warming:]))
            yield Row(f"{scheme}: memory after warm-up", warm / 1e6, "MB", None, "", holds=True)
            yield from _by_minute(looks)
            grown = most - warm
            yield Row(f"{scheme}:   grown, {rounds:,} rounds of everything", grown / 1e6, "MB", None, "", holds=True)
            share = grown / warm
            yield Row(f"{scheme}:   of what there was", 100 * share, "%", None, "<= 10 %", share <= 0.1)


def _looks(coordinator: Coordinator, calling: Calling, sizes: Sizes) -> tuple[int, list[tuple[float, int]]]:
    """Ask for everything for as long as is to be watched; give the rounds, and what was seen when. At least twice."""
    began, pause = time.monotonic(), threading.Event()
    rounds, looks = 0, list[tuple[float, int]]()
    while (passed := time.monotonic() - began) < 1.25 * sizes.soak_s or len(looks) < 2:
        calling.ask("mix", sizes.rounds, 4)
        rounds += 4 * sizes.rounds
        pause.wait(max(0.0, began + passed + sizes.pace_s - time.monotonic()))
        looks.append((passed, coordinator.memory()))
    return rounds, looks


def _by_minute(looks: Sequence[tuple[float, int]]) -> Iterator[Row]:
    """Give the most of each minute, not its last: what retention no longer keeps goes once a minute."""
    most: dict[int, int] = {}
    for at, size in looks:
        most[int(at // 60)] = max(size, most.get(int(at // 60), 0))
    for minute, size in most.items():
        yield Row(f"  most of minute {minute + 1}", size / 1e6, "MB", None, "", holds=True)


def _bare(scheme: str, place: Path, count: int) -> float:
    """Give the jobs a second of the same batches without HTTP."""
    place.mkdir()
    callers = Callers("", "")
    engine = Engine(open_store(f"{scheme}:{place / 'jobs'}"))
    began = time.perf_counter()
    for _ in range(0, count, MOST_COMMANDS):
        engine.submit_many([callers.new() for _ in range(MOST_COMMANDS)])
    seconds = time.perf_counter() - began
    engine.close()
    shutil.rmtree(place)
    return count / seconds


def _enqueues(scheme: str, coordinator: Coordinator, calling: Calling, sizes: Sizes, bare: float) -> Iterator[Row]:
    found = calling.ask("batched", sizes.batched)
    rate = sizes.batched / found.seconds
    yield Row(
        f"{scheme}: enqueue, {MOST_COMMANDS} commands a request", rate, "jobs/s", bare, ">= 5,000/s", rate >= 5000
    )
    yield from _waits("a request", found)
    found = calling.ask("many", sizes.batched)
    jobs = 1000 * len(found.waits)
    yield Row(f"{scheme}: enqueue_many, 1,000 jobs a call", jobs / found.seconds, "jobs/s", None, "", holds=True)
    spent = coordinator.cpu_s()
    found = calling.ask("alone", sizes.alone, sizes.callers)
    spent = coordinator.cpu_s() - spent
    count, rate = len(found.waits), len(found.waits) / found.seconds
    name = f"{scheme}: enqueue, {sizes.callers} connections, one each"
    yield Row(name, rate, "jobs/s", None, ">= 1,500/s", rate >= 1500)
    yield from _waits("a request", found)
    yield Row("  processor of the coordinator, a request", 1e6 * spent / count, "us", None, "", holds=True)
    found = calling.ask("threads", sizes.threads, sizes.callers)
    rate = sizes.threads / found.seconds
    yield Row(f"{scheme}: enqueue, {sizes.callers} threads of our client", rate, "jobs/s", None, "", holds=True)
    yield from _waits("a call", found)


def _work(scheme: str, coordinator: Coordinator, calling: Calling, sizes: Sizes) -> Iterator[Row]:
    found = calling.ask("work", sizes.worked)
    rate = sizes.worked / found.seconds
    yield Row(f"{scheme}: lease + complete, 100 a request", rate, "jobs/s", None, "", holds=True)
    yield from _waits("lease and report of 100", found)
    with ExitStack() as stack:
        ticks = os.pipe()
        for end in ticks:
            stack.callback(os.close, end)
        # The rest of the URL stands where other schemes have a path.
        place = Path(coordinator.url.partition(":")[2])
        worker = stack.enter_context(Process("http", place, ticks, coordinator.access_token))
        began = worker.ask("work")
        ended = worker.ask(f"done {sizes.worked}")
        assert isinstance(began, float)
        assert isinstance(ended, float)
        rate = sizes.worked / (ended - began)
        yield Row(f"{scheme}: one worker process, from lease to end", rate, "jobs/s", None, "", holds=True)
    yield from _waits("long poll: enqueue to answer", calling.ask("wake", sizes.latency), f"{scheme}: ")


def _waits(what: str, found: Measured, before: str = "  ") -> Iterator[Row]:
    waits = sorted(found.waits)
    for percent in (50, 99):
        wait = waits[min(len(waits) - 1, len(waits) * percent // 100)]
        yield Row(f"{before}{what}, p{percent}", 1000 * wait, "ms", None, "", holds=True)


def _bytes(scheme: str, calling: Calling) -> Iterator[Row]:
    alone = calling.ask("alone", 1, 1).size
    batch = calling.ask("batch", 1).size / MOST_COMMANDS
    yield Row(f"{scheme}: on the wire a job, alone", alone, "bytes", None, "", holds=True)
    yield Row(f"{scheme}: on the wire a job, in a batch", batch, "bytes", None, "", holds=True)

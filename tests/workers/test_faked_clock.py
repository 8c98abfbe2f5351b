"""A real worker on a clock that leaps: each schedule makes as many jobs as its policy says, never a burst.

The process is `holdfast worker`, its wall clock is moved by a library that is compiled here and loaded before all
others. After each step a one-off schedule is made, due in the new time: when its job is done, the worker has seen the
new time and done whatever it thought was due. Nothing waits for a time to pass.
"""

import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.clock import SystemClock
from holdfast.model.jobs import Job
from holdfast.model.schedules import CatchUp, Overlap

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux loads a library before all others"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler: the clock of a process cannot be faked here"),
]

#: Seconds for the slowest machine; nothing is waited for that does not come.
PATIENCE_S = 60.0
APP = """
from holdfast import Holdfast, Retention

hf = Holdfast("sqlite:jobs.db", retention=Retention(done_s=1e9))  # a year forward is no reason to forget

@hf.task(name="beat")
def beat() -> None: ...
"""
POLICIES = [
    (catch_up, overlap)
    for catch_up in CatchUp
    for overlap in Overlap
    if (catch_up, overlap) != (CatchUp.ALL, Overlap.SKIP)
]


class Wall:
    """The faked wall clock: of the worker by a mapped number, of the test by the same."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._place = mmap.mmap(opened.fileno(), 8)

    def set(self, to: datetime) -> None:
        shift = to - SystemClock().now()
        self._place[:8] = struct.pack("=q", shift // timedelta(microseconds=1) * 1000)

    def now(self) -> datetime:
        (shift,) = struct.unpack("=q", self._place[:8])
        return SystemClock().now() + timedelta(microseconds=shift // 1000)

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def wall(tmp_path):
    return Wall(tmp_path / "wall")


@pytest.fixture
def worker(tmp_path, wall):
    library = tmp_path / "wallshift.so"
    source = Path(__file__).with_name("wallshift.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, source], check=True, timeout=PATIENCE_S)
    (tmp_path / "app.py").write_text(APP)
    faked = {"LD_PRELOAD": str(library), "WALLSHIFT": str(tmp_path / "wall")}
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "app:hf", "--concurrency", "1"]
    wall.set(at(1, 0, 30))
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **faked}) as process:
        try:
            yield process
        finally:
            process.kill()


def at(day: int, hour: int, minute: int = 0, *, year: int = 2026) -> datetime:
    return datetime(year, 1, day, hour, minute, tzinfo=UTC)


class Watch:
    """What the test looks at beside the worker."""

    def __init__(self, hf: Holdfast, wall: Wall) -> None:
        self.hf = hf
        self.wall = wall
        self.beat = hf.task(name="beat")(lambda: None)
        self.beats = 0
        self.schedules = {
            (catch_up, overlap): hf.schedule(
                f"{catch_up.value}-{overlap.value}",
                self.beat,
                cron="0 * * * *",
                catch_up=catch_up.value,
                overlap=overlap.value,
                grace=600,  # however slow the machine, what is fired right after a step is on time
                queue="unserved",
            )
            for catch_up, overlap in POLICIES
        }

    def step(self, to: datetime) -> None:
        """Set the clock, and wait until the worker has done all that was due then."""
        self.wall.set(to)
        self.beats += 1
        name = f"beat-{self.beats}"
        self.hf.schedule(name, self.beat, at=self.wall.now() + timedelta(milliseconds=200))
        self._until(lambda: any(job.schedule_id == self.ids[name] and job.status == "COMPLETED" for job in self.jobs()))

    @property
    def ids(self) -> dict[str, str]:
        return {schedule.name: schedule.record().schedule_id for schedule in self.hf.schedules()}

    def jobs(self) -> list[Job]:
        with self.hf.engine.read() as view:
            return list(view.all(Job))

    def _until(self, holds) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not holds():
            with self.hf.engine.read() as view:
                seq = view.seq
            if not holds():
                assert time.monotonic() < give_up_at, "the worker did not do it"
                self.hf.engine.store.wait(seq, 5)

    def counts(self) -> dict[CatchUp, tuple[int, int]]:
        """Give fires and missed by policy; the overlap makes no difference to either."""
        found = {}
        for (catch_up, _), schedule in self.schedules.items():
            record = schedule.record()
            assert found.setdefault(catch_up, (record.fires, record.missed)) == (record.fires, record.missed)
        return found

    def demand_jobs(self) -> None:
        """Demand one job for each fire; while the first waits, `skip` ends all that come after it."""
        for (_, overlap), schedule in self.schedules.items():
            record = schedule.record()
            made = [job for job in self.jobs() if job.schedule_id == record.schedule_id]
            assert len({job.fire_at for job in made}) == len(made) == record.fires
            waiting = [job for job in made if job.status == "QUEUED"]
            assert len(waiting) == (1 if overlap is Overlap.SKIP else record.fires)


@pytest.mark.timeout(300)
def test_suspend_a_clock_set_back_and_a_year_forward_make_the_jobs_of_the_policy(tmp_path, wall, worker):
    none, latest, every = CatchUp
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}", clock=wall) as hf:
        watch = Watch(hf, wall)
        watch.step(at(1, 0, 45))
        assert watch.counts() == {none: (0, 0), latest: (0, 0), every: (0, 0)}
        watch.step(at(1, 1, 1))
        assert watch.counts() == {none: (1, 0), latest: (1, 0), every: (1, 0)}
        # Three days asleep: of 72 hours none, the last, or those of the last day.
        watch.step(at(4, 1, 30))
        asleep = {none: (1, 72), latest: (2, 71), every: (25, 48)}
        assert watch.counts() == asleep
        watch.demand_jobs()
        # Two hours back, and through them once more: nothing fires twice, and nothing is missed.
        for again in (at(3, 23, 30), at(4, 0, 30), at(4, 1, 30)):
            watch.step(again)
            assert watch.counts() == asleep
        watch.step(at(4, 2, 1))
        assert watch.counts() == {none: (2, 72), latest: (3, 71), every: (26, 48)}
        # A year forward is 8,760 hours, and the same policy.
        watch.step(at(4, 2, 30, year=2027))
        assert watch.counts() == {
            none: (2, 72 + 8760),
            latest: (4, 71 + 8759),
            every: (50, 48 + 8736),
        }
        watch.demand_jobs()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
        assert hf.engine.store.check() == []

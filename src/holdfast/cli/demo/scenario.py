"""The demo, step by step: enqueue, work, kill, take over, count. Tells the stage what happens; judges nothing."""

from __future__ import annotations

import math
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from holdfast.app.application import Holdfast
from holdfast.cli.demo.task import PROGRAM, SLOTS, Line, application
from holdfast.cli.demo.verify import Evidence, Sight
from holdfast.cli.demo.worker_processes import Hand, crew
from holdfast.engine.engine import Engine
from holdfast.errors import InvalidValue, StoreError
from holdfast.failpoints import reach
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, RunStatus
from holdfast.model.times import Timestamp, seconds_between
from holdfast.stores.protocol import JobQuery, View

#: The worker dies when this share of the jobs is done.
KILL_AT = 0.4
#: Jobs for each worker that leave every one of them busy then.
LEAST_JOBS = 2 * SLOTS
#: Seconds between two looks.
LOOK_S = 0.1
#: Seconds without any change after which the demo gives up.
STUCK_S = 60.0


class Plan(NamedTuple):
    """What is played, and where."""

    url: str
    #: The file handlers write to, beside the store.
    record: Path
    jobs: int
    workers: int


class Stage(Protocol):
    """Where the story is shown."""

    def acknowledged(self, jobs: int) -> None:
        """Tell that so many jobs are durable."""

    def works(self, hands: list[Hand], jobs: list[Job]) -> None:
        """Show the jobs as they are now."""

    def killed(self, hand: Hand, held: list[Job]) -> None:
        """Tell that a worker was killed with these jobs in its hands."""

    def taken_over(self, seconds: float, left_s: float) -> None:
        """Tell that others have begun with all of them, so long after the kill and so long before any lease ran out."""

    def done(self, seconds: float) -> None:
        """Tell that every job has ended."""


def demand_playable(plan: Plan) -> None:
    """Raise InvalidValue for a store that only one process may write, and for jobs that would not keep workers busy."""
    if plan.jobs < LEAST_JOBS * plan.workers:
        raise InvalidValue(
            f"{plan.jobs} jobs do not keep {plan.workers} workers busy until one is killed. Nothing was done.",
            hint=f"Give at least {LEAST_JOBS * plan.workers}.",
        )
    with Holdfast(plan.url) as hf:
        if not hf.engine.store.promises.many_processes:
            raise InvalidValue(
                f"{plan.url} may be written by one process only. Nothing was done.", hint="Use sqlite:PATH."
            )


def play(plan: Plan, stage: Stage) -> Evidence:
    """Play the story on a store; give what can be known of it afterwards."""
    namespace = f"demo-{secrets.token_hex(4)}"
    hf, thumbnail = application(plan.url, namespace, plan.record)
    with hf:
        engine = hf.engine
        watch = _Watch(engine, namespace, plan.record)
        jobs = thumbnail.enqueue_many([(picture,) for picture in range(plan.jobs)])
        acknowledged = {picture: job.id for picture, job in enumerate(jobs)}
        stage.acknowledged(len(acknowledged))
        begun = engine.look().monotonic
        late = math.ceil(KILL_AT * plan.jobs)
        with crew(plan.workers, PROGRAM, plan.url, namespace, str(plan.record), str(late)) as hands:
            # From then on whoever holds a job holds it until one of them is dead.
            watch.until(lambda jobs: _completed(jobs) >= late and any(map(_is_running, jobs)), hands, stage)
            victim = _busiest(hands, watch.jobs())
            victim.kill()
            killed = engine.look()
            at_kill = watch.sight()
            for hand in hands:
                hand.go_on()
            held = _held(at_kill, victim.worker_id)
            stage.killed(victim, held)
            ids = {job.job_id for job in held}
            watch.until(lambda jobs: _taken(jobs, ids, victim.worker_id), hands, stage)
            taken = engine.look()
            stage.taken_over(taken.monotonic - killed.monotonic, _left_s(held, taken.now))
            watch.until(lambda jobs: all(job.has_ended for job in jobs), hands, stage)
            stage.done(engine.look().monotonic - begun)
        reach("demo.done")
        return Evidence(
            acknowledged=acknowledged,
            dead=victim.worker_id,
            held=tuple(job.job_id for job in held),
            killed_at=killed.now,
            at_kill=at_kill,
            at_end=watch.sight(),
            findings=engine.store.check(),
        )


def _is_running(job: Job) -> bool:
    return job.status is JobStatus.RUNNING


def _busiest(hands: list[Hand], jobs: list[Job]) -> Hand:
    held = Counter(job.worker_id for job in jobs if _is_running(job))
    return max(hands, key=lambda hand: held[hand.worker_id])


def _completed(jobs: list[Job]) -> int:
    return sum(job.status is JobStatus.COMPLETED for job in jobs)


def _held(sight: Sight, worker_id: str) -> list[Job]:
    """Give the jobs whose runs a dead worker left open, or were noticed as LOST already."""
    open_or_lost = (None, RunStatus.LOST)
    held = {run.job_id for run in sight.runs if run.worker_id == worker_id and run.status in open_or_lost}
    return sorted((sight.jobs[job_id] for job_id in held), key=lambda job: job.position)


def _left_s(held: list[Job], now: Timestamp) -> float:
    """Give the seconds until the first lease of the dead would have run out by itself."""
    ends = [job.lease_expires_at for job in held if job.lease_expires_at is not None]
    return max(0.0, seconds_between(now, min(ends))) if ends else 0.0


def _taken(jobs: list[Job], ids: set[JobId], dead: str) -> bool:
    return all(
        job.has_ended or (job.status is JobStatus.RUNNING and job.worker_id != dead)
        for job in jobs
        if job.job_id in ids
    )


class _Watch:
    """Looks at the demo's jobs again and again."""

    def __init__(self, engine: Engine, namespace: str, record: Path) -> None:
        self._engine = engine
        self._namespace = namespace
        self._record = record
        self._rest = threading.Event()

    def jobs(self) -> list[Job]:
        """Give every job of the demo."""
        with self._engine.read() as view:
            return self._jobs(view)

    def _jobs(self, view: View) -> list[Job]:
        return list(view.jobs(JobQuery(namespace=self._namespace, limit=1_000_000)))

    def until(self, wanted: Callable[[list[Job]], bool], hands: list[Hand], stage: Stage) -> None:
        """Show the jobs until they are as wanted. Raises StoreError if nothing moves any more."""
        moved, seen = self._engine.look().monotonic, -1
        while True:
            jobs = self.jobs()
            stage.works(hands, jobs)
            if wanted(jobs):
                return
            now, seq = self._engine.look().monotonic, max(job.seq for job in jobs)
            if all(hand.process.poll() is not None for hand in hands):
                raise StoreError("every worker of the demo has ended; what they said stands above.")
            if seq != seen:
                moved, seen = now, seq
            elif now - moved > STUCK_S:
                raise StoreError(f"nothing has moved for {STUCK_S:.0f} s; the demo gives up.")
            self._rest.wait(LOOK_S)

    def sight(self) -> Sight:
        """See what both witnesses say now; the record first, as a run is in the store before it is executed."""
        lines = self._record.read_bytes().splitlines() if self._record.exists() else []
        with self._engine.read() as view:
            jobs = self._jobs(view)
            runs = [run for job in jobs for run in view.runs(job.job_id)]
        decode = msgspec.json.Decoder(Line).decode
        return Sight(jobs={job.job_id: job for job in jobs}, runs=runs, record=[decode(line) for line in lines])

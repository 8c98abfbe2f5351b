"""Is the demo's evidence in order? Pure: facts in, problems out.

Two witnesses: the store, and the record that the handlers kept beside it. A job counts as done if the store says so,
its result is right, *and* the record has the execution that did it. An execution counts as explained if the store knows
its run; a job that was executed twice, if its other run is LOST, and was the dead worker's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.cli.demo.record import Said
from holdfast.cli.demo.task import Line, expected
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, Run, RunStatus
from holdfast.model.times import Timestamp, seconds_between
from holdfast.stores.protocol import Finding


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What both witnesses say at one instant."""

    jobs: Mapping[JobId, Job]
    runs: Sequence[Run]
    record: Sequence[Line]

    def count(self, status: JobStatus) -> int:
        """Count jobs by status."""
        return sum(job.status is status for job in self.jobs.values())

    def lost(self) -> list[Run]:
        """Give the runs that never reported."""
        return [run for run in self.runs if run.status is RunStatus.LOST]

    def executions(self) -> int:
        """Count the executions that began, by the record."""
        return sum(line.said is Said.BEGAN for line in self.record)

    def repeated(self) -> int:
        """Count the executions beyond the first of their job, by the record."""
        return self.executions() - len({line.job_id for line in self.record})


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that the verdict rests on."""

    #: Picture → the job whose enqueue was acknowledged.
    acknowledged: Mapping[int, JobId]
    #: The worker that was killed, and what it held.
    dead: str
    held: Sequence[JobId]
    killed_at: Timestamp
    at_kill: Sight
    at_end: Sight
    findings: Sequence[Finding]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence proves."""

    #: Empty if nothing was lost and everything is explained.
    problems: Sequence[str]
    #: Seconds that others had to take over.
    within_s: float
    #: Seconds from the kill until others had begun with all that the dead worker held; None if they never did.
    takeover_s: float | None


def judge(evidence: Evidence, within_s: float) -> Verdict:
    """Hold the witnesses against each other."""
    takeover_s = taken_over(evidence)
    problems = [
        *_missing(evidence),
        *_unexplained(evidence),
        *(f"store check: {found.message}" for found in evidence.findings),
        *_late(evidence, takeover_s, within_s),
    ]
    return Verdict(problems=problems, within_s=within_s, takeover_s=takeover_s)


def taken_over(evidence: Evidence) -> float | None:
    """Give the seconds until others had begun with everything that the dead worker held; None if they have not."""
    begun: dict[JobId, Timestamp] = {}
    for run in evidence.at_end.runs:
        if run.worker_id != evidence.dead and run.run_no > 1:
            begun[run.job_id] = min(run.started_at, begun.get(run.job_id, run.started_at))
    if not evidence.held or not begun.keys() >= set(evidence.held):
        return None
    return max(seconds_between(evidence.killed_at, begun[job_id]) for job_id in evidence.held)


def _missing(evidence: Evidence) -> Iterator[str]:
    """Look for acknowledged work that is not done, or not as it should be."""
    sight = evidence.at_end
    completed = Counter(run.job_id for run in sight.runs if run.status is RunStatus.COMPLETED)
    did = {run.run_id: run.job_id for run in sight.runs if run.status is RunStatus.COMPLETED}
    done = {did.get(line.run_id) for line in sight.record if line.said is Said.ENDED}
    for picture, job_id in evidence.acknowledged.items():
        job = sight.jobs.get(job_id)
        if job is None:
            yield f"job {job_id} was acknowledged and is not in the store"
        elif job.status is not JobStatus.COMPLETED:
            yield f"job {job_id} was acknowledged and is {job.status}"
        elif msgspec.json.decode(job.result) != expected(picture):
            yield f"job {job_id} has a result that is not its own"
        elif completed[job_id] != 1:
            yield f"job {job_id} was completed {completed[job_id]} times"
        elif job_id not in done:
            yield f"job {job_id} is COMPLETED, but the record has no execution that did it"
    for job_id in sight.jobs.keys() - set(evidence.acknowledged.values()):
        yield f"job {job_id} is in the store and was never acknowledged"


def _unexplained(evidence: Evidence) -> Iterator[str]:
    """Look for executions that the store cannot account for, and runs that were lost without a death."""
    sight = evidence.at_end
    runs = {run.run_id: run for run in sight.runs}
    began = [line for line in sight.record if line.said is Said.BEGAN]
    seen: set[str] = set()
    for line in began:
        run = runs.get(line.run_id)
        if run is None or run.job_id != line.job_id:
            yield f"an execution of job {line.job_id} is in the record, and the store knows no such run"
        elif line.run_id in seen:
            yield f"run {line.run_id} of job {line.job_id} was executed twice"
        elif run.status not in (RunStatus.COMPLETED, RunStatus.LOST):
            yield f"run {line.run_id} of job {line.job_id} ended {run.status or 'never'}"
        seen.add(line.run_id)
    for run in sight.lost():
        if run.worker_id != evidence.dead:
            yield f"run {run.run_id} of job {run.job_id} is LOST, although {run.worker_id} was not killed"


def _late(evidence: Evidence, takeover_s: float | None, within_s: float) -> Iterator[str]:
    """Look at how the dead worker's jobs fared."""
    if not evidence.held:
        yield "the worker that was killed held no job, so nothing was shown"
    elif takeover_s is None:
        yield "not every job of the dead worker was taken over"
    elif takeover_s > within_s:
        yield f"others took over after {takeover_s:.1f} s, not within {within_s:g} s"

"""The oracle of the crash tests: what callers sent and what they were told, kept outside the store it judges.

Children tell it one line at a time: a word, then ids. Whatever a child did not live to tell is a maybe. `complaints`
compares a store with it: every yes is there, every no is absent, each maybe is whole or absent, and no execution
happened that the store cannot account for.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.engine.blob_content import fetch
from holdfast.errors import StoreDamaged
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, RetryMode, Run, RunStatus
from holdfast.stores.protocol import Store, View


class Execution(NamedTuple):
    """A run as its worker knows it."""

    job_id: JobId
    token: Token


class Oracle:
    """Everything the children told. Thread-safe: each child is heard by a thread of its own."""

    def __init__(self) -> None:
        self._heard = threading.Condition()
        #: Job id → bytes of its padding, for all that were sent.
        self.sent: dict[str, int] = {}
        self.yes: set[str] = set()
        self.no: set[str] = set()
        #: Executions in the order in which they were told, by the child that began them.
        self.begun: dict[str, list[Execution]] = defaultdict(list)
        #: Reports that were sent, those acknowledged by how they ended, and those refused because the lease was lost.
        self.reporting: set[Execution] = set()
        self.reported: dict[Execution, str] = {}
        self.lost: set[Execution] = set()
        #: What no child should ever tell.
        self.trouble: list[str] = []
        self._acknowledged: Counter[str] = Counter()
        self._halted: set[str] = set()
        self._gone: set[str] = set()

    def hear(self, child: str, line: str) -> None:
        """Take one line of a child."""
        word, *rest = line.split(" ")
        with self._heard:
            match word:
                case "sent":
                    self.sent[rest[0]] = int(rest[1])
                case "half":
                    self._halted.add(child)
                case "yes":
                    self.yes.add(rest[0])
                    self._acknowledged[child] += 1
                case "no":
                    self.no.add(rest[0])
                case "begun":
                    self.begun[child].append(_execution(rest))
                case "reporting":
                    self.reporting.add(_execution(rest))
                case "completed" | "failed":
                    self.reported[_execution(rest)] = word
                    self._acknowledged[child] += 1
                case "lost":
                    self.lost.add(_execution(rest))
                case _:
                    self.trouble.append(f"{child}: {line}")
            self._heard.notify_all()

    def lose(self, child: str) -> None:
        """Note that a child has ended and will tell nothing more."""
        with self._heard:
            self._gone.add(child)
            self._heard.notify_all()

    def wait_for(self, child: str, acknowledged: int, patience_s: float) -> bool:
        """Wait until a child has had that many acknowledgements; False if it ended before, or patience did."""
        with self._heard:
            self._heard.wait_for(lambda: self._acknowledged[child] >= acknowledged or child in self._gone, patience_s)
            return self._acknowledged[child] >= acknowledged

    def wait_for_half(self, child: str, patience_s: float) -> bool:
        """Wait until a child stands in the middle of a write; False if it ended before, or patience did."""
        with self._heard:
            self._heard.wait_for(lambda: child in self._halted or child in self._gone, patience_s)
            return child in self._halted

    @property
    def maybe(self) -> list[str]:
        """Jobs that were sent and never answered."""
        return sorted(self.sent.keys() - self.yes - self.no)

    @property
    def unreported(self) -> list[Execution]:
        """Executions that began and about which no report was even sent."""
        told = self.reporting | self.reported.keys()
        return sorted(one for each in self.begun.values() for one in each if one not in told)


def _execution(rest: Sequence[str]) -> Execution:
    return Execution(JobId(rest[0]), Token(int(rest[1])))


def complaints(oracle: Oracle, store: Store) -> list[str]:
    """List all in which a store contradicts its callers, and all its own check finds."""
    with store.read() as view:
        found = [*oracle.trouble, *_jobs(oracle, store, view), *_executions(oracle, view), *_runs(view)]
    return found + [f"check: {finding.message}" for finding in store.check()]


def _jobs(oracle: Oracle, store: Store, view: View) -> Iterator[str]:
    for job_id in sorted(oracle.yes):
        job = view.get(Job, job_id)
        if job is None:
            yield f"{job_id} was acknowledged and is not there"
            continue
        try:
            params = fetch(store, job.params)
        except StoreDamaged as damage:
            yield f"{job_id} has lost its params: {damage.message}"
            continue
        if len(bytes(params)) < oracle.sent[job_id]:
            yield f"{job_id} has lost a part of its params"
    for job_id in sorted(oracle.no):
        if view.get(Job, job_id) is not None:
            yield f"{job_id} was refused and is there"
    for job in view.all(Job):
        if job.retry_of is None and job.job_id not in oracle.sent:
            yield f"{job.job_id} is there and nobody sent it"


def _executions(oracle: Oracle, view: View) -> Iterator[str]:
    for each in oracle.begun.values():
        for execution in each:
            if view.run_by_token(*execution) is None:
                yield f"{execution} began, and there is no run of it"
    for execution, how in oracle.reported.items():
        run, job = view.run_by_token(*execution), view.get(Job, execution.job_id)
        if run is None or run.status is None or run.status.lower() != how:
            yield f"{execution} was acknowledged as {how}, its run is {run and run.status}"
        if how == "completed" and (job is None or job.status is not JobStatus.COMPLETED):
            yield f"{execution} was acknowledged as completed, its job is {job and job.status}"
    for execution in oracle.lost:
        run = view.run_by_token(*execution)
        if run is None or run.status is not RunStatus.LOST:
            yield f"{execution} was told that its lease is lost, its run is {run and run.status}"


def _runs(view: View) -> Iterator[str]:
    tokens = Counter(run.token for run in view.all(Run) if run.token is not None)
    for token, count in tokens.items():
        if count > 1:
            yield f"token {token} was granted {count} times"
    for job in view.all(Job):
        runs = [run for run in view.runs(job.job_id) if run.run_no]
        if job.retry_mode is RetryMode.CHAIN and len(runs) > 1:
            yield f"{job.job_id} of a chain ran {len(runs)} times under one id"
        for run in runs[:-1]:
            if run.status not in (RunStatus.LOST, RunStatus.FAILED):
                yield f"{job.job_id} ran again after run {run.run_no} was {run.status}"
        held = [run.token or 0 for run in runs]
        if held != sorted(set(held)):
            yield f"{job.job_id} had tokens {held}"

"""What waiting work needs and no live worker has: code of workflows, code of tasks, somebody who serves a queue.

Pure over one view, the roster and the time. Work that came a moment ago is nobody's fault: a deployment takes a
while. An instance that only waits needs nobody yet, so its code is missed only by workers that have been there as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from holdfast.model.jobs import JobStatus
from holdfast.model.times import Timestamp, later
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.model.workflows.instances import Instance, InstanceStatus
from holdfast.rules.workflows.explain import code_of, has_code, versions_of, waits_since
from holdfast.stores.protocol import Finding, InstanceQuery, View

#: Seconds that work may wait for somebody to come before it is a finding.
PATIENCE_S = 300.0
#: Jobs of a queue that are looked at, and instances without a record of their own.
LOOKED_AT = 10_000
#: Ids that a sentence names.
NAMED = 20


class Needed(NamedTuple):
    """The code one instance needs to go on."""

    instance_id: str
    name: str
    #: None: any.
    version: str | None

    @property
    def code(self) -> str:
        """The workflow, with its version if it must be that one."""
        return self.name if self.version is None else f"{self.name} {self.version}"


def code_needed(view: View, now: Timestamp) -> Iterator[Needed]:
    """Walk what every instance needs that is not over, and every one that has not begun."""
    for instance in view.instances(InstanceQuery(statuses=(InstanceStatus.RUNNING,))):
        yield Needed(instance.instance_id, instance.orchestration_name, instance.orchestration_version)
    given_back = (turn.instance_id for turn in view.stuck_turns())
    for instance_id in dict.fromkeys(islice(chain(view.candidates(now), given_back), LOOKED_AT)):
        known = view.get(Instance, instance_id)
        if known is not None and known.status is not InstanceStatus.CONTINUED_AS_NEW:
            continue
        mail = [message for message in view.mail(instance_id) if message.parked is None]
        if any(message.is_start for message in mail):
            yield Needed(instance_id, *code_of(known, mail))


def lacking(view: View, now: Timestamp, having: Sequence[str]) -> dict[str, list[str]]:
    """Give the instances that this code, as `name version`, could not go on with, by the code they need."""
    found: dict[str, list[str]] = {}
    for needed in code_needed(view, now):
        own = [one for one in having if one.rpartition(" ")[0] == needed.name]
        if not has_code(own, needed.name, needed.version):
            found.setdefault(needed.code, []).append(needed.instance_id)
    return dict(sorted(found.items()))


def missing_code(view: View, now: Timestamp, workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Name the workflow versions that instances need and no live worker has."""
    live = _live(workers)
    since = later(now, -PATIENCE_S)
    settled = any(worker.workflows and worker.started_at <= since for worker in live)
    having = sorted({one for worker in live for one in worker.workflows})
    for code, ids in lacking(view, now, having).items():
        waits = [found for one in ids if (found := waits_since(view.mail(one), now)) is not None]
        if not settled and min(waits, default=now) > since:
            continue
        name = code.rpartition(" ")[0] or code
        others = versions_of(name, live)
        there = f"; live workers have {', '.join(others)}" if others else ""
        how_long = f", the first since {min(waits)}" if waits else ""
        yield Finding(
            code="workflow_code_missing",
            message=f"{_count(ids, 'instance')} of {code}, which no live worker has{how_long}{there}: {_named(ids)}",
            remedy=f"Start a worker whose code has {code}; `holdfast workflows check` says what fits.",
            id=code,
            ids=tuple(ids),
        )


def unserved(view: View, now: Timestamp, workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Name queues in which jobs wait and that no live worker serves, and tasks that none of those who do knows."""
    live = _live(workers)
    until = later(now, -PATIENCE_S)
    for count in view.counts():
        if count.status is not JobStatus.QUEUED:
            continue
        tasks: dict[str, list[str]] = {}
        for job in islice(view.ready(count.namespace, (count.queue,), None, now), LOOKED_AT):
            if job.due_at <= until:
                tasks.setdefault(job.job_type, []).append(job.job_id)
        serving = [one for one in live if one.namespace == count.namespace and count.queue in one.queues]
        space = f" of namespace {count.namespace}" if count.namespace else ""
        if tasks and not serving:
            ids = sorted(one for waiting in tasks.values() for one in waiting)
            yield Finding(
                code="queue_unserved",
                message=f"{_count(ids, 'job')} in queue {count.queue}{space}, which no live worker serves",
                remedy=f"Start a worker with `--queues {count.queue}`.",
                id=count.queue,
            )
            continue
        for task, ids in sorted(tasks.items()):
            if not any(worker.job_types is None or task in worker.job_types for worker in serving):
                yield Finding(
                    code="task_code_missing",
                    message=f"{_count(ids, 'job')} in queue {count.queue}{space} for task {task}, which no live worker "
                    "of that queue knows",
                    remedy="Start a worker whose code has it, or cancel them: `holdfast jobs ls`.",
                    id=task,
                )


def _live(workers: Sequence[WorkerInfo]) -> list[WorkerInfo]:
    return [worker for worker in workers if worker.state is WorkerState.READY]


def _count(ids: Sequence[str], noun: str) -> str:
    return f"1 {noun} waits" if len(ids) == 1 else f"{len(ids):,} {noun}s wait"


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more

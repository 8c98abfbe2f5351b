"""What must hold between the records of a store at any time. Used by `store check` and by tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from holdfast.model.groups import Group
from holdfast.model.jobs import Job, JobStatus, KeyHold, RetryKind, RetryMode, Run
from holdfast.model.records import AUTHORITY, Authority, HeldKey, Queue, Record, pair
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Delivery, DeliveryStatus
from holdfast.rules.groups.fold import OVER, counts_of, moved, started_by, status_of
from holdfast.rules.jobs.dispatch_order import rank_of
from holdfast.rules.jobs.recovery import unfollowed
from holdfast.rules.jobs.retry import automatic_heir
from holdfast.rules.jobs.unique_keys import table_key
from holdfast.rules.workflows.invariants import Fault, Whole, flow_faults, set_aside

R = TypeVar("R", bound=Record)

#: A store may forget older runs of a job than its newest so many.
RUNS_KEPT = 20


#: What is put right by itself.
_AT_START = "It is mended when a worker starts."
_BY_HAND = "Run `holdfast store repair`: it writes the run to a file, then removes it."


def reported(state: Whole) -> Iterator[Fault]:
    """List what a check of a store tells: broken invariants, and what was set aside for people to look at."""
    yield from violations(state)
    yield from set_aside(state)


def violations(state: Whole) -> Iterator[Fault]:
    """List every broken invariant."""
    authority = state.get(Authority, AUTHORITY) or Authority()
    fires: dict[tuple[str | None, str, str], str] = {}
    for job in state.all(Job):
        yield from _job_faults(state, job)
        if job.fire_at is not None and job.retry_of is None:
            fire = (job.schedule_id, job.fire_at, job.backfill_id)
            if fire in fires:
                message = f"jobs {fires[fire]} and {job.job_id} are of one fire of schedule {job.schedule_id}"
                yield Fault("PERS-007", message, job.job_id)
            fires[fire] = job.job_id
    owners: dict[int, str] = {}
    for run in state.all(Run):
        yield from _run_faults(state, run)
        if run.token is None:
            continue
        if run.token in owners:
            yield Fault("A2", f"token {run.token} belongs to run {owners[run.token]} and to {run.run_id}", run.run_id)
        owners[run.token] = run.run_id
        if run.token > authority.last_token:
            yield Fault("A3", f"run {run.run_id} has token {run.token} above {authority.last_token}", run.run_id)
    for job in unfollowed(state):
        left = job.max_attempts - job.attempts
        message = f"job {job.job_id} of a chain FAILED with {left} attempts left, and no job follows it"
        yield Fault("chain", message, job.job_id, _AT_START)
    for held in state.all(HeldKey):
        yield from _key_faults(state, held)
    yield from _schedule_faults(state)
    yield from flow_faults(state)
    yield from _delivery_faults(state)
    yield from _group_faults(state)
    yield from _reservation_faults(state)


def _job_faults(state: Whole, job: Job) -> Iterator[Fault]:
    running = job.status is JobStatus.RUNNING
    lease = (job.token, job.worker_id, job.lease_expires_at)
    if any((part is not None) != running for part in lease):
        yield Fault("A1", f"job {job.job_id} is {job.status} with an incomplete or left-over lease", job.job_id)
    if (job.finished_at is not None) != job.has_ended:
        yield Fault("ended", f"job {job.job_id} is {job.status} with finished_at {job.finished_at}", job.job_id)
    runs = state.runs(job.job_id)
    open_runs = [run for run in runs if run.status is None]
    if len(open_runs) != running:
        message = f"job {job.job_id} is {job.status} with {len(open_runs)} open runs"
        yield Fault("PERS-001", message, job.job_id, _AT_START if running and not open_runs else "")
    elif running and open_runs[0].token != job.token:
        yield Fault("PERS-003", f"job {job.job_id} and its open run have different tokens", job.job_id)
    numbers = [run.run_no for run in runs if run.run_no]
    first = 1 if len(numbers) < RUNS_KEPT else job.executions - len(numbers) + 1
    if numbers != list(range(first, job.executions + 1)):
        yield Fault("PERS-003", f"job {job.job_id} has runs {numbers} after {job.executions} executions", job.job_id)
    # A successor has the band of the job it carries on.
    if not job.has_ended and job.retry_kind is not RetryKind.AUTO:
        rank = rank_of(job.priority, job.created_at, state.get(Queue, pair(job.namespace, job.queue)))
        if job.rank != rank:
            yield Fault("INV-004", f"job {job.job_id} stands in band {job.rank} instead of {rank}", job.job_id)
    heirs = [heir for heir in state.successors(job.job_id) if heir.retry_kind is RetryKind.AUTO]
    if len(heirs) > 1:
        yield Fault("PERS-006", f"job {job.job_id} has {len(heirs)} automatic successors", job.job_id)
    if heirs and not job.has_ended:
        yield Fault("PERS-006", f"job {job.job_id} is {job.status} and has a successor", job.job_id)
    if job.direct:
        yield from _direct_faults(state, job)
    begun = [run for run in runs if run.run_no and run.reason != "released"]
    if job.retry_mode is RetryMode.CHAIN and len(begun) > 1:
        yield Fault("PERS-003", f"job {job.job_id} of a chain ran {len(begun)} times", job.job_id)
    if job.key is not None and job.key_hold is KeyHold.ACTIVE and not job.has_ended:
        held = state.get(HeldKey, table_key(job) or "")
        if held is None or held.job_id != job.job_id:
            yield Fault("PERS-008", f"job {job.job_id} does not hold its key {job.key!r}", job.job_id)


def _direct_faults(state: Whole, job: Job) -> Iterator[Fault]:
    """Demand that a direct execution began with its creation, ran once, and alone on its queue."""
    if job.status is JobStatus.QUEUED or job.executions != 1 or job.reservation_id is None:
        message = f"direct job {job.job_id} is {job.status} after {job.executions} executions"
        yield Fault("direct", message, job.job_id)
    if any(heir.retry_kind is not None for heir in state.successors(job.job_id)):
        yield Fault("direct", f"direct job {job.job_id} was retried", job.job_id)
    beside = len(state.running(job.namespace, job.queue)) - 1
    if job.status is JobStatus.RUNNING and beside:
        yield Fault("direct", f"direct job {job.job_id} runs beside {beside} others of its queue", job.job_id)


def _reservation_faults(state: Whole) -> Iterator[Fault]:
    holders: dict[tuple[str, str], str] = {}
    for held in state.all(Reservation):
        active, name = held.status is ReservationStatus.ACTIVE, (held.namespace, held.queue)
        if active is (held.ended_at is not None):
            message = f"reservation {held.reservation_id} is {held.status} with ended_at {held.ended_at}"
            yield Fault("reservation", message, held.reservation_id)
        if active and name in holders:
            message = f"queue {held.queue} is reserved by {holders[name]} and by {held.reservation_id}"
            yield Fault("PERS-005", message, held.reservation_id)
        if active:
            holders[name] = held.reservation_id


def _group_faults(state: Whole) -> Iterator[Fault]:
    counted: dict[str, Group] = {}
    for job in state.all(Job):
        if job.group_id is None:
            continue
        group = counted.get(job.group_id) or state.get(Group, job.group_id)
        if group is None:
            yield Fault("group", f"job {job.job_id} belongs to group {job.group_id}, which is not there", job.job_id)
            continue
        if group.group_id not in counted:
            group = Group(group.group_id, group.created_at, on_failure=group.on_failure)
        is_last = automatic_heir(state, job) is None
        if job.sequence_number is not None and is_last:
            group = moved(group, None, job.status, None)
        started = None if job.sequence_number is None else job.started_at
        counted[group.group_id] = started_by(group, started)
    for group in state.all(Group):
        yield from _count_faults(group, counted.get(group.group_id))


def _count_faults(group: Group, found: Group | None) -> Iterator[Fault]:
    walked = found or Group(group.group_id, group.created_at)
    if counts_of(group) != counts_of(walked):
        message = f"group {group.group_id} counts {counts_of(group)}, its members say {counts_of(walked)}"
        yield Fault("group", message, group.group_id)
    if group.status is not status_of(group):
        message = f"group {group.group_id} is {group.status}, its members say {status_of(group)}"
        yield Fault("INV-006", message, group.group_id, _AT_START)
    if (group.finished_at is not None) != (group.status in OVER):
        message = f"group {group.group_id} is {group.status} with finished_at {group.finished_at}"
        yield Fault("INV-006", message, group.group_id)
    if (group.started_at is None) != (walked.started_at is None):
        message = f"group {group.group_id} started at {group.started_at}, its members at {walked.started_at}"
        yield Fault("group", message, group.group_id)


def _run_faults(state: Whole, run: Run) -> Iterator[Fault]:
    if state.get(Job, run.job_id) is None:
        yield Fault("PERS-002", f"run {run.run_id} has no job {run.job_id}", run.run_id, _BY_HAND)
    if (run.finished_at is None) != (run.status is None):
        yield Fault("INV-002", f"run {run.run_id} is {run.status} with finished_at {run.finished_at}", run.run_id)


def _delivery_faults(state: Whole) -> Iterator[Fault]:
    owed: dict[tuple[str, str, str], str] = {}
    for delivery in state.all(Delivery):
        name = delivery.delivery_id
        debt = (delivery.webhook_id, delivery.run_id, delivery.event)
        if debt in owed:
            yield Fault("PERS-009", f"deliveries {owed[debt]} and {name} tell one webhook of one run", name)
        owed[debt] = name
        if (delivery.finished_at is None) != (delivery.status is DeliveryStatus.PENDING):
            yield Fault("delivery", f"delivery {name} is {delivery.status} with an end at {delivery.finished_at}", name)
        if delivery.claimed_until is not None and delivery.status is not DeliveryStatus.PENDING:
            yield Fault("delivery", f"delivery {name} is {delivery.status} and still claimed", name)


def _schedule_faults(state: Whole) -> Iterator[Fault]:
    names: set[tuple[str, str]] = set()
    for schedule in state.all(Schedule):
        name = (schedule.namespace, schedule.name)
        if name in names:
            yield Fault("name", f"there are two schedules {schedule.name}", schedule.schedule_id)
        names.add(name)
        if (schedule.next_fire_at is None) != (schedule.next_trigger_at is None):
            yield Fault("schedule", f"schedule {schedule.name} has a fire without a trigger", schedule.schedule_id)
        if schedule.next_fire_at is not None and not schedule.enabled:
            yield Fault("schedule", f"schedule {schedule.name} is disabled and would fire", schedule.schedule_id)
        if schedule.template_id is not None and state.get(Template, schedule.template_id) is None:
            yield Fault("schedule", f"schedule {schedule.name} uses a template that is gone", schedule.schedule_id)


def _key_faults(state: Whole, held: HeldKey) -> Iterator[Fault]:
    if held.hold in (KeyHold.WINDOW, KeyHold.FOREVER):
        return
    job = state.get(Job, held.job_id)
    if job is None or job.has_ended:
        yield Fault("PERS-008", f"key {held.unique_key!r} is held by job {held.job_id}, which is over", held.job_id)
    elif held.hold is KeyHold.QUEUED and job.status is JobStatus.RUNNING:
        yield Fault("PERS-008", f"key {held.unique_key!r} is held by job {held.job_id}, which runs", held.job_id)

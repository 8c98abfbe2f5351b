"""Indexes in memory of what stands beside jobs: reservations, groups with their members, webhooks, deliveries.

Part of `stores.memory.tables`, which owns the records; here are only the orders they can be asked in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from holdfast.model.groups import Group
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, DeliveryStatus, Webhook
from holdfast.rules.jobs.dispatch_order import member_place
from holdfast.rules.state import Lane
from holdfast.stores.memory.indexes.sorted_set import BEYOND, OrderedSet, TimeKey

K = TypeVar("K")
V = TypeVar("V")


class Sidelines:
    """Who holds which queue, who belongs to which group, who wants to be told."""

    def __init__(self, due: Mapping[Lane, OrderedSet[TimeKey]]) -> None:
        self._due = due
        #: (namespace, queue) → its ACTIVE reservation, and its RUNNING direct job.
        self._reserved: dict[tuple[str, str], Reservation] = {}
        self._direct: dict[tuple[str, str], JobId] = {}
        self._members: dict[str, dict[JobId, Job]] = {}
        #: Group → its members that are QUEUED or RUNNING, by number.
        self._active: dict[str, OrderedSet[tuple[int, str]]] = {}
        #: Groups with members that have not ended.
        self._live: set[str] = set()
        #: Namespace → its groups in the order of creation.
        self._created: dict[str, OrderedSet[TimeKey]] = {}
        #: Namespace → its enabled webhooks by id.
        self._webhooks: dict[str, dict[str, Webhook]] = {}
        #: Webhook → its deliveries by creation.
        self._deliveries: dict[str, OrderedSet[TimeKey]] = {}

    # --- following changes ------------------------------------------------------------------------------------------

    def reindex_job(self, before: Job | None, after: Job | None) -> None:
        """Follow a job that is direct or belongs to a group; others cost two looks."""
        for job in (before, after):
            if job is None:
                continue
            if job.direct and job.status is JobStatus.RUNNING:
                if job is after:
                    self._direct[job.namespace, job.queue] = job.job_id
                else:
                    self._direct.pop((job.namespace, job.queue), None)
            if job.group_id is not None and job.sequence_number is not None:
                if job is after:
                    self._members.setdefault(job.group_id, {})[job.job_id] = job
                else:
                    _drop(self._members, job.group_id, job.job_id)
                self._line_up(job.group_id, job.sequence_number, job, leaves=job is before)

    def _line_up(self, group_id: str, number: int, job: Job, *, leaves: bool) -> None:
        """Put an active member into the line of its group, or take it out."""
        if job.has_ended:
            return
        line = self._active.setdefault(group_id, OrderedSet())
        if not leaves:
            line.add((number, job.job_id))
            return
        line.discard((number, job.job_id))
        if not line:
            del self._active[group_id]

    def reindex_reservation(self, before: Reservation | None, after: Reservation | None) -> None:
        """Follow a reservation."""
        if before is not None:
            if before.status is ReservationStatus.ACTIVE:
                self._reserved.pop((before.namespace, before.queue), None)
            self._due[_reservation_lane(before)].discard((before.ended_at or before.expires_at, before.reservation_id))
        if after is not None:
            if after.status is ReservationStatus.ACTIVE:
                self._reserved[after.namespace, after.queue] = after
            self._due[_reservation_lane(after)].add((after.ended_at or after.expires_at, after.reservation_id))

    def reindex_group(self, before: Group | None, after: Group | None) -> None:
        """Follow a group to its end."""
        if before is not None:
            self._live.discard(before.group_id)
        if after is not None and after.members and after.finished_at is None:
            self._live.add(after.group_id)
        for group in (before, after):
            if group is None:
                continue
            place = (group.created_at, group.group_id)
            if group is after and before is None:
                self._created.setdefault(group.namespace, OrderedSet()).add(place)
            elif group is before and after is None:
                self._created[group.namespace].discard(place)
            over = group.finished_at or (None if group.members else group.created_at)
            if over is None:
                continue
            if group is after:
                self._due[Lane.GROUP].add((over, group.group_id))
            else:
                self._due[Lane.GROUP].discard((over, group.group_id))

    def reindex_webhook(self, before: Webhook | None, after: Webhook | None) -> None:
        """Follow a webhook."""
        if before is not None and before.enabled:
            _drop(self._webhooks, before.namespace, before.webhook_id)
        if after is not None and after.enabled:
            self._webhooks.setdefault(after.namespace, {})[after.webhook_id] = after

    def reindex_delivery(self, before: Delivery | None, after: Delivery | None) -> None:
        """Follow a delivery."""
        if before is not None:
            self._due[_delivery_lane(before)].discard((_delivery_time(before), before.delivery_id))
        if after is not None:
            self._due[_delivery_lane(after)].add((_delivery_time(after), after.delivery_id))
        if after is None and before is not None:
            made = self._deliveries[before.webhook_id]
            made.discard((before.created_at, before.delivery_id))
            if not made:
                del self._deliveries[before.webhook_id]
        elif after is not None and before is None:
            self._deliveries.setdefault(after.webhook_id, OrderedSet()).add((after.created_at, after.delivery_id))

    # --- looking up -------------------------------------------------------------------------------------------------

    def reservation(self, namespace: str, queue: str) -> Reservation | None:
        """Give the ACTIVE reservation of a queue, expired or not, or None."""
        return self._reserved.get((namespace, queue))

    def direct(self, namespace: str, queue: str) -> JobId | None:
        """Give the RUNNING direct job of a queue, or None."""
        return self._direct.get((namespace, queue))

    def members(self, group_id: str, status: JobStatus | None = None) -> Sequence[Job]:
        """Give the members of a group in order; of one status, or all."""
        jobs = self._members.get(group_id, {}).values()
        return sorted((job for job in jobs if status in (None, job.status)), key=member_place)

    def turn_of(self, group_id: str) -> JobId | None:
        """Give the active member of a group that has the lowest number, or None."""
        line = self._active.get(group_id)
        return None if line is None else JobId(next(iter(line))[1])

    def live_groups(self) -> list[str]:
        """Give the ids of the groups that have members and have not ended, in order."""
        return sorted(self._live)

    def groups(self, namespace: str, before: TimeKey | None) -> Iterator[str]:
        """Walk the ids of the groups of a namespace, newest first, below a place."""
        created = self._created.get(namespace)
        return iter(()) if created is None else (key[1] for key in created.walk(before or (BEYOND,), backwards=True))

    def webhooks(self, namespace: str) -> Sequence[Webhook]:
        """Give the enabled webhooks of a namespace, by id."""
        hooks = self._webhooks.get(namespace)
        return () if hooks is None else [hooks[key] for key in sorted(hooks)]

    def deliveries(self, webhook_id: str) -> Iterator[str]:
        """Walk the deliveries of a webhook, newest first."""
        made = self._deliveries.get(webhook_id)
        return iter(()) if made is None else (key[1] for key in made.walk((BEYOND,), backwards=True))


def _reservation_lane(reservation: Reservation) -> Lane:
    return Lane.RESERVATION if reservation.status is ReservationStatus.ACTIVE else Lane.RESERVED


def _delivery_lane(delivery: Delivery) -> Lane:
    return Lane.DELIVERY if delivery.status is DeliveryStatus.PENDING else Lane.DELIVERED


def _delivery_time(delivery: Delivery) -> Timestamp:
    if delivery.status is DeliveryStatus.PENDING:
        return delivery.claimed_until or delivery.next_attempt_at
    return delivery.finished_at or delivery.next_attempt_at


def _drop(having: dict[str, dict[K, V]], name: str, key: K) -> None:
    """Take one out; what is left empty goes, too."""
    found = having.get(name)
    if found is not None:
        found.pop(key, None)
        if not found:
            del having[name]

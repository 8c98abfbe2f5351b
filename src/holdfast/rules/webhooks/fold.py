"""Fold of webhooks and deliveries: what their events make of the records. The events say it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.model import events as ev
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, RetryKind, RetryMode, Run
from holdfast.model.webhooks import TEST_EVENT, Delivery, DeliveryStatus, Webhook
from holdfast.rules.fold_changes import Change, Stamp, contradiction, demand, put
from holdfast.rules.state import State
from holdfast.rules.webhooks.body import probe_body, run_body

replace = msgspec.structs.replace


def _webhook(state: State, webhook_id: str, stamp: Stamp) -> Webhook:
    found = state.get(Webhook, webhook_id)
    if found is None:
        raise contradiction(stamp, f"there is no webhook {webhook_id}")
    return found


def _created(state: State, event: ev.WebhookCreated, stamp: Stamp) -> list[Change]:
    webhook_id = event.webhook.webhook_id
    demand(state.get(Webhook, webhook_id) is None, stamp, f"webhook {webhook_id} is created twice")
    return [put(event.webhook)]


def _updated(state: State, event: ev.WebhookUpdated, stamp: Stamp) -> list[Change]:
    fields: dict[str, Any] = event.changes.given()
    return [put(replace(_webhook(state, event.webhook_id, stamp), **fields))]


def _deleted(state: State, event: ev.WebhookDeleted, stamp: Stamp) -> list[Change]:
    _webhook(state, event.webhook_id, stamp)
    return [Change(Webhook, event.webhook_id, None)]


# --- deliveries -------------------------------------------------------------------------------------------------------


def _owed(state: State, event: ev.DeliveryCreated, stamp: Stamp) -> list[Change]:
    webhook = _webhook(state, event.webhook_id, stamp)
    demand(state.get(Delivery, event.delivery_id) is None, stamp, f"delivery {event.delivery_id} is created twice")
    if event.event == TEST_EVENT:
        job_id = JobId("")
        body = probe_body(event.delivery_id, webhook, stamp.seq)
    else:
        run = state.get(Run, event.run_id)
        job = None if run is None else state.get(Job, run.job_id)
        if run is None or job is None or run.status is None:
            raise contradiction(stamp, f"delivery {event.delivery_id} tells of a run that has not ended")
        job_id = job.job_id
        body = run_body(event.delivery_id, event.event, job, run, has_heir=_has_heir(state, job))
    delivery = Delivery(
        delivery_id=event.delivery_id,
        webhook_id=webhook.webhook_id,
        run_id=event.run_id,
        job_id=job_id,
        event=event.event,
        body=body,
        created_at=stamp.ts,
        next_attempt_at=stamp.ts,
        namespace=webhook.namespace,
    )
    return [put(delivery)]


def _has_heir(state: State, job: Job) -> bool:
    """Tell whether an automatic retry follows the job."""
    if job.retry_mode is not RetryMode.CHAIN:
        return False
    return any(heir.retry_kind is RetryKind.AUTO for heir in state.successors(job.job_id))


def _delivery(state: State, delivery_id: str, stamp: Stamp) -> Delivery:
    found = state.get(Delivery, delivery_id)
    if found is None:
        raise contradiction(stamp, f"there is no delivery {delivery_id}")
    return found


def _claimed(state: State, event: ev.DeliveryClaimed, stamp: Stamp) -> list[Change]:
    delivery = _delivery(state, event.delivery_id, stamp)
    pending = delivery.status is DeliveryStatus.PENDING
    demand(pending, stamp, f"delivery {delivery.delivery_id} is sent while {delivery.status}")
    return [put(replace(delivery, claimed_until=event.claimed_until))]


def _ended(state: State, event: ev.DeliveryEnded, stamp: Stamp) -> list[Change]:
    delivery = _delivery(state, event.delivery_id, stamp)
    pending = event.to is DeliveryStatus.PENDING
    demand(pending == (event.next_attempt_at is not None), stamp, f"delivery {event.delivery_id} has no next try")
    ended = replace(
        delivery,
        status=event.to,
        attempts=event.attempts,
        next_attempt_at=event.next_attempt_at or delivery.next_attempt_at,
        claimed_until=None,
        last_status=event.last_status,
        last_error=event.last_error,
        finished_at=None if pending else stamp.ts,
    )
    return [put(ended)]


def _pruned(state: State, event: ev.DeliveryPruned, stamp: Stamp) -> list[Change]:
    delivery = _delivery(state, event.delivery_id, stamp)
    over = delivery.status is not DeliveryStatus.PENDING
    demand(over, stamp, f"delivery {delivery.delivery_id} is pruned while {delivery.status}")
    return [Change(Delivery, delivery.delivery_id, None)]


WEBHOOK_FOLDS: dict[type[ev.Event], Callable[[State, Any, Stamp], list[Change]]] = {
    ev.WebhookCreated: _created,
    ev.WebhookUpdated: _updated,
    ev.WebhookDeleted: _deleted,
    ev.DeliveryCreated: _owed,
    ev.DeliveryClaimed: _claimed,
    ev.DeliveryEnded: _ended,
    ev.DeliveryPruned: _pruned,
}

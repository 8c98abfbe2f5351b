"""What happens to webhooks and deliveries."""

from __future__ import annotations

from holdfast.model.events.base import Fact
from holdfast.model.ids import RunId
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import DeliveryStatus, Webhook, WebhookChanges


class WebhookCreated(Fact, frozen=True, kw_only=True, tag="webhook:created"):
    """An address is told of ended runs from now on."""

    webhook: Webhook


class WebhookUpdated(Fact, frozen=True, kw_only=True, tag="webhook:updated"):
    """A webhook wants something else, or has other secrets."""

    webhook_id: str
    changes: WebhookChanges


class WebhookDeleted(Fact, frozen=True, kw_only=True, tag="webhook:deleted"):
    """A webhook is gone; what it was still owed is not sent any more."""

    webhook_id: str


class DeliveryCreated(Fact, frozen=True, kw_only=True, tag="delivery:created"):
    """A webhook is owed a message. Its body is made from the records as they are with the event before this one."""

    delivery_id: str
    webhook_id: str
    run_id: RunId
    #: job.run.completed, failed, skipped, cancelled or lost.
    event: str


class DeliveryClaimed(Fact, frozen=True, kw_only=True, tag="delivery:claimed"):
    """Somebody is sending the message."""

    delivery_id: str
    claimed_until: Timestamp


class DeliveryEnded(Fact, frozen=True, kw_only=True, tag="delivery:ended"):
    """A try is over: delivered, failed for good, or PENDING until the next try."""

    delivery_id: str
    to: DeliveryStatus
    attempts: int
    #: With `to` PENDING.
    next_attempt_at: Timestamp | None = None
    last_status: int | None = None
    last_error: str | None = None


class DeliveryPruned(Fact, frozen=True, kw_only=True, tag="delivery:pruned"):
    """Retention removed an ended delivery."""

    delivery_id: str


WebhookEvent = (
    WebhookCreated
    | WebhookUpdated
    | WebhookDeleted
    | DeliveryCreated
    | DeliveryClaimed
    | DeliveryEnded
    | DeliveryPruned
)

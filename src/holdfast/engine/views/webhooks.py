"""Webhooks and deliveries as programs read them. Secrets are in neither."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.views.projection import fill, preview, shown
from holdfast.model.webhooks import Delivery, Webhook

WebhookRow = shown("WebhookRow", Webhook, without=("secrets",))
DeliveryRow = shown("DeliveryRow", Delivery, without=("body",), preview=str)
#: `body` is what it says, as JSON.
FullDelivery = shown("FullDelivery", Delivery, without=("body",), body=msgspec.Raw)


def webhook_row(webhook: Webhook) -> Any:
    """Give a webhook with every field but its secrets."""
    return fill(WebhookRow, webhook)


def delivery_row(delivery: Delivery) -> Any:
    """Give a delivery as a list shows it."""
    return fill(DeliveryRow, delivery, preview=preview(delivery.body))


def full_delivery(delivery: Delivery) -> Any:
    """Give a delivery with every field."""
    return fill(FullDelivery, delivery, body=msgspec.Raw(delivery.body.encode()))

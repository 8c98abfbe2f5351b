"""Webhooks and deliveries as people see them: a line each, or a page. Secrets are in neither."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.cli.render.output import Record
from holdfast.cli.render.status_labels import BACKOFF, COMPLETED, DELAYED, FAILED, HELD, READY, RUNNING
from holdfast.cli.render.tables import Column, age, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.engine.views.webhooks import full_delivery, webhook_row
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.webhooks import Delivery, DeliveryStatus, Webhook

#: Deliveries that a page shows.
SHOWN = 10


def webhook_record(webhook: Webhook) -> Record:
    """Give a webhook with every field but its secrets, as programs read it."""
    return msgspec.structs.asdict(webhook_row(webhook))


def delivery_record(delivery: Delivery) -> Record:
    """Give a delivery with every field, as programs read it; its body as what it says."""
    return msgspec.structs.asdict(full_delivery(delivery))


def _state(webhook: Webhook, screen: Screen) -> str:
    return f"{screen.glyph(READY)} enabled" if webhook.enabled else f"{screen.glyph(HELD)} disabled"


def _wants(names: Sequence[str] | None) -> str:
    return ", ".join(name.removeprefix("job.run.") for name in names) if names else "all"


def webhook_table(webhooks: Sequence[Webhook], screen: Screen) -> list[str]:
    """Lay out webhooks."""
    columns = (Column("ID"), Column("STATE"), Column("EVENTS"), Column("QUEUES"), Column("URL"))
    rows = [
        [
            safe(webhook.webhook_id),
            _state(webhook, screen),
            safe(_wants(webhook.events)),
            safe(_wants(webhook.queues)),
            safe(webhook.url),
        ]
        for webhook in webhooks
    ]
    return lines(columns, rows, screen)


def webhook_page(webhook: Webhook, deliveries: Sequence[Delivery], now: Timestamp, screen: Screen) -> list[str]:
    """Show a webhook whole, with its last deliveries."""
    fields = {
        "url": webhook.url,
        "events": _wants(webhook.events),
        "queues": _wants(webhook.queues),
        "secrets": "one" if len(webhook.secrets) == 1 else "two, being changed",
        "made": webhook.created_at,
    }
    head = f"{safe(webhook.webhook_id)}  {_state(webhook, screen)}"
    body = [f"  {name:<7}  {safe(value)}" for name, value in fields.items()]
    return [head, *body, *(["", *delivery_table(deliveries, now, screen)] if deliveries else [])]


def delivery_table(deliveries: Sequence[Delivery], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out deliveries."""
    columns = (
        Column("ID"),
        Column("EVENT"),
        Column("RUN", spare=True),
        Column("TRIES", right=True),
        Column("MADE", spare=True),
        Column("STATE"),
    )
    rows = [
        [
            safe(one.delivery_id),
            safe(one.event.removeprefix("job.run.")),
            safe(one.run_id),
            str(one.attempts),
            one.created_at,
            said(one, now, screen),
        ]
        for one in deliveries
    ]
    return lines(columns, rows, screen)


def said(delivery: Delivery, now: Timestamp, screen: Screen) -> str:
    """Say where a delivery is, and why."""
    because = f": {delivery.last_error}" if delivery.last_error else ""
    match delivery.status:
        case DeliveryStatus.DELIVERED:
            return f"{screen.glyph(COMPLETED)} delivered, {delivery.last_status}"
        case DeliveryStatus.FAILED:
            return f"{screen.glyph(FAILED)} {safe(f'failed{because}')}"
        case DeliveryStatus.PENDING:
            if delivery.claimed_until is not None and delivery.claimed_until > now:
                return f"{screen.glyph(RUNNING)} on its way"
            left = seconds_between(now, delivery.next_attempt_at)
            when = f"next try in {age(left)}" if left > 0 else f"due for {age(-left)}"
            return f"{screen.glyph(BACKOFF if delivery.attempts else DELAYED)} {safe(f'{when}{because}')}"

"""`/webhooks` and `/deliveries`: addresses that are told when a run ends, and what they were sent.

A secret is taken, or made and shown once; no answer has one again.
"""

from __future__ import annotations

import asyncio
from heapq import nlargest
from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.app.handles.webhook import default_id, new_secret, probe
from holdfast.engine.views.webhooks import (
    DeliveryRow,
    FullDelivery,
    WebhookRow,
    delivery_row,
    full_delivery,
    webhook_row,
)
from holdfast.model.commands import DeleteWebhook, ProbeWebhook, PutWebhook, Redeliver, UpdateWebhook
from holdfast.model.outcomes import Refusal, Saved
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, DeliveryStatus, NewWebhook, Webhook, WebhookChanges
from holdfast.stores.http.wire import ProbeWish
from holdfast.stores.protocol import View
from holdfast.web.api.bodies import Empty, changes_of, strict_whole
from holdfast.web.api.endpoint import Ask, Endpoint, Settled, done, gone, told
from holdfast.web.api.lookup import found, id_within
from holdfast.web.api.paging import Page, PageQuery, Query, sliced

ChangesBody = strict_whole(WebhookChanges)
Place = tuple[Timestamp, str]


class WebhookBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom to tell, and of what."""

    url: str
    #: By default made from the address, which then has one webhook.
    webhook_id: str | None = None
    #: Such as job.run.failed; all, if empty.
    events: tuple[str, ...] = ()
    #: Queues whose runs are told; null for all.
    queues: tuple[str, ...] | None = None
    #: What deliveries are signed with; made, if it is left out.
    secret: str | None = None


class DeliveriesQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which deliveries to list, newest first."""

    webhook_id: str | None = None
    status: DeliveryStatus | None = None


class WebhookMade(msgspec.Struct, frozen=True):
    """The webhook is there. A secret that was made is shown this once."""

    webhook_id: str
    secret: str | None


async def list_webhooks(ask: Ask[PageQuery, None]) -> Response:
    """List webhooks, oldest first."""
    ask.demand_list(namespace=ask.namespace)
    start = ask.place(Place)

    def rows(view: View) -> Any:
        mine = (one for one in view.all(Webhook) if one.namespace == ask.namespace)
        kept, at = sliced(mine, lambda one: (one.created_at, one.webhook_id), start, ask.query.limit)
        return map(webhook_row, kept), at

    return await ask.page(rows)


async def create(ask: Ask[Query, WebhookBody]) -> Response:
    """Tell an address whenever a run ends."""
    body = ask.body
    made = new_secret() if body.secret is None else None
    new = NewWebhook(
        url=body.url,
        namespace=ask.namespace,
        events=body.events,
        queues=body.queues,
        secrets=(made if body.secret is None else body.secret,),  # type: ignore[arg-type]  # one of them is there
    )
    own = body.webhook_id
    chosen = default_id(ask.namespace, body.url) if own is None else ask.id_of(own, "webhook")
    # A secret that is made is another one each time: then only the webhook's id tells a repetition.
    cmd, allow = ask.cmd if made is None else "", tuple(ask.coordinator.webhook_allow)
    outcome = await ask.order(PutWebhook(webhook_id=chosen, webhook=new, allow=allow, cmd=cmd))
    assert isinstance(outcome, Saved)
    return told(WebhookMade(outcome.id, made), 201)


async def get(ask: Ask[Query, None]) -> Response:
    """Give a webhook, without its secrets."""
    return told(await ask.look(lambda view: webhook_row(found(ask, view, Webhook, ask.path["webhook_id"]))))


async def update(ask: Ask[Query, Any]) -> Response:
    """Change a webhook; what it is owed stays."""
    changes: WebhookChanges = changes_of(ask.body)
    webhook_id = await id_within(ask, Webhook, ask.path["webhook_id"])
    allow = tuple(ask.coordinator.webhook_allow)
    await ask.order(UpdateWebhook(webhook_id=webhook_id, changes=changes, allow=allow, cmd=ask.cmd))
    return done(webhook_id)


async def delete(ask: Ask[Query, None]) -> Response:
    """Remove a webhook; what it is still owed is not sent."""
    webhook_id = await id_within(ask, Webhook, ask.path["webhook_id"])
    await ask.order(DeleteWebhook(webhook_id=webhook_id, cmd=ask.cmd))
    return gone()


async def test(ask: Ask[Query, Empty]) -> Response:
    """Send a delivery that only shows whether it arrives, once, now; answer with what came of it."""
    return await _tested(ask, ask.path["webhook_id"])


async def test_named(ask: Ask[Query, ProbeWish]) -> Response:
    """Do the same for the webhook that the body names: a path cannot carry every id there is."""
    return await _tested(ask, ask.body.webhook_id)


async def _tested(ask: Ask[Any, Any], webhook_id: str) -> Response:
    access, coordinator = ask.access, ask.coordinator
    sample = ProbeWebhook(webhook_id=webhook_id, delivery_id="sample")
    judged = coordinator.admit(access, sample)
    if isinstance(judged, Refusal):
        raise judged.error()
    await ask.look(lambda view: found(ask, view, Webhook, webhook_id))
    # In a thread of its own: it may take as long as the receiver likes, up to ten seconds.
    delivery = await asyncio.to_thread(probe, ask.engine, webhook_id, coordinator.webhook_allow, access.name)
    return told(full_delivery(delivery))


async def list_deliveries(ask: Ask[DeliveriesQuery, None]) -> Response:
    """List deliveries, newest first."""
    ask.demand_list(namespace=ask.namespace)
    query = ask.query
    start: Place | None = ask.place(Place)

    def place(one: Delivery) -> Place:
        return one.created_at, one.delivery_id

    def keep(one: Delivery) -> bool:
        return (
            one.namespace == ask.namespace
            and query.webhook_id in (None, one.webhook_id)
            and query.status in (None, one.status)
            and (start is None or place(one) < start)
        )

    def rows(view: View) -> Any:
        listed = nlargest(query.limit + 1, filter(keep, view.all(Delivery)), key=place)
        at = place(listed[query.limit - 1]) if len(listed) > query.limit else None
        return map(delivery_row, listed[: query.limit]), at

    return await ask.page(rows)


async def get_delivery(ask: Ask[Query, None]) -> Response:
    """Give a delivery with its body."""
    return told(await ask.look(lambda view: full_delivery(found(ask, view, Delivery, ask.path["delivery_id"]))))


async def redeliver(ask: Ask[Query, Empty]) -> Response:
    """Send a delivery again, with all its tries."""
    delivery_id = await id_within(ask, Delivery, ask.path["delivery_id"])
    await ask.order(Redeliver(delivery_id=delivery_id, cmd=ask.cmd))
    return done(delivery_id)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/webhooks",
        summary="List webhooks, oldest first.",
        handler=list_webhooks,
        query=PageQuery,
        answers={200: Page[WebhookRow]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="POST",
        path="/webhooks",
        summary="Tell an address whenever a run ends. A secret that is made is shown once.",
        handler=create,
        body=WebhookBody,
        answers={201: WebhookMade},
        refuses=(409,),
        sends=PutWebhook,
    ),
    Endpoint(
        method="GET",
        path="/webhooks/{webhook_id}",
        summary="Give a webhook, without its secrets.",
        handler=get,
        answers={200: WebhookRow},
    ),
    Endpoint(
        method="PATCH",
        path="/webhooks/{webhook_id}",
        summary="Change a webhook; what it is owed stays.",
        handler=update,
        body=ChangesBody,
        answers={200: Settled},
        refuses=(409,),
        sends=UpdateWebhook,
    ),
    Endpoint(
        method="DELETE",
        path="/webhooks/{webhook_id}",
        summary="Remove a webhook; what it is still owed is not sent.",
        handler=delete,
        answers={204: None},
        refuses=(409,),
        sends=DeleteWebhook,
    ),
    Endpoint(
        method="POST",
        path="/webhooks/{webhook_id}/test",
        summary="Send a delivery that only shows whether it arrives, once, now.",
        handler=test,
        body=Empty,
        answers={200: FullDelivery},
        refuses=(409,),
        sends=ProbeWebhook,
    ),
    Endpoint(
        method="POST",
        path="/webhooks/test",
        summary="Do the same for the webhook that the body names.",
        handler=test_named,
        body=ProbeWish,
        answers={200: FullDelivery},
        refuses=(404, 409),
        sends=ProbeWebhook,
    ),
    Endpoint(
        method="GET",
        path="/deliveries",
        summary="List deliveries, newest first.",
        handler=list_deliveries,
        query=DeliveriesQuery,
        answers={200: Page[DeliveryRow]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="GET",
        path="/deliveries/{delivery_id}",
        summary="Give a delivery with its body.",
        handler=get_delivery,
        answers={200: FullDelivery},
    ),
    Endpoint(
        method="POST",
        path="/deliveries/{delivery_id}/redeliver",
        summary="Send a delivery again, with all its tries.",
        handler=redeliver,
        body=Empty,
        answers={200: Settled},
        refuses=(409,),
        sends=Redeliver,
    ),
)

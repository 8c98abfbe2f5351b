"""Webhooks: addresses that are told when a run ends, and the handle on one of them. Secrets go in, never out."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

import msgspec

from holdfast.app.tasks.options import demand_limit
from holdfast.engine.engine import Engine
from holdfast.errors import DeliveryNotFound, InvalidArguments, InvalidValue, WebhookNotFound
from holdfast.model.commands import (
    DeleteWebhook,
    ProbeWebhook,
    PutWebhook,
    Redeliver,
    RotateSecret,
    UpdateWebhook,
)
from holdfast.model.ids import uuid5
from holdfast.model.outcomes import Claimed, Saved
from holdfast.model.webhooks import Delivery, DeliveryStatus, NewWebhook, WebhookChanges
from holdfast.model.webhooks import Webhook as Record
from holdfast.rules.webhooks.addresses import parse_networks
from holdfast.stores.protocol import DeliveryQuery, Probing

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.schedules import AioWebhook
    from holdfast.app.application import Holdfast


class WebhookOptions(TypedDict, total=False):
    """What `hf.webhook(url, …)` takes beside the address."""

    #: Such as `job.run.failed`; all, if not given.
    events: Sequence[str]
    #: Queues whose runs are told; all, if not given.
    queues: Sequence[str] | None
    #: What deliveries are signed with; made, if not given.
    secret: str | None
    #: Names the webhook; made from the address, if not given.
    id: str


class WebhookEdits(TypedDict, total=False):
    """What `.update(…)` of a webhook takes."""

    url: str
    events: Sequence[str]
    queues: Sequence[str] | None
    enabled: bool


def default_id(namespace: str, url: str) -> str:
    """Give the id of a webhook that was given none: the same for the same address, however often it is asked for.

    Raises InvalidValue for what is no text; what is no address is refused with the webhook.
    """
    if not isinstance(url, str):
        raise InvalidValue(f"url: {url!r:.80} is no text. Nothing was changed.", field="url")
    return uuid5("webhook", namespace, url.encode(errors="replace").decode())


def new_secret() -> str:
    """Make a secret that nobody can guess."""
    return secrets.token_urlsafe(32)


def listed(field: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Take a list of texts. Raises InvalidValue for one text alone, which Python would read letter by letter."""
    if isinstance(texts, str):
        raise InvalidValue(f"{field}: {texts!r:.80} is one text, not a list. Nothing was changed.", field=field)
    if not isinstance(texts, Iterable):
        raise InvalidValue(f"{field}: {texts!r:.80} is no list. Nothing was changed.", field=field)
    return tuple(texts)


def declare(app: Holdfast, url: str, options: WebhookOptions) -> Webhook:
    """Make the webhook of that address or id, or give it this content; what is the same changes nothing."""
    for name in options:
        if name not in WebhookOptions.__annotations__:
            known = ", ".join(sorted(WebhookOptions.__annotations__))
            raise InvalidArguments(
                f"a webhook has no option {name!r}. Nothing was changed.", hint=f"There are: {known}."
            )
    chosen = options.get("id")
    webhook_id = default_id(app.namespace, url) if chosen is None else chosen
    given, made = options.get("secret"), new_secret()
    queues = options.get("queues")
    new = NewWebhook(
        url=url,
        namespace=app.namespace,
        events=listed("events", options.get("events", ())),
        queues=None if queues is None else listed("queues", queues),
        secrets=None if given is None else (given,),
        made_secret=made,
    )
    saved = app.engine.ask(PutWebhook(webhook_id=webhook_id, webhook=new, replace=True, allow=app.webhook_allow))
    assert isinstance(saved, Saved)
    return Webhook(app, saved.id, made if given is None and saved.created else given)


class Webhook:
    """A handle on one webhook."""

    def __init__(self, app: Holdfast, webhook_id: str, secret: str | None = None) -> None:
        """Hold the webhook of that id; `secret` only just after it was given or made."""
        self._app = app
        self.id = webhook_id
        #: What its deliveries are signed with, if this handle gave or made it; it cannot be read again.
        self.secret = secret

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Webhook {self.id}>"

    def record(self) -> Record:
        """Read it as it is now, without its secrets. Raises WebhookNotFound."""
        with self._app.engine.read() as view:
            found = view.get(Record, self.id)
        if found is None:
            raise WebhookNotFound(f"there is no webhook {self.id}.", webhook_id=self.id)
        return msgspec.structs.replace(found, secrets=())

    def deliveries(self, *, status: DeliveryStatus | str | None = None, limit: int = 50) -> Sequence[Delivery]:
        """List what it was sent or is owed, newest first. Raises InvalidValue for a status that is none."""
        demand_limit(limit)
        wanted = None if status is None else _status(status)
        with self._app.engine.read() as view:
            return view.deliveries(DeliveryQuery(webhook_id=self.id, status=wanted, limit=limit))

    def test(self) -> Delivery:
        """Send it a delivery that only shows whether it arrives, once, now, from here; give what came of it."""
        return probe(self._app.engine, self.id, self._app.webhook_allow)

    def redeliver(self, delivery_id: str) -> None:
        """Have a delivery sent again, by a worker, with all its tries."""
        self._app.engine.ask(Redeliver(delivery_id=delivery_id))

    def update(self, **edits: Unpack[WebhookEdits]) -> None:
        """Change what is named; what it is owed already stays as it is."""
        fields = dict(edits)
        for name in fields:
            if name not in WebhookEdits.__annotations__:
                known = ", ".join(sorted(WebhookEdits.__annotations__))
                message = f"a webhook has no {name!r} to change. Nothing was changed."
                raise InvalidArguments(message, hint=f"There are: {known}; a secret is changed by rotate().")
        for name in ("events", "queues"):
            texts = edits.get(name)
            if texts is not None:
                fields[name] = listed(name, texts)  # type: ignore[arg-type]  # both are sequences of texts
        changes = WebhookChanges(**fields)  # type: ignore[arg-type]  # each is of its own type, as the engine checks
        self._app.engine.ask(UpdateWebhook(webhook_id=self.id, changes=changes, allow=self._app.webhook_allow))

    def enable(self) -> None:
        """Tell it of runs that end from now on."""
        self.update(enabled=True)

    def disable(self) -> None:
        """Tell it nothing more; what it is still owed fails."""
        self.update(enabled=False)

    def rotate(self, secret: str | None = None) -> str:
        """Sign with a new secret as well as with the present one; give it, for it is not shown again.

        When the receiver knows the new one, `forget_old_secret` ends the change.
        """
        fresh = new_secret() if secret is None else secret
        self._app.engine.ask(RotateSecret(webhook_id=self.id, secret=fresh))
        self.secret = fresh
        return fresh

    def forget_old_secret(self) -> None:
        """Sign with the newest secret alone."""
        self._app.engine.ask(RotateSecret(webhook_id=self.id))

    def delete(self) -> None:
        """Remove it; what it is still owed is not sent."""
        self._app.engine.ask(DeleteWebhook(webhook_id=self.id))

    @property
    def aio(self) -> AioWebhook:
        """The same calls, to be awaited."""
        from holdfast.app.aio.schedules import AioWebhook  # noqa: PLC0415 - only programs that await pay for it

        return AioWebhook(self)


def probe(engine: Engine, webhook_id: str, allow: Sequence[str], actor: str = "") -> Delivery:
    """Send a webhook a delivery that only shows whether it arrives; give it as it ended. Raises WebhookNotFound."""
    if isinstance(engine.store, Probing):
        delivery_id = engine.store.probe(webhook_id)
    else:
        delivery_id = _sent(engine, webhook_id, allow, actor)
    with engine.read() as view:
        found = view.get(Delivery, delivery_id)
    if found is None:
        raise DeliveryNotFound(f"delivery {delivery_id} was removed meanwhile.", delivery_id=delivery_id)
    return found


def _sent(engine: Engine, webhook_id: str, allow: Sequence[str], actor: str) -> str:
    from holdfast.workers.webhooks.dispatcher import deliver  # noqa: PLC0415 - only who sends pays for it
    from holdfast.workers.webhooks.send import Sender  # noqa: PLC0415 - the same

    sender = Sender(allow=parse_networks(allow))
    delivery_id = engine.new_id()
    outcome = engine.ask(ProbeWebhook(webhook_id=webhook_id, delivery_id=delivery_id, actor=actor))
    assert isinstance(outcome, Claimed)
    for claim in outcome.claims:
        deliver(engine, sender, claim)
    return delivery_id


def _status(name: str) -> DeliveryStatus:
    try:
        return DeliveryStatus(name)
    except ValueError:
        raise InvalidValue(f"status: {name!r} is not one of {', '.join(DeliveryStatus)}.", field="status") from None

"""Webhooks: made, edited, given new secrets and removed. What is owed to them is `deliveries`'.

Every definition is checked whole before anything changes: where it leads, which events it names, how it is signed. An
address that is no literal is judged at each try, when it is known what it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.errors import IdReused, InvalidOperation, InvalidValue, WebhookNotFound
from holdfast.model.commands import DeleteWebhook, PutWebhook, RotateSecret, UpdateWebhook
from holdfast.model.events import WebhookCreated, WebhookDeleted, WebhookUpdated
from holdfast.model.ids import is_name
from holdfast.model.outcomes import Done, Refusal, Saved, refuse
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import RUN_EVENTS, NewWebhook, Webhook, WebhookChanges
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.field_checks import Problem
from holdfast.rules.state import State
from holdfast.rules.webhooks.addresses import check_target, parse_networks

replace = msgspec.structs.replace

#: Characters of a secret.
SHORTEST, LONGEST = 8, 256
#: Queues one webhook may name.
MAX_QUEUES = 100
_SECRET = re.compile(rf"[\x21-\x7e]{{{SHORTEST},{LONGEST}}}")


# --- what may be a webhook --------------------------------------------------------------------------------------------


def fault_in(webhook: Webhook, allow: Sequence[str]) -> Refusal | None:
    """Say what is wrong with a definition, or None."""
    for field, complaint in _problems(webhook):
        return refuse(InvalidValue, f"{field}: {complaint}. Nothing was changed.", field=field)
    try:
        check_target(webhook.url, parse_networks(allow))
    except InvalidValue as problem:
        return refuse(InvalidValue, f"{problem.message} Nothing was changed.", hint=problem.hint, **problem.facts)
    return None


def _problems(webhook: Webhook) -> Iterator[Problem]:
    if webhook.namespace and not is_name(webhook.namespace):
        yield "namespace", f"{webhook.namespace!r:.80} is not a name"
    for event in webhook.events:
        if event not in RUN_EVENTS:
            yield "events", f"{event!r:.80} is not one of {', '.join(RUN_EVENTS)}"
    if len(set(webhook.events)) < len(webhook.events):
        yield "events", "one of them is named twice"
    if webhook.queues is not None:
        if not 1 <= len(webhook.queues) <= MAX_QUEUES:
            yield "queues", f"{len(webhook.queues)} queues; name 1 to {MAX_QUEUES}, or none at all for every queue"
        for queue in webhook.queues:
            if not is_name(queue):
                yield "queues", f"{queue!r:.80} is not a name (1-128 letters, digits and . _ - : /)"
    if not 1 <= len(webhook.secrets) <= 2:
        yield "secret", f"{len(webhook.secrets)} secrets; a webhook has one, or two while they are changed"
    for secret in webhook.secrets:
        if not _SECRET.fullmatch(secret):
            # Never repeated, not even in part.
            yield "secret", f"must have {SHORTEST}-{LONGEST} ASCII characters, none of them blank; it has {len(secret)}"


def missing(webhook_id: str) -> Decision:
    """Refuse what names no webhook."""
    return deny(WebhookNotFound, f"there is no webhook {webhook_id}. Nothing was changed.", webhook_id=webhook_id)


# --- making and editing -----------------------------------------------------------------------------------------------


def decide_put_webhook(state: State, command: PutWebhook, now: Timestamp) -> Decision:
    """Make a webhook, or give the one of that id another content."""
    new = command.webhook
    found = state.get(Webhook, command.webhook_id)
    if found is None:
        webhook = Webhook(
            webhook_id=command.webhook_id,
            url=new.url,
            created_at=now,
            namespace=new.namespace,
            events=new.events,
            queues=new.queues,
            secrets=(new.made_secret,) if new.secrets is None and new.made_secret is not None else new.secrets or (),
        )
        fault = fault_in(webhook, command.allow)
        if fault is not None:
            return answer(fault)
        event = WebhookCreated(webhook=webhook, cmd=command.cmd, actor=command.actor)
        return answer(Saved(id=webhook.webhook_id, version=1, created=True), event)
    if found.namespace != new.namespace:
        return _taken(found)
    changes = _differences(found, new)
    if command.replace:
        return _edit(found, changes, command)
    if not changes.given():
        return answer(Saved(id=found.webhook_id, version=1, created=True))  # sent again
    return _taken(found)


def _taken(found: Webhook) -> Decision:
    message = f"a webhook {found.webhook_id} exists already. Nothing was changed."
    return deny(IdReused, message, hint="Update it, or choose another id.", webhook_id=found.webhook_id)


def _differences(found: Webhook, new: NewWebhook) -> WebhookChanges:
    """Give what must change so that a webhook is what it is asked to be."""
    asked = {"url": new.url, "events": new.events, "queues": new.queues, "secrets": new.secrets}
    if new.secrets is None:
        del asked["secrets"]
    fields: dict[str, Any] = {name: value for name, value in asked.items() if getattr(found, name) != value}
    return WebhookChanges(**fields)


def decide_update_webhook(state: State, command: UpdateWebhook) -> Decision:
    """Edit a webhook. What it is owed already stays as it is."""
    webhook = state.get(Webhook, command.webhook_id)
    return missing(command.webhook_id) if webhook is None else _edit(webhook, command.changes, command)


def _edit(webhook: Webhook, changes: WebhookChanges, command: PutWebhook | UpdateWebhook) -> Decision:
    fields: dict[str, Any] = changes.given()
    edited = replace(webhook, **fields)
    if edited == webhook:
        return answer(Saved(id=webhook.webhook_id, version=1))
    # An address that is not changed was judged before, perhaps by somebody with another list.
    allow = command.allow if edited.url != webhook.url else ("0.0.0.0/0", "::/0")
    fault = fault_in(edited, allow)
    if fault is not None:
        return answer(fault)
    event = WebhookUpdated(webhook_id=webhook.webhook_id, changes=changes, cmd=command.cmd, actor=command.actor)
    return answer(Saved(id=webhook.webhook_id, version=1), event)


def decide_rotate(state: State, command: RotateSecret) -> Decision:
    """Put a new secret in front of the present one; or forget all but the newest."""
    webhook = state.get(Webhook, command.webhook_id)
    if webhook is None:
        return missing(command.webhook_id)
    newest = webhook.secrets[0]
    if command.secret == newest:
        message = f"the secret of webhook {webhook.webhook_id} is that one already. Nothing was changed."
        return deny(InvalidOperation, message, webhook_id=webhook.webhook_id)
    secrets = (newest,) if command.secret is None else (command.secret, newest)
    edited = replace(webhook, secrets=secrets)
    for field, complaint in _problems(edited):
        return deny(InvalidValue, f"{field}: {complaint}. Nothing was changed.", field=field)
    if edited == webhook:
        return answer(Done())
    event = WebhookUpdated(
        webhook_id=webhook.webhook_id,
        changes=WebhookChanges(secrets=secrets),
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Done(), event)


def decide_delete_webhook(state: State, command: DeleteWebhook) -> Decision:
    """Remove a webhook."""
    if state.get(Webhook, command.webhook_id) is None:
        return missing(command.webhook_id)
    return answer(Done(), WebhookDeleted(webhook_id=command.webhook_id, cmd=command.cmd, actor=command.actor))

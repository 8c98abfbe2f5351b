"""`holdfast webhooks`: addresses that are told when a run ends, and what they were sent. A secret is shown once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from holdfast.app.handles.webhook import default_id, new_secret, probe
from holdfast.cli.param_types import Word
from holdfast.cli.render import webhook_rows
from holdfast.cli.render.output import LIST_FORMS, Output, Record, output_for, output_options
from holdfast.cli.render.terminal import safe, say
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.ids import given
from holdfast.cli.store_access.mutations import actor, confirm, dry_run_option, send, yes_option
from holdfast.cli.store_access.target import Target, now, store_options, target
from holdfast.errors import AmbiguousId, InvalidArguments, InvalidValue, WebhookNotFound
from holdfast.model.commands import DeleteWebhook, PutWebhook, Redeliver, RotateSecret, UpdateWebhook
from holdfast.model.outcomes import Refusal
from holdfast.model.webhooks import DeliveryStatus, NewWebhook, Webhook, WebhookChanges
from holdfast.stores.protocol import DeliveryQuery, Store, View

#: The word that stands for every event, or every queue.
ALL = "all"
#: A test that did not arrive.
NOT_DELIVERED = 1

_id = click.argument("webhook_id", metavar="ID")
_allow = click.option("--allow", multiple=True, metavar="NETWORK", help="Also to this network, such as 10.0.0.0/8.")
_secret = click.option(
    "--secret-from", metavar="FILE", help="Sign with what is in this file; - reads stdin. By default one is made."
)


def find_webhook(view: View, place: Target, word: str) -> Webhook:
    """Find a webhook by its id, or an unambiguous beginning. Raises WebhookNotFound or AmbiguousId."""
    here = [one for one in view.all(Webhook) if place.namespace in (None, one.namespace)]
    found = [one for one in here if one.webhook_id == word] or [one for one in here if one.webhook_id.startswith(word)]
    if len(found) > 1 and word:
        ids = [one.webhook_id for one in found]
        message = f"{word} begins more than one id: {', '.join(ids)}. Nothing was changed."
        raise AmbiguousId(message, hint="Give more of it.", candidates=ids)
    if not found or not word:
        message = f"there is no webhook {word}. Nothing was changed."
        raise WebhookNotFound(message, hint="See `holdfast webhooks ls`.", webhook_id=word)
    return found[0]


def _found(word: str) -> Webhook:
    place = target()
    with place.look() as view:
        return find_webhook(view, place, word)


def _read_secret(source: str | None) -> str | None:
    """Read a secret from a file, so that it is in no list of processes and no history of a shell."""
    if source is None:
        return None
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as problem:
        message = f"--secret-from: {source} cannot be read: {type(problem).__name__}. Nothing was changed."
        raise InvalidValue(message, field="secret") from None
    return text.strip()


def _wanted(words: tuple[str, ...]) -> tuple[str, ...]:
    return () if words == (ALL,) else words


@click.group()
def webhooks() -> None:
    """Look at who is told of ended runs, add them, try them."""


# --- looking ----------------------------------------------------------------------------------------------------------


@webhooks.command(cls=WatchCommand)
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, watch: float | None, output: str) -> None:
    """List webhooks."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        found = [one for one in view.all(Webhook) if one.namespace == place.name]
        found.sort(key=lambda one: (one.created_at, one.webhook_id))
        records = [webhook_rows.webhook_record(one) for one in found]
        return records, lambda: webhook_rows.webhook_table(found, out.screen)

    show(place, out, watch, look, key="webhook_id")


@webhooks.command("show", cls=WatchCommand)
@_id
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def show_webhook(*, webhook_id: str, watch: float | None, output: str) -> None:
    """Show a webhook with its last deliveries."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        found = find_webhook(view, place, webhook_id)
        last = view.deliveries(DeliveryQuery(webhook_id=found.webhook_id, limit=webhook_rows.SHOWN))
        record = {
            **webhook_rows.webhook_record(found),
            "deliveries": [webhook_rows.delivery_record(one) for one in last],
        }
        return [record], lambda: webhook_rows.webhook_page(found, last, now(), out.screen)

    show(place, out, watch, look, key="webhook_id", one=True)


@webhooks.command(cls=WatchCommand)
@_id
@click.option("--status", type=Word(DeliveryStatus), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="So many.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def deliveries(*, webhook_id: str, status: DeliveryStatus | None, limit: int, watch: float | None, output: str) -> None:
    """List what a webhook was sent or is owed, newest first."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        hook = find_webhook(view, place, webhook_id)
        found = view.deliveries(DeliveryQuery(webhook_id=hook.webhook_id, status=status, limit=limit))
        records = [webhook_rows.delivery_record(one) for one in found]
        return records, lambda: webhook_rows.delivery_table(found, now(), out.screen)

    show(place, out, watch, look, key="delivery_id")


# --- making and changing ----------------------------------------------------------------------------------------------


@webhooks.command()
@click.argument("url")
@click.option("--id", "webhook_id", help="Names it; by default made from the address, which then has one webhook.")
@click.option("--event", "events", multiple=True, help="Only this, such as job.run.failed; may be given again.")
@click.option("--queue", "queues", multiple=True, help="Only runs of this queue; may be given again.")
@_secret
@_allow
@dry_run_option
@output_options("table", "json", "jsonl", "ids")
@store_options
def add(
    *,
    url: str,
    webhook_id: str | None,
    events: tuple[str, ...],
    queues: tuple[str, ...],
    secret_from: str | None,
    allow: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Tell URL whenever a run ends. Its id, and a secret that was made, are printed; the secret is not shown again."""
    place, out = target(), output_for(output)
    read = _read_secret(secret_from)
    secret = new_secret() if read is None else read
    new = NewWebhook(
        url=url,
        namespace=place.name,
        events=_wanted(events),
        queues=_wanted(queues) or None,
        secrets=(secret,),
    )
    chosen = webhook_id or default_id(place.name, url)
    command = PutWebhook(webhook_id=chosen, webhook=new, allow=allow, actor=actor())
    send(command, f"webhook {safe(chosen)} is made", dry_run=dry_run, create=True)
    _tell(out, chosen, secret if read is None and not dry_run else None, dry_run=dry_run)


def _tell(out: Output, webhook_id: str, secret: str | None, *, dry_run: bool = False) -> None:
    """Print an id, and a secret for the only time."""
    record: Record = {"webhook_id": webhook_id, **({"secret": secret} if secret is not None else {})}
    if dry_run:
        record["dry_run"] = True
    shown = [f"id      {safe(webhook_id)}", *([f"secret  {secret}"] if secret is not None else [])]
    out.record(record, lambda: shown, key="webhook_id")


@webhooks.command()
@_id
@click.option("--url", help="Another address.")
@click.option("--event", "events", multiple=True, help="Only this; may be given again; or all.")
@click.option("--queue", "queues", multiple=True, help="Only runs of this queue; may be given again; or all.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it is told of anything.")
@_allow
@dry_run_option
@store_options
def update(
    *,
    webhook_id: str,
    url: str | None,
    events: tuple[str, ...],
    queues: tuple[str, ...],
    enabled: bool | None,
    allow: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change a webhook; what is not named stays, and so does what it is owed."""
    found = _found(webhook_id)
    fields: dict[str, Any] = {}
    if url is not None:
        fields["url"] = url
    if events:
        fields["events"] = _wanted(events)
    if queues:
        fields["queues"] = _wanted(queues) or None
    if enabled is not None:
        fields["enabled"] = enabled
    if not fields:
        raise InvalidArguments("name at least one thing to change. Nothing was changed.")
    command = UpdateWebhook(webhook_id=found.webhook_id, changes=WebhookChanges(**fields), allow=allow, actor=actor())
    send(command, f"webhook {safe(found.webhook_id)} is changed", dry_run=dry_run)


@webhooks.command()
@_id
@_secret
@click.option("--forget-old", is_flag=True, help="End the change: sign with the newest secret alone.")
@dry_run_option
@output_options("table", "json", "jsonl")
@store_options
def rotate(*, webhook_id: str, secret_from: str | None, forget_old: bool, dry_run: bool, output: str) -> None:
    """Sign with a new secret as well as with the present one; one that was made is printed and not shown again."""
    found, out = _found(webhook_id), output_for(output)
    read = _read_secret(secret_from)
    if forget_old and read is not None:
        raise InvalidArguments("--forget-old takes no new secret. Nothing was changed.")
    secret = None if forget_old else read or new_secret()
    command = RotateSecret(webhook_id=found.webhook_id, secret=secret, actor=actor())
    done = "signs with its newest secret alone" if forget_old else "signs with two secrets"
    send(command, f"webhook {safe(found.webhook_id)} {done}", dry_run=dry_run)
    _tell(out, found.webhook_id, None if dry_run or read is not None else secret, dry_run=dry_run)


@webhooks.command()
@_id
@_allow
@output_options("table", "json", "jsonl")
@store_options
def test(*, webhook_id: str, allow: tuple[str, ...], output: str) -> None:
    """Send a webhook a delivery that only shows whether it arrives, once, from here. Exit 1 if it does not."""
    found, out = _found(webhook_id), output_for(output)
    with target().writing() as engine:
        delivery = probe(engine, found.webhook_id, allow, actor())
    out.record(
        webhook_rows.delivery_record(delivery),
        lambda: webhook_rows.delivery_table([delivery], now(), out.screen),
        key="delivery_id",
    )
    if delivery.status is not DeliveryStatus.DELIVERED:
        raise click.exceptions.Exit(NOT_DELIVERED)


@webhooks.command()
@click.argument("delivery_ids", metavar="ID...", nargs=-1, required=True)
@dry_run_option
@store_options
def redeliver(*, delivery_ids: tuple[str, ...], dry_run: bool) -> None:
    """Have deliveries sent again by a worker, with all their tries; - reads ids from stdin."""
    ids = given(delivery_ids)
    outcomes = target().send([Redeliver(delivery_id=one, actor=actor()) for one in ids], dry_run=dry_run)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    say("Nothing was changed: --dry-run." if dry_run else f"{len(ids) - len(refused)} deliveries are due")
    if refused:
        raise refused[0].error()


@webhooks.command()
@_id
@yes_option
@dry_run_option
@store_options
def rm(*, webhook_id: str, yes: bool, dry_run: bool) -> None:
    """Remove a webhook; what it is still owed is not sent."""
    found = _found(webhook_id)
    if not dry_run:
        confirm("Remove", [found.webhook_id], yes=yes, noun="webhook")
    command = DeleteWebhook(webhook_id=found.webhook_id, actor=actor())
    send(command, f"webhook {safe(found.webhook_id)} is gone", dry_run=dry_run)

"""`holdfast decisions`: questions that workflows asked people, and their answers."""

from __future__ import annotations

import click
import msgspec

from holdfast.app.decisions import DecisionState, state_of
from holdfast.cli import workflowrows
from holdfast.cli.changing import actor, dry_run_option, send
from holdfast.cli.output import LIST_FORMS, output_for, output_options
from holdfast.cli.target import store_options, target
from holdfast.cli.terminal import safe
from holdfast.cli.values import new_id
from holdfast.cli.watching import Shown, WatchCommand, show, watch_option
from holdfast.errors import AmbiguousId, DecisionNotFound, InvalidArguments
from holdfast.flows.calls import DECISION
from holdfast.flows.messages import Answer
from holdfast.model.decisions import Decision
from holdfast.model.flowcommands import AnswerDecision, NewMessage
from holdfast.model.workitems import QueueMessage, encode_item
from holdfast.stores.protocol import Store, View

_id = click.argument("decision_id", metavar="ID")


def _find(view: View, word: str) -> Decision:
    """Find a question by its id, or an unambiguous beginning. Raises DecisionNotFound or AmbiguousId."""
    found = [one for one in view.all(Decision) if word and one.decision_id.startswith(word)]
    if len(found) > 1:
        ids = sorted(one.decision_id for one in found)
        message = f"{word} begins more than one id: {', '.join(ids[:10])}. Nothing was changed."
        raise AmbiguousId(message, hint="Give more of it.", candidates=ids[:10])
    if not found:
        message = f"there is no decision {word}. Nothing was changed."
        raise DecisionNotFound(message, hint="See `holdfast decisions ls`.", decision=word)
    return found[0]


@click.group()
def decisions() -> None:
    """Look at what workflows ask people, and answer."""


@decisions.command(cls=WatchCommand)
@click.option("--all", "everything", is_flag=True, help="Also those that are closed.")
@click.option("--instance", help="Only what this instance asked.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, everything: bool, instance: str | None, watch: float | None, output: str) -> None:
    """List questions that are open, oldest first."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        having = view.all(Decision) if instance is None else view.decisions(instance)
        states = sorted(map(state_of, having), key=lambda one: (one.created_at, one.id))
        chosen: list[DecisionState] = [one for one in states if everything or one.is_open]
        records = [workflowrows.decision_record(one) for one in chosen]
        return records, lambda: workflowrows.decision_table(chosen, out.screen)

    show(place, out, watch, look, key="decision_id")


@decisions.command("show", cls=WatchCommand)
@_id
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def show_decision(*, decision_id: str, watch: float | None, output: str) -> None:
    """Show a question with its options and its answer."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        state = state_of(_find(view, decision_id))
        return [workflowrows.decision_record(state)], lambda: workflowrows.decision_page(state, out.screen)

    show(place, out, watch, look, key="decision_id", one=True)


@decisions.command()
@_id
@click.argument("chosen", required=False)
@click.option("--message", help="Words beside the choice, or instead of one.")
@dry_run_option
@store_options
def resolve(*, decision_id: str, chosen: str | None, message: str | None, dry_run: bool) -> None:
    """Answer a question; the first answer wins."""
    if chosen is None and message is None:
        raise InvalidArguments("an answer needs a choice or --message. Nothing was changed.")
    with target().look() as view:
        record = _find(view, decision_id)
    text = msgspec.json.encode(Answer(chosen=chosen, message=message, by=actor())).decode()
    item = QueueMessage(instance=record.instance_id, name=f"{DECISION}{record.event_id}", data=text)
    command = AnswerDecision(
        cmd=new_id(),
        decision_id=record.decision_id,
        message=NewMessage(item=msgspec.Raw(encode_item(item))),
        chosen=chosen,
        by=actor(),
    )
    send(command, f"decision {safe(record.decision_id)} is answered", dry_run=dry_run)

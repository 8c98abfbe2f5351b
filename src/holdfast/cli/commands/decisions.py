"""`holdfast decisions`: questions that workflows asked people, and their answers."""

from __future__ import annotations

import click

from holdfast.app.workflows.decisions import DecisionState, state_of
from holdfast.cli.commands.decision_answer import answer, find
from holdfast.cli.commands.decision_review import review
from holdfast.cli.render import workflow_rows
from holdfast.cli.render.output import LIST_FORMS, output_for, output_options
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.mutations import dry_run_option
from holdfast.cli.store_access.target import store_options, target
from holdfast.errors import InvalidArguments
from holdfast.model.workflows.decisions import Decision
from holdfast.stores.protocol import Store, View

_id = click.argument("decision_id", metavar="ID")


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
        records = [workflow_rows.decision_record(one) for one in chosen]
        return records, lambda: workflow_rows.decision_table(chosen, out.screen)

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
        state = state_of(find(view, decision_id))
        return [workflow_rows.decision_record(state)], lambda: workflow_rows.decision_page(state, out.screen)

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
    answer(decision_id, chosen, message, dry_run=dry_run)


@decisions.command("review")
@click.option("--instance", help="Only what this instance asks.")
@store_options
def review_open(*, instance: str | None) -> None:
    """Go through the open questions one by one, on a terminal: answer, comment, skip, quit."""
    review(instance)

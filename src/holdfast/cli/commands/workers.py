"""`holdfast workers`: who works on this store, on what, and asking them to stop.

A wish is left in the roster; the worker finds it there, about a second later.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.render.output import LIST_FORMS, Record, output_for, output_options
from holdfast.cli.render.tables import Column, ago, lines
from holdfast.cli.render.terminal import safe, say
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.render.worker_rows import worker_page, worker_record, worker_table
from holdfast.cli.store_access.ids import given
from holdfast.cli.store_access.mutations import confirm, dry_run_option, yes_option
from holdfast.cli.store_access.target import Target, now, store_options, target
from holdfast.engine.views.workers import running, staff
from holdfast.errors import AmbiguousId, InvalidOperation, InvalidValue, WorkerNotFound
from holdfast.model.times import seconds_between
from holdfast.model.workers import Wish, WorkerInfo, WorkerState
from holdfast.stores.protocol import Store, View

_ids = click.argument("ids", nargs=-1, required=True, metavar="ID...")


@click.group()
def workers() -> None:
    """Look at workers, ask them to take no new jobs or to stop.

    An ID may be shortened as long as it stays unambiguous, or be a worker's name; - reads ids from stdin.
    """


@workers.command(cls=WatchCommand)
@click.option("--state", type=click.Choice([state.value for state in WorkerState]), help="Only these.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, state: str | None, watch: float | None, output: str) -> None:
    """List workers with what they run; lost ones for a day."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        at = now()
        known = [worker for worker in _known(store, place) if state in (None, worker.state.value)]
        found = staff(running(view), known)
        return [worker_record(one) for one in found], lambda: worker_table(found, at, out.screen)

    show(place, out, watch, look, key="worker_id")


@workers.command("show", cls=WatchCommand)
@_ids
@watch_option
@output_options(*LIST_FORMS)
@store_options
def show_workers(*, ids: tuple[str, ...], watch: float | None, output: str) -> None:
    """Show workers whole: queues, tasks, and the jobs they hold with the time their leases have left."""
    place, out, words = target(), output_for(output), given(ids)

    def look(view: View, store: Store) -> Shown:
        at = now()
        found = staff(running(view), _find_all(_known(store, place), words))
        pages = [worker_page(one, at, out.screen) for one in found]
        joined = [line for number, page in enumerate(pages) for line in ([""] * bool(number) + page)]
        return [worker_record(one) for one in found], lambda: joined

    show(place, out, watch, look, key="worker_id", one=len(words) == 1)


@workers.command()
@_ids
@yes_option
@dry_run_option
@output_options(*LIST_FORMS)
@store_options
def quiet(*, ids: tuple[str, ...], yes: bool, dry_run: bool, output: str) -> None:
    """Ask workers to take no new jobs; they end what they have begun, and stay."""
    _ask(given(ids), Wish.QUIET, "Quiet", output, yes=yes, dry_run=dry_run)


@workers.command()
@_ids
@yes_option
@dry_run_option
@output_options(*LIST_FORMS)
@store_options
def stop(*, ids: tuple[str, ...], yes: bool, dry_run: bool, output: str) -> None:
    """Ask workers to stop as SIGTERM does: what has not ended within their grace is released for others."""
    _ask(given(ids), Wish.STOP, "Stop", output, yes=yes, dry_run=dry_run)


def _ask(words: Sequence[str], wish: Wish, verb: str, form: str, *, yes: bool, dry_run: bool) -> None:
    """Leave a wish for each of these workers; none is asked if one of them cannot be."""
    place, out = target(), output_for(form)
    with place.reading() as reader:
        roster = reader.store.workers
        found = _find_all(_known(reader.store, place), words)
        for worker in found:
            _demand_heard(worker)
        if len(found) > 1:
            confirm(verb, [worker.worker_id for worker in found], yes=yes or dry_run, noun="worker")
        for worker in found:
            # A wish is soft: it is left without the store being opened for writing, also while a worker holds it.
            if not dry_run and not roster.ask(worker.worker_id, wish):
                raise WorkerNotFound(f"worker {worker.worker_id} has left meanwhile.", worker_id=worker.worker_id)
    told: list[Record] = [{"worker_id": worker.worker_id, "outcome": f"{wish} asked"} for worker in found]
    rows = [[safe(record["worker_id"]), record["outcome"]] for record in told]
    out.records(told, lambda: lines((Column("WORKER"), Column("OUTCOME")), rows, out.screen), key="worker_id")
    if dry_run:
        say("Nothing was changed: --dry-run.")


def _demand_heard(worker: WorkerInfo) -> None:
    """Refuse to ask one who cannot hear it."""
    if worker.state is WorkerState.LOST:
        seen = ago(seconds_between(worker.last_seen, now()))
        raise InvalidOperation(
            f"worker {worker.worker_id} is lost: it was last seen {seen}, and nobody is there to be asked. "
            "Nothing was changed.",
            hint="What it held goes to other workers by itself.",
            worker_id=worker.worker_id,
        )


def _known(store: Store, place: Target) -> list[WorkerInfo]:
    """Give the workers of the namespace that was named, else all."""
    return [worker for worker in store.workers.all() if place.namespace in (None, worker.namespace)]


def _find_all(known: Sequence[WorkerInfo], words: Sequence[str]) -> list[WorkerInfo]:
    found = {worker.worker_id: worker for worker in (_find(known, word) for word in words)}
    return list(found.values())


def _find(known: Sequence[WorkerInfo], word: str) -> WorkerInfo:
    """Find a worker by its id, its name, or the beginning of its id. Raises WorkerNotFound or AmbiguousId."""
    if not word:
        raise InvalidValue("an id must not be empty.", field="id")
    named = [worker for worker in known if worker.name == word]
    for fits in (
        [worker for worker in known if worker.worker_id == word],
        # Only one that lives has a name; those that had it before it are asked for by id.
        [worker for worker in named if worker.state is not WorkerState.LOST],
        named,
        [worker for worker in known if worker.worker_id.startswith(word)],
    ):
        if len(fits) > 1:
            listed = [worker.worker_id for worker in fits]
            message = f"{word} names more than one worker: {', '.join(listed)}. Nothing was changed."
            raise AmbiguousId(message, hint="Give more of the id.", candidates=listed)
        if fits:
            return fits[0]
    raise WorkerNotFound(
        f"there is no worker {word}. Nothing was changed.", hint="See `holdfast workers ls`.", worker_id=word
    )

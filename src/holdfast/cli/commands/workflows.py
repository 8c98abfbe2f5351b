"""`holdfast workflows`: durable runs: look at them, start them, speak to them, remove them; and prove code on them."""

from __future__ import annotations

import sys
from math import inf

import click
import msgspec

from holdfast.app.workflows.commands import cancel_command, signal_command, start_command
from holdfast.app.workflows.decisions import state_of as question_of
from holdfast.app.workflows.records import GOING, full_instance, instance_row, output_of
from holdfast.app.workflows.state import error_of, state_of
from holdfast.cli.commands.workflow_check import add_checks
from holdfast.cli.commands.workflow_repair import add_repairs
from holdfast.cli.param_types import Duration, Word, new_id, payload_of
from holdfast.cli.render import workflow_rows
from holdfast.cli.render.output import LIST_FORMS, output_for, output_options
from holdfast.cli.render.terminal import safe
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.histories import history_of
from holdfast.cli.store_access.ids import given
from holdfast.cli.store_access.mutations import as_tried, confirm, dry_run_option, reason_option, send, yes_option
from holdfast.cli.store_access.target import Target, now, store_options, target
from holdfast.cli.store_access.visibility import instance_reason_seen
from holdfast.clock import SystemClock
from holdfast.errors import InvalidOperation, InvalidValue, WorkflowNotFound
from holdfast.model.outcomes import Begun, Deleted, Outcome
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import DeleteEnded, DeleteInstances
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.stores.deadline import keeping_to
from holdfast.stores.protocol import InstanceQuery, StartQuery, Store, View

_id = click.argument("instance_id", metavar="ID")
#: Instances of one `prune`.
MOST = 1000


@click.group()
def workflows() -> None:
    """Look at durable runs, start them, speak to them; check that code still follows them."""


add_checks(workflows)
add_repairs(workflows)


# --- looking ----------------------------------------------------------------------------------------------------------


@workflows.command(cls=WatchCommand)
@click.option("--status", type=Word(InstanceStatus), help="Only these.")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="So many.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, status: InstanceStatus | None, workflow: str | None, limit: int, watch: float | None, output: str) -> None:
    """List instances, newest first; before them those that no worker has begun yet."""
    place, out = target(), output_for(output)
    statuses = None if status is None else GOING if status in GOING else (status,)

    def look(view: View, store: Store) -> Shown:
        query = InstanceQuery(statuses=statuses, orchestration_name=workflow, limit=limit)
        is_wanted = statuses is None or InstanceStatus.RUNNING in statuses
        begun = [found.instance_id for found in view.instances(query)]
        asked = StartQuery(orchestration_name=workflow, limit=limit)
        waiting = [start.instance_id for start in view.unbegun(asked)] if is_wanted else []
        # An instance may begin between two looks at a coordinator.
        ids = list(dict.fromkeys([*waiting, *begun]))[:limit]
        rows = [_seen(view, store, one) for one in ids]
        records = [msgspec.structs.asdict(instance_row(*one)) for one in rows]
        return records, lambda: workflow_rows.instance_table(rows, now(), out.screen)

    show(place, out, watch, look, key="instance_id")


def _seen(view: View, store: Store, instance_id: str) -> workflow_rows.InstanceSeen:
    state = state_of(view, store.blobs, instance_id)
    return workflow_rows.InstanceSeen(state, instance_reason_seen(view, store, instance_id, now()))


@workflows.command("show", cls=WatchCommand)
@_id
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def show_instance(*, instance_id: str, watch: float | None, output: str) -> None:
    """Show an instance: where it is, what it says, what it waits for."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        seen = _seen(view, store, instance_id)
        ended = output_of(view, store.blobs, seen.state)
        asked = [question_of(one) for one in view.decisions(instance_id) if one.is_open]
        record = full_instance(view, store.blobs, *seen)
        return [msgspec.structs.asdict(record)], lambda: workflow_rows.instance_page(seen, ended, out.screen, asked)

    show(place, out, watch, look, key="instance_id", one=True)


@workflows.command()
@_id
@click.option("--execution", type=click.IntRange(min=1), help="Of this execution; by default the current one.")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="EVENT", help="Only what comes after this event."
)
@click.option("--last", type=click.IntRange(min=1), help="Only the last so many.")
@output_options("table", "json", "jsonl")
@store_options
def history(*, instance_id: str, execution: int | None, after: int, last: int | None, output: str) -> None:
    """List the events of an execution, oldest first."""
    place, out = target(), output_for(output)
    with place.reading() as reader, reader.look() as view:
        events = history_of(view, reader.store.blobs, instance_id, execution, after=after, last=last)
    out.records(
        [workflow_rows.event_record(event) for event in events],
        lambda: workflow_rows.event_table(events, out.screen),
        key="event_id",
    )


@workflows.command()
@_id
@click.option("--timeout", type=Duration(), help="Give up waiting after so long; it goes on.")
@output_options("table", "json", "jsonl")
@store_options
def wait(*, instance_id: str, timeout: float | None, output: str) -> None:
    """Wait until an instance has ended, and show it.

    Exits 0 if it is COMPLETED, 1 if it is FAILED, 4 if it is CANCELLED, 5 if --timeout came first.
    """
    place, out = target(), output_for(output)
    seen, ended = _wait(place, instance_id, timeout)
    record = {**workflow_rows.instance_record(seen), "output": ended}
    out.record(record, lambda: workflow_rows.instance_page(seen, ended, out.screen), key="instance_id")
    code = {InstanceStatus.FAILED: 1, InstanceStatus.CANCELLED: 4}.get(seen.state.status, 0)
    if code:
        raise click.exceptions.Exit(code)


def _wait(place: Target, instance_id: str, timeout: float | None) -> tuple[workflow_rows.InstanceSeen, str | None]:
    clock = SystemClock()
    deadline = inf if timeout is None else clock.monotonic() + timeout
    with keeping_to(deadline), place.reading() as reader:
        while True:
            left = None if deadline == inf else deadline - clock.monotonic()
            with reader.look() as view:
                seq, seen = view.seq, _seen(view, reader.store, instance_id)
                state, why = seen
                if state.has_ended:
                    return seen, output_of(view, reader.store.blobs, state)
            if state.blocked is not None:
                raise error_of(instance_id, state.blocked)
            if left is not None and left <= 0:
                raise TimeoutError(
                    f"instance {instance_id!r} is RUNNING after {timeout:g} s: {why.sentence}. It goes on."
                )
            reader.wait(seq, left)


# --- speaking to them -------------------------------------------------------------------------------------------------


@workflows.command()
@click.argument("workflow")
@click.option("--id", "instance_id", help="Names it; by default made.")
@click.option("--input", "text", default="{}", help="Its arguments by name, a JSON object; - reads stdin.")
@click.option("--version", help="Of this version; by default the newest that its worker has.")
@dry_run_option
@output_options("table", "json", "jsonl", "ids")
@store_options
def start(
    *, workflow: str, instance_id: str | None, text: str, version: str | None, dry_run: bool, output: str
) -> None:
    """Start an instance; the same id with the same input gives the one there is."""
    out = output_for(output)
    chosen = new_id() if instance_id is None else instance_id
    command = start_command(workflow, chosen, payload_of(text), version=version, cmd=new_id())
    outcome = send(
        command,
        lambda begun: f"instance {safe(chosen)} is {'started' if _is_new(begun) else 'there already'}",
        dry_run=dry_run,
        create=True,
    )
    record = {"instance_id": chosen, "created": _is_new(outcome) and not dry_run}
    out.record(as_tried(record, dry_run=dry_run), lambda: [safe(chosen)], key="instance_id")


def _is_new(outcome: Outcome) -> bool:
    return isinstance(outcome, Begun) and outcome.created


@workflows.command()
@_id
@click.argument("name")
@click.option("--data", default="null", help="What it carries, as JSON; - reads stdin.")
@click.option("--hold", type=Duration(), help="Keep it so long for an instance that is not there yet.")
@dry_run_option
@store_options
def signal(*, instance_id: str, name: str, data: str, hold: float | None, dry_run: bool) -> None:
    """Send a signal; it is kept until the workflow reads it."""
    text = sys.stdin.read() if data == "-" else data
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as problem:
        raise InvalidValue(f"--data: is no JSON: {problem}. Nothing was sent.", field="data") from None
    command = signal_command(instance_id, name, text, hold_s=hold, cmd=new_id())
    try:
        send(command, f"signal {safe(name)} is sent to {safe(instance_id)}", dry_run=dry_run)
    except WorkflowNotFound as problem:
        problem.hint = "With --hold it waits for an instance that starts later: --hold 1h."
        raise


@workflows.command()
@_id
@click.option("--force", is_flag=True, help="End it at once, without letting its code clean up.")
@reason_option
@dry_run_option
@store_options
def cancel(*, instance_id: str, force: bool, reason: str, dry_run: bool) -> None:
    """Ask an instance to stop; its code may clean up first."""
    command = cancel_command(instance_id, reason, force=force, cmd=new_id())
    send(command, f"instance {safe(instance_id)} is asked to stop", dry_run=dry_run)


# --- removing ---------------------------------------------------------------------------------------------------------


@workflows.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also those that run.")
@yes_option
@dry_run_option
@store_options
def rm(*, ids: tuple[str, ...], force: bool, yes: bool, dry_run: bool) -> None:
    """Remove instances with all their children; - reads ids from stdin."""
    named = given(ids)
    if not dry_run:
        confirm("Remove", named, yes=yes, noun="instance")
    for name in named:
        command = DeleteInstances(cmd=new_id(), instance_ids=(name,), force=force, tree=True)
        try:
            send(command, f"instance {safe(name)} is gone", dry_run=dry_run)
        except (WorkflowNotFound, InvalidOperation) as problem:  # in the words of the provider
            problem.message += ". It was not removed."
            problem.hint = problem.hint and "With --force it is removed all the same."
            raise


@workflows.command()
@click.option("--older-than", type=Duration(), default=0.0, help="Only what ended so long ago.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=MOST, show_default=True, help="So many.")
@yes_option
@dry_run_option
@output_options("table", "json", "jsonl")
@store_options
def prune(*, older_than: float, limit: int, yes: bool, dry_run: bool, output: str) -> None:
    """Remove instances that have ended, oldest end first, with all their children."""
    out = output_for(output)
    if not dry_run:
        confirm("Remove", ["what has ended"], yes=yes, noun="kind of instance")
    command = DeleteEnded(cmd=new_id(), completed_before=_before(older_than), limit=limit)
    outcome = send(command, "pruned", dry_run=dry_run)
    assert isinstance(outcome, Deleted)
    record = {"instances": outcome.instances, "executions": outcome.executions, "events": outcome.events}
    out.record(as_tried(record, dry_run=dry_run), lambda: [f"{outcome.instances} instances"], key="instances")


def _before(seconds: float) -> Timestamp:
    from datetime import timedelta  # noqa: PLC0415 - imported when called

    from holdfast.model.times import stamp  # noqa: PLC0415 - the same

    return stamp(SystemClock().now() - timedelta(seconds=seconds))

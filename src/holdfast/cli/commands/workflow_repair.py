"""`holdfast workflows reset|fork|fail|import`: have an instance go on from an earlier event, go on in a copy, or end.

Without any code of the workflow: what is open is sent off by the worker that takes the instance up.
"""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

import click

from holdfast.app.workflows.handle import MAX_SEED
from holdfast.app.workflows.rewind import fail_command, fork_command, reset_command
from holdfast.cli.param_types import new_id, payload_of
from holdfast.cli.render.output import output_for, output_options
from holdfast.cli.render.terminal import safe
from holdfast.cli.store_access.mutations import actor, as_tried, dry_run_option, reason_option, send
from holdfast.cli.store_access.target import now, store_options, target
from holdfast.errors import InvalidValue
from holdfast.model.times import milliseconds
from holdfast.workflows.api.operations import demand_instance_id
from holdfast.workflows.replay.export import read_file
from holdfast.workflows.replay.import_history import import_command

_id = click.argument("instance_id", metavar="ID")
_to = click.option(
    "--to", type=click.IntRange(min=1), metavar="EVENT", help="Keep the history up to this event, it included."
)


def add_repairs(group: click.Group) -> None:
    """Add these commands to their group."""
    for command in (reset, fork, fail, import_file):
        group.add_command(command)


@click.command()
@_id
@_to
@reason_option
@dry_run_option
@output_options("table", "json", "jsonl", "ids")
@store_options
def reset(*, instance_id: str, to: int | None, reason: str, dry_run: bool, output: str) -> None:
    """Have an instance that has ended or is blocked go on from an event, by default before the turn that failed.

    It goes on as its next execution. Open activities are run again under their old idempotency keys, and timers set
    again; signals that came later are delivered again.
    """
    out = output_for(output)
    with target().reading() as reader, reader.look() as view:
        command = reset_command(
            view,
            reader.store.blobs,
            instance_id,
            to=to,
            now_ms=milliseconds(now()),
            cmd=new_id(),
            reason=reason,
            actor=actor(),
        )
    send(command, f"instance {safe(instance_id)} goes on behind event {command.until}", dry_run=dry_run)
    record = {"instance_id": instance_id, "until": command.until}
    out.record(as_tried(record, dry_run=dry_run), lambda: [safe(instance_id)], key="instance_id")


@click.command()
@_id
@_to
@click.option("--id", "fork_id", metavar="NEW", help="Names the new one; by default made.")
@click.option("--input", "text", metavar="JSON", help="Other arguments by name, a JSON object: begin at the start.")
@dry_run_option
@output_options("table", "json", "jsonl", "ids")
@store_options
def fork(
    *, instance_id: str, to: int | None, fork_id: str | None, text: str | None, dry_run: bool, output: str
) -> None:
    """Begin another instance with a copy of this one's history up to an event; its work is its own."""
    out = output_for(output)
    chosen = new_id() if fork_id is None else demand_instance_id(fork_id)
    given = None if text is None else bytes(payload_of(text)).decode()
    with target().reading() as reader, reader.look() as view:
        command = fork_command(
            view,
            reader.store.blobs,
            instance_id,
            fork=chosen,
            to=to,
            given=given,
            now_ms=milliseconds(now()),
            seed=UUID(new_id()).int & MAX_SEED,
            cmd=new_id(),
            actor=actor(),
        )
    send(command, f"instance {safe(chosen)} begins with the first {command.until} events", dry_run=dry_run)
    record = {"instance_id": chosen, "forked_from": instance_id, "until": command.until}
    out.record(as_tried(record, dry_run=dry_run), lambda: [safe(chosen)], key="instance_id")


@click.command()
@_id
@reason_option
@dry_run_option
@store_options
def fail(*, instance_id: str, reason: str, dry_run: bool) -> None:
    """End an instance that is blocked or damaged as FAILED, without its code; its parent is told."""
    with target().reading() as reader, reader.look() as view:
        command = fail_command(
            view,
            reader.store.blobs,
            instance_id,
            reason=reason,
            now_ms=milliseconds(now()),
            cmd=new_id(),
            actor=actor(),
        )
    send(command, f"instance {safe(instance_id)} has FAILED", dry_run=dry_run)


@click.command("import")
@click.argument("file", type=click.Path(), metavar="FILE")
@dry_run_option
@output_options("table", "json", "jsonl", "ids")
@store_options
def import_file(*, file: str, dry_run: bool, output: str) -> None:
    """Keep an exported instance in this store, as one that is over; - reads stdin."""
    out = output_for(output)
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as problem:
        raise InvalidValue(f"{file}: cannot be read: {problem.strerror}. Nothing was imported.", field="file") from None
    command = import_command(read_file(content, file), new_id(), actor())
    send(command, f"instance {safe(command.instance_id)} is imported", dry_run=dry_run, create=True)
    record = {"instance_id": command.instance_id, "executions": len(command.executions)}
    out.record(as_tried(record, dry_run=dry_run), lambda: [safe(command.instance_id)], key="instance_id")

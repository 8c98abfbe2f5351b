"""`holdfast workflows check|replay|export|patches`: does this code still follow what was recorded? Reads only."""

from __future__ import annotations

import pdb  # noqa: T100 - `replay --pdb` opens it
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.app.workflows.history import exported
from holdfast.cli.app_loader import load
from holdfast.cli.render.output import Record, output_for, output_options
from holdfast.cli.render.tables import Column, lines
from holdfast.cli.render.terminal import put, safe, say
from holdfast.cli.store_access.target import store_option, store_options, target
from holdfast.errors import HoldfastError, InvalidValue, NondeterminismError, WorkflowCodeError
from holdfast.model.workflows.instances import OVER
from holdfast.stores.protocol import InstanceQuery
from holdfast.workflows.determinism.guard import Guard
from holdfast.workflows.determinism.lint import lint
from holdfast.workflows.replay.check import Finding, check_execution, check_file, patches
from holdfast.workflows.replay.export import ExportedExecution, HistoryFile, read_file, write_file

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast

#: What a check found makes it leave with.
FOUND = 1
#: Ended instances of each version that are replayed.
ENDED = 20

_app = click.argument("app", metavar="APP")


def add_checks(group: click.Group) -> None:
    """Add these commands to their group."""
    for command in (check, replay, export, show_patches):
        group.add_command(command)


# --- check ------------------------------------------------------------------------------------------------------------


@click.command()
@_app
@click.option("--histories", type=click.Path(), metavar="DIR", help="Also every exported history in this directory.")
@click.option("--ended", type=click.IntRange(min=0), default=ENDED, show_default=True, help="Ended ones per version.")
@output_options("table", "json", "jsonl")
@store_option
def check(*, app: str, histories: str | None, ended: int, output: str) -> None:
    """Replay instances and exported histories with the code of APP, as MODULE:NAME; change nothing.

    Exits 0 if the code follows all of them, 1 if it does not follow one, lacks the code for it or cannot read it.
    """
    out = output_for(output)
    application = load(app)
    application.workflows.guard = Guard()
    findings = [] if histories is None else _check_files(application, Path(histories))
    has_store = bool(click.get_current_context().meta.get("holdfast.store"))
    if has_store:
        findings += _check_store(application, ended)
    elif histories is None:
        raise InvalidValue("there is nothing to check.", hint="Give --store URL, --histories DIR, or both.")
    for definition in application.workflows.all():
        findings += [Finding(kind="lint", text=text, where=definition.name) for text in lint(definition.function)]
    out.records([msgspec.to_builtins(one) for one in findings], lambda: list(_worded(findings)), key="text")
    bad = sum(not one.is_note for one in findings)
    say(f"{bad} found, {len(findings) - bad} notes")
    if bad:
        raise click.exceptions.Exit(FOUND)


def _worded(findings: Sequence[Finding]) -> Iterator[str]:
    for one in findings:
        where = f"{one.where}: " if one.where is not None and one.kind != "lint" else ""
        first, *rest = one.text.splitlines()
        yield safe(f"{'note' if one.is_note else one.kind}: {where}{first}")
        yield from map(safe, rest)


def _check_files(application: Holdfast, folder: Path) -> list[Finding]:
    if not folder.is_dir():
        raise InvalidValue(f"--histories: {folder} is no directory.", field="histories")
    findings: list[Finding] = []
    for path in sorted(path for path in folder.iterdir() if path.suffix == ".json"):
        try:
            file = read_file(path.read_bytes(), path.name)
        except OSError as problem:
            findings.append(Finding(kind="damage", text=f"cannot be read: {problem.strerror}", where=path.name))
        except HoldfastError as problem:
            # What shows a finding names the file itself.
            text = str(problem).removeprefix(f"{path.name}: ")
            findings.append(Finding(kind="damage", text=text, where=path.name))
        else:
            findings += check_file(application.workflows, file, path.name)
    return findings


def _check_store(application: Holdfast, ended: int) -> list[Finding]:
    findings: list[Finding] = []
    counts: dict[tuple[str, str | None], int] = {}
    going: list[ExportedExecution] = []
    with target().reading() as reader, reader.look() as view:
        for found in view.instances(InstanceQuery()):
            if found.status in OVER:
                version = (found.orchestration_name, found.orchestration_version)
                counts[version] = counts.get(version, 0) + 1
                if counts[version] > ended:
                    continue
            try:
                newest = exported(view, reader.store.blobs, found.instance_id).executions[-1]
            except HoldfastError as problem:
                findings.append(Finding(kind="damage", text=str(problem), instance=found.instance_id))
                continue
            if found.status not in OVER:
                going.append(newest)
            findings += check_execution(application.workflows, newest)
    for use in patches(going):
        if use.is_removable:
            text = f"workflow {use.workflow!r} {use.version}: every running execution has patch {use.patch!r}"
            findings.append(Finding(kind="patch", text=f"{text}; its old branch may go", where=use.workflow))
    return findings


# --- one history ------------------------------------------------------------------------------------------------------


@click.command()
@_app
@click.argument("source", metavar="ID|FILE")
@click.option("--until", type=click.IntRange(min=1), metavar="EVENT", help="Stop behind this event.")
@click.option("--pdb", "debug", is_flag=True, help="Open the debugger where the code stands then.")
@output_options("table", "json", "jsonl")
@store_option
def replay(*, app: str, source: str, until: int | None, debug: bool, output: str) -> None:
    """Replay one instance, or one exported history, with the code of APP, as MODULE:NAME; nothing else happens.

    Exits 0 if the code follows it, 1 if it does not.
    """
    from holdfast.testing.replaying import replay_file  # noqa: PLC0415 - only this command needs it

    out = output_for(output)
    application = load(app)
    file = _source(source)
    try:
        result = replay_file(file, application.workflows, until=until, pause=_debug if debug else None)
    except (NondeterminismError, WorkflowCodeError) as difference:
        found: Record = {"code": difference.code, "message": str(difference), **difference.facts}
        out.record(found, lambda: [safe(line) for line in found["message"].splitlines()], key="instance")
        raise click.exceptions.Exit(FOUND) from None
    shown = [
        *(f"does       {text}" for text in result.commands),
        *(f"waits for  {text}" for text in result.pending),
        *(f"note       {text}" for text in result.notes),
    ]
    if result.error is not None:
        shown.append(f"failed     {result.error.message}")
    elif not result.pending:
        shown.append(f"returned   {msgspec.json.encode(result.output).decode()}")
    record = {"instance_id": file.instance, **msgspec.to_builtins(result)}
    out.record(record, lambda: [safe(line) for line in shown], key="instance_id")


def _debug(frame: FrameType) -> None:
    """Open the debugger in a frame that stands still."""
    # With streams of its own it edits no lines: only where nobody types.
    debugger = pdb.Pdb() if sys.stdin.isatty() else pdb.Pdb(stdin=sys.stdin, stdout=sys.stdout)
    debugger.reset()
    debugger.interaction(frame, None)


def _source(source: str) -> HistoryFile:
    path = Path(source)
    if path.suffix == ".json" and path.is_file():
        return read_file(path.read_bytes(), path.name)
    with target().reading() as reader, reader.look() as view:
        return exported(view, reader.store.blobs, source)


@click.command()
@click.argument("instance_id", metavar="ID")
@click.option("--redact", is_flag=True, help="Keep the shape of payloads, and no word or number of them.")
@click.option("--to", "path", type=click.Path(dir_okay=False), metavar="FILE", help="Into this file; else to stdout.")
@store_options
def export(*, instance_id: str, redact: bool, path: str | None) -> None:
    """Write the histories of an instance as one file, for `check`, `replay` and `import`."""
    with target().reading() as reader, reader.look() as view:
        content = write_file(exported(view, reader.store.blobs, instance_id, redact=redact))
    if path is None:
        sys.stdout.flush()
        put(content.decode().removesuffix("\n"))
    else:
        Path(path).write_bytes(content)
        say(f"{safe(path)} is written")


@click.command("patches")
@output_options("table", "json", "jsonl")
@store_options
def show_patches(*, output: str) -> None:
    """Say for each patch how many running executions have it, and how many lack it."""
    out = output_for(output)
    with target().reading() as reader, reader.look() as view:
        going = [
            exported(view, reader.store.blobs, found.instance_id).executions[-1]
            for found in view.instances(InstanceQuery())
            if found.status not in OVER
        ]
    uses = patches(going)
    columns = (Column("WORKFLOW"), Column("VERSION"), Column("HAVE", right=True), Column("LACK", right=True))
    rows = [[safe(one.workflow), one.version, str(one.having), str(one.lacking), safe(one.patch)] for one in uses]
    out.records(
        [{**msgspec.structs.asdict(one), "removable": one.is_removable} for one in uses],
        lambda: lines((*columns, Column("PATCH")), rows, out.screen),
        key="patch",
    )

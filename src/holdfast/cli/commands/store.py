"""`holdfast store`: check, repair, snapshot. Checking reads only; repairing shows first what would go."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress

import click
import msgspec

from holdfast.cli.render.log_format import show_events
from holdfast.cli.store_access.target import lying_here
from holdfast.engine.orphans import plan_orphans
from holdfast.errors import StoreDamaged
from holdfast.stores import check_and_repair
from holdfast.stores.opening import open_store
from holdfast.stores.protocol import Finding

_output = click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table")


@click.group()
def store() -> None:
    """Look after a store: check, repair, snapshot."""
    show_events()


@store.command()
@click.argument("url", envvar="HOLDFAST_STORE")
@_output
def check(url: str, output: str) -> None:
    """Read everything in the store and list what is wrong. Changes nothing.

    Exits 0 if it is well, 1 with findings, 3 if there is no store.
    """
    lying_here(url)
    findings = check_and_repair.check(url)
    _show(findings, output)
    sys.exit(1 if findings else 0)


def _show(findings: list[Finding], output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(findings))
    elif output == "jsonl":
        for finding in findings:
            click.echo(msgspec.json.encode(finding))
    else:
        for finding in findings:
            places = [
                finding.file,
                finding.line and f"line {finding.line}",
                finding.offset and f"offset {finding.offset}",
            ]
            click.echo("  ".join([finding.code, ", ".join(str(part) for part in places if part), finding.message]))
            if finding.remedy:
                click.echo(f"    {finding.remedy}", err=True)
        click.echo(f"findings: {len(findings)}" if findings else "well", err=True)


@store.command()
@click.argument("url", envvar="HOLDFAST_STORE")
@click.option("--yes", is_flag=True, help="Do it; without this the plan is only shown.")
@click.option("--accept-snapshot", is_flag=True, help="Go on from the snapshot although the log after it is lost.")
def repair(url: str, yes: bool, accept_snapshot: bool) -> None:  # noqa: FBT001 - flags of the command line
    """Keep the valid part of a damaged store; the original stays beside it as .bak.

    Runs without a job are written to a file beside it. Shows first what would be lost. Nothing is changed without
    --yes.
    """
    plan = _plan(url, accept_snapshot=accept_snapshot)
    for line in plan.apply() if yes and plan.is_needed else plan.lines:
        click.echo(line)
    if plan.is_needed and not yes:
        flags = "--accept-snapshot --yes" if accept_snapshot else "--yes"
        command = f"holdfast store repair {flags} {shlex.quote(url)}"
        click.echo(f"Nothing was changed. Run `{command}` to do this.", err=True)
        sys.exit(1)


def _plan(url: str, *, accept_snapshot: bool) -> check_and_repair.Plan:
    """Find out what there is to repair: runs without their job where a database has some, else the log."""
    if lying_here(url).scheme == "sqlite":
        with suppress(StoreDamaged):  # then there is more to repair than that
            orphans = plan_orphans(url)
            if orphans.is_needed:
                return orphans
    return check_and_repair.plan_repair(url, accept_snapshot=accept_snapshot)


@store.command()
@click.argument("url", envvar="HOLDFAST_STORE")
def snapshot(url: str) -> None:
    """Write a snapshot now, so that opening is fast and old bytes can go."""
    lying_here(url)
    opened = open_store(url)
    try:
        opened.snapshot()
    finally:
        opened.close()
    click.echo(f"{url}: snapshot written")

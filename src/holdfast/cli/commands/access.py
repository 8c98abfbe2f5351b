"""`holdfast access`: make, list and revoke the access tokens of a coordinator of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from holdfast.cli.render.output import LIST_FORMS, Record, output_for, output_options
from holdfast.cli.render.tables import Column, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.clock import SystemClock
from holdfast.errors import InvalidValue
from holdfast.model.access import Access, Role
from holdfast.model.times import Timestamp, later, parse_duration, parse_timestamp, stamp
from holdfast.stores import access_file

_file = click.option(
    "--access",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of access tokens; default: access.json in the state directory.",
)


@click.group()
def access() -> None:
    """Make, list and revoke the access tokens of a coordinator."""


@access.command()
@click.option("--name", required=True, help="Shown in lists, and in what is done with it.")
@click.option(
    "--role",
    multiple=True,
    required=True,
    type=click.Choice([one.value for one in Role]),
    help="May be given several times.",
)
@click.option(
    "--namespace", multiple=True, metavar="NAME", help="Only there; may be given several times. Default: all."
)
@click.option("--expires", metavar="TIME", help="When it ends: 30d, 12h, or 2027-01-06T10:15:30Z. Default: never.")
@_file
def add(
    *, name: str, role: tuple[str, ...], namespace: tuple[str, ...], expires: str | None, access: Path | None
) -> None:
    """Make an access token and print it: the only time it is seen. A coordinator that runs knows it at once."""
    roles = tuple(dict.fromkeys(Role(one) for one in role))
    now = stamp(SystemClock().now())
    ends = None if expires is None else _end(expires, now)
    click.echo(access_file.add(_place(access), name, roles, namespace or None, now, expires_at=ends))


@access.command()
@_file
@output_options(*LIST_FORMS)
def ls(*, access: Path | None, output: str) -> None:
    """List access tokens: name, roles, namespaces, when they were made and when they expire. None is shown."""
    found, out = access_file.read(_place(access)), output_for(output)
    out.records([_record(one) for one in found], lambda: _table(found, out.screen), key="name")


def _record(one: Access) -> Record:
    """Give all but its hash; namespaces are null for all."""
    return {name: value for name, value in msgspec.structs.asdict(one).items() if name != "digest"}


def _table(found: Sequence[Access], screen: Screen) -> list[str]:
    columns = (Column("NAME"), Column("ROLES"), Column("NAMESPACES"), Column("MADE", spare=True), Column("EXPIRES"))
    now = stamp(SystemClock().now())
    rows = [
        [
            safe(one.name),
            ",".join(one.roles),
            "all" if one.namespaces is None else ",".join(safe(name) or "''" for name in one.namespaces),
            one.created_at or "",
            "never" if one.expires_at is None else f"{one.expires_at}{' (over)' if one.expires_at <= now else ''}",
        ]
        for one in found
    ]
    return lines(columns, rows, screen)


@access.command()
@click.argument("name")
@_file
def revoke(*, name: str, access: Path | None) -> None:
    """Forget an access token; a coordinator that runs refuses it from the next request on."""
    access_file.revoke(_place(access), name)


def _end(expires: str, now: Timestamp) -> Timestamp:
    seconds = parse_duration(expires)
    if seconds is not None:
        return later(now, seconds)
    try:
        return parse_timestamp(expires, "expires")
    except InvalidValue as problem:
        raise InvalidValue(f"{problem.message} Nothing was made.", hint="30d and 12h will do, too.") from problem


def _place(named: Path | None) -> Path:
    return named or access_file.state_dir() / "access.json"

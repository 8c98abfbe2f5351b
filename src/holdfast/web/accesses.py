"""`holdfast access`: make, list and revoke the access tokens of a coordinator of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.clock import SystemClock
from holdfast.model.access import Role
from holdfast.model.times import stamp
from holdfast.web import accessfile

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
@_file
def add(*, name: str, role: tuple[str, ...], namespace: tuple[str, ...], access: Path | None) -> None:
    """Make an access token and print it: the only time it is seen. A coordinator knows it from its next start on."""
    roles = tuple(dict.fromkeys(Role(one) for one in role))
    click.echo(accessfile.add(_place(access), name, roles, namespace or None, stamp(SystemClock().now())))


@access.command()
@_file
def ls(*, access: Path | None) -> None:
    """List access tokens by name, with roles, namespaces and when they were made; none of them is shown."""
    for one in accessfile.read(_place(access)):
        where = "*" if one.namespaces is None else ",".join(one.namespaces)
        click.echo(f"{one.name}\t{','.join(one.roles)}\t{where}\t{one.created_at or ''}")


@access.command()
@click.argument("name")
@_file
def revoke(*, name: str, access: Path | None) -> None:
    """Forget an access token; a coordinator that runs accepts it until it is started again."""
    accessfile.revoke(_place(access), name)


def _place(named: Path | None) -> Path:
    return named or accessfile.state_dir() / "access.json"

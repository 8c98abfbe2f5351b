"""`holdfast dispatch`: pause and resume leasing altogether."""

from __future__ import annotations

import click

from holdfast.cli.store_access.mutations import actor, dry_run_option, reason_option, send
from holdfast.cli.store_access.target import store_option
from holdfast.model.commands import PauseDispatch, ResumeDispatch


@click.group()
def dispatch() -> None:
    """Pause and resume leasing altogether."""


@dispatch.command()
@reason_option
@dry_run_option
@store_option
def pause(*, reason: str, dry_run: bool) -> None:
    """Stop leasing from every queue; what runs goes on, and jobs can be added."""
    send(PauseDispatch(reason=reason, actor=actor()), "dispatch is paused", dry_run=dry_run)


@dispatch.command()
@dry_run_option
@store_option
def resume(*, dry_run: bool) -> None:
    """Lease again."""
    send(ResumeDispatch(actor=actor()), "dispatch goes on", dry_run=dry_run)

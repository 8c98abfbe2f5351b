"""`holdfast dispatch`: pause and resume leasing altogether."""

from __future__ import annotations

import click

from holdfast.cli.changing import actor, dry_run_option, reason_option
from holdfast.cli.queues import change
from holdfast.cli.target import store_option
from holdfast.cli.terminal import say
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
    change(PauseDispatch(reason=reason, actor=actor()), dry_run=dry_run)
    say("dispatch is paused" if not dry_run else "Nothing was changed: --dry-run.")


@dispatch.command()
@dry_run_option
@store_option
def resume(*, dry_run: bool) -> None:
    """Lease again."""
    change(ResumeDispatch(actor=actor()), dry_run=dry_run)
    say("dispatch goes on" if not dry_run else "Nothing was changed: --dry-run.")

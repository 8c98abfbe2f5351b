"""Verbs that change something: decided in one commit, or with `--dry-run` only decided; asked about on a terminal."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast.cli.render.output import Output, Record
from holdfast.cli.render.tables import Column, lines
from holdfast.cli.render.terminal import safe, say, writable
from holdfast.cli.store_access.target import Target, target
from holdfast.model.commands import Command
from holdfast.model.ids import JobId
from holdfast.model.outcomes import CancelAnswer, Outcome, Refusal

F = TypeVar("F", bound=Callable[..., Any])

#: Jobs one bulk question shows by name.
SAMPLES = 3

dry_run_option = click.option("--dry-run", is_flag=True, help="Decide and tell, but change nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", default="", help="Why; kept with the change.")


def actor() -> str:
    """Give who asks, as kept in the event."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"


def confirm(verb: str, ids: Sequence[str], *, yes: bool, noun: str = "job") -> None:
    """Ask, on a terminal, whether to go on; leaves with 1 if not."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    samples = writable(", ".join(safe(found) for found in ids[:SAMPLES]), sys.stderr)
    more = f" and {len(ids) - SAMPLES} more" if len(ids) > SAMPLES else ""
    if not click.confirm(f"{verb} {len(ids)} {noun}{'s' * (len(ids) != 1)}: {samples}{more}?", err=True):
        say("Nothing was changed.")
        raise click.exceptions.Exit(1)


def send(
    command: Command, done: str | Callable[[Outcome], str], *, dry_run: bool = False, create: bool = False
) -> Outcome:
    """Have one command done, or with `dry_run` only decided, and say so. Raises its refusal."""
    (outcome,) = target().send([command], dry_run=dry_run, create=create and not dry_run)
    if isinstance(outcome, Refusal):
        raise outcome.error()
    say("Nothing was changed: --dry-run." if dry_run else done if isinstance(done, str) else done(outcome))
    return outcome


def as_tried(record: Record, *, dry_run: bool) -> Record:
    """Give a record with the mark of what was only decided, if it was."""
    return {**record, "dry_run": True} if dry_run else record


def tell_made(out: Output, job_id: JobId, *, dry_run: bool) -> None:
    """Print the job that was made, or with `dry_run` would have been."""
    record: Record = {"job_id": job_id, "created": not dry_run, **({"dry_run": True} if dry_run else {})}
    out.record(record, lambda: [job_id])


def settle(
    place: Target, output: Output, commands: Sequence[tuple[str, Command]], done: str, *, dry_run: bool = False
) -> None:
    """Send a command for each of these ids and tell what became of them.

    Raises the first refusal; the others were done all the same.
    """
    if not commands:
        output.records([], list)
        return
    outcomes = place.send([command for _, command in commands], dry_run=dry_run)
    told: list[Record] = []
    refused: list[tuple[str, Refusal]] = []
    for (job_id, _), outcome in zip(commands, outcomes, strict=True):
        if isinstance(outcome, Refusal):
            refused.append((outcome.facts.get("job_id", job_id), outcome))
        else:
            told.append({"job_id": job_id, "outcome": _word(outcome, done), **({"dry_run": True} if dry_run else {})})
    output.records(told, lambda: _table(told, output) if told else [])
    if dry_run:
        say("Nothing was changed: --dry-run.")
    if refused:
        raise _refusal(refused, len(commands))


def _word(outcome: Outcome, done: str) -> str:
    return outcome.outcome if isinstance(outcome, CancelAnswer) else done


def _table(told: Sequence[Record], output: Output) -> list[str]:
    rows = [[safe(record["job_id"]), record["outcome"]] for record in told]
    return lines((Column("ID"), Column("OUTCOME")), rows, output.screen)


def _refusal(refused: Sequence[tuple[str, Refusal]], asked: int) -> Exception:
    first = refused[0][1].error()
    if asked > 1:
        said = first.message.removesuffix(" Nothing was changed.")
        first.message = f"{len(refused)} of {asked} were refused, the others were not; the first: {said}"
        first.facts["refused"] = [job_id for job_id, _ in refused]
    return first

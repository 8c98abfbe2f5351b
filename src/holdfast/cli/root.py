"""The root command: finds commands by import string when they are called, and turns errors into exit codes."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

import holdfast
from holdfast.errors import HoldfastError

#: Command → where it lives, and the line `--help` shows. Nothing is imported before it is called.
COMMANDS = {
    "bench": ("holdfast.cli.bench:bench", "Measure, beside the bare limit of this machine."),
    "store": ("holdfast.cli.store:store", "Look after a store: check, repair, snapshot."),
}


class _Root(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(COMMANDS.items())])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            click.echo(f"holdfast: {error}", err=True)
            sys.exit(error.exit_code)
        except BrokenPipeError:
            # The reader of our output has left; there is nobody to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def cli() -> None:
    """Crash-safe jobs on one file. This version brings the kernel: stores and how to look after them."""

"""The root command: finds commands by import string when they are called, and turns errors into exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import holdfast
from holdfast.cli.render.errors import tell
from holdfast.cli.render.log_format import show_events
from holdfast.errors import InvalidValue, MissingExtra

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Command → where it lives, and the line `--help` shows. Nothing is imported before it is called.
COMMANDS = {
    "access": ("holdfast.cli.commands.access:access", "Make, list and revoke access tokens of a coordinator."),
    "bench": ("holdfast.cli.commands.bench:bench", "Measure how fast a store is on this machine."),
    "completion": ("holdfast.cli.commands.completion:completion", "Print what a shell needs for completion."),
    "demo": ("holdfast.cli.demo:demo", "Kill a worker in the middle of its jobs, and count what is left."),
    "dev": ("holdfast.cli.dev:dev", "Run an application's jobs, and start anew when its files change."),
    "decisions": ("holdfast.cli.commands.decisions:decisions", "Look at what workflows ask people, and answer."),
    "dispatch": ("holdfast.cli.commands.dispatch:dispatch", "Pause and resume leasing altogether."),
    "doctor": ("holdfast.cli.commands.doctor:doctor", "Say what is not well, and what to do about it."),
    "explain": ("holdfast.cli.commands.explain:explain", "Say why a job is where it is, and what would change it."),
    "feed": ("holdfast.cli.commands.feed:feed", "Read what happened, event by event."),
    "groups": ("holdfast.cli.commands.groups:groups", "Look at jobs that belong together, cancel them."),
    "jobs": ("holdfast.cli.commands.jobs:jobs", "Look at jobs, make them, change their fate."),
    "queues": ("holdfast.cli.commands.queues:queues", "Look at queues, pause and resume them."),
    "reservations": (
        "holdfast.cli.commands.reservations:reservations",
        "Look at who keeps a queue to himself, end it.",
    ),
    "schedules": ("holdfast.cli.commands.schedules:schedules", "Look at what runs by the clock, make it, change it."),
    "serve": ("holdfast.web.server.serve_command:serve", "Offer a store to other processes and hosts."),
    "status": ("holdfast.cli.commands.status:status", "The store on one page."),
    "store": ("holdfast.cli.commands.store:store", "Look after a store: check, repair, snapshot."),
    "templates": ("holdfast.cli.commands.templates:templates", "Look at templates, make jobs from them."),
    "top": ("holdfast.cli.commands.top:top", "Watch rates, backlog, running jobs and workers."),
    "webhooks": ("holdfast.cli.commands.webhooks:webhooks", "Look at who is told of ended runs, add them, try them."),
    "worker": ("holdfast.cli.commands.worker:worker", "Run the jobs of an application."),
    "workflows": ("holdfast.cli.commands.workflows:workflows", "Look at durable runs, start them, check code on them."),
    "workers": ("holdfast.cli.commands.workers:workers", "Look at workers, ask them to stop."),
}

#: What the extra `web` brings.
_OF_WEB = ("starlette", "uvicorn", "httptools", "httpx2")


class _Root(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        place, _, name = COMMANDS[cmd_name][0].partition(":")
        try:
            module = import_module(place)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in _OF_WEB:
                raise
            raise MissingExtra(
                f"`holdfast {cmd_name}` needs the extra `web`, which is not installed. Nothing was done.",
                hint="pip install 'holdfast[web]'",
            ) from None
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(COMMANDS.items())])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name from the table; click would import them all."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a completing shell needs it

        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["holdfast.args"] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            told = f"{unknown.message} Options stand behind the command: holdfast jobs ls --store URL."
            raise click.UsageError(told, ctx) from unknown

    def invoke(self, ctx: click.Context) -> Any:
        args = ctx.meta["holdfast.args"]
        try:
            _demand_text(args)
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last hop: whatever it is, it is told
            sys.exit(tell(error, args))


def _demand_text(args: list[str]) -> None:
    """Refuse bytes that are no text, here for every option: no store could keep them."""
    for arg in args:
        try:
            arg.encode()
        except UnicodeEncodeError:
            raise InvalidValue(f"{arg!r} is not UTF-8. Nothing was done.") from None


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Crash-safe jobs and durable workflows, on one file or over HTTP."""
    place, _ = COMMANDS.get(ctx.invoked_subcommand or "", ("", ""))
    if place.startswith("holdfast.web."):  # that room knows no terminal; the others do it when they are ready
        show_events()

"""`holdfast dev APP`: a worker that starts anew when the application's files change, and tells what became of each job.

The parent watches files and starts children; it never imports the application, so nothing of an old version stays
behind. A child imports it and works. When the parent is gone, however it went, so is its child.
"""

from __future__ import annotations

import click


@click.command()
@click.argument("app")
@click.option("--temp", is_flag=True, help="Use a store of its own, and throw it away at the end.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Jobs at a time; default: four per core, at most 32.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Seconds jobs have to end before a restart.",
)
@click.pass_context
def dev(ctx: click.Context, *, app: str, temp: bool, concurrency: int | None, grace: float) -> None:
    """Work on the jobs of APP, given as MODULE:NAME of its Holdfast object, and start anew when its files change.

    Jobs that run at a change end within --grace or are released, to be run by the new code. An application that cannot
    be imported is waited for: the next good save starts it. Ctrl-C ends it; a second one leaves at once.
    """
    from holdfast.cli.dev.messages import Settings  # noqa: PLC0415 - the same
    from holdfast.cli.dev.supervisor import develop  # noqa: PLC0415 - imported when called

    ctx.exit(develop(Settings(app=app, temp=temp, concurrency=concurrency, grace_s=grace)))

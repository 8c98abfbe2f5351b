"""`holdfast worker APP`: run the jobs of an application until told to stop."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.terminal import say
from holdfast.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.app.holdfast import Holdfast


@click.command()
@click.argument("app")
@click.option("--queues", help="Names, separated by commas; default: those its tasks name.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Jobs at a time; default: four per core, at most 32.")
@click.option(
    "--grace", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to end by themselves."
)
@click.option("--until-idle", is_flag=True, help="Stop when nothing runs and nothing is due.")
def worker(app: str, queues: str | None, concurrency: int | None, grace: float, until_idle: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Run the jobs of APP, given as MODULE:NAME of its Holdfast object, for example `app:hf`.

    The first SIGTERM or SIGINT stops leasing and lets handlers end within --grace; what is left is released, so that
    others take over at once. The second one releases everything now.
    """
    found = load(app)
    names = None if queues is None else [name.strip() for name in queues.split(",")]
    hired = found.worker(names, concurrency, until_idle=until_idle)
    say(f"{hired.worker_id} works on {found.url}: {len(found.tasks.names())} tasks")
    try:
        hired.run(grace)
    finally:
        found.close()
    say("stopped")


def load(app: str) -> Holdfast:
    """Import an application. Raises InvalidValue, saying what is missing."""
    from holdfast.app.holdfast import Holdfast  # noqa: PLC0415 - imported when called

    module, colon, name = app.partition(":")
    if not colon or not module or not name.isidentifier():
        raise InvalidValue(f"{app!r} does not name an application.", hint="Use MODULE:NAME, for example app:hf.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not (module == missing.name or module.startswith(f"{missing.name}.")):
            raise InvalidValue(f"{module} cannot be imported: {missing}.") from missing
        raise InvalidValue(
            f"there is no module {module} in {here} or on the Python path.", hint="Run it where your application is."
        ) from None
    except AttributeError:
        raise InvalidValue(
            f"{module} has no {name}.", hint="Name the variable that holds its Holdfast object."
        ) from None
    except Exception as error:
        # Whatever an application raises on import is its own; it is told, with where it came from.
        raise InvalidValue(f"{module} cannot be imported: {type(error).__name__}: {error}.") from error
    if not isinstance(found, Holdfast):
        raise InvalidValue(f"{app} is a {type(found).__name__}, not a Holdfast object.")
    return found

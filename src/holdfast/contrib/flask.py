"""Flask: jobs of an application, handlers within its context, commands under `flask holdfast`.

    hf = Holdfast("sqlite:jobs.db")
    init_app(app, hf)

Nothing is opened here. The store opens with the first call that needs it, in the process that makes the call: a server
that forks may load the application before.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from weakref import WeakKeyDictionary

import click
from flask import Flask

from holdfast.app.application import Holdfast

#: Key of Flask's configuration that names the store, if it is not the one the Holdfast object was made with.
STORE = "HOLDFAST_STORE"
#: The newest Flask application of a Holdfast object: factories make several, in tests for example.
_newest: WeakKeyDictionary[Holdfast, Flask] = WeakKeyDictionary()


def init_app(app: Flask, hf: Holdfast) -> None:
    """Connect a Flask application with its jobs.

    Takes the store's URL from `app.config["HOLDFAST_STORE"]` if it is there, lets handlers use `current_app` and what
    hangs on it, adds the commands, and puts `hf` into `app.extensions["holdfast"]`.

    Raises InvalidOperation if another store is open already, InvalidValue for a URL that is none.
    """
    url = app.config.get(STORE)
    if url is not None:
        hf.configure(url)
    app.extensions["holdfast"] = hf
    if hf not in _newest:
        hf.tasks.surround(lambda: _context(hf))
    _newest[hf] = app
    app.cli.add_command(_commands(hf))


def _context(hf: Holdfast) -> AbstractContextManager[object]:
    return _newest[hf].app_context()


def _commands(hf: Holdfast) -> click.Command:
    def holdfast(args: tuple[str, ...]) -> None:
        from holdfast.contrib import commandline  # noqa: PLC0415 - imported when called

        commandline.run(hf, args, "flask holdfast")

    return click.Command(
        "holdfast",
        callback=holdfast,
        params=[click.Argument(["args"], nargs=-1, type=click.UNPROCESSED)],
        # Everything behind it, --help too, is for the commands themselves.
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        help="Jobs: run a worker, look at them, change their fate. Its own --help lists the commands.",
    )

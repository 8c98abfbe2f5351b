"""The `holdfast` commands under a framework's own: `flask holdfast …`, `manage.py holdfast …`.

They are the same commands. The framework has loaded the application already, so `worker` needs no name for it, and the
store is the application's unless another is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast

#: The application the commands work for; `worker` finds it here.
app: Holdfast | None = None


def run(found: Holdfast, args: Sequence[str], name: str) -> None:
    """Run a command line for an application, then leave the process with its exit code.

    `name` is what people typed to get here, for the help.
    """
    from holdfast.cli.root import cli  # noqa: PLC0415 - imported when called

    global app  # noqa: PLW0603 - a command line has one application
    app = found
    words = list(args)
    if words[:1] == ["worker"]:
        words.insert(1, f"{__name__}:app")
    os.environ.setdefault("HOLDFAST_STORE", found.url)
    sys.exit(cli.main(words, prog_name=name))

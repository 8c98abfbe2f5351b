"""`holdfast completion SHELL`: the lines that teach a shell our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli.render.terminal import put


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print what a shell needs for completion: eval "$(holdfast completion bash)"."""
    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    found = kind(root, {}, "holdfast", "_HOLDFAST_COMPLETE")
    put(kind.source_template % found.source_vars())

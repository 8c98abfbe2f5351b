"""The command line: one file a noun. stdout is data, stderr all else; errors map to exit codes by family."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the `holdfast` command."""
    _open_streams()
    try:
        from holdfast.cli.root import cli  # noqa: PLC0415 - click belongs to an extra and may be absent
    except ModuleNotFoundError as missing:
        if missing.name not in ("click", "rich"):
            raise
        print(
            "holdfast: the command line needs the extra `cli`, which is not installed. Nothing was done.\n"
            "Run: pip install 'holdfast[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    cli()


def _open_streams() -> None:
    """Put nothing where a standard stream was closed: its number must not go to a file that is opened later."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(fd, True)  # noqa: FBT003 - the system's own signature
            setattr(sys, name, open(fd, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as the process

"""The command line: one file a noun. stdout is data, stderr all else; errors map to exit codes by family."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the `holdfast` command."""
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

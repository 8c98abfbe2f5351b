"""Commands as tasks: what a shell task's function returns, and what its job results in.

The function is typed Python and runs in the worker; what it returns is run. Words stay words: a list goes to the
program as it is, and no shell ever reads it, so nothing in a job's arguments can become a command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.errors import InvalidValue

#: Bytes of standard output, from its end, that are the result.
MAX_STDOUT = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class _Setting:
    #: Added to the worker's own environment.
    env: Mapping[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    #: What the command reads; nothing by default.
    stdin: str | bytes | None = None
    #: Let /bin/sh read one text. Never build that text from a job's arguments: give them by `env`.
    shell: bool = False


@dataclass(frozen=True)
class Shell(_Setting):
    """A command: a program with its words, or with `shell=True` one text for /bin/sh. Raises InvalidValue.

    >>> Shell(["pg_dump", "--file", "out.sql", "shop"], env={"PGUSER": "backup"}).words()
    ['pg_dump', '--file', 'out.sql', 'shop']
    """

    argv: Sequence[str | os.PathLike[str]] | str

    def __post_init__(self) -> None:
        """Refuse what no command can be made of."""
        if isinstance(self.argv, str) != self.shell:
            raise InvalidValue(
                "a command is a list of words, or with shell=True one text. Nothing was run.",
                hint='Return ["program", "word"], or Shell("text", shell=True) if a shell must read it.',
                field="argv",
            )
        words = self.words()
        variables = [part for pair in (self.env or {}).items() for part in pair]
        if not words or not words[0]:
            raise InvalidValue("a command needs a program. Nothing was run.", field="argv")
        if any(type(word) is not str or "\0" in word for word in (*words, *variables)):
            raise InvalidValue("a command's words and variables are text without NUL. Nothing was run.", field="argv")

    def words(self) -> list[str]:
        """Give the words as the system gets them."""
        if isinstance(self.argv, str):
            return ["/bin/sh", "-c", self.argv]
        return [os.fspath(word) if isinstance(word, os.PathLike) else word for word in self.argv]


#: What a shell task's function returns.
Command = Shell | Sequence[str | os.PathLike[str]]


class ShellResult(msgspec.Struct, frozen=True):
    """What a command that succeeded gave."""

    exit_code: int
    #: The last 64 KiB of its standard output.
    stdout: str


def command(returned: object) -> Shell:
    """Take what a shell task's function returned. Raises InvalidValue if it is no command."""
    if isinstance(returned, Shell):
        return returned
    if isinstance(returned, list | tuple | str):
        return Shell(returned)
    raise InvalidValue(
        f"a shell task returns the command to run, not a {type(returned).__name__}. Nothing was run.",
        hint='Return ["program", "word"] or a Shell.',
    )

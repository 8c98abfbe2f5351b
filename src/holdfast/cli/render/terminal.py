"""What the reader of our output can show: colour, glyphs, width. Asked once for each command.

Text from outside never reaches a terminal raw: whatever is not printable is escaped.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, TextIO

import click

from holdfast.cli.render.status_labels import Look


class Screen(NamedTuple):
    """The place a command's data goes to."""

    #: Somebody watches; else the output is read by a program and is never cut.
    is_terminal: bool
    #: The cursor can be moved.
    can_redraw: bool
    colour: bool
    #: The terminal knows colours beyond its own sixteen.
    true_colour: bool
    light: bool
    unicode: bool
    width: int

    def glyph(self, look: Look) -> str:
        """Give the mark of a state, coloured if that is wanted."""
        return self.paint(look.glyph if self.unicode else look.ascii, look)

    def paint(self, text: str, look: Look) -> str:
        """Give text in the colour of a state."""
        if not self.colour:
            return text
        if self.true_colour:
            shade = look.light if self.light else look.dark
            return click.style(text, fg=(int(shade[1:3], 16), int(shade[3:5], 16), int(shade[5:7], 16)))
        return click.style(text, fg=look.named)

    def faint(self, text: str) -> str:
        """Give text that steps back."""
        return click.style(text, dim=True) if self.colour else text


def screen(color: str = "auto", out: TextIO | None = None, environ: Mapping[str, str] | None = None) -> Screen:
    """Look at the output and the environment. `--color` wins over NO_COLOR, that over FORCE_COLOR, that over a look."""
    out = sys.stdout if out is None else out
    env = os.environ if environ is None else environ
    is_terminal = out.isatty()
    dumb = env.get("TERM") == "dumb"
    return Screen(
        is_terminal=is_terminal,
        can_redraw=is_terminal and not dumb,
        colour=_colour(color, env, is_terminal=is_terminal and not dumb),
        true_colour=env.get("COLORTERM") in ("truecolor", "24bit"),
        # Written by some terminals as "foreground;background"; 7 and 15 are white.
        light=env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15"),
        unicode=_is_utf8(out),
        width=shutil.get_terminal_size().columns if is_terminal else 0,
    )


def _colour(wish: str, env: Mapping[str, str], *, is_terminal: bool) -> bool:
    if wish != "auto":
        return wish == "always"
    if env.get("NO_COLOR"):
        return False
    return bool(env.get("FORCE_COLOR")) or is_terminal


def _is_utf8(out: TextIO) -> bool:
    return (out.encoding or "").lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig")


def safe(text: str) -> str:
    """Give text on one line in which nothing can steer a terminal: control, format and line characters are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def safe_lines(text: str) -> list[str]:
    """Give text line by line, each as `safe` gives it."""
    return [safe(line.expandtabs(4)) for line in text.splitlines()]


def say(text: str) -> None:
    """Tell people something, beside the data. Where nobody listens any more, what is done goes on all the same."""
    with suppress(OSError, ValueError):
        _write(sys.stderr, text)


def put(text: str) -> None:
    """Write data."""
    _write(sys.stdout, text)


def _write(out: TextIO, text: str) -> None:
    out.write(writable(text, out) + "\n")
    out.flush()


def writable(text: str, out: TextIO) -> str:
    """Give text with what the output's encoding lacks escaped, instead of failing on it."""
    encoding = out.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)

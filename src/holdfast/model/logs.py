"""What a run says while it works: lines, numbered by the store in the order they came."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.model.times import Timestamp


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of a run."""

    at: Timestamp
    #: Where it came from: the logging module and `ctx.log`, or what was printed.
    stream: Literal["log", "stdout", "stderr"]
    #: As `logging` names it, e.g. `INFO`; empty for what was printed.
    level: str
    text: str


class NumberedLine(msgspec.Struct, frozen=True, gc=False):
    """A line and its place within its run, from 1."""

    line_no: int
    line: LogLine


def storable(line: LogLine) -> LogLine:
    """Give the line with what no store can keep escaped: half a character (a lone surrogate) is no text."""
    try:
        line.text.encode()
        line.level.encode()
    except UnicodeEncodeError:
        text, level = (part.encode("utf-8", "backslashreplace").decode() for part in (line.text, line.level))
        return msgspec.structs.replace(line, text=text, level=level)
    return line

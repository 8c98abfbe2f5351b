"""What a run says while it works: lines, numbered by the store in the order they came, and how much of it is kept."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.model.times import Timestamp, is_timestamp, parse_timestamp

Stream = Literal["log", "stdout", "stderr"]

#: Bytes of one line; the rest of it is cut.
MAX_LINE = 8 * 1024
#: Bytes of all lines of one run; what comes later is left out.
MAX_LINES = 1 << 20
#: Characters of a level.
MAX_LEVEL = 40
#: Said in place of the first line that is left out.
FULL = f"… {MAX_LINES:,} bytes are kept of a run's lines; the rest is left out"


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of a run."""

    at: Timestamp
    #: Where it came from: the logging module and `ctx.log`, or what was printed.
    stream: Stream
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


def admissible(line: LogLine) -> LogLine:
    """Give a line from elsewhere as it may be kept: its time in the house format, its level short and on one line.

    Raises InvalidValue for what is no time.
    """
    at = line.at if is_timestamp(line.at) else parse_timestamp(line.at, "at")
    level = line.level[:MAX_LEVEL]
    if not level.isprintable():
        level = level.encode("unicode_escape").decode()[:MAX_LEVEL]
    return line if at == line.at and level == line.level else msgspec.structs.replace(line, at=at, level=level)


class Allowance:
    """How much of what one run says is kept: lines up to a number of bytes, then a word of it, then nothing."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        #: Bytes of the lines that were taken; beyond MAX_LINES nothing is.
        self.used = 0

    @property
    def is_used_up(self) -> bool:
        """Tell whether nothing more is kept."""
        return self.used > MAX_LINES

    def take(self, stream: Stream, level: str, text: str) -> tuple[Stream, str, str] | None:
        """Give a line as it is kept; None: it is left out."""
        if self.used > MAX_LINES:
            return None
        raw = text.encode("utf-8", "backslashreplace")
        if len(raw) > MAX_LINE:
            mark = f" … {len(raw):,} bytes, cut".encode()
            raw = raw[: MAX_LINE - len(mark)].decode(errors="ignore").encode() + mark
        self.used += len(raw) + 1
        return ("log", "", FULL) if self.used > MAX_LINES else (stream, level, raw.decode())

    def recall(self, line: LogLine) -> None:
        """Count a line that was kept before."""
        is_last = (line.stream, line.level, line.text) == ("log", "", FULL)
        self.used += MAX_LINES + 1 if is_last else len(line.text.encode("utf-8", "backslashreplace")) + 1

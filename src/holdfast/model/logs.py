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

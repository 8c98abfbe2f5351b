"""Where in the user's code something was asked for: the nearest frame that is neither ours nor asyncio's."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

_OURS = str(Path(__file__).parent)
#: The room that shows what workflow code may call.
_APP = str(Path(__file__).parents[1] / "app")
_INCIDENTAL = {"<frozen importlib._bootstrap>", logging.__file__}
_ASYNCIO = str(Path(asyncio.__file__).parent)


class Place(NamedTuple):
    """A line of code. Kept as it was found, written only when somebody asks."""

    code: CodeType
    line: int

    def __str__(self) -> str:
        """Write `flows.py:31 in onboard`."""
        return f"{Path(self.code.co_filename).name}:{self.line} in {self.code.co_qualname}"


def caller(depth: int = 1) -> Place | None:
    """Give the user's line that led here, looking past `depth` frames of ours; None if there is none on the stack."""
    frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001 - a line is only known from its frame
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((_OURS, _APP, _ASYNCIO, "<frozen ")):
            return Place(code, frame.f_lineno)
        frame = frame.f_back
    return None


def is_incidental() -> bool:
    """Tell whether what happens now serves an import or a log line: no result of a workflow depends on it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the same
    while frame is not None:
        if frame.f_code.co_filename in _INCIDENTAL:
            return True
        frame = frame.f_back
    return False

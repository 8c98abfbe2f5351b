"""Where in the user's code something was asked for: the nearest frame that is neither ours nor the interpreter's."""

from __future__ import annotations

import functools
import logging
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

_OURS = str(Path(__file__).parents[1])
#: Its `context_api` is what workflow code calls.
_APP = str(Path(__file__).parents[2] / "app")
#: The interpreter's own modules. What people install lies below them where there is no virtual environment.
_LIBRARY = tuple(
    {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(logging.__file__).parents[1])}
)
_INSTALLED = ("site-packages", "dist-packages")


class Place(NamedTuple):
    """A line of code. Kept as it was found, written only when somebody asks."""

    code: CodeType
    line: int

    def __str__(self) -> str:
        """Write `flows.py:31 in onboard`."""
        return f"{Path(self.code.co_filename).name}:{self.line} in {self.code.co_qualname}"


@functools.cache
def is_library(file: str) -> bool:
    """Tell whether code in this file is the interpreter's own."""
    return file.startswith(("<frozen ", *_LIBRARY)) and not any(name in file for name in _INSTALLED)


@functools.cache
def _is_users(file: str) -> bool:
    return not is_library(file) and not file.startswith((_OURS, _APP))


def caller(depth: int = 1) -> Place | None:
    """Give the user's line that led here, looking past `depth` frames of ours; None if there is none on the stack."""
    frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001 - a line is only known from its frame
    while frame is not None:
        code = frame.f_code
        if _is_users(code.co_filename):
            return Place(code, frame.f_lineno)
        frame = frame.f_back
    return None

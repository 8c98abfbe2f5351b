"""Tables for people: no borders, one record a line, never cut when piped.

On a terminal free text shrinks, ids never; columns that others can do without are left out where it is too narrow.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.cli.render.terminal import Screen

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
#: Characters of an id that a terminal shows at least.
SHORTEST_ID = 8
#: Columns that free text keeps, however narrow the terminal.
LEAST_TEXT = 12


class Column(NamedTuple):
    """One column."""

    title: str
    right: bool = False
    #: Left out on a terminal that is too narrow for all; the last such column first.
    spare: bool = False
    #: Cells that a last column should have at least; spare ones give way for it.
    least: int = LEAST_TEXT


def width(text: str) -> int:
    """Count the cells that a line takes; our own colours take none."""
    plain = _ANSI.sub("", text)
    if plain.isascii():
        return len(plain)
    return sum(_cells(char) for char in plain)


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shrink(text: str, cells: int, *, unicode: bool = True) -> str:
    """Give text that fits; what is cut off is marked."""
    if width(text) <= cells:
        return text
    mark = "…" if unicode else "..."
    room, kept = cells - len(mark), ""
    for char in text:
        room -= _cells(char)
        if room < 0:
            break
        kept += char
    return kept + mark


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], screen: Screen) -> list[str]:
    """Lay out a table. The last column is free text; on a terminal it takes what is left."""
    if screen.is_terminal:
        columns, rows = _fitting(columns, rows, screen.width)
    titles = [column.title for column in columns]
    widths = [max(width(row[at]) for row in (titles, *rows)) for at in range(len(columns))]
    if screen.is_terminal:
        left = screen.width - sum(widths[:-1]) - 2 * (len(columns) - 1)
        widths[-1] = max(LEAST_TEXT, left)
        rows = [[*row[:-1], shrink(row[-1], widths[-1], unicode=screen.unicode)] for row in rows]
    laid = [_line(columns, widths, row) for row in (titles, *rows)]
    return [screen.faint(laid[0]), *laid[1:]]


def _fitting(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int
) -> tuple[Sequence[Column], Sequence[Sequence[str]]]:
    """Leave out spare columns until the others fit, with the least there must be of the last one."""
    kept = list(range(len(columns)))
    sizes = [
        max(width(text) for text in (column.title, *(row[at] for row in rows))) for at, column in enumerate(columns)
    ]
    for at in reversed(kept[:-1]):
        if sum(sizes[other] + 2 for other in kept[:-1]) + min(columns[-1].least, sizes[-1]) <= room:
            break
        if columns[at].spare:
            kept.remove(at)
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _line(columns: Sequence[Column], widths: Sequence[int], row: Sequence[str]) -> str:
    cells = []
    for column, size, text in zip(columns, widths, row, strict=True):
        blank = " " * (size - width(text))
        cells.append(blank + text if column.right else text + blank)
    return "  ".join(cells).rstrip()


def id_length(ids: Sequence[str], screen: Screen) -> int:
    """Give how many characters of these ids to print: all in a pipe, on a terminal as many as tell them apart."""
    longest = max(map(len, ids), default=0)
    if not screen.is_terminal:
        return longest
    distinct = len(set(ids))
    size = SHORTEST_ID
    while size < longest and len({found[:size] for found in ids}) < distinct:
        size += 1
    return min(size, longest)


def ago(seconds: float) -> str:
    """Say how long ago something was, in one unit."""
    text = age(seconds)
    return f"{text[:-1]} {text[-1]} ago"


def age(seconds: float) -> str:
    """Write how long something lasts or is ago, in one unit, for a column."""
    left = max(0.0, seconds)
    for unit, size in (("s", 60), ("m", 60), ("h", 48)):
        if left < size:
            return f"{int(left)}{unit}"
        left /= 60 if unit != "h" else 24
    return f"{int(left)}d"

"""Lists in pages: from a place on, never from a number on, so that what comes in meanwhile moves nothing.

A cursor is the place of the last record of a page, and of one list: another one does not take it. A page that filters
may end before it is full: what was looked at is what it costs, and `next_cursor` goes on behind it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from holdfast.errors import InvalidValue

R = TypeVar("R")
P = TypeVar("P")

#: Records of a page.
MOST, USUAL = 200, 50
#: Records that one page looks at, where it must look at more than it shows.
LOOKED_AT = 2000

Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST)]


class NoNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing: it concerns all namespaces, or what has none."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which namespace; by default any for one thing, the unnamed one for lists."""

    namespace: str | None = None


class PlainPageQuery(NoNamespace, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    limit: Limit = USUAL
    #: The `next_cursor` of the page before.
    cursor: str | None = None


class PageQuery(PlainPageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page, and of which namespace."""

    namespace: str | None = None


class Page(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A page of a list."""

    items: list[R]
    #: Gives the next page; null on the last one.
    next_cursor: str | None
    #: Number of the last event that the list has seen.
    as_of: int


def cursor_of(listed: str, place: object) -> str:
    """Write a place in a list, which is named, as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode((listed, place))).decode().rstrip("=")


def place_in(listed: str, cursor: str | None, kind: Any) -> Any:
    """Read a cursor, or None. Raises InvalidValue for one of another list, or none at all."""
    if cursor is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        of, place = msgspec.json.decode(raw, type=tuple[str, kind])
    except (ValueError, msgspec.MsgspecError):
        raise no_cursor(cursor) from None
    if of != listed:  # a place there says nothing here: what lies before it would be left out in silence
        raise no_cursor(cursor)
    return place


def no_cursor(cursor: str | None) -> InvalidValue:
    """Say that a cursor is none of the list that is asked for."""
    return InvalidValue(
        f"cursor: {cursor!r:.80} is no cursor of this list. Nothing was done.",
        hint="Give the next_cursor of the page before, or none.",
        field="cursor",
    )


def walked(
    fetch: Callable[[P | None, int], Sequence[R]],
    place: Callable[[R], P],
    start: P | None,
    limit: int,
    keep: Callable[[R], bool] | None = None,
) -> tuple[list[R], P | None]:
    """Give up to `limit` records that are kept, and the place to go on behind; None at the end of the list.

    `fetch` gives the next so many records behind a place.
    """
    kept: list[R] = []
    at, looked = start, 0
    step = limit if keep is None else MOST
    while True:
        found = fetch(at, step + 1)
        for one in found[:step]:
            at = place(one)
            if keep is None or keep(one):
                kept.append(one)
                if len(kept) == limit:
                    return kept, at if one is not found[-1] else None
        looked += step
        if len(found) <= step:
            return kept, None
        if looked >= LOOKED_AT:
            return kept, at


def sliced(
    records: Iterable[R], place: Callable[[R], Any], start: Any, limit: int, *, newest_first: bool = False
) -> tuple[list[R], Any]:
    """Give a page of a list that is small enough to be put in order, and the place to go on behind."""
    ordered = sorted(records, key=place, reverse=newest_first)
    if start is not None:
        ordered = [one for one in ordered if (place(one) < start if newest_first else place(one) > start)]
    page = ordered[:limit]
    return page, place(page[-1]) if len(ordered) > limit else None

"""Pages of a list: nothing twice, nothing left out, and an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidValue
from holdfast.web.api.paging import cursor_of, place_in, sliced, walked


def behind(records):
    """Give the fetch of a list that goes down."""
    return lambda place, limit: [one for one in records if place is None or one < place][:limit]


@given(
    st.sets(st.integers(0, 1000), max_size=60).map(lambda found: sorted(found, reverse=True)),
    st.integers(1, 20),
    st.integers(1, 5),
)
def test_pages_give_all_there_is_once_and_in_order(records, limit, every):
    for keep in (None, lambda one: one % every == 0):
        seen, place = [], None
        while True:
            page, place = walked(behind(records), lambda one: one, place, limit, keep)
            assert len(page) <= limit
            seen += page
            if place is None:
                break
        assert seen == [one for one in records if keep is None or keep(one)]


@given(st.sets(st.integers(0, 100), max_size=30), st.integers(1, 10), st.booleans())
def test_slices_give_all_there_is_once_and_in_order(records, limit, newest_first):
    seen, place = [], None
    while True:
        page, place = sliced(records, lambda one: one, place, limit, newest_first=newest_first)
        seen += page
        if place is None:
            break
    assert seen == sorted(records, reverse=newest_first)


def test_a_full_last_page_is_known_to_be_the_last():
    assert walked(behind([3, 2, 1]), lambda one: one, None, 3) == ([3, 2, 1], None)
    assert walked(behind([3, 2, 1]), lambda one: one, None, 2) == ([3, 2], 2)


def test_a_cursor_comes_back_as_the_place_it_was():
    for place in ((1, "é/🙂"), ("a", "b")):
        kind = tuple[type(place[0]), str]
        assert place_in("/jobs", cursor_of("/jobs", place), kind) == place
    assert place_in("/jobs", None, str) is None


@pytest.mark.parametrize("cursor", ["", "é", "%%%", "bnVsbA", "WyJhIl0", "W10", "////", "A", "\0"])
def test_what_is_no_cursor_is_refused(cursor):
    with pytest.raises(InvalidValue):
        place_in("/jobs", cursor, tuple[str, str])

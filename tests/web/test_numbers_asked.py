"""Numbers in a query: whole ones are whole and exact, seconds may be parts of one, and what is neither is refused."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from holdfast.errors import InvalidValue
from holdfast.web.bodies import seconds, whole


def asking(query):
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


@pytest.mark.parametrize(("text", "found"), [("0", 0), ("7", 7), ("007", 7), (str(2**53 + 1), 2**53 + 1)])
def test_whole_numbers_are_exact(text, found):
    assert whole(asking(f"after={text}"), "after", 0, 2**62) == found


@pytest.mark.parametrize(
    "text", ["", "-1", "1.0", "1e3", "1e-06", "2.5", "%2B5", "%205", "0x1", "%D9%A5", "1_0", "9" * 20, "9" * 9]
)
def test_what_is_no_whole_number_within_bounds_is_refused(text):
    with pytest.raises(InvalidValue, match=r"after: .* is not a whole number from 0 to 1000"):
        whole(asking(f"after={text}"), "after", 0, 1000)


@pytest.mark.parametrize(("query", "found"), [("", 0), ("wait=2.5", 2.5), ("wait=1e1", 10)])
def test_seconds_may_be_parts_of_one(query, found):
    assert seconds(asking(query), "wait", 30) == found


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "31", "soon"])
def test_what_is_no_time_to_wait_is_refused(text):
    with pytest.raises(InvalidValue, match=r"wait: .* is not a number from 0 to 30"):
        seconds(asking(f"wait={text}"), "wait", 30)


def test_what_is_not_asked_has_its_default():
    assert whole(asking(""), "limit", 1000, 1000) == 1000

"""Times are fixed-width UTC text whose order is the order of time."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidValue
from holdfast.model.times import (
    FOREVER,
    Timestamp,
    is_timestamp,
    later,
    milliseconds,
    moment,
    parse_timestamp,
    seconds_between,
    stamp,
)

NOON = Timestamp("2026-01-06T12:00:00.000000Z")
MOMENTS = st.datetimes(timezones=st.just(UTC))
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(MOMENTS)
def test_a_moment_written_and_read_is_the_same_moment(when):
    text = stamp(when)
    assert len(text) == 27
    assert is_timestamp(text)
    assert moment(text) == when
    assert parse_timestamp(text, "field") == text


@given(MOMENTS, MOMENTS)
def test_text_order_is_time_order(one, other):
    assert (stamp(one) < stamp(other)) == (one < other)
    assert (stamp(one) == stamp(other)) == (one == other)


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=OFFSETS))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_any_offset_is_written_in_utc(when):
    assert parse_timestamp(when.isoformat(), "field") == stamp(when) == stamp(when.astimezone(UTC))


@given(MOMENTS, st.integers(-(10**15), 10**15))
def test_adding_seconds_and_measuring_them_agree_within_the_calendar(when, micros):
    then = later(stamp(when), micros / 1e6)
    if "0001-01-01T00:00:00.000000Z" < then < FOREVER:
        assert seconds_between(stamp(when), then) == pytest.approx(micros / 1e6, abs=2e-6)


@pytest.mark.parametrize("seconds", [1e12, 1e300, float("inf")])
def test_a_sum_beyond_the_calendar_is_forever(seconds):
    assert later(NOON, seconds) == FOREVER


@pytest.mark.parametrize("seconds", [-1e12, -1e300, float("-inf")])
def test_a_difference_before_the_calendar_is_its_first_moment(seconds):
    assert later(NOON, seconds) == "0001-01-01T00:00:00.000000Z"


def test_seconds_between_are_negative_the_other_way_round():
    assert seconds_between(NOON, later(NOON, 1.5)) == 1.5
    assert seconds_between(later(NOON, 1.5), NOON) == -1.5


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_milliseconds_are_whole_and_exact(when):
    assert milliseconds(stamp(when)) == (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-06",
        "2026-01-06T10:15:30",  # names no offset
        "2026-13-06T10:15:30Z",
        "2026-01-06T10:15:60Z",
        "\ud800",
        "0001-01-01T00:00:00+23:00",  # before the calendar
        "9999-12-31T23:59:59-23:00",  # after it
    ],
)
def test_what_is_no_time_is_refused_by_the_name_of_its_field(text):
    with pytest.raises(InvalidValue) as caught:
        parse_timestamp(text, "not_before")
    assert caught.value.facts == {"field": "not_before"}


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-06T10:15:30Z",
        "2026-01-06 10:15:30.000000Z",
        "2026-01-06T10:15:30.000000z",
        "2026-01-06T10:15:30.00000+Z",
        "2026-02-30T10:15:30.000000Z",
        "٢٠٢٦-01-06T10:15:30.000000Z",
        "2026-01-06T24:00:00.000000Z",
        "\ud800" * 10 + "T" + "\ud800" * 15 + "Z",
        "0000-01-01T00:00:00.000000Z",
        "2026-W01-1T10:15:30.00000Z ",
    ],
)
def test_only_the_house_format_is_a_timestamp(text):
    assert not is_timestamp(text)


def test_forever_is_later_than_everything():
    assert is_timestamp(FOREVER)
    assert moment(FOREVER) == datetime.max.replace(tzinfo=UTC)

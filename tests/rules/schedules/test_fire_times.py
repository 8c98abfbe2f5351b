"""The table of fires was made by looking at every minute; our answer must be the same, however it is asked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import cronscan
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidValue
from holdfast.rules.schedules.cron import Cron, parse_cron
from holdfast.rules.schedules.fire_times import count_fires, fires_after, instant_of, parse_zone, time_in

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "cron" / "fires.json").read_text())


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(zone: str, text: str, after: datetime, before: datetime) -> list[datetime]:
    cron = parse_cron(text)
    assert isinstance(cron, Cron)
    return list(takewhile(lambda at: at < before, fires_after(cron, parse_zone(zone), after)))


def test_the_table_has_all_that_was_asked_of_it():
    assert len(GOLDEN) >= 60
    assert len({row["zone"] for row in GOLDEN}) > 15


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['zone']} {row['cron']} {row['after'][:10]}")
def test_a_schedule_fires_as_the_table_says(row):
    found = fires(row["zone"], row["cron"], moment(row["after"]), moment(row["before"]))
    assert [f"{at:%Y-%m-%dT%H:%M}" for at in found] == row["fires"], row["shows"]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['zone']} {row['cron']} {row['after'][:10]}")
def test_asking_again_after_each_fire_gives_the_same_fires(row):
    cron, zone = parse_cron(row["cron"]), parse_zone(row["zone"])
    at, found = moment(row["after"]), []
    while (at := next(fires_after(cron, zone, at))) < moment(row["before"]):
        found.append(f"{at:%Y-%m-%dT%H:%M}")
    assert found == row["fires"]


def test_the_table_was_made_by_looking_at_every_minute():
    assert cronscan.table() == GOLDEN


ZONES = st.sampled_from(["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu"])
FIELD = st.sampled_from(["*", "*/2", "*/7", "1-3", "2", "0", "2,3", "1"])


@settings(max_examples=60, deadline=None)
@given(
    zone=ZONES,
    minute=FIELD,
    hour=FIELD,
    weekday=st.sampled_from(["*", "0", "1-5"]),
    day=st.integers(0, 730),
    at=st.data(),
)
def test_any_expression_around_any_day_fires_as_every_minute_says(zone, minute, hour, weekday, day, at):
    text = f"{minute} {hour} * * {weekday}"
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, minutes=at.draw(st.integers(0, 1439)))
    end = start + timedelta(days=2)
    assert fires(zone, text, start, end) == list(cronscan.scan(zone, text, start, end))


def test_microseconds_after_a_fire_the_next_one_comes():
    cron = parse_cron("*/5 * * * *")
    after = datetime(2026, 1, 1, 0, 5, 0, 1, tzinfo=UTC)
    assert next(fires_after(cron, parse_zone("UTC"), after)) == datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


def test_fires_grow_strictly_through_years_of_clock_changes():
    cron = parse_cron("*/30 */2 * * *")
    for zone in ("Europe/Paris", "Africa/Casablanca", "Australia/Lord_Howe"):
        found = list(islice(fires_after(cron, parse_zone(zone), datetime(2024, 1, 1, tzinfo=UTC)), 5_000))
        assert all(earlier < later for earlier, later in pairwise(found))


@pytest.mark.parametrize(
    "name",
    [
        "Europe/Atlantis",
        "",
        "../etc/passwd",
        "/etc/localtime",
        "Europe",
        "\0",
        "x" * 300,
        # Files beside the zones: of each machine its own, or with leap seconds, or no place at all.
        "localtime",
        "posixrules",
        "right/UTC",
        "posix/Europe/Paris",
        "Factory",
    ],
)
def test_what_is_no_time_zone_is_refused(name):
    with pytest.raises(InvalidValue, match="is not a time zone"):
        parse_zone(name)


@pytest.mark.parametrize(
    ("zone", "local", "instant"),
    [
        ("Europe/Paris", "2026-07-01T09:00", "2026-07-01T07:00"),
        ("Europe/Paris", "2026-03-29T01:59", "2026-03-29T00:59"),
        ("Europe/Paris", "2026-03-29T02:00", "2026-03-29T01:00"),
        ("Europe/Paris", "2026-03-29T02:30", "2026-03-29T01:00"),
        ("Europe/Paris", "2026-03-29T03:00", "2026-03-29T01:00"),
        ("Europe/Paris", "2026-10-25T02:30", "2026-10-25T00:30"),
        ("Africa/Cairo", "2026-04-24T00:30", "2026-04-23T22:00"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30"),
        ("Pacific/Apia", "2011-12-30T09:00", "2011-12-30T10:00"),
        ("Pacific/Apia", "2011-12-30T23:59", "2011-12-30T10:00"),
    ],
)
def test_a_local_time_is_the_first_of_two_or_the_first_instant_after_its_gap(zone, local, instant):
    assert instant_of(datetime.fromisoformat(local), parse_zone(zone)) == moment(instant)


@pytest.mark.parametrize(
    ("zone", "local", "instant"),
    [
        ("Europe/Paris", "2026-07-01T09:00", "2026-07-01T07:00:00.000000Z"),
        ("Europe/Paris", "2026-07-01T09:00+05:00", "2026-07-01T04:00:00.000000Z"),
    ],
)
def test_a_time_without_offset_is_local(zone, local, instant):
    assert time_in(datetime.fromisoformat(local), zone, "at") == instant


@pytest.mark.parametrize(
    ("zone", "local"),
    [
        ("America/New_York", datetime.fromisoformat("9999-12-31T23:00")),
        ("Asia/Tokyo", datetime.fromisoformat("0001-01-01T00:00")),
        ("UTC", datetime.fromisoformat("9999-12-31T23:00-05:00")),
    ],
)
def test_a_local_time_beyond_the_calendar_is_refused(zone, local):
    with pytest.raises(InvalidValue, match="beyond the calendar"):
        time_in(local, zone, "at")


@settings(max_examples=300, deadline=None)
@given(
    expression=st.sampled_from(
        [
            "* * * * *",
            "*/7 * * * *",
            "30 2 * * *",
            "*/15 1-3 * * *",
            "0 0 * * *",
            "59 23 * * *",
            "0 0 31 * *",
            "0 0 29 2 *",
            "0,30 8-18 * * MON-FRI",
            "0 12 1-7 * SUN",
            "15 * 13 * 5",
        ]
    ),
    zone=st.sampled_from(
        ["UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia"]
    ),
    day=st.integers(0, 6000),
    second=st.integers(0, 86_399),
    length=st.integers(0, 86_400 * 60),
)
def test_fires_are_counted_as_if_they_were_walked(expression, zone, day, second, length):
    cron, place = parse_cron(expression), ZoneInfo(zone)
    after = datetime(2011, 1, 1, tzinfo=UTC) + timedelta(days=day, seconds=second)
    until = after + timedelta(seconds=length)
    walked = list(takewhile(lambda at: at <= until, fires_after(cron, place, after)))
    assert count_fires(cron, place, after, until) == (len(walked), walked[-1] if walked else None)


def test_a_year_of_minutes_around_each_change_is_counted_exactly():
    cron, zone = parse_cron("* * * * *"), ZoneInfo("Europe/Paris")
    after = datetime(2026, 1, 1, tzinfo=UTC)
    until = after + timedelta(days=365)
    assert count_fires(cron, zone, after, until) == (365 * 1440, until)

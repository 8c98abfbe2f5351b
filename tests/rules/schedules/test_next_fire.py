"""A timetable gives as many fires as the policy says, whatever clock and machine did meanwhile."""

from __future__ import annotations

from itertools import islice, takewhile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.schedules import CatchUp, Schedule
from holdfast.model.times import FIRST, Timestamp, later, parse_timestamp, seconds_between
from holdfast.rules.schedules.next_fire import (
    AT_ONCE,
    Round,
    after_a_pause,
    due,
    how_many,
    local_note,
    nominal,
    passes_over,
    plan,
)

BORN = Timestamp("2026-01-01T00:00:00.000000Z")


def at(text: str) -> Timestamp:
    return parse_timestamp(f"{text}Z", "at")


def schedule(**fields: object) -> Schedule:
    return Schedule(schedule_id="s", name="report", created_at=BORN, job_type="report", **fields)


def planned(made: Schedule, after: Timestamp = BORN, chance: float = 0.0) -> Schedule:
    fire_at, trigger_at = plan(made, after, chance)
    return msgspec.structs.replace(made, next_fire_at=fire_at, next_trigger_at=trigger_at)


def first(made: Schedule, n: int, after: Timestamp = BORN) -> list[str]:
    return [found[:16] for found in islice(nominal(made, after), n)]


# --- a clock that had run ahead --------------------------------------------------------------------------------------


def test_a_schedule_that_fired_by_a_clock_that_ran_ahead_passes_over_its_fires():
    made = schedule(cron_expression="0 * * * *")
    ahead = planned(made, at("2027-01-01T00:30:00"))
    assert passes_over(planned(made), BORN) is None
    assert passes_over(ahead, BORN) == at("2026-01-01T01:00:00")
    assert passes_over(ahead, at("2027-01-01T00:30:00")) is None
    assert passes_over(msgspec.structs.replace(ahead, enabled=False), BORN) is None


def test_a_schedule_whose_end_came_by_a_clock_that_ran_ahead_passes_over_the_rest():
    made = planned(schedule(cron_expression="0 * * * *", end_at=at("2026-06-01T00:00:00")), at("2027-01-01T00:00:00"))
    assert made.next_fire_at is None
    assert passes_over(made, BORN) == at("2026-01-01T01:00:00")
    assert passes_over(made, at("2026-06-01T00:00:00")) is None


def test_an_overdue_schedule_passes_over_nothing():
    assert passes_over(planned(schedule(interval_s=60)), at("2026-02-01T00:00:00")) is None


# --- nominal fires ----------------------------------------------------------------------------------------------------


def test_an_interval_counts_from_its_creation():
    assert first(schedule(interval_s=900), 2) == ["2026-01-01T00:15", "2026-01-01T00:30"]


def test_an_interval_with_a_start_fires_at_the_start_itself():
    made = schedule(interval_s=3600, start_at=at("2026-01-02T08:30:00"))
    assert first(made, 2) == ["2026-01-02T08:30", "2026-01-02T09:30"]


def test_an_interval_keeps_its_steps_however_late_it_is_asked():
    made = schedule(interval_s=7)
    assert first(made, 1, at("2026-01-01T00:00:07")) == ["2026-01-01T00:00"]
    assert next(nominal(made, at("2026-06-01T12:00:00"))) == later(BORN, -(-int(151.5 * 86_400) // 7) * 7)


def test_every_is_an_interval_too():
    assert first(schedule(cron_expression="@every 15m"), 2) == ["2026-01-01T00:15", "2026-01-01T00:30"]


def test_a_one_off_fires_once():
    made = schedule(run_at=at("2026-01-05T10:00:00"))
    assert first(made, 5) == ["2026-01-05T10:00"]
    assert first(made, 5, at("2026-01-05T10:00:00")) == []


def test_a_cron_fires_at_its_start_if_that_fits_and_never_at_its_end():
    made = schedule(cron_expression="0 * * * *", start_at=at("2026-01-01T05:00:00"), end_at=at("2026-01-01T07:00:00"))
    assert first(made, 9) == ["2026-01-01T05:00", "2026-01-01T06:00"]


def test_a_cron_fires_strictly_later_than_its_creation():
    assert first(schedule(cron_expression="0 0 * * *"), 1) == ["2026-01-02T00:00"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York", "Pacific/Apia"])
@pytest.mark.parametrize(
    "when",
    [
        {"interval_s": 1e10},
        {"interval_s": 3e7, "start_at": at("9997-01-01T00:00:00")},
        {"cron_expression": "0 0 1 1 *"},
        {"cron_expression": "0 0 29 2 *"},
        {"cron_expression": "30 2 * * 0", "start_at": at("9998-11-01T00:00:00")},
        {"run_at": at("9999-12-31T23:59:59")},
    ],
)
def test_the_calendar_may_end(zone, when):
    made = schedule(timezone=zone, **when)
    found = list(nominal(made, at("9990-01-01T00:00:00")))
    assert found == sorted(found)
    assert all("9990" < fire < "9999" for fire in found)
    assert all(local_note(made, fire) for fire in found)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_calendar_has_a_beginning(zone):
    made = schedule(cron_expression="0 0 1 1 *", timezone=zone)
    assert first(made, 1, FIRST)[0] < "0003-01-02"


def test_a_one_off_before_its_start_or_at_its_end_never_fires():
    when = at("2026-01-05T10:00:00")
    assert first(schedule(run_at=when, start_at=when), 1) == ["2026-01-05T10:00"]
    assert first(schedule(run_at=when, start_at=later(when, 1)), 1) == []
    assert first(schedule(run_at=when, end_at=when), 1) == []


@settings(max_examples=100, deadline=None)
@given(
    when=st.sampled_from(
        [
            {"cron_expression": "*/7 * * * *"},
            {"cron_expression": "30 2 * * *", "timezone": "Europe/Paris"},
            {"cron_expression": "0 * * * *", "timezone": "Australia/Lord_Howe", "end_at": at("2026-02-03T00:00:00")},
            {"interval_s": 4321},
            {"interval_s": 777, "start_at": at("2026-01-20T10:00:00")},
            {"run_at": at("2026-01-20T10:00:00")},
        ]
    ),
    since=st.integers(0, 90 * 86_400),
    length=st.integers(0, 70 * 86_400),
)
def test_fires_between_two_times_are_counted_as_if_they_were_walked(when, since, length):
    made = schedule(**when)
    begin, end = later(BORN, since), later(BORN, since + length)
    walked = list(takewhile(lambda fire: fire < end, nominal(made, later(begin, -1e-6))))
    assert how_many(made, begin, end, 10**9) == len(walked)
    assert (how_many(made, begin, end, 50) > 50) == (len(walked) > 50)


# --- the next one -----------------------------------------------------------------------------------------------------


def test_without_jitter_the_trigger_is_the_nominal_time():
    assert plan(schedule(interval_s=60), BORN, 0.99) == (later(BORN, 60), later(BORN, 60))


def test_jitter_is_at_most_half_the_way_to_the_following_fire():
    made = schedule(interval_s=60, jitter_s=3600)
    fire_at, trigger_at = plan(made, BORN, 0.999999)
    assert 29.9 < seconds_between(fire_at, trigger_at) < 30


def test_the_last_fire_has_its_whole_jitter():
    fire_at, trigger_at = plan(schedule(run_at=at("2026-01-05T10:00:00"), jitter_s=100), BORN, 0.5)
    assert seconds_between(fire_at, trigger_at) == 50


def test_after_the_end_there_is_no_next():
    made = schedule(cron_expression="0 * * * *", end_at=at("2026-01-01T02:00:00"))
    assert plan(made, at("2026-01-01T01:00:00"), 0) == (None, None)


# --- what is due ------------------------------------------------------------------------------------------------------


def test_before_its_trigger_nothing_is_due():
    made = planned(schedule(interval_s=600, jitter_s=100), chance=0.5)
    assert due(made, later(BORN, 649)) is None
    assert due(made, later(BORN, 650)) == Round((later(BORN, 600),), 0, later(BORN, 600))


@pytest.mark.parametrize("late_s", [0, 1, 60])
def test_a_little_late_is_on_time(late_s):
    made = planned(schedule(interval_s=600, catch_up=CatchUp.NONE))
    assert due(made, later(BORN, 600 + late_s)) == Round((later(BORN, 600),), 0, later(BORN, 600))


def test_a_paused_schedule_is_never_due():
    assert due(planned(schedule(interval_s=600, enabled=False)), later(BORN, 700)) is None


THREE_DAYS = later(BORN, 3 * 86_400 + 1800)


@pytest.mark.parametrize(
    ("catch_up", "made", "missed"),
    [(CatchUp.NONE, [], 72), (CatchUp.LATEST, ["2026-01-04T00:00"], 71)],
)
def test_three_days_asleep_give_what_the_policy_says(catch_up, made, missed):
    found = due(planned(schedule(cron_expression="0 * * * *", catch_up=catch_up)), THREE_DAYS)
    assert found is not None
    assert ([fire[:16] for fire in found.fires], found.missed) == (made, missed)
    assert found.until[:16] == "2026-01-04T00:00"


def test_all_makes_up_for_the_last_day_only_unless_told_otherwise():
    made = planned(schedule(cron_expression="0 * * * *", catch_up=CatchUp.ALL))
    found = due(made, THREE_DAYS)
    assert found is not None
    assert (len(found.fires), found.missed) == (24, 48)
    assert (found.fires[0][:16], found.fires[-1][:16]) == ("2026-01-03T01:00", "2026-01-04T00:00")
    wide = due(msgspec.structs.replace(made, catch_up_window_s=1e9), THREE_DAYS)
    assert wide is not None
    assert (len(wide.fires), wide.missed) == (72, 0)


def test_a_latest_that_lies_beyond_its_window_is_only_counted():
    made = planned(schedule(cron_expression="0 0 * * *", catch_up_window_s=600))
    assert due(made, THREE_DAYS) == Round((), 3, at("2026-01-04T00:00:00"))


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_fire_within_its_grace_is_on_time_after_an_outage_too_however_short_the_window(catch_up):
    made = planned(schedule(cron_expression="0 * * * *", catch_up=catch_up, catch_up_window_s=10, grace_s=60))
    assert due(made, at("2026-01-01T05:00:30")) == Round((at("2026-01-01T05:00:00"),), 4, at("2026-01-01T05:00:00"))


def test_a_fire_that_its_jitter_may_still_put_off_is_not_missed():
    made = planned(schedule(cron_expression="0 * * * *", catch_up=CatchUp.NONE, jitter_s=600, grace_s=60))
    five = at("2026-01-01T05:00:00")
    assert due(made, at("2026-01-01T05:11:00")) == Round((five,), 4, five)
    assert due(made, at("2026-01-01T05:11:01")) == Round((), 5, five)
    # The first one's is drawn, and is over.
    assert due(made, at("2026-01-01T01:02:00")) == Round((), 1, at("2026-01-01T01:00:00"))


def test_a_year_forward_is_one_decision():
    made = planned(schedule(cron_expression="0 3 * * *"))
    found = due(made, at("2027-01-01T00:00:00"))
    assert found is not None
    assert (len(found.fires), found.missed) == (1, 364)


def test_a_long_list_is_made_up_for_in_portions_and_completely():
    made = planned(schedule(interval_s=60, catch_up=CatchUp.ALL))
    now = later(BORN, 250 * 60 + 61)
    fired: list[Timestamp] = []
    missed = 0
    while (found := due(made, now)) is not None:
        assert len(found.fires) <= AT_ONCE
        fired += found.fires
        missed += found.missed
        made = planned(made, found.until)
    assert fired == [later(BORN, 60 * n) for n in range(1, 252)]
    assert missed == 0


def test_a_clock_set_back_fires_nothing_twice():
    made = planned(schedule(interval_s=60))
    found = due(made, later(BORN, 60))
    assert found is not None
    after = planned(made, found.until)
    assert due(after, later(BORN, -7200)) is None
    assert due(after, later(BORN, 60)) is None


def test_after_a_pause_fires_begin_now_and_never_again_at_the_last_one():
    made = schedule(interval_s=60)
    assert after_a_pause(made, later(BORN, 100)) == later(BORN, 100)
    ahead = msgspec.structs.replace(made, last_fire_at=later(BORN, 500))
    assert after_a_pause(ahead, later(BORN, 100)) == later(BORN, 500)


@settings(max_examples=60, deadline=None)
@given(
    interval=st.integers(20, 5000),
    jitter=st.sampled_from([0, 10, 10_000]),
    policy=st.sampled_from(CatchUp),
    grace=st.sampled_from([0, 60, 5000]),
    naps=st.lists(st.integers(0, 20_000), max_size=8),
    chance=st.floats(0, 0.999),
)
def test_every_nominal_fire_is_made_or_counted_exactly_once(interval, jitter, policy, grace, naps, chance):
    made = planned(schedule(interval_s=interval, jitter_s=jitter, catch_up=policy, grace_s=grace), chance=chance)
    now, fired, missed = BORN, [], 0
    for nap in naps:
        now = later(now, nap)
        while (found := due(made, now)) is not None:
            fired += found.fires
            missed += found.missed
            made = planned(made, found.until, chance)
    assert fired == sorted(set(fired))
    assert made.next_fire_at is not None
    passed = round(seconds_between(BORN, made.next_fire_at) / interval) - 1
    assert len(fired) + missed == passed
    assert made.next_trigger_at is not None
    assert made.next_trigger_at > now


# --- for people -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fire_at", "local", "note"),
    [
        ("2026-03-28T01:30:00", "02:30", ""),
        ("2026-03-29T01:00:00", "03:00", "02:00 to 03:00 does not exist on this day"),
        ("2026-10-25T00:30:00", "02:30", "02:30 occurs twice on this day"),
    ],
)
def test_a_preview_says_what_is_odd_about_a_day(fire_at, local, note):
    made = schedule(cron_expression="30 2 * * *", timezone="Europe/Paris")
    found, said = local_note(made, at(fire_at))
    assert (f"{found:%H:%M}", said) == (local, note)

"""What two programs would read differently is refused before anything is stored, with its place and a way out."""

from datetime import datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidValue
from holdfast.rules.schedules.cron import Cron, Every, parse_cron

NEW_YEAR = datetime(2026, 1, 1)  # noqa: DTZ001 - local time of no zone


@pytest.mark.parametrize(
    ("expression", "says", "hint"),
    [
        ("", "fields instead of 5", "Write minute, hour"),
        ("0 0 * *", "4 fields instead of 5", "Write minute, hour"),
        ("0 0 0 * * *", "6 fields instead of 5", "Seconds are not supported"),
        ("5/10 * * * *", "minute '5/10' at character 1", "5-59/10"),
        ("0 22-6 * * *", "hour '22-6' at character 3", "write it as two"),
        ("* * * * FRI-MON", "day of week 'FRI-MON' at character 9", "write it as two"),
        ("60 * * * *", "minute '60'", "0 to 59"),
        ("0 24 * * *", "hour '24'", "0 to 23"),
        ("0 0 0 * *", "day of month '0'", "1 to 31"),
        ("0 0 * 13 *", "month '13'", "1 to 12"),
        ("0 0 * * 8", "day of week '8'", "0 to 7"),
        ("0 0 L * *", "day of month 'L'", "not supported"),
        ("0 0 15W * *", "day of month '15W'", "not supported"),
        ("0 0 * * MON#2", "day of week 'MON#2'", "not supported"),
        ("0 0 ? * *", "day of month '?'", "not supported"),
        ("*/0 * * * *", "minute '*/0'", "from 1 on"),
        ("*/x * * * *", "minute '*/x'", "from 1 on"),
        ("1,,2 * * * *", "minute ''", "numbers"),
        ("-1 * * * *", "minute '-1'", "numbers"),
        ("٣ * * * *", "minute '٣'", "numbers"),
        ("0 0 * january *", "month 'january'", "numbers"),
        ("0 0 30 2 *", "fits no day", "day 30 in month 2"),
        ("0 0 31 4,6 *", "fits no day", "day 31 in month 4, 6"),
        ("@reboot", "@reboot is not known", "@hourly"),
        ("@every", "is not known", "@every 15m"),
        ("@every 0s", "at least one second", "@every 15m"),
        ("@every 15 m", "is not known", "@every 15m"),
        ("@every ٣m", "is not known", "@every 15m"),
        ("@every 3661d", "ten years", "@every 15m"),
        (f"@every {'9' * 900}d", "ten years", "@every 15m"),
        (f"{'1' * 5000} * * * *", "5,008 characters", "1,000"),
        (f"*/{'9' * 5000} * * * *", "5,010 characters", "1,000"),
        # The place is that of the field, not of the first one that looks alike.
        ("30 1 30 30 *", "month '30' at character 9", "1 to 12"),
        ("  7  1 * *  6,7,7-1", "day of week '7-1' at character 17", "write it as two"),
    ],
)
def test_a_bad_expression_is_refused_with_its_place_and_a_way_out(expression, says, hint):
    with pytest.raises(InvalidValue) as refused:
        parse_cron(expression)
    assert says.lower() in refused.value.message.lower()
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(("expression", "seconds"), [("@every 15m", 900), ("@EVERY 1H", 3600), ("@every  2d", 172_800)])
def test_every_is_an_interval(expression, seconds):
    assert parse_cron(expression) == Every(seconds)


@pytest.mark.parametrize("expression", ["* * * * *", "0 * * * *", "5 0-23 * * *", "5 0-11,12-23 * * MON"])
def test_an_expression_with_all_hours_runs_every_hour(expression):
    cron = parse_cron(expression)
    assert isinstance(cron, Cron)
    assert cron.every_hour


@pytest.mark.parametrize("expression", ["0 */2 * * *", "* 2 * * *", "0 0-22 * * *"])
def test_an_expression_that_leaves_an_hour_out_does_not(expression):
    cron = parse_cron(expression)
    assert isinstance(cron, Cron)
    assert not cron.every_hour


def test_blanks_and_the_case_of_names_mean_nothing():
    assert parse_cron("  0   9 * jan  mon-fri ") == parse_cron("0 9 * JAN MON-FRI")


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("0 6 6-6/19 * *", "0 6 6 * *"),
        ("0 6 06-6/2,9 * *", "0 6 6,9 * *"),
        ("0 6 * * MON-1/2", "0 6 * * MON"),
        ("5-5/7 3-3/2 * FEB-2/4 *", "5 3 * 2 *"),
    ],
)
def test_a_range_of_one_has_one_value_whatever_its_step(expression, same):
    cron, plain = parse_cron(expression), parse_cron(same)
    assert isinstance(cron, Cron)
    assert isinstance(plain, Cron)
    assert [*islice(cron.after(NEW_YEAR), 20)] == [*islice(plain.after(NEW_YEAR), 20)]


def fits(expression: str, at: datetime) -> bool:
    """Tell by the definition, without a library, whether a time fits."""
    minutes, hours, days, months, weekdays = expression.split()
    day, weekday = at.day in values(days, 1, 31), at.isoweekday() % 7 in {n % 7 for n in values(weekdays, 0, 7)}
    both = days.startswith("*") or weekdays.startswith("*")
    right_day = (day and weekday) if both else (day or weekday)
    return (
        right_day
        and (at.minute in values(minutes, 0, 59) and at.hour in values(hours, 0, 23))
        and at.month in values(months, 1, 12)
    )


def values(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        body, _, step = term.partition("/")
        ends = [low, high] if body == "*" else [int(n) for n in body.split("-")]
        found |= set(range(ends[0], ends[-1] + 1, int(step or 1)))
    return found


@st.composite
def terms(draw, low: int, high: int):
    ends = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
    step = draw(st.integers(1, high + 2))
    plain = [
        str(ends[0]),
        f"{ends[0]}-{ends[1]}",
        f"{ends[0]}-{ends[1]}/{step}",
        f"{ends[0]}-{ends[0]}/{step}",
        "*",
        f"*/{step}",
    ]
    return draw(st.sampled_from(plain))


def fields(low: int, high: int):
    return st.lists(terms(low, high), min_size=1, max_size=3).map(",".join)


@settings(max_examples=200)
@given(
    fields(0, 59),
    fields(0, 23),
    fields(1, 28),
    fields(1, 12),
    fields(0, 7),
    st.datetimes(NEW_YEAR - timedelta(days=731), NEW_YEAR + timedelta(days=731)),
)
def test_any_expression_fits_what_the_definition_says(minute, hour, day, month, weekday, at):
    expression = f"{minute} {hour} {day} {month} {weekday}"
    cron = parse_cron(expression)
    assert isinstance(cron, Cron)
    found = next(cron.after(at))
    assert fits(expression, found)
    # Nothing was passed over, as far as two weeks back at the same minute.
    earlier = (found - timedelta(hours=n) for n in range(1, 14 * 24))
    assert not any(fits(expression, time) for time in earlier if time > at)

"""What two programs would read differently is refused before anything is stored, with its place and a way out."""

import pytest

from holdfast.errors import InvalidValue
from holdfast.rules.cron import Cron, Every, parse_cron


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

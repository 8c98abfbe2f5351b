"""The clock under the test's hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.clock import Clock
from holdfast.testing import ManualClock


def test_time_stands_still_until_it_is_moved():
    clock: Clock = ManualClock()
    assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    assert clock.monotonic() == clock.monotonic() == 0.0


def test_advancing_moves_both_clocks():
    clock = ManualClock()
    clock.advance(90.5)
    assert clock.now() == datetime(2026, 1, 1, 0, 1, 30, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 90.5


def test_a_stepped_wall_clock_leaves_monotonic_time_alone():
    clock = ManualClock()
    clock.advance(10)
    clock.set_wall(datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2019, 12, 31, 22, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() == 10


def test_neither_naive_times_nor_running_backwards_are_accepted():
    with pytest.raises(ValueError, match="aware"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ValueError, match="aware"):
        ManualClock().set_wall(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)

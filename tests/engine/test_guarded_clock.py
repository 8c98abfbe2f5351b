"""What time it is for decisions, when the wall clock is stepped about."""

from datetime import timedelta

from holdfast.engine.guarded_clock import Timekeeper
from holdfast.model.times import later, stamp
from holdfast.testing.clock import START, ManualClock

NOW = stamp(START)


def keeper():
    clock = ManualClock()
    return clock, Timekeeper(clock)


def step(clock, seconds):
    clock.set_wall(clock.now() + timedelta(seconds=seconds))


def test_time_that_simply_passes_is_no_step():
    clock, time = keeper()
    for _ in range(100):
        clock.advance(3600)
        reading = time.read()
        assert (reading.jumped_from, reading.stepped_back) == (None, False)
    assert reading.now == stamp(clock.now())
    assert reading.monotonic == clock.monotonic()
    assert time.steps == {"forward": 0, "back": 0}


def test_a_small_step_back_is_waited_out_by_standing_still():
    clock, time = keeper()
    step(clock, -5)
    assert time.read() == (NOW, 0, None, False)
    clock.advance(4.999999)
    assert time.read().now == NOW
    clock.advance(0.000002)
    assert time.read().now == later(NOW, 0.000001)
    assert time.steps == {"forward": 0, "back": 0}


def test_standing_still_is_not_taken_for_a_jump_afterwards():
    clock, time = keeper()
    step(clock, -4)
    time.read()
    clock.advance(60)
    assert (time.read().jumped_from, time.steps) == (None, {"forward": 0, "back": 0})


def test_a_larger_step_back_is_followed_and_reported_once():
    clock, time = keeper()
    step(clock, -5.000001)
    reading = time.read()
    assert (reading.now, reading.stepped_back, reading.jumped_from) == (later(NOW, -5.000001), True, None)
    assert not time.read().stepped_back
    assert time.steps == {"forward": 0, "back": 1}


def test_small_steps_back_that_add_up_are_followed():
    clock, time = keeper()
    step(clock, -4)
    assert not time.read().stepped_back
    step(clock, -4)
    reading = time.read()
    assert (reading.now, reading.stepped_back) == (later(NOW, -8), True)


def test_a_step_back_is_noticed_although_more_time_has_passed_since_the_last_look():
    clock, time = keeper()
    clock.advance(7200)
    step(clock, -3600)
    reading = time.read()
    assert (reading.now, reading.stepped_back) == (later(NOW, 3600), True)
    assert time.steps == {"forward": 0, "back": 1}


def test_a_jump_forward_is_reported_with_the_time_it_began():
    clock, time = keeper()
    clock.advance(10)
    step(clock, 5)
    assert time.read().jumped_from is None
    clock.advance(10)
    step(clock, 5.000001)
    reading = time.read()
    assert reading.jumped_from == later(NOW, 25)
    assert reading.now == later(NOW, 30.000001)
    assert time.read().jumped_from is None
    assert time.steps == {"forward": 1, "back": 0}

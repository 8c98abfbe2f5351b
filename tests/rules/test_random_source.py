"""Chance as a value: the same seed gives the same ids and numbers."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rules.random_source import Draws

NOW = "2026-01-01T00:00:00.123456Z"


@given(st.integers(0, (1 << 64) - 1))
def test_the_same_seed_gives_the_same_draws(seed):
    one, other = Draws(NOW, seed), Draws(NOW, seed)
    assert [one.new_id(), one.fraction(), one.new_id()] == [other.new_id(), other.fraction(), other.new_id()]


@given(st.integers(0, (1 << 64) - 1))
def test_fractions_lie_between_nought_and_one(seed):
    draws = Draws(NOW, seed)
    assert all(0 <= draws.fraction() < 1 for _ in range(10))


def test_ids_of_one_command_are_distinct_and_in_order_even_beyond_one_millisecond():
    draws = Draws(NOW, 7)
    made = [draws.new_id() for _ in range(10_000)]
    assert made == sorted(set(made))


def test_other_seeds_give_other_ids():
    assert len({Draws(NOW, seed).new_id() for seed in range(1000)}) == 1000


def test_fractions_spread_evenly():
    draws = Draws(NOW, 1)
    tenths = [0] * 10
    for _ in range(10_000):
        tenths[int(draws.fraction() * 10)] += 1
    assert all(850 < count < 1150 for count in tenths)

"""Requests are counted for each access token, by the monotonic clock."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from holdfast.errors import StoreBusy, TooManyRequests
from holdfast.model.access import LOCAL, Access, Role
from holdfast.testing.clock import ManualClock
from holdfast.web.middleware.rate_limits import SMALL, Quotas
from holdfast.web.server.limits import Limits

ONE, TWO = (Access(name=name, roles=(Role.ADMIN,), digest=name) for name in ("one", "two"))


def test_a_rate_is_used_up_and_comes_back_with_time():
    clock = ManualClock()
    quotas = Quotas(Limits(rate=4), clock)
    for _ in range(4):
        quotas.take(ONE)
    with pytest.raises(TooManyRequests, match="one has sent more than 4"):
        quotas.take(ONE)
    quotas.take(TWO)
    clock.advance(0.25)
    quotas.take(ONE)
    with pytest.raises(TooManyRequests):
        quotas.take(ONE)
    clock.advance(3600)
    for _ in range(4):
        quotas.take(ONE)
    with pytest.raises(TooManyRequests):
        quotas.take(ONE)


def test_whoever_needs_no_access_token_has_no_rate():
    quotas = Quotas(Limits(rate=1), ManualClock())
    for _ in range(10):
        quotas.take(LOCAL)


def test_places_of_long_polls_are_given_back():
    quotas = Quotas(Limits(long_polls=3, long_polls_each=2), ManualClock())
    with ExitStack() as held:
        held.enter_context(quotas.poll(ONE))
        held.enter_context(quotas.poll(ONE))
        with pytest.raises(TooManyRequests, match="of one wait"), quotas.poll(ONE):
            pass
        held.enter_context(quotas.poll(LOCAL))
        with pytest.raises(TooManyRequests, match="3 requests wait"), quotas.poll(TWO):
            pass
    assert quotas.polling == 0
    with quotas.poll(ONE):
        assert quotas.polling == 1


def test_bodies_that_arrive_hold_so_much_together_and_give_it_back():
    quotas = Quotas(Limits(body=SMALL, bodies=3 * SMALL), ManualClock())
    with quotas.arrival() as one:
        one(2 * SMALL)
        with quotas.arrival() as other:
            other(SMALL)
            with pytest.raises(StoreBusy, match="too many large bodies"):
                other(1)
        assert quotas.arriving == 2 * SMALL
        one(SMALL)
        # Reports and heartbeats are heard whoever else sends what.
        with quotas.arrival() as small:
            small(SMALL)
            with pytest.raises(StoreBusy):
                small(1)
    assert quotas.arriving == 0


def test_a_single_body_has_place_if_a_body_may_be_so_large():
    quotas = Quotas(Limits(body=4 * SMALL, bodies=SMALL), ManualClock())
    with quotas.arrival() as one:
        one(4 * SMALL)

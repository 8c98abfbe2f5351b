"""Requests are counted for each access token, by the monotonic clock."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from holdfast.errors import TooManyRequests
from holdfast.model.access import LOCAL, Access, Role
from holdfast.testing.clock import ManualClock
from holdfast.web.limits import Limits
from holdfast.web.quotas import Quotas

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

"""Limits are set by name, and a slip is told with all the names there are."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidValue
from holdfast.web.limits import Limits, limits_of


def test_limits_are_read_by_name():
    assert limits_of([]) == Limits()
    assert limits_of(["body=100", "rate=0.5", "body=200"]) == Limits(body=200, rate=0.5)


@pytest.mark.parametrize("word", ["nothing=1", "body", "body=", "body=many", "body=0", "rate=-1", "rate=nan", "=1"])
def test_what_is_no_limit_is_refused(word):
    with pytest.raises(InvalidValue, match="limit") as caught:
        limits_of([word])
    assert "body=8388608, " in caught.value.hint
    assert "long_polls_each=64" in caught.value.hint

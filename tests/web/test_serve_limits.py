"""Limits are set by name, and a slip is told with all the names there are."""

from __future__ import annotations

import resource

import pytest

from holdfast.errors import InvalidValue
from holdfast.web.server.limits import Limits, limits_of
from holdfast.web.server.serving import RESERVED, _most_connections


def test_limits_are_read_by_name():
    assert limits_of([]) == Limits()
    assert limits_of(["body=100", "rate=0.5", "body=200"]) == Limits(body=200, rate=0.5)


@pytest.mark.parametrize("word", ["nothing=1", "body", "body=", "body=many", "body=0", "rate=-1", "rate=nan", "=1"])
def test_what_is_no_limit_is_refused(word):
    with pytest.raises(InvalidValue, match="limit") as caught:
        limits_of([word])
    assert "body=8388608, " in caught.value.hint
    assert "long_polls_each=64" in caught.value.hint


@pytest.mark.parametrize("allowed", [RESERVED, RESERVED + 2, 600, 1024, 4096, 20_000])
def test_connections_leave_a_descriptor_for_the_blob_of_each_and_some_for_the_store(monkeypatch, allowed):
    """Blobs that were sent half used up those of the store, and ended the coordinator."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (allowed, allowed))
    most = _most_connections(Limits())
    assert 1 <= most <= Limits().connections
    assert most == 1 or RESERVED + 2 * most <= allowed


def test_where_the_system_has_no_limit_ours_holds(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert _most_connections(Limits()) == Limits().connections

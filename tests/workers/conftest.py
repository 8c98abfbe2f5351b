"""Applications on every local store, with time in the test's hand."""

import pytest

from holdfast import Holdfast
from holdfast.testing.clock import ManualClock


@pytest.fixture(params=["memory", "wal", "sqlite"])
def url(request, tmp_path):
    return {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}[
        request.param
    ]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def hf(url, clock):
    with Holdfast(url, clock=clock) as app:
        yield app

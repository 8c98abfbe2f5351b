"""What most tests of the coordinator stand on: one on a fresh store, a store of it, and a proxy that breaks things."""

from __future__ import annotations

import pytest
from coordinators import running

from holdfast.stores.http import calling
from holdfast.stores.http.store import HttpStore
from holdfast.testing.faultproxy import FaultProxy


@pytest.fixture
def coordinator(tmp_path):
    with running(f"wal:{tmp_path / 'jobs'}") as serving:
        yield serving


@pytest.fixture
def store(coordinator):
    opened = HttpStore.open(coordinator.url)
    yield opened
    opened.close()


@pytest.fixture
def proxy(coordinator):
    with FaultProxy(coordinator.url) as made:
        yield made


@pytest.fixture
def brief_pauses(monkeypatch):
    """Whoever sends again does so at once."""
    monkeypatch.setattr(calling, "FIRST_S", 0.001)
    monkeypatch.setattr(calling, "LONGEST_S", 0.01)

"""`/readyz` says whether commands are taken: not while there is no room for what they do."""

from __future__ import annotations

import msgspec
import pytest
from coordinators import running
from rawhttp import head, say

from holdfast.errors import StoreFull
from holdfast.model.commands import Cancel, Lease, PauseQueue
from holdfast.model.times import moment
from holdfast.stores.http.store import HttpStore
from holdfast.stores.wal import WalStore
from holdfast.testing.clock import ManualClock
from holdfast.web.coordinator.coordinator import FULL_S, Coordinator


def readiness(url):
    said = say(url, head("/readyz", Connection="close"))
    return said.status, said.body


@pytest.fixture
def full(monkeypatch):
    """A disk that is full while this says so."""
    state, decided = {"full": False}, Coordinator._decided

    def deciding(self, asked):
        if state["full"]:
            raise StoreFull("there is no room. Nothing was done.")
        return decided(self, asked)

    monkeypatch.setattr(Coordinator, "_decided", deciding)
    return state


def test_it_is_not_ready_while_there_is_no_room_and_ready_when_a_command_has_found_some(full):
    clock = ManualClock(moment("2026-01-06T10:15:30.000000Z"))
    with running("memory:", clock=clock) as serving:
        store = HttpStore.open(serving.url, patience_s=0)
        assert readiness(serving.url) == (200, b"ready\n")
        full["full"] = True
        with pytest.raises(Exception, match="no room"):
            store.decide([PauseQueue(queue="q")])
        assert readiness(serving.url) == (503, b"full\n")
        full["full"] = False
        store.decide([PauseQueue(queue="q")])
        assert readiness(serving.url) == (200, b"ready\n")
        full["full"] = True
        with pytest.raises(Exception, match="no room"):
            store.decide([PauseQueue(queue="r")])
        assert readiness(serving.url) == (503, b"full\n")
        # Whoever sends nothing to what is not ready would never learn that there is room.
        clock.advance(FULL_S)
        assert readiness(serving.url) == (200, b"ready\n")
        store.close()


def test_a_command_that_needs_no_room_does_not_make_a_full_disk_ready(full):
    with running("memory:", clock=ManualClock(moment("2026-01-06T10:15:30.000000Z"))) as serving:
        store = HttpStore.open(serving.url, patience_s=0)
        full["full"] = True
        with pytest.raises(Exception, match="no room"):
            store.decide([PauseQueue(queue="q")])
        full["full"] = False
        store.decide([Lease(worker_id="idle"), Cancel(job_id="none")])
        assert readiness(serving.url) == (503, b"full\n")
        store.close()


def test_a_log_that_waits_for_room_is_not_ready_though_nobody_was_refused_yet(coordinator, monkeypatch):
    stats = WalStore.journal_stats
    with monkeypatch.context() as patched:
        patched.setattr(WalStore, "journal_stats", lambda self: msgspec.structs.replace(stats(self), state="full"))
        assert readiness(coordinator.url) == (503, b"full\n")
    assert readiness(coordinator.url) == (200, b"ready\n")

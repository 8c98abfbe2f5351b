"""Whoever is not answered in time by a coordinator that ends is told to ask the next one."""

from __future__ import annotations

import threading

import msgspec
import pytest
from coordinators import running
from rawhttp import dial, head, hear

from holdfast.stores.http.channel import _AGAIN
from holdfast.web.coordinator.coordinator import Coordinator
from holdfast.web.server import serving

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 20


@pytest.fixture
def stuck(monkeypatch):
    """Commands that are not decided before they are let go on."""
    begun, go_on, decided = threading.Event(), threading.Event(), Coordinator._decided

    def waiting(self, asked):
        begun.set()
        go_on.wait(LONG)
        return decided(self, asked)

    monkeypatch.setattr(Coordinator, "_decided", waiting)
    monkeypatch.setattr(serving, "DRAIN_S", 0)
    yield begun, go_on
    go_on.set()


def test_a_command_under_way_when_the_coordinator_ends_is_one_to_be_sent_again(tmp_path, stuck, caplog):
    begun, go_on = stuck
    body = b'{"commands":[{"command":"pause_queue","queue":"q"}]}'
    with running(f"wal:{tmp_path / 'jobs'}") as coordinator, dial(coordinator.url) as line:
        line.sendall(head("/api/v1/commands", method="POST", Content_Length=len(body)) + body)
        assert begun.wait(LONG)
        coordinator.stop()
        said = hear(line)
        go_on.set()
    assert said.status in _AGAIN
    assert (said.headers["connection"], msgspec.json.decode(said.body)["code"]) == ("close", "store_busy")
    assert "Traceback" not in caplog.text

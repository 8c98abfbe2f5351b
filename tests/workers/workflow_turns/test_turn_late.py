"""Messages that come when their instance has ended: dropped, and the feed says so."""

import msgspec
import pytest
from turnskit import App


@pytest.fixture
def app(url, clock):
    made = App(url, clock)
    yield made
    made.close()


def dropped(app):
    found = (msgspec.json.decode(entry.event) for entry in app.hf.engine.store.feed(0))
    return [event["reason"] for event in found if event["type"] == "message:dropped"]


def test_what_comes_for_an_ended_instance_is_dropped_with_an_event(app):
    @app.workflow
    async def flow() -> int:
        return 1

    app.start(flow)
    app.settle()
    assert dropped(app) == []
    app.signal("late")
    app.cancel()
    app.settle()
    assert dropped(app) == ["ended", "ended"]
    assert app.provider.get_queue_depths().orchestrator_queue == 0
    assert app.result() == 1

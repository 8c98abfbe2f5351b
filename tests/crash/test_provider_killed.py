"""A process killed -9 in the middle of an ack leaves all of the turn or nothing of it, and the next one goes on."""

import pytest

from holdfast.failpoints import listening, reach
from holdfast.testing import killed_at
from holdfast.testing.conformance.provider_kit import activity, patch, start, started, timer
from holdfast.testing.conformance.provider_kit import signal as sent
from holdfast.workflows.provider import open_store

POINTS = {
    "wal": ("engine.decided", "journal.leading", "journal.written", "journal.synced", "wal.appended", "wal.synced"),
    "dir": ("engine.decided", "dir.renamed", "dir.intended", "dir.applied", "dir.told", "dir.committed"),
    "sqlite": ("engine.decided", "sqlite.begun", "sqlite.settled", "sqlite.committing", "sqlite.committed"),
}


def die_in_an_ack(url, point):
    """Make an instance, work on its next turn, and die at a point of the commit."""
    provider = open_store(url).provider
    provider.enqueue_for_orchestrator(start("i"))
    _, token, _ = provider.fetch_orchestration_item(30.0)
    provider.ack_orchestration_item(token, 1, [started("i")])
    provider.enqueue_for_orchestrator(sent("i"))
    _, token, _ = provider.fetch_orchestration_item(0.001)
    _, token, _ = provider.fetch_orchestration_item(30.0, 5.0)
    with listening(point, lambda: reach("test.dying")):
        provider.ack_orchestration_item(
            token, 1, [patch(2), patch(3)], [activity(2)], [timer(3, 2**62), sent("other")], cancelled_timers=[9]
        )


@pytest.mark.parametrize(("store", "point"), [(store, point) for store in POINTS for point in POINTS[store]])
def test_an_ack_is_there_whole_or_not_at_all(tmp_path, store, point):
    url = f"{store}:{tmp_path / 'store'}"
    killed_at("test.dying", lambda: die_in_an_ack(url, point))
    opened = open_store(url)
    provider = opened.provider
    depths = provider.get_queue_depths()
    if len(provider.read("i")) == 3:
        assert provider.read("i") == [started("i"), patch(2), patch(3)]
        assert (depths.worker_queue, depths.timer_queue, depths.parked) == (1, 1, 1)
        assert provider.fetch_work_item(30.0)[0] == activity(2)
        assert provider.fetch_orchestration_item(30.0) is None
    else:
        assert point not in ("wal.synced", "sqlite.committed", *POINTS["dir"][1:])
        assert provider.read("i") == [started("i")]
        assert (depths.worker_queue, depths.timer_queue, depths.parked) == (0, 0, 0)
        if store != "sqlite":
            item, token, attempts = provider.fetch_orchestration_item(30.0)
            assert (item.messages, attempts) == ((sent("i"),), 3)
            provider.ack_orchestration_item(token, 1, [patch(2)], [activity(2)], [timer(3, 2**62)])
            assert len(provider.read("i")) == 2
    assert opened.check() == []
    opened.close()

"""Whoever leaves while waiting gets nothing any more."""

from __future__ import annotations

import threading

import msgspec
import pytest
from rawhttp import dial, head

from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue, Lease
from holdfast.stores.http.wire import LeaseWish
from holdfast.testing.conformance.harness import new_job

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


@pytest.mark.parametrize(
    ("padding", "along", "later"),
    [
        pytest.param(0, 0, 0, id="alone"),
        pytest.param(0, 3, 0, id="having sent the next requests along"),
        pytest.param(0, 0, 3, id="having sent the next requests later"),
        pytest.param(200_000, 0, 0, id="after a long body"),
    ],
)
def test_a_job_is_not_leased_to_a_worker_that_has_gone_while_it_waited(coordinator, store, padding, along, later):
    joined, left = threading.Event(), threading.Event()
    body = b" " * padding + msgspec.json.encode(LeaseWish(lease=Lease(worker_id="gone"), wait_s=30))
    with listening("lobby.joined", joined.set), listening("lobby.left", left.set):
        with dial(coordinator.url) as line:
            line.sendall(head("/api/v1/lease", method="POST", Content_Length=len(body)) + body + head() * along)
            assert joined.wait(LONG)
            for _ in range(later):
                line.sendall(head())
        assert left.wait(LONG)
    _, leased = store.decide([Enqueue(jobs=(new_job("a"),)), Lease(worker_id="there")])
    assert [grant.job.job_id for grant in leased.grants] == ["a"]

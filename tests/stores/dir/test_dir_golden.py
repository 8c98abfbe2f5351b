"""A directory that an earlier version wrote still opens, and still says what it said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dir_kit import Desk

from holdfast.model.jobs import JobStatus
from holdfast.model.records import AUTHORITY, Authority, Queue, pair
from holdfast.model.schedules import Schedule
from holdfast.testing import ManualClock

GOLDEN = Path(__file__).parents[2] / "golden" / "dir-v1" / "store"


@pytest.fixture
def desk(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    (tmp_path / "store").chmod(0o700)
    clock = ManualClock()
    clock.advance(1)
    desk = Desk(tmp_path / "store", clock=clock)
    yield desk
    desk.close()


def test_a_store_of_format_1_opens_with_everything_in_it(desk):
    done, chained = desk.job("done"), desk.job("Chained/1")
    assert (done.status, bytes(done.result), done.tags) == (JobStatus.COMPLETED, b'{"answer":42}', {"a": "b"})
    assert bytes(done.params) == '{"text":"ü","n":[1,2.5]}'.encode()
    assert (chained.status, chained.error) == (JobStatus.FAILED, "boom")
    assert desk.job("running").status is JobStatus.RUNNING
    assert (desk.job("waiting").priority, desk.job("waiting").not_before is None) == (-7, False)
    with desk.engine.read() as view:
        (heir,) = view.successors("Chained/1")
        assert heir.key == "k"
        assert view.get(Queue, pair("", "mail")).max_running == 3
        assert view.get(Authority, AUTHORITY) == Authority(3, dispatch_paused=True, dispatch_reason="a storm")
        assert view.by_name(Schedule, "", "nightly") is not None
        assert view.seq == len(list(desk.store.feed(0)))
    desk.demand_sound()

"""The store of one run: a crash keeps what is durable and nothing else, and nothing is left behind."""

import tempfile
import threading
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.testing import ManualClock, SimCrash
from holdfast.testing.crashsafe import grounds
from holdfast.testing.crashsafe.grounds import STORES, Mortal, ground_for
from holdfast.workflows.provider import Provider, StartOrchestration


class Life:
    """A process on a ground, which dies when it is told to."""

    def __init__(self, ground):
        self.ground, self.clock, self.dies = ground, ManualClock(), None
        self.provider = self.opened()

    def opened(self):
        engine = Engine(Mortal(self.ground.open(self.clock), self.strike), clock=self.clock)
        recover(engine)
        return Provider(engine)

    def strike(self, when):
        if when == self.dies:
            self.dies = None
            raise SimCrash

    def start(self, name):
        self.provider.enqueue_for_orchestrator(StartOrchestration(instance=name, orchestration="flow", input="{}"))

    def die(self, name, when):
        self.dies = when
        with pytest.raises(SimCrash):
            self.start(name)
        self.ground.crash()
        self.provider = self.opened()

    def waiting(self):
        return self.provider.get_queue_depths().orchestrator_queue


@pytest.mark.parametrize("store", STORES)
def test_a_crash_before_a_commit_loses_it_and_one_after_keeps_it(store):
    ground = ground_for(store)()
    try:
        life = Life(ground)
        life.start("a")
        life.die("b", "before")
        assert life.waiting() == 1
        life.die("c", "after")
        assert life.waiting() == 2
        life.start("d")
        life.die("e", "before")
        assert life.waiting() == 3
    finally:
        ground.clear()


@pytest.mark.parametrize("store", STORES)
def test_each_store_is_fresh(store):
    for _ in range(2):
        ground = ground_for(store)()
        life = Life(ground)
        assert life.waiting() == 0
        life.start("a")
        ground.clear()


def test_files_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(grounds, "_short_lived", lambda: str(tmp_path))
    ground = ground_for("sqlite:")()
    life = Life(ground)
    life.die("a", "after")
    assert list(tmp_path.iterdir())
    ground.clear()
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_system_in_memory_files_lie_where_temporary_ones_do(monkeypatch):
    monkeypatch.setattr(grounds, "_SHORT_LIVED", "/there/is/none")
    ground = ground_for("sqlite:")()
    assert ground._root.parent == Path(tempfile.gettempdir())
    ground.clear()


@pytest.mark.parametrize("store", STORES)
def test_crashes_leave_no_thread_behind(store):
    before = set(threading.enumerate())
    ground = ground_for(store)()
    life = Life(ground)
    for number in range(3):
        life.die(f"before-{number}", "before")
        life.die(f"after-{number}", "after")
    ground.clear()
    assert set(threading.enumerate()) <= before

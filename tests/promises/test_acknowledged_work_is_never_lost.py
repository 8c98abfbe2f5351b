"""An acknowledged job survives `kill -9` and power loss."""

from __future__ import annotations

import pytest

from holdfast.engine import Engine
from holdfast.model.commands import Enqueue
from holdfast.model.jobs import Job
from holdfast.stores.dir import DirStore
from holdfast.stores.opening import open_store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.wal import WalStore
from holdfast.testing import ManualClock, SimFS
from holdfast.testing.conformance.harness import new_job
from support.crash import Child
from support.oracle import Oracle, complaints
from support.simvfs import SimVfs, available
from support.vfsdisk import VfsDisk, write_image

pytestmark = pytest.mark.disk


def acknowledge(engine: Engine) -> list[str]:
    """Create jobs until ten were acknowledged, and name them."""
    names = [f"j{number}" for number in range(10)]
    for name in names:
        engine.ask(Enqueue(jobs=(new_job(name),)))
    return names


def found(store) -> list[str]:
    with store.read() as view:
        return [job.job_id for job in view.all(Job)]


@pytest.mark.parametrize("scheme", ["dir", "wal", "sqlite"])
def test_what_a_killed_process_was_told_is_there(tmp_path, scheme):
    url, oracle = f"{scheme}:{tmp_path / 'jobs'}", Oracle()
    for turn in range(2):
        Child(url, f"child{turn}", oracle).kill_after(25)
        store = open_store(url)
        assert complaints(oracle, store) == []
        store.close()
    assert oracle.yes


@pytest.mark.parametrize("kind", [WalStore, DirStore], ids=["wal", "dir"])
def test_files_keep_through_a_power_cut_what_was_acknowledged(kind):
    # Gone are all bytes that were not synced, and all names whose directory was not: the worst an honest disk may do.
    fs = SimFS()
    engine = Engine(kind.open("jobs", fs=fs, clock=ManualClock()))
    acknowledged = acknowledge(engine)
    after = fs.power_loss("lose", names="lose")
    store = kind.open("jobs", fs=after, clock=ManualClock())
    assert found(store) == acknowledged
    store.close()


def test_sqlite_keeps_through_a_power_cut_what_it_acknowledged(tmp_path):
    possible, reason = available()
    if not possible:
        pytest.skip(reason)
    folder = tmp_path / "disk"
    folder.mkdir()
    with SimVfs(folder) as vfs:
        engine = Engine(SqliteStore.open(folder / "jobs.db"))
        acknowledged = acknowledge(engine)
        left = VfsDisk(vfs.calls).cut("lose", names="lose")
        engine.close()
    store = SqliteStore.open(write_image(left, tmp_path / "after") / "jobs.db")
    assert found(store) == acknowledged
    store.close()


def test_the_power_cut_of_these_tests_does_lose_what_was_not_synced():
    fs = SimFS()
    handle = fs.open("forgotten", "create")
    fs.write(handle, b"never synced")
    assert fs.power_loss("lose", names="lose").stat("forgotten") is None

"""Processes that hold a `dir:` store and are killed: at each call of each transition, in handlers, again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count

import pytest
from dir_kit import STATES, Desk, job

from holdfast import Holdfast
from holdfast.engine import Engine
from holdfast.errors import StoreClosed, StoreLocked
from holdfast.failpoints import reach
from holdfast.model.commands import Bury, Cancel, Complete, Enqueue, Extend, Fail, Lease, Release, Snooze, Update
from holdfast.model.events import JobChanges
from holdfast.model.jobs import Backoff, Job, JobStatus, RetryMode
from holdfast.stores.dir import DirStore
from holdfast.testing.killing import killed_at
from support.unsynced import Unsynced

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
NOW = Backoff(base_s=0, jitter=0)


class Reaching(Unsynced):
    """Files that name a point before each call that changes them. Killed here, nothing but the process is lost."""

    def open(self, path, mode):
        if mode == "create":
            reach("fs.change")
        return super().open(path, mode)

    def write(self, h, data):
        reach("fs.change")
        return super().write(h, data)

    def sync(self, h, *, metadata):
        reach("fs.change")

    def rename(self, src, dst):
        reach("fs.change")
        super().rename(src, dst)

    def unlink(self, path):
        reach("fs.change")
        super().unlink(path)

    def sync_dir(self, path):
        reach("fs.change")


#: Row of the table → what was done before, the change, and the directories of old and new.
ROWS = {
    "create": ([], lambda: Enqueue(jobs=(job("a"),)), None, "pending"),
    "edit": (["job"], lambda: Update(job_id="a", changes=JobChanges(priority=3)), "pending", "pending"),
    "lease": (["job"], lambda: Lease(worker_id="w"), "pending", "running"),
    "extend": (["job", "lease"], lambda: Extend(job_id="a", token=1, lease_s=900), "running", "running"),
    "complete": (["job", "lease"], lambda: Complete(job_id="a", token=1), "running", "completed"),
    "fail": (["job", "lease"], lambda: Fail(job_id="a", token=1, error="x", fatal=True), "running", "failed"),
    "retry": (["job", "lease"], lambda: Fail(job_id="a", token=1, error="x"), "running", "pending"),
    "snooze": (["job", "lease"], lambda: Snooze(job_id="a", token=1, delay_s=1), "running", "pending"),
    "release": (["job", "lease"], lambda: Release(job_id="a", token=1, begun=True), "running", "pending"),
    "cancel running": (["job", "lease"], lambda: Cancel(job_id="a", force=True), "running", "failed"),
    "cancel": (["job"], lambda: Cancel(job_id="a"), "pending", "failed"),
    "bury": (["job"], lambda: Bury(job_id="a"), "pending", "failed"),
    "chain": (["chain", "lease"], lambda: Fail(job_id="a", token=1, error="x"), "running", "failed"),
}


def states(path):
    found = {}
    for state in STATES:
        for file in (path / "data" / "tasks" / state).glob("*.json"):
            found.setdefault(file.stem, []).append(state)
    return found


@pytest.mark.parametrize("row", ROWS)
def test_killed_at_any_call_of_a_transition_leaves_the_old_or_the_new(tmp_path, row):
    before, command, old, new = ROWS[row]
    nths = count(1) if SOAK else count(1 + sorted(ROWS).index(row) % 4, 4)
    seen = set()
    for nth in nths:
        path = tmp_path / str(nth)
        store = DirStore.open(path, fs=Unsynced(path, create=True))
        first = Engine(store)
        if {"job", "chain"} & set(before):
            mode = RetryMode.CHAIN if "chain" in before else RetryMode.REQUEUE
            first.ask(Enqueue(jobs=(job("a", {"n": 1}, backoff=NOW, retry_mode=mode),)))
        if "lease" in before:
            first.ask(Lease(worker_id="w"))
        first.close()

        def change(path=path):
            opened = Engine(DirStore.open(path, fs=Reaching(path)))
            reach("test.begun")
            opened.ask(command())

        try:
            killed_at("fs.change", change, nth=nth)
        except AssertionError:
            break  # it ended before it came so far
        # What a process that was killed left: the intent tells whether it happened.
        intent = list((path / "data" / "intent").glob("0*.json"))
        store = DirStore.open(path, fs=Unsynced(path))
        found = states(path)
        assert found.get("a") in ([old] if old else None, [new]), (nth, found)
        if intent:
            assert found["a"] == [new]
        assert list(path.rglob(".tmp-*")) == list((path / "data" / "intent").iterdir()) == []
        assert store.check() == []
        seen.add(found["a"][0] if "a" in found else None)
        store.close()
    assert new in seen


@pytest.mark.parametrize("point", ["dir.renamed", "dir.intended", "dir.applied", "dir.told", "dir.committed"])
def test_killed_at_a_named_point_of_a_commit_it_is_finished_by_the_next_opening(tmp_path, point):
    path = tmp_path / "store"
    first = Engine(DirStore.open(path))
    first.ask(Enqueue(jobs=(job("a"), job("b"))))
    first.close()

    def complete():
        opened = Engine(DirStore.open(path))
        (grant,) = opened.ask(Lease(worker_id="w")).grants
        opened.ask(Complete(job_id=grant.job.job_id, token=grant.token))

    killed_at(point, complete, nth=2)
    again = Engine(DirStore.open(path))
    assert again.job("a").status is JobStatus.COMPLETED
    assert [grant.job.job_id for grant in again.ask(Lease(worker_id="w", n=5)).grants] == ["b"]
    assert again.store.check() == []
    again.close()


HOLDER = """
import sys
from holdfast.stores.dir import DirStore
store = DirStore.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_pid_of_the_first_and_enters_when_that_is_killed(tmp_path):
    path = tmp_path / "store"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked, match=f"pid {first.pid} "):
            DirStore.open(path)
        assert states(path) == {}
        first.send_signal(signal.SIGKILL)
        first.wait()
        DirStore.open(path).close()


def test_after_a_fork_the_child_is_told_that_the_store_is_its_parents(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(job("a"))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = b"nothing"
        try:
            with desk.store.read():
                pass
        except StoreClosed:
            said = b"closed"
        finally:
            os.write(writing, said)
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 100) == b"closed"
    os.close(reading)
    os.close(writing)
    assert len(desk.take()) == 1
    desk.close()


# --- handlers ---------------------------------------------------------------------------------------------------------


def test_a_handler_finds_its_file_in_running_and_its_effect_comes_before_completed(tmp_path):
    path = tmp_path / "store"
    seen = []
    with Holdfast(f"dir:{path}") as hf:

        @hf.task(name="look")
        def look() -> None:
            seen.append(states(path))

        made = look.enqueue()
        hf.work(until_idle=True)
        assert seen == [{made.id: ["running"]}]
        assert states(path) == {made.id: ["completed"]}


KILLER = """
import os, signal, sys
from holdfast import Holdfast

hf = Holdfast("dir:" + sys.argv[1])

@hf.task(name="step")
def step(n: int) -> int:
    if n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return n

if __name__ == "__main__":
    hf.work(concurrency=1, until_idle=True)
"""


def test_a_job_that_kills_its_process_ends_dead_and_none_is_lost(tmp_path):
    path, program = tmp_path / "store", tmp_path / "program.py"
    program.write_text(KILLER)
    first = Engine(DirStore.open(path))
    first.ask(Enqueue(jobs=tuple(job(f"j{n}", {"n": n}, job_type="step") for n in range(8))))
    first.close()
    codes = []
    for _ in range(8):
        codes.append(subprocess.run([sys.executable, str(program), str(path)], check=False).returncode)
        if codes[-1] == 0:
            break
    assert codes == [-signal.SIGKILL] * 5 + [0]
    last = Engine(DirStore.open(path))
    with last.read() as view:
        ended = {one.job_id: one.status.value for one in view.all(Job)}
    assert ended == {f"j{n}": "DEAD" if n == 3 else "COMPLETED" for n in range(8)}
    assert last.store.check() == []
    last.close()

"""Descriptors: a store that is closed, or was refused, leaves none open and closes none twice.

A number that was closed twice may belong to the application's socket by the second time. Nothing here waits for the
garbage collector: it is off, and errors are kept alive with all they refer to.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import itertools
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.journal.filesystem import OsFS
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.payloads import pack
from holdfast.stores.check_and_repair import check
from holdfast.stores.opening import open_store

STORES = ("memory", "dir", "wal", "sqlite")
LOCAL = ("dir", "wal", "sqlite")
#: Calls of the operating system that may fail while a store is opened.
CALLS = (
    *("open", "stat", "lstat", "fstat", "listdir", "mkdir", "chmod", "fchmod", "rename", "link", "unlink", "rmdir"),
    *("pread", "write", "pwrite", "ftruncate", "fsync", "fdatasync"),
)


@pytest.fixture(autouse=True)
def uncollected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def closes(monkeypatch):
    """List the descriptors that were closed although they were not open."""
    wrong: list[int] = []
    close = os.close

    def watched(fd):
        try:
            close(fd)
        except OSError as error:
            if error.errno == errno.EBADF:
                wrong.append(fd)
            raise

    monkeypatch.setattr(os, "close", watched)
    return wrong


def descriptors() -> dict[str, str]:
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found[link.name] = str(link.readlink())
    return {fd: place for fd, place in found.items() if not place.endswith(f"/proc/{os.getpid()}/fd")}


def url_of(kind: str, tmp_path: Path) -> str:
    return "memory:" if kind == "memory" else f"{kind}:{tmp_path / 'store'}"


def use(url: str, *, readonly: bool = False) -> None:
    """Open a store, work with it and close it; what is beside the records is used, too."""
    engine = Engine(open_store(url, readonly=readonly))
    store = engine.store
    try:
        if not readonly:
            job = NewJob(job_id=engine.new_id(), job_type="work", params=pack({"pad": "x" * 100_000}))
            engine.ask(Enqueue(jobs=(job,)))
            store.blobs.put(b"content")
            store.snapshot()
        store.check()
        with store.read() as view:
            list(store.feed(view.seq - 1))
        list(store.workers.all())
        store.wait(10**9, 0)
    finally:
        engine.close()


class Failing:
    """Lets the n-th call that Holdfast makes of the operating system fail."""

    def __init__(self, nth: int) -> None:
        self.nth = nth
        self.seen = 0
        self.call = ""

    def arm(self, patch: pytest.MonkeyPatch) -> None:
        for name in CALLS:
            patch.setattr(os, name, self._failing(name, getattr(os, name)))
        patch.setattr(fcntl, "flock", self._failing("flock", fcntl.flock))

    def _failing(self, name, real):
        def call(*args, **kwargs):
            caller = sys._getframe(1).f_globals["__name__"]
            if caller.startswith("holdfast") or caller == "pathlib":
                self.seen += 1
                if self.seen == self.nth:
                    self.call = name
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(args[0]) if args else None)
            return real(*args, **kwargs)

        return call


@pytest.mark.parametrize("readonly", [False, True], ids=["writing", "reading"])
@pytest.mark.parametrize("kind", STORES)
def test_closed_store_leaves_no_descriptor_open(kind, readonly, tmp_path, closes):
    url = url_of(kind, tmp_path)
    use(url)
    for _ in range(2):
        before = descriptors()
        use(url, readonly=readonly and kind != "memory")
        assert descriptors() == before
    assert closes == []


@pytest.mark.parametrize("kind", LOCAL)
def test_created_store_leaves_no_descriptor_open(kind, tmp_path, closes):
    before = descriptors()
    use(url_of(kind, tmp_path))
    assert descriptors() == before
    assert closes == []


@pytest.mark.parametrize("kind", LOCAL)
def test_checked_store_leaves_no_descriptor_open(kind, tmp_path, closes):
    url = url_of(kind, tmp_path)
    use(url)
    before = descriptors()
    assert check(url) == []
    assert descriptors() == before
    assert closes == []


@pytest.mark.parametrize("state", ["new", "closed", "left open"])
@pytest.mark.parametrize("kind", LOCAL)
def test_refused_opening_leaves_no_descriptor_open_and_closes_none_twice(kind, state, tmp_path, closes):
    refused = 0
    for nth in itertools.count(1):
        place = tmp_path / str(nth)
        place.mkdir()
        url = url_of(kind, place)
        if state == "closed":
            use(url)
        elif state == "left open":
            left_open(url)
        before, fault, kept = descriptors(), Failing(nth), []
        with pytest.MonkeyPatch.context() as patch:
            fault.arm(patch)
            try:
                store = open_store(url)
            except HoldfastError as problem:
                kept.append(problem)
                refused += 1
            else:
                with suppress(HoldfastError):
                    store.close()
        assert descriptors() == before, f"call {nth}, {fault.call}: {kept}"
        # What comes next gets the number that was closed. Letting go of the rest must not close it.
        other = os.open("/dev/null", os.O_RDONLY)
        kept.clear()
        gc.collect()
        os.fstat(other)
        os.close(other)
        assert closes == [], f"call {nth}, {fault.call}"
        if not fault.call:
            break
    assert refused


def left_open(url: str) -> None:
    """Make a store whose process died at work."""
    child = os.fork()
    if not child:
        with suppress(BaseException):
            engine = Engine(open_store(url))
            engine.ask(Enqueue(jobs=(NewJob(job_id=engine.new_id(), job_type="work", params=pack({})),)))
        os._exit(0)
    os.waitpid(child, 0)


def test_lock_that_cannot_be_written_closes_its_descriptor_once(tmp_path, monkeypatch, closes):
    fs = OsFS(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    before = descriptors()
    with pytest.raises(OSError, match="No space") as caught:
        fs.lock("LOCK", b"me")
    theirs = os.open("/dev/null", os.O_RDONLY)
    del caught
    gc.collect()
    os.fstat(theirs)
    os.close(theirs)
    assert descriptors() == before
    assert closes == []


@pytest.mark.parametrize("kind", ["dir", "wal"])
def test_parts_beside_the_records_refuse_work_after_close(kind, tmp_path):
    store = open_store(url_of(kind, tmp_path))
    digest = store.blobs.put(b"content")
    store.close()
    for action in (lambda: store.blobs.get(digest), lambda: store.blobs.put(b"other")):
        with pytest.raises(HoldfastError, match="closed"):
            action()
    assert store.workers.all() == []

"""Full disks and disks that take no writes, as file systems of their own: what is refused, what goes on, what is told.

Mounting needs root; where it is not allowed these tests are skipped, and say so.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.errors import HoldfastError, StoreFailed, StoreFull, StoreReadOnly
from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.payloads import pack
from holdfast.stores.check_and_repair import check
from holdfast.stores.dir import store as dir_store
from holdfast.stores.opening import open_store
from holdfast.stores.protocol import JobQuery

LOCAL = ("dir", "wal", "sqlite")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def mounted(place: Path, *options: str) -> None:
    place.mkdir(exist_ok=True)
    done = run("mount", *options, place)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    mounted(place, "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs")
    yield place
    run("umount", "-l", place)


def put(engine: Engine, job_id: str, size: int = 10) -> None:
    engine.ask(Enqueue(jobs=(NewJob(job_id=job_id, job_type="work", params=pack({"pad": "x" * size})),)))


def ids_of(store) -> list[str]:
    with store.read() as view:
        return sorted(job.job_id for job in view.jobs(JobQuery()))


def left_by_dead_process(url: str, job_id: str) -> None:
    """Have a process put a job and die without closing the store."""
    child = os.fork()
    if not child:
        with suppress(BaseException):
            put(Engine(open_store(url)), job_id)
        os._exit(0)
    os.waitpid(child, 0)


@contextmanager
def ballast(disk: Path):
    """Fill the disk to the last byte, until left."""
    file = disk / "ballast"
    with file.open("wb", buffering=0) as out:
        piece = 1 << 20
        while piece:
            try:
                out.write(b"x" * piece)
            except OSError:
                piece //= 2
    yield
    file.unlink(missing_ok=True)


# --- read-only --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["closed", "left open"])
@pytest.mark.parametrize("kind", LOCAL)
def test_store_on_readonly_disk_is_read_and_refuses_writes(kind, state, disk):
    url = f"{kind}:{disk / 'store'}"
    if state == "closed":
        with closing(Engine(open_store(url))) as engine:
            put(engine, "kept")
    else:
        left_by_dead_process(url, "kept")
    assert run("mount", "-o", "remount,ro", disk).returncode == 0
    assert check(url) == []
    with closing(open_store(url, readonly=True)) as store:
        assert ids_of(store) == ["kept"]
        assert store.wait(0, 0)
        with pytest.raises(StoreReadOnly, match=r"opened for reading.*[Nn]othing was (written|stored)"), store.write():
            pass
    with pytest.raises(StoreReadOnly, match=r"(?i)read-only file system|mounted read-only") as refused:
        open_store(url)
    assert "again" not in str(refused.value)
    assert "Open it for reading only, or make the file system writable." in str(refused.value)


def test_sqlite_log_without_index_on_readonly_disk_is_refused_and_not_passed_over(disk):
    left_by_dead_process(f"sqlite:{disk / 'store'}", "kept")
    (disk / "store-shm").unlink()
    assert run("mount", "-o", "remount,ro", disk).returncode == 0
    with pytest.raises(StoreReadOnly, match=r"store-wal.*the newest commits would be missing"):
        open_store(f"sqlite:{disk / 'store'}", readonly=True)


@pytest.mark.parametrize("kind", LOCAL)
def test_missing_store_on_readonly_disk_is_refused_as_readonly(kind, disk):
    assert run("mount", "-o", "remount,ro", disk).returncode == 0
    with pytest.raises(StoreReadOnly):
        open_store(f"{kind}:{disk / 'store'}")


# --- full -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dir", "sqlite"])
def test_full_disk_refuses_writes_and_reading_goes_on_and_room_heals_it(kind, disk):
    url = f"{kind}:{disk / 'store'}"
    with closing(Engine(open_store(url))) as engine:
        put(engine, "kept")
        with ballast(disk):
            with pytest.raises(StoreFull) as refused:
                put(engine, "refused", 100_000)
            assert "space" in str(refused.value)
            assert ids_of(engine.store) == ["kept"]
            assert check(url) == []
        put(engine, "later", 100_000)
        assert ids_of(engine.store) == ["kept", "later"]
    assert check(url) == []


def test_full_disk_lets_a_commit_of_wal_wait_and_reading_goes_on_and_room_heals_it(disk):
    url = f"wal:{disk / 'store'}"
    aside = threading.Event()
    with closing(Engine(open_store(url))) as engine:
        put(engine, "kept")
        with listening("wal.set_aside", aside.set), ballast(disk):
            waiting = threading.Thread(target=put, args=(engine, "waited", 20_000))
            waiting.start()
            assert aside.wait(60)
            assert ids_of(engine.store) == ["kept"]
            with pytest.raises(StoreFull, match="Free some space: writing goes on by itself"), engine.store.write():
                pass
        waiting.join()
        assert ids_of(engine.store) == ["kept", "waited"]
    assert check(url) == []


@pytest.mark.parametrize("kind", LOCAL)
def test_store_that_cannot_be_made_on_full_disk_says_so_and_is_made_once_there_is_room(kind, disk):
    place = disk / "store"
    with ballast(disk):
        with pytest.raises(StoreFull) as refused:
            open_store(f"{kind}:{place}")
        told = str(refused.value)
        assert str(place) in told
        assert ".new-" not in told
        assert "unknown" not in told
        assert "same command" not in told
    with closing(Engine(open_store(f"{kind}:{place}"))) as engine:
        put(engine, "first")
        assert ids_of(engine.store) == ["first"]


#: Fills a btrfs and goes on writing and reading; prints how often each ended how.
ON_BTRFS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_full_and_readonly_disks import *
folder = Path(sys.argv[1])
with closing(Engine(open_store(f"sqlite:{folder}/jobs.db"))) as engine:
    put(engine, "kept")
    with ballast(folder):
        for n in range(50):
            with suppress(StoreFull):
                put(engine, f"{n}", 20_000)
        print("kept" in ids_of(engine.store), flush=True)
    os.sync()
    put(engine, "later")
    print("later" in ids_of(engine.store), flush=True)
"""


def test_full_btrfs_refuses_sqlite_commits_and_kills_nobody(tmp_path):
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("mkfs.btrfs is not installed")
    image, place = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(160 << 20)
    made = run("mkfs.btrfs", "-q", image)
    assert made.returncode == 0, made.stderr
    mounted(place, "-t", "btrfs", "-o", "loop", str(image))
    try:
        done = run(sys.executable, "-c", ON_BTRFS, place, Path(__file__).parent)
    finally:
        run("umount", "-l", place)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True"]), done.stderr


# --- a limit of the size of files -------------------------------------------------------------------------------------


@contextmanager
def largest_file(size: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["dir", "sqlite"])
def test_file_size_limit_is_told_as_such(kind, tmp_path):
    engine = Engine(open_store(f"{kind}:{tmp_path / 'store'}"))
    put(engine, "kept")
    written = tmp_path.glob("*-wal") if kind == "sqlite" else (tmp_path / "store" / "data").rglob("*.json*")
    size = max(file.stat().st_size for file in written)
    with largest_file(size + 1000), pytest.raises((StoreFull, StoreFailed), match="file size limit") as refused:
        put(engine, "refused", 60_000)
    assert "Free some space" not in str(refused.value)
    with suppress(HoldfastError):
        engine.close()


def test_file_size_limit_of_a_waiting_wal_is_told_as_such(tmp_path):
    aside = threading.Event()
    with closing(Engine(open_store(f"wal:{tmp_path / 'store'}"))) as engine:
        put(engine, "kept")
        with listening("wal.set_aside", aside.set), largest_file(1000):
            waiting = threading.Thread(target=put, args=(engine, "waited", 5_000))
            waiting.start()
            assert aside.wait(60)
            told = r"size limit; nothing was stored.*Raise the file size"
            with pytest.raises(StoreFull, match=told), engine.store.write():
                pass
        waiting.join()
        assert ids_of(engine.store) == ["kept", "waited"]


# --- advice -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_dir_that_stops_at_a_failed_commit_advises_to_reopen_it(number, call, tmp_path, monkeypatch):
    engine = Engine(open_store(f"dir:{tmp_path / 'store'}"))

    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises((StoreFull, StoreFailed)) as refused:
            put(engine, "refused")
    with pytest.raises(StoreFailed, match="takes no more writes"):
        put(engine, "again")
    assert "reopen the store, then send the same command again" in str(refused.value)
    assert "try again" not in str(refused.value)
    engine.close()
    with closing(Engine(open_store(f"dir:{tmp_path / 'store'}"))) as engine:
        put(engine, "again")


def test_dir_goes_on_when_its_next_feed_file_could_not_be_begun(tmp_path, monkeypatch):
    engine = Engine(open_store(f"dir:{tmp_path / 'store'}"))
    put(engine, "first")
    real = os.fsync
    monkeypatch.setattr(dir_store, "ROTATE", 1)
    with monkeypatch.context() as patch:

        def full_at_the_feed(fd):
            if "/data/feed/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(fd)

        patch.setattr(os, "fsync", full_at_the_feed)
        with pytest.raises(StoreFull, match="Free some space and try again"):
            put(engine, "second")
    put(engine, "second")
    assert ids_of(engine.store) == ["first", "second"]
    engine.close()

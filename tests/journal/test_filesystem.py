"""The file-system layer: the same promises on the real one and on the fake, then what only the real one can show."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.journal import filesystem as layer
from holdfast.journal.filesystem import LockHeld, OsFS, atomic_write, filesystem_kind, is_network, write_all
from holdfast.testing import SimFS


@pytest.fixture(params=["os", "sim"])
def fs(request, tmp_path):
    return OsFS(tmp_path) if request.param == "os" else SimFS()


def put(fs, path, data):
    h = fs.open(path, "create")
    write_all(fs, h, data)
    fs.close(h)


def get(fs, path):
    h = fs.open(path, "read")
    try:
        return fs.read(h, 1 << 20, 0)
    finally:
        fs.close(h)


def code_of(action):
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what callers compare
        action()
    return caught.value.errno


# --- both -------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back_at_any_offset(fs):
    put(fs, "a", b"0123456789")
    h = fs.open("a", "read")
    assert fs.read(h, 4, 0) == b"0123"
    assert fs.read(h, 4, 8) == b"89"
    assert fs.read(h, 4, 10) == b""
    fs.close(h)


def test_append_adds_at_the_end_and_can_read(fs):
    put(fs, "a", b"one")
    h = fs.open("a", "append")
    assert fs.write(h, b"two") == 3
    assert fs.read(h, 100, 0) == b"onetwo"
    fs.close(h)


def test_append_after_a_cut_lands_at_the_new_end(fs):
    put(fs, "a", b"0123456789")
    h = fs.open("a", "append")
    fs.truncate(h, 4)
    fs.write(h, b"x")
    fs.close(h)
    assert get(fs, "a") == b"0123x"


def test_create_refuses_a_name_that_is_taken_and_leaves_it_alone(fs):
    put(fs, "a", b"mine")
    assert code_of(lambda: fs.open("a", "create")) == errno.EEXIST
    assert get(fs, "a") == b"mine"


def test_a_missing_file_is_an_error_to_open_and_none_to_stat(fs):
    assert code_of(lambda: fs.open("a", "read")) == errno.ENOENT
    assert code_of(lambda: fs.open("a", "append")) == errno.ENOENT
    assert code_of(lambda: fs.unlink("a")) == errno.ENOENT
    assert code_of(lambda: fs.rename("a", "b")) == errno.ENOENT
    assert code_of(lambda: fs.listdir("a")) == errno.ENOENT
    assert fs.stat("a") is None
    assert fs.stat("a/b") is None


def test_a_handle_opened_to_read_cannot_write(fs):
    put(fs, "a", b"x")
    h = fs.open("a", "read")
    assert code_of(lambda: fs.write(h, b"y")) == errno.EBADF
    fs.close(h)


def test_a_closed_handle_is_refused_and_closing_again_does_nothing(fs):
    put(fs, "a", b"x")
    h = fs.open("a", "append")
    fs.close(h)
    fs.close(h)
    assert code_of(lambda: fs.read(h, 1, 0)) == errno.EBADF
    assert code_of(lambda: fs.write(h, b"y")) == errno.EBADF
    assert code_of(lambda: fs.sync(h, metadata=False)) == errno.EBADF
    assert get(fs, "a") == b"x"


def test_rename_replaces_the_destination(fs):
    put(fs, "a", b"new")
    put(fs, "b", b"old")
    fs.rename("a", "b")
    assert fs.listdir("") == ["b"]
    assert get(fs, "b") == b"new"


def test_a_handle_follows_its_file_not_its_name(fs):
    put(fs, "a", b"first")
    h = fs.open("a", "append")
    fs.unlink("a")
    put(fs, "a", b"second")
    fs.write(h, b"!")
    assert fs.read(h, 100, 0) == b"first!"
    fs.close(h)
    assert get(fs, "a") == b"second"


def test_a_replaced_file_shows_by_its_inode(fs):
    put(fs, "a", b"first")
    h = fs.open("a", "append")
    found = fs.stat("a")
    assert (found.inode, found.device) == (h.inode, h.device)
    put(fs, "b", b"second")
    fs.rename("b", "a")
    assert fs.stat("a").inode != h.inode
    fs.close(h)


def test_stat_tells_kind_and_size(fs):
    put(fs, "a", b"12345")
    fs.mkdir("d")
    assert (fs.stat("a").kind, fs.stat("a").size) == ("file", 5)
    assert fs.stat("d").kind == "dir"
    assert fs.stat("").kind == "dir"


def test_directories_nest_and_only_empty_ones_go(fs):
    fs.mkdir("d")
    fs.mkdir("d/e")
    put(fs, "d/e/x", b"1")
    fs.sync_dir("d/e")
    fs.sync_dir("d")
    fs.sync_dir("")
    assert fs.listdir("d") == ["e"]
    assert fs.listdir("d/e") == ["x"]
    assert code_of(lambda: fs.mkdir("d")) == errno.EEXIST
    assert code_of(lambda: fs.rmdir("d/e")) == errno.ENOTEMPTY
    fs.unlink("d/e/x")
    fs.rmdir("d/e")
    assert fs.listdir("d") == []
    fs.mkdir("d/e")
    put(fs, "d/e/y", b"2")
    assert fs.listdir("d/e") == ["y"]


def test_a_moved_directory_is_reached_by_its_new_name_only(fs):
    fs.mkdir("d")
    put(fs, "d/x", b"1")
    assert fs.listdir("d") == ["x"]
    fs.rename("d", "e")
    assert get(fs, "e/x") == b"1"
    assert fs.stat("d/x") is None
    fs.mkdir("d")
    assert fs.listdir("d") == []


def test_a_file_moves_between_directories(fs):
    fs.mkdir("d")
    fs.mkdir("e")
    put(fs, "d/x", b"1")
    fs.rename("d/x", "e/x")
    assert (fs.listdir("d"), fs.listdir("e")) == ([], ["x"])


def test_a_directory_is_not_opened_as_a_file(fs):
    fs.mkdir("d")
    assert code_of(lambda: fs.open("d", "read")) == errno.EISDIR
    assert code_of(lambda: fs.open("d", "append")) == errno.EISDIR


def test_a_file_is_not_walked_as_a_directory(fs):
    put(fs, "a", b"")
    assert code_of(lambda: fs.listdir("a")) == errno.ENOTDIR
    assert code_of(lambda: fs.stat("a/b")) == errno.ENOTDIR


@pytest.mark.parametrize("path", ["..", "../x", "/etc/passwd", "a/../b", ".", "a/.", "a//b", "a/"])
def test_no_path_leads_out_of_the_root(fs, path):
    fs.mkdir("a")
    put(fs, "b", b"")
    assert code_of(lambda: fs.open(path, "read")) in {errno.EINVAL, errno.ENOENT}
    assert code_of(lambda: fs.open(path, "create")) in {errno.EINVAL, errno.ENOENT}
    assert code_of(lambda: fs.unlink(path)) in {errno.EINVAL, errno.ENOENT}


def test_an_atomic_write_puts_the_whole_file_and_leaves_no_draft(fs):
    fs.mkdir("d")
    atomic_write(fs, "d/a", b"one")
    atomic_write(fs, "d/a", b"two")
    atomic_write(fs, "top", b"three", tmp=".tmp-top")
    assert (fs.listdir("d"), fs.listdir("")) == (["a"], ["d", "top"])
    assert (get(fs, "d/a"), get(fs, "top")) == (b"two", b"three")


def test_an_atomic_write_removes_a_leftover_draft(fs):
    put(fs, "a.tmp", b"half of an old attem")
    atomic_write(fs, "a", b"whole")
    assert fs.listdir("") == ["a"]
    assert get(fs, "a") == b"whole"


def test_a_second_lock_is_refused_with_the_holders_bytes(fs):
    lock = fs.lock("LOCK", b'{"pid":1}')
    with pytest.raises(LockHeld) as caught:
        fs.lock("LOCK", b"intruder")
    assert caught.value.holder == b'{"pid":1}'
    assert get(fs, "LOCK") == b'{"pid":1}'
    lock.rewrite(b"{}")
    with pytest.raises(LockHeld) as caught:
        fs.lock("LOCK", b"intruder")
    assert caught.value.holder == b"{}"
    lock.release()


def test_a_released_lock_can_be_taken_and_releasing_twice_frees_nobody_else(fs):
    first = fs.lock("LOCK", b"a much longer holder")
    first.release()
    second = fs.lock("LOCK", b"short")
    first.release()
    assert get(fs, "LOCK") == b"short"
    with pytest.raises(LockHeld):
        fs.lock("LOCK", b"x")
    second.release()


def test_threads_may_list_and_write_at_once(fs):
    fs.mkdir("d")
    for n in range(50):
        put(fs, f"d/{n:03}", b"x")
    whole = fs.listdir("d")
    wrong = []

    def look():
        wrong.extend(1 for _ in range(50) if fs.listdir("d") != whole)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- writing all, and atomically, on a disk that fails ----------------------------------------------------------------


def test_a_short_write_is_continued_until_every_byte_is_there():
    fs = SimFS()
    fs.shorten("write", 1, 3, times=4)
    put(fs, "a", b"0123456789abcdef")
    assert get(fs, "a") == b"0123456789abcdef"
    assert fs.injected == 4


@pytest.mark.parametrize("nth", [1, 2])
def test_a_write_that_takes_nothing_is_an_io_error_not_an_endless_loop(nth):
    fs = SimFS()
    fs.shorten("write", 1, 2)
    fs.shorten("write", nth, 0, times=1000)
    h = fs.open("a", "create")
    assert code_of(lambda: write_all(fs, h, b"0123456789")) == errno.EIO


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failing_atomic_write_leaves_the_old_file_and_no_draft(kind, error):
    fs = SimFS()
    atomic_write(fs, "a", b"old")
    fs.fail(kind, error=error)
    assert code_of(lambda: atomic_write(fs, "a", b"new")) == error
    assert fs.tree() == {"a": b"old"}


def test_a_failing_directory_sync_is_told():
    fs = SimFS()
    fs.fail("sync_dir")
    assert code_of(lambda: atomic_write(fs, "a", b"new")) == errno.EIO


def test_an_atomic_write_syncs_the_file_before_the_rename_and_the_directory_after():
    fs = SimFS()
    fs.mkdir("d")
    fs.calls.clear()
    atomic_write(fs, "d/a", b"x")
    assert [(c.kind, c.path) for c in fs.calls] == [
        ("create", "d/a.tmp"),
        ("write", "d/a.tmp"),
        ("sync", "d/a.tmp"),
        ("close", "d/a.tmp"),
        ("rename", "d/a.tmp"),
        ("sync_dir", "d"),
    ]


# --- only the real one ------------------------------------------------------------------------------------------------


@pytest.fixture
def harsh_umask():
    before = os.umask(0o777)
    yield
    os.umask(before)


@pytest.mark.usefixtures("harsh_umask")
def test_files_are_0600_and_directories_0700_whatever_the_umask(tmp_path):
    fs = OsFS(tmp_path / "new" / "store", create=True)
    fs.mkdir("d")
    put(fs, "d/x", b"1")
    fs.lock("LOCK", b"").release()
    for path in ("new", "new/store", "new/store/d"):
        assert (tmp_path / path).stat().st_mode & 0o7777 == 0o700
    for path in ("new/store/d/x", "new/store/LOCK"):
        assert (tmp_path / path).stat().st_mode & 0o7777 == 0o600


def test_a_loose_umask_opens_nothing_to_others(tmp_path):
    before = os.umask(0)
    try:
        fs = OsFS(tmp_path / "root", create=True)
        put(fs, "x", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "root").stat().st_mode & 0o077 == 0
    assert (tmp_path / "root/x").stat().st_mode & 0o077 == 0


def test_a_missing_root_is_refused_unless_it_may_be_made(tmp_path):
    assert code_of(lambda: OsFS(tmp_path / "none")) == errno.ENOENT
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_bytes(b"")
    assert code_of(lambda: OsFS(tmp_path / "file")) == errno.ENOTDIR
    assert code_of(lambda: OsFS(tmp_path / "file", create=True)) == errno.ENOTDIR


def test_each_directory_made_for_the_root_is_synced_into_its_parent(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        layer, "_sync", lambda fd, *, metadata: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
    )
    OsFS(tmp_path / "a" / "b" / "c", create=True)
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    synced.clear()
    OsFS(tmp_path / "a" / "b" / "c", create=True)
    assert synced == []


def test_the_root_may_be_a_link_and_is_resolved_once(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "root").symlink_to("one")
    fs = OsFS(tmp_path / "root")
    (tmp_path / "root").unlink()
    (tmp_path / "root").symlink_to("two")
    put(fs, "x", b"1")
    assert (tmp_path / "one/x").exists()
    assert fs.stat("").kind == "dir"


def test_no_link_below_the_root_is_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"secret")
    root = tmp_path / "root"
    fs = OsFS(root, create=True)
    (root / "file").symlink_to(outside / "x")
    (root / "dir").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    assert code_of(lambda: fs.open("file", "read")) == errno.ELOOP
    assert code_of(lambda: fs.open("file", "append")) == errno.ELOOP
    assert code_of(lambda: fs.open("dangling", "create")) in {errno.EEXIST, errno.ELOOP}
    assert code_of(lambda: fs.lock("dangling", b"")) == errno.ELOOP
    for walk in (
        fs.listdir,
        fs.sync_dir,
        lambda path: fs.open(path + "/x", "read"),
        lambda path: fs.unlink(path + "/x"),
    ):
        assert code_of(lambda walk=walk: walk("dir")) in {errno.ELOOP, errno.ENOTDIR}
    assert fs.stat("dir").kind == "link"
    assert fs.stat("file").kind == "link"
    assert sorted(p.name for p in outside.iterdir()) == ["x"]


def test_a_pipe_or_socket_is_refused_without_waiting(tmp_path):
    fs = OsFS(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert code_of(lambda: fs.open("pipe", "read")) == errno.EINVAL
    assert code_of(lambda: fs.open("pipe", "append")) == errno.EINVAL
    with socket.socket(socket.AF_UNIX) as plug:
        here = os.open(tmp_path, os.O_RDONLY)
        try:
            plug.bind(f"/proc/self/fd/{here}/plug")  # a socket's path is at most 108 bytes
        finally:
            os.close(here)
        assert code_of(lambda: fs.open("plug", "read")) in {errno.ENXIO, errno.EOPNOTSUPP}
    assert fs.stat("pipe").kind == "other"


def test_a_replaced_root_shows(tmp_path):
    fs = OsFS(tmp_path / "root", create=True)
    before = fs.stat("").inode
    (tmp_path / "root").rename(tmp_path / "moved")
    assert fs.stat("") is None
    (tmp_path / "root").mkdir()
    assert fs.stat("").inode != before
    put(fs, "x", b"1")
    assert (tmp_path / "moved/x").exists()


def test_an_interrupted_rename_is_repeated(tmp_path, monkeypatch):
    fs = OsFS(tmp_path)
    put(fs, "a", b"1")
    real, tries = os.rename, []

    def interrupted(*args, **kwargs):
        tries.append(1)
        if len(tries) < 3:
            raise InterruptedError
        real(*args, **kwargs)

    monkeypatch.setattr(os, "rename", interrupted)
    fs.rename("a", "b")
    assert fs.listdir("") == ["b"]
    assert len(tries) == 3


def test_an_interrupted_close_has_closed_and_is_not_repeated(tmp_path, monkeypatch):
    fs = OsFS(tmp_path)
    h = fs.open("a", "create")
    fd, real = h.fd, os.close
    closed = []

    def interrupted(which):
        real(which)
        if which == fd:
            closed.append(which)
            raise InterruptedError

    monkeypatch.setattr(os, "close", interrupted)
    fs.close(h)
    fs.close(h)
    assert closed == [fd]


def test_other_failures_of_close_are_told(tmp_path, monkeypatch):
    fs = OsFS(tmp_path)
    h = fs.open("a", "create")
    fd, real = h.fd, os.close

    def broken(which):
        if which == fd:
            raise OSError(errno.EIO, "late write error")
        real(which)

    monkeypatch.setattr(os, "close", broken)
    assert code_of(lambda: fs.close(h)) == errno.EIO
    monkeypatch.undo()
    real(fd)


@pytest.mark.parametrize(("metadata", "called"), [(False, "fdatasync"), (True, "fsync")])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems sync by other calls")
def test_a_batch_needs_no_more_than_fdatasync(tmp_path, monkeypatch, metadata, called):
    fs = OsFS(tmp_path)
    h = fs.open("a", "create")
    seen = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: seen.append("fdatasync"))
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append("fsync"))
    fs.sync(h, metadata=metadata)
    fs.sync_dir("")
    assert seen == [called, "fsync"]
    fs.close(h)


def test_no_descriptor_reaches_a_started_program(tmp_path):
    fs = OsFS(tmp_path)
    fs.mkdir("d")
    fs.sync_dir("d")
    h = fs.open("a", "create")
    lock = fs.lock("LOCK", b"")
    program = "from pathlib import Path; print([p.readlink() for p in Path('/proc/self/fd').iterdir() if p.exists()])"
    done = subprocess.run([sys.executable, "-c", program], close_fds=False, capture_output=True, text=True, check=True)
    assert "/" in done.stdout
    assert str(tmp_path) not in done.stdout
    fs.close(h)
    lock.release()


def test_another_process_is_refused_the_lock_and_gets_it_when_the_holder_dies(tmp_path):
    program = (
        "import sys; from holdfast.journal.filesystem import OsFS; fs = OsFS(sys.argv[1]);"
        "lock = fs.lock('LOCK', b'child'); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    fs = OsFS(tmp_path)
    try:
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(LockHeld) as caught:
            fs.lock("LOCK", b"parent")
        assert caught.value.holder == b"child"
        assert (tmp_path / "LOCK").read_bytes() == b"child"
    finally:
        child.kill()
        child.communicate()
    fs.lock("LOCK", b"parent").release()
    assert (tmp_path / "LOCK").read_bytes() == b"parent"


def test_a_forked_child_neither_keeps_nor_breaks_the_parents_lock(tmp_path):
    fs = OsFS(tmp_path)
    lock = fs.lock("LOCK", b"parent")
    (told, tell), (leave, stay) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: it must not touch the test's own machinery
        os.close(stay)
        os.write(tell, b"!")  # forking has ended, so its copy of the lock is gone
        os.read(leave, 1)
        lock.release()
        os._exit(0)
    try:
        assert os.read(told, 1) == b"!"
        with pytest.raises(LockHeld):
            fs.lock("LOCK", b"x")
        lock.release()
        fs.lock("LOCK", b"y").release()  # the child lives on, yet does not hold it
    finally:
        os.close(stay)
        os.waitpid(pid, 0)
        for fd in (told, tell, leave):
            os.close(fd)


def test_a_lock_on_a_file_that_was_replaced_meanwhile_is_taken_again_on_the_new_one(tmp_path, monkeypatch):
    fs = OsFS(tmp_path)
    real, rounds = layer.fcntl.flock, []

    def replaced(fd, how):
        rounds.append(fd)
        if len(rounds) == 1:
            (tmp_path / "LOCK").unlink()
            (tmp_path / "LOCK").write_bytes(b"")
        real(fd, how)

    monkeypatch.setattr(layer.fcntl, "flock", replaced)
    lock = fs.lock("LOCK", b"me")
    assert len(rounds) == 2
    assert (tmp_path / "LOCK").read_bytes() == b"me"
    with pytest.raises(LockHeld):
        OsFS(tmp_path).lock("LOCK", b"x")
    lock.release()


def test_descriptors_go_with_the_file_system(tmp_path):
    def opened():
        found = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # the one this list is read by, and those of other threads
                found.append(str(descriptor.readlink()))
        return [place for place in found if place.startswith(str(tmp_path))]

    for _ in range(5):
        fs = OsFS(tmp_path / "r", create=True)
        if fs.stat("d") is None:
            fs.mkdir("d")
        fs.sync_dir("d")
        lock = fs.lock("LOCK", b"")
        assert opened()
        del fs, lock
    assert opened() == []


# --- what lies beneath ------------------------------------------------------------------------------------------------

MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:40 / /mnt/far\\040away rw - nfs4 server:/export rw
31 30 0:41 / /mnt/far\\040away/near rw - xfs /dev/vdb rw
32 21 0:42 / /mnt/twice rw - ext4 /dev/vdc rw
33 32 0:43 / /mnt/twice rw - fuse.sshfs me@host: rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/jobs", "ext4", False),
        ("/mnt/far away/jobs", "nfs4", True),
        ("/mnt/far away/near/jobs", "xfs", False),
        ("/mnt/far away-not", "ext4", False),
        ("/mnt/twice/x", "fuse.sshfs", True),
        ("/mnt/twice", "fuse.sshfs", True),
        ("/", "ext4", False),
    ],
)
def test_the_deepest_and_latest_mount_names_the_file_system(path, kind, network):
    assert filesystem_kind(path, MOUNTS) == kind
    assert is_network(kind) is network


def test_a_system_that_tells_nothing_is_unknown_and_not_refused(tmp_path):
    assert filesystem_kind(tmp_path, "") == "unknown"
    assert not is_network("unknown")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_the_kernel_is_asked_when_no_mounts_are_given(tmp_path):
    assert filesystem_kind("/proc") == "proc"
    assert filesystem_kind(tmp_path / "not" / "yet") not in {"unknown", ""}

"""The fake disk must lose what real disks may lose, and nothing that was synced."""

from __future__ import annotations

import errno
import threading

import pytest

from holdfast.journal.filesystem import FS, LockHeld, atomic_write, write_all
from holdfast.testing import SimCrash, SimFS
from holdfast.testing.simdisk import BLOCK, Dir, File, disk_of


def made(path="a", data=b"", fs=None):
    """A file that is durable in every way, and a handle to append to it."""
    fs = fs or SimFS()
    h = fs.open(path, "create")
    write_all(fs, h, data)
    fs.sync(h, metadata=True)
    fs.sync_dir("")
    return fs, h


def outcomes(fs, mode="blocks", names="mixed", seeds=60):
    """All disks the seeds lead to."""
    return [fs.image().power_loss(mode, seed, names).tree() for seed in range(seeds)]


def test_it_is_an_fs():
    fs: FS = SimFS()
    assert fs.listdir("") == []


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["lose", "keep", "blocks", "junk"])
@pytest.mark.parametrize("names", ["lose", "keep", "mixed"])
def test_what_was_synced_with_its_name_survives_every_cut(mode, names):
    fs, h = made(data=b"x" * 2000)
    fs.write(h, b"y" * 3000)
    for tree in outcomes(fs, mode, names):
        assert tree["a"][:2000] == b"x" * 2000


def test_bytes_not_synced_vanish_stay_or_leave_nul_blocks():
    fs, h = made(data=b"x" * 700)
    fs.write(h, b"y" * 2000)
    assert fs.image().power_loss("lose").tree() == {"a": b"x" * 700}
    assert fs.image().power_loss("keep").tree() == {"a": b"x" * 700 + b"y" * 2000}
    seen = {tree["a"] for tree in outcomes(fs)}
    assert any(b"\0" in data and b"y" in data for data in seen)
    assert {len(data) for data in seen} >= {700, 2700}
    assert any(700 < len(data) < 2700 for data in seen)
    for data in seen:
        for start in range(0, len(data), BLOCK):
            piece = data[max(start, 700) : start + BLOCK]
            assert piece in {b"y" * len(piece), bytes(len(piece))}


def test_junk_mode_leaves_bytes_nobody_wrote():
    fs, h = made(data=b"x" * 700)
    fs.write(h, b"y" * 2000)
    assert any(set(tree["a"]) - set(b"xy\0") for tree in outcomes(fs, "junk"))


def test_the_same_seed_gives_the_same_disk():
    fs, h = made(data=b"x")
    fs.write(h, b"y" * 5000)
    fs.open("b", "create")
    assert outcomes(fs) == outcomes(fs)


def test_a_file_never_synced_is_empty_when_only_its_name_survives():
    fs = SimFS()
    write_all(fs, fs.open("a", "create"), b"data")
    assert fs.image().power_loss("lose", names="keep").tree() == {"a": b""}


def test_a_cut_file_may_come_back_at_its_old_length_until_it_is_synced():
    fs, h = made(data=b"x" * 100)
    fs.truncate(h, 10)
    assert fs.image().power_loss("lose").tree() == {"a": b"x" * 100}
    assert fs.image().power_loss("keep").tree() == {"a": b"x" * 10}
    fs.sync(h, metadata=False)
    assert fs.power_loss("lose").tree() == {"a": b"x" * 10}


def test_bytes_cut_off_before_any_sync_may_come_back():
    fs, h = made(data=b"old")
    fs.write(h, b"new")
    fs.truncate(h, 3)
    assert {tree["a"] for tree in outcomes(fs)} >= {b"old", b"oldnew"}
    fs.sync(h, metadata=False)
    assert {tree["a"] for tree in outcomes(fs)} == {b"old"}


def test_a_failed_sync_marks_the_bytes_clean_so_a_second_one_saves_nothing():
    fs, h = made(data=b"old")
    fs.write(h, b"new")
    fs.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        fs.sync(h, metadata=False)
    assert fs.read(h, 100, 0) == b"oldnew"
    fs.sync(h, metadata=False)
    assert fs.read(h, 100, 0) == b"oldnew"
    for mode in ("lose", "keep", "blocks"):
        assert b"new" not in fs.image().power_loss(mode).tree()["a"]


def test_bytes_written_after_a_failed_sync_are_saved_by_the_next():
    fs, h = made(data=b"old")
    fs.write(h, b"new")
    fs.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        fs.sync(h, metadata=False)
    fs.write(h, b"later")
    fs.sync(h, metadata=False)
    assert fs.power_loss("lose").tree() == {"a": b"old\0\0\0later"}


# --- names ------------------------------------------------------------------------------------------------------------


def test_syncing_a_file_does_not_sync_its_name():
    fs = SimFS()
    h = fs.open("a", "create")
    fs.write(h, b"x")
    fs.sync(h, metadata=True)
    assert fs.image().power_loss("keep", names="lose").tree() == {}
    fs.sync_dir("")
    assert fs.power_loss("lose", names="lose").tree() == {"a": b"x"}


def test_a_directory_needs_its_parent_synced():
    fs = SimFS()
    fs.mkdir("d")
    atomic_write(fs, "d/a", b"x")
    assert fs.image().power_loss("keep", names="lose").tree() == {}
    fs.sync_dir("")
    assert fs.power_loss("keep", names="lose").tree() == {"d/a": b"x"}


def test_a_rename_and_an_unlink_are_undone_unless_the_directory_was_synced():
    fs, _ = made("a", b"A")
    made("b", b"B", fs)
    fs.rename("a", "c")
    fs.unlink("b")
    assert fs.image().power_loss("keep", names="lose").tree() == {"a": b"A", "b": b"B"}
    assert fs.image().power_loss("lose", names="keep").tree() == {"c": b"A"}
    seen = [set(tree) for tree in outcomes(fs)]
    for possible in ({"a", "b"}, {"a"}, {"c", "b"}, {"c"}):
        assert possible in seen
    fs.sync_dir("")
    assert fs.power_loss("lose", names="lose").tree() == {"c": b"A"}


def test_a_rename_is_whole_within_one_directory():
    fs, _ = made("new", b"new")
    made("name", b"old", fs)
    fs.rename("new", "name")
    for tree in outcomes(fs):
        assert tree in ({"name": b"new"}, {"name": b"old", "new": b"new"})


def test_a_move_between_directories_may_be_seen_in_both_but_never_in_none_unless_the_source_alone_was_synced():
    fs = SimFS()
    for name in ("d", "e"):
        fs.mkdir(name)
    atomic_write(fs, "d/a", b"x")
    fs.sync_dir("")
    fs.rename("d/a", "e/a")
    seen = [set(tree) for tree in outcomes(fs)]
    for possible in ({"d/a"}, {"e/a"}, {"d/a", "e/a"}):
        assert possible in seen
    assert set() not in seen
    safe, rash = fs.image(), fs.image()
    safe.sync_dir("e")
    assert all("e/a" in tree for tree in outcomes(safe))
    rash.sync_dir("d")
    assert {} in outcomes(rash)


def test_a_failed_directory_sync_saves_no_name_until_another_succeeds():
    fs = SimFS()
    fs.open("a", "create")
    fs.fail("sync_dir")
    with pytest.raises(OSError, match="Input/output"):
        fs.sync_dir("")
    assert fs.image().power_loss("keep", names="lose").tree() == {}
    fs.sync_dir("")
    assert fs.power_loss("keep", names="lose").tree() == {"a": b""}


def test_atomic_write_is_atomic_at_every_call_and_every_cut():
    images = []
    fs, _ = made("a", b"old")
    fs.before = lambda call: images.append(fs.image())
    atomic_write(fs, "a", b"new" * 600)
    done = fs.image()
    cuts = [tree for image in images for mode in ("lose", "keep", "blocks") for tree in outcomes(image, mode, seeds=20)]
    assert {tree["a"] for tree in cuts} == {b"old", b"new" * 600}
    assert {tree["a"] for tree in outcomes(done)} == {b"new" * 600}


# --- faults -----------------------------------------------------------------------------------------------------------


def test_the_nth_call_of_a_kind_fails_once_or_for_ever():
    fs, h = made()
    fs.fail("write", 2, errno.ENOSPC)
    assert fs.write(h, b"1") == 1
    with pytest.raises(OSError, match="No space"):
        fs.write(h, b"2")
    assert fs.write(h, b"3") == 1
    fs.fail("write", times=None)
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            fs.write(h, b"4")
    assert fs.injected == 4
    fs.heal()
    fs.write(h, b"5")
    assert fs.read(h, 10, 0) == b"135"


def test_every_call_stands_in_one_ordered_list():
    fs = SimFS()
    fs.mkdir("d")
    atomic_write(fs, "d/a", b"xyz")
    fs.unlink("d/a")
    assert [call.kind for call in fs.calls] == [
        "mkdir", "create", "write", "sync", "close", "rename", "sync_dir", "unlink",
    ]  # fmt: skip
    assert fs.calls[2].data == b"xyz"
    assert (fs.calls[5].path, fs.calls[5].dst) == ("d/a.tmp", "d/a")


def test_reads_can_be_short_too():
    fs, h = made(data=b"0123456789")
    fs.shorten("read", 1, 4)
    assert fs.read(h, 10, 0) == b"0123"
    assert fs.read(h, 10, 4) == b"456789"


def test_a_full_disk_takes_what_fits_and_has_room_again_after_a_cut():
    fs, h = made()
    fs.room = 5
    assert fs.write(h, b"0123456789") == 5
    with pytest.raises(OSError, match="No space"):
        fs.write(h, b"56789")
    with pytest.raises(OSError, match="No space"):
        fs.open("b", "create")
    fs.truncate(h, 2)
    assert fs.write(h, b"abcdef") == 3
    assert fs.read(h, 10, 0) == b"01abc"


@pytest.mark.parametrize(("when", "left"), [("before", b""), ("during", b"abc"), ("after", b"abcdef")])
def test_a_crash_stops_everything_until_the_reboot(when, left):
    fs, h = made()
    fs.crash(1, "write", when)
    with pytest.raises(SimCrash):
        fs.write(h, b"abcdef")
    for again in (lambda: fs.write(h, b"x"), lambda: fs.listdir(""), lambda: fs.unlink("a")):
        with pytest.raises(SimCrash):
            again()
    fs.close(h)
    reborn = fs.reboot()
    assert reborn.tree() == {"a": left}
    with pytest.raises(SimCrash):
        fs.unlink("a")
    assert reborn.listdir("") == ["a"]


def test_a_crash_is_no_ordinary_exception():
    assert not issubclass(SimCrash, Exception)


def test_locks_end_with_the_process_that_held_them():
    fs = SimFS()
    fs.lock("LOCK", b"me")
    with pytest.raises(LockHeld):
        fs.lock("LOCK", b"you")
    fs.reboot().lock("LOCK", b"you")


def test_an_image_shares_nothing_with_its_original():
    fs, h = made(data=b"x")
    image = fs.image()
    fs.write(h, b"y")
    fs.unlink("a")
    assert image.tree() == {"a": b"x"}
    fs.put("a", b"z")
    assert fs.power_loss("lose", names="lose").tree() == {"a": b"z"}


def test_threads_take_turns():
    fs, h = made()
    threads = [threading.Thread(target=lambda: [fs.write(h, b"abcd") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fs.tree()["a"] == b"abcd" * 800
    assert sum(call.kind == "write" for call in fs.calls) == 801


#: For each thing a file is known by, another one than a new file has.
OTHER = {
    "inode": 2,
    "data": bytearray(b"x"),
    "durable": bytearray(b"x"),
    "dirty": [(0, 1)],
    "floor": 1,
    "ghost": bytearray(b"x"),
}


@pytest.mark.parametrize("field", sorted(set(File.__slots__) - {"changes"}))
def test_disks_that_differ_in_one_thing_are_not_taken_for_equal(field):
    one, other = File(1), File(1)
    assert disk_of(one) == disk_of(other)
    setattr(other, field, OTHER[field])
    assert disk_of(one) != disk_of(other)


def test_disks_with_other_names_or_names_on_their_way_are_not_taken_for_equal():
    fs, h = made("a", b"x")
    same, renamed = fs.image(), fs.image()
    assert disk_of(fs._root) == disk_of(same._root)
    renamed.rename("a", "b")
    renamed.sync_dir("")
    assert disk_of(fs._root) != disk_of(renamed._root)
    same.rename("a", "b")
    assert disk_of(same._root) != disk_of(same._root), "what is on its way may arrive or not"
    fs.close(h)
    assert isinstance(fs._root, Dir)

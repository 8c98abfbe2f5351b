from __future__ import annotations

import errno

import pytest
from journal_kit import NOW, chained, checkpoint, crashed, numbers, opened, put, segments, start_of

from holdfast.errors import JournalDamaged, StoreFailed
from holdfast.testing import SimFS


def test_reading_ends_at_the_durable_end_as_it_was_when_asked():
    journal = opened(SimFS())
    put(journal, 1)
    reader = journal.read()
    put(journal, 2)
    assert [record.seq for record in reader] == [1]
    assert [record.seq for record in journal.read(1)] == [2]
    assert list(journal.read(2)) == []
    assert list(journal.read(99)) == []


def test_damage_met_while_reading_raises_at_its_place_and_nothing_is_skipped():
    fs = SimFS()
    journal = opened(fs)
    for number in range(1, 6):
        put(journal, number)
    path = segments(fs)[0]
    fs.put(path, fs.tree()[path].replace(b'"n":4', b'"n":7'))
    seen = []
    with pytest.raises(JournalDamaged) as caught:
        seen.extend(record.seq for record in journal.read())
    assert (caught.value.facts["line"], caught.value.facts["seq"]) == (4, 4)
    assert list(range(1, len(seen) + 1)) == seen
    assert len(seen) <= 3


@pytest.mark.parametrize("text", [b"\n", b"\xff\xfe\n", b"\0\0\0\n", b"x\n"])
def test_blank_and_foreign_lines_raise_and_the_reader_never_stalls(text):
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1, 2)
    path = segments(fs)[0]
    first, second = fs.tree()[path].splitlines(keepends=True)
    fs.put(path, first + text + second[len(text) :])
    with pytest.raises(JournalDamaged):
        list(journal.read())


def test_a_record_that_is_no_json_is_named_though_its_sum_is_right():
    fs = crashed()
    chain = start_of(fs)
    text = chained(chain, (1, b'{"type":"t:put","n":1}'), (2, b'{"type":"t:put","n":}'), (3, b'{"type":"t:put","n":3}'))
    fs.put(segments(fs)[0], text)
    with pytest.raises(JournalDamaged, match="not a record") as caught:
        list(opened(fs).read())
    assert caught.value.facts["line"] == 2


def test_a_failing_read_is_told_and_does_not_end_the_journal():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    fs.fail("read", 1, errno.EIO)
    with pytest.raises(StoreFailed):
        list(journal.read())
    assert numbers(journal) == [1]
    put(journal, 2)


def test_a_segment_that_vanished_is_told():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    fs.unlink(segments(fs)[0])
    with pytest.raises(StoreFailed, match=r"log/0"):
        list(journal.read())


def test_a_snapshot_that_changed_since_it_was_verified_is_named():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    checkpoint(journal)
    journal = opened(fs.reboot())
    fs = journal._fs
    path = next(path for path in fs.tree() if path.startswith("snapshots/"))
    fs.put(path, fs.tree()[path][:-2])
    with pytest.raises(JournalDamaged, match="changed since"):
        list(journal.load().records)


def test_groups_can_be_told_apart_while_reading():
    journal = opened(SimFS())
    put(journal, 1, 2, 3)
    put(journal, 4)
    assert [record.more for record in journal.read()] == [True, True, False, False]
    assert {record.ts for record in journal.read()} == {NOW}

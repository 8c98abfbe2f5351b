from __future__ import annotations

import json
import random

import msgspec
import pytest
from journal_kit import checkpoint, opened, put, snapshots

from holdfast.journal import snapshots as room
from holdfast.journal.snapshots import SLICE, BadSnapshot, Header, parse, read, unpack, write
from holdfast.journal.zstd import ZstdCompressor, compressor, decompressor
from holdfast.testing import SimFS

HEADER = Header(seq=7, created_at="2026-02-05T10:11:12.000000Z", journal="0" * 32, sum="0000abcd")


def disk() -> SimFS:
    fs = SimFS()
    fs.mkdir("snapshots")
    return fs


def written(tables, header: Header = HEADER) -> SimFS:
    fs = disk()
    write(fs, room.path_of(header.seq), header, tables)
    return fs


def plain(fs: SimFS, seq: int = 7) -> bytes:
    return b"".join(unpack(fs, room.path_of(seq)))


def rows(fs: SimFS, seq: int = 7) -> list[tuple[str, bytes]]:
    return [(table, row) for table, slice_ in read(fs, seq)[1] for row in slice_]


def holding(text: bytes, packer: ZstdCompressor | None = None) -> SimFS:
    """A disk whose snapshot 7 unpacks to `text`."""
    fs, packer = disk(), packer or compressor()
    fs.put(room.path_of(7), packer.compress(text) + packer.flush())
    return fs


TEXT = (
    b'{"v":1,"seq":7,"created_at":"2026-02-05T10:11:12.000000Z","journal":"00000000000000000000000000000000",'
    b'"sum":"0000abcd","state":{"applied_seq":7,\n'
    b'"jobs":[\n{"id":"a"},\n{"id":"b"}\n],\n"schedules":[\n]\n},"records":2}\n'
)


def test_the_text_is_laid_out_as_the_contract_says():
    assert plain(written({"jobs": [{"id": "a"}, {"id": "b"}], "schedules": []})) == TEXT


def test_the_text_is_one_json_document():
    document = json.loads(TEXT)
    assert document["state"] == {"applied_seq": 7, "jobs": [{"id": "a"}, {"id": "b"}], "schedules": []}
    assert json.loads(plain(written({})))["state"] == {"applied_seq": 7}


class Job(msgspec.Struct):
    id: int
    note: str = ""


@pytest.mark.parametrize("count", [0, 1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE])
def test_what_was_written_is_read_back_in_order(count):
    jobs = [Job(n, 'new\nline, "quote", ],') for n in range(count)]
    found = rows(written({"jobs": iter(jobs), "more": [Job(-1)]}))
    assert [table for table, _ in found] == ["jobs"] * count + ["more"]
    assert [msgspec.json.decode(row, type=Job) for _, row in found] == [*jobs, Job(-1)]


def test_records_may_come_as_json():
    assert rows(written({"jobs": [b'{"id":1}', b'{"id":2}']})) == [("jobs", b'{"id":1}'), ("jobs", b'{"id":2}')]


def test_a_table_may_have_any_name():
    assert rows(written({'a "b"\n': [{"x": 1}]})) == [('a "b"\n', b'{"x":1}')]


def test_the_frame_carries_a_checksum_of_its_content():
    packed = written({"jobs": []}).tree()[room.path_of(7)]
    assert packed[4] & 0b100, "the content checksum flag of the frame header"


def test_every_flipped_bit_is_found():
    fs = written({"jobs": [{"id": n} for n in range(40)]})
    packed = fs.tree()[room.path_of(7)]
    expected = rows(fs)
    for at in range(len(packed)):
        for bit in range(8):
            flipped = bytearray(packed)
            flipped[at] ^= 1 << bit
            fs.put(room.path_of(7), bytes(flipped))
            try:
                assert rows(fs) == expected, (at, bit)
            except BadSnapshot:
                continue


def test_every_cut_is_found():
    fs = written({"jobs": [{"id": n} for n in range(40)]})
    packed = fs.tree()[room.path_of(7)]
    for length in range(len(packed)):
        fs.put(room.path_of(7), packed[:length])
        with pytest.raises(BadSnapshot):
            rows(fs)


def test_anything_behind_the_frame_is_refused():
    fs = written({"jobs": []})
    packed = fs.tree()[room.path_of(7)]
    for extra in (b"\0", b"x", packed):
        fs.put(room.path_of(7), packed + extra)
        with pytest.raises(BadSnapshot, match="follows"):
            rows(fs)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t[:-1],
        lambda t: t + b"\n",
        lambda t: t + t,
        lambda t: t.replace(b'"records":2', b'"records":3'),
        lambda t: t.replace(b'},"records":2}\n', b"}\n"),
        lambda t: t.replace(b'{"id":"a"},\n', b""),
        lambda t: t.replace(b'{"id":"a"},', b'{"id":"a"}'),
        lambda t: t.replace(b'{"id":"b"}', b'{"id":"b"},'),
        lambda t: t.replace(b'{"id":"a"}', b'{"id":'),
        lambda t: t.replace(b'{"id":"a"}', b'"a"'),
        lambda t: t.replace(b'{"id":"a"},', b'{"id":"a"},{"id":"c"},'),
        lambda t: t.replace(b'{"id":"a"}', b'{"id":"\xff"}'),
        lambda t: t.replace(b'"schedules":[\n]', b'"schedules":['),
        lambda t: t.replace(b"],\n", b"]\n", 1),
        lambda t: t.replace(b'"schedules":[\n]', b'"schedules":[\n],'),
        lambda t: t.replace(b'"jobs":[', b"jobs:["),
        lambda t: t.replace(b'"seq":7', b'"seq":8'),
        lambda t: t.replace(b'"applied_seq":7', b'"applied_seq":6'),
        lambda t: t.replace(b'"sum":"0000abcd",', b""),
        lambda t: t.replace(b'"state"', b'"stale"'),
        lambda t: t.split(b"\n")[0] + b"\n",
        lambda t: b"",
        lambda t: b"\n" + t,
        lambda t: b"[" * 100_000 + b"\n",
    ],
)
def test_a_text_that_is_not_laid_out_so_is_refused(change):
    changed = change(TEXT)
    assert changed != TEXT
    with pytest.raises(BadSnapshot):
        rows(holding(changed))


def test_how_the_text_is_cut_into_pieces_changes_nothing():
    expected = [("jobs", b'{"id":"a"}'), ("jobs", b'{"id":"b"}')]
    for size in range(1, len(TEXT) + 1):
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        assert [(table, row) for table, part in parse(pieces, 7)[1] for row in part] == expected


def test_a_frame_that_unpacks_without_end_is_refused_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(room, "MAX_LINE", 1024 * 1024)
    with pytest.raises(BadSnapshot, match="longer than"):
        rows(holding(TEXT[:-20] + b"x" * 8_000_000))
    monkeypatch.setattr(room, "_ALLOWANCE", 1024)
    monkeypatch.setattr(room, "_MAX_RATIO", 10)
    with pytest.raises(BadSnapshot, match="unpacks to more than"):
        rows(holding(TEXT.replace(b'{"id":"a"},\n', b'{"id":"a"},\n' * 100_000)))


def test_a_frame_that_asks_for_a_huge_window_is_refused():
    from holdfast.journal import zstd  # noqa: PLC0415 - the names differ by version of Python

    packer = ZstdCompressor(
        options={zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.checksum_flag: 1}
    )
    random_bytes = random.Random(1).randbytes(1000)
    with pytest.raises(BadSnapshot):
        rows(holding(TEXT + random_bytes * 20_000, packer))


def test_a_snapshot_is_found_by_its_number_newest_first_and_other_names_are_left_alone():
    fs = disk()
    assert room.find(fs) == []
    for name in (room.path_of(3), room.path_of(20), "snapshots/5.json.zst", f"{room.path_of(4)}.tmp", "snapshots/x"):
        fs.put(name, b"")
    assert room.find(fs) == [20, 3]


def test_a_snapshot_says_which_journal_and_which_record_it_belongs_to():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1, 2, 3)
    checkpoint(journal)
    header, _ = read(fs, 3)
    line = fs.tree()[journal._segments.all[0].path].splitlines()[2]
    assert header.journal == journal.id
    assert header.sum.encode() == line[-10:-2]
    assert snapshots(fs) == [room.path_of(3)]
    assert decompressor().decompress(fs.tree()[room.path_of(3)]).startswith(b'{"v":1,"seq":3,"created_at":"')

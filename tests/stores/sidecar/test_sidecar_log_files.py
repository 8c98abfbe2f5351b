"""Run logs as files: read piece by piece, each byte once, whatever lies between the lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.journal.filesystem import OsFS
from holdfast.model.ids import RunId
from holdfast.model.logs import LogLine
from holdfast.stores.sidecar import log_files
from holdfast.stores.sidecar.log_files import PIECE, TAIL, FileLogs

RUN = RunId("01a1e468-0000-7000-8000-000000000001")
AT = "2026-01-01T00:00:00.000000Z"


class Watched(OsFS):
    """A disk that notes how much is read at a time."""

    def __init__(self, root):
        super().__init__(root)
        self.sizes = []

    def read(self, h, size, offset):
        found = super().read(h, size, offset)
        self.sizes.append(len(found))
        return found


@pytest.fixture
def disk(tmp_path):
    return Watched(tmp_path)


@pytest.fixture
def logs(disk, tmp_path):
    return FileLogs(disk, str(tmp_path))


def line(text):
    return LogLine(at=AT, stream="log", level="info", text=text)


def add(logs, *texts):
    logs.add([(RUN, line(text)) for text in texts])


def texts(page):
    return [(one.line_no, one.line.text) for one in page]


def file_of(logs):
    return Path(logs.path(RUN)).open("ab")


def test_a_long_log_is_read_in_pieces_and_once_in_all_its_pages(logs, disk):
    count = 20_000
    add(logs, *(f"line {n}" for n in range(1, count + 1)))
    size = disk.stat(f"logs/{RUN}.jsonl").size
    assert size > 10 * PIECE
    disk.sizes.clear()
    assert texts(logs.read(RUN, limit=3)) == [(1, "line 1"), (2, "line 2"), (3, "line 3")]
    assert sum(disk.sizes) <= PIECE
    disk.sizes.clear()
    after, found = 0, []
    while page := logs.read(RUN, after, 1000):
        after = page[-1].line_no
        found += texts(page)
    assert found == [(n, f"line {n}") for n in range(1, count + 1)]
    assert max(disk.sizes) <= PIECE
    # Each page may read up to a piece that the next one reads again.
    assert sum(disk.sizes) <= size + (count // 1000 + 1) * PIECE


def test_whoever_follows_reads_what_is_new(logs, disk):
    add(logs, *("x" * 1000 for _ in range(500)))
    assert len(logs.read(RUN)) == 500
    for n in range(501, 510):
        disk.sizes.clear()
        assert logs.read(RUN, n - 1) == []
        add(logs, f"{n}")
        assert texts(logs.read(RUN, n - 1)) == [(n, f"{n}")]
        assert sum(disk.sizes) < 1000


def test_whoever_follows_after_a_restart_has_the_log_read_once(logs, disk, tmp_path):
    add(logs, *("x" * 1000 for _ in range(500)))
    again = FileLogs(disk, str(tmp_path))
    assert again.read(RUN, 500) == []
    disk.sizes.clear()
    assert again.read(RUN, 500) == []
    assert sum(disk.sizes) < 1000


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("piece", [1, 7, PIECE])
def test_pages_of_any_size_in_pieces_of_any_size_say_the_same(logs, monkeypatch, limit, piece):
    monkeypatch.setattr(log_files, "PIECE", piece)
    add(logs, "one", "two")
    with file_of(logs) as file:
        file.write(b'nonsense\n\n\xff\xfe\n{"at":"cut')
    add(logs, "three", "four", "fünf")
    after, found = 0, []
    while page := logs.read(RUN, after, limit):
        after = page[-1].line_no
        found += texts(page)
    assert found == list(enumerate(["one", "two", "three", "four", "fünf"], start=1))


def test_what_is_longer_than_any_line_is_passed_over_and_never_held_whole(logs, disk):
    add(logs, "before")
    with file_of(logs) as file:
        file.write(b"x" * (5 * TAIL) + b"\n")
    add(logs, "behind")
    assert texts(logs.read(RUN)) == [(1, "before"), (2, "behind")]
    assert max(disk.sizes) <= PIECE


def test_a_line_that_has_no_end_yet_is_told_once(logs):
    add(logs, "one")
    with file_of(logs) as file:
        file.write(b'{"at":"%s","stream":"log","level":"","text":"two"}' % AT.encode())
    assert texts(logs.read(RUN)) == [(1, "one"), (2, "two")]
    assert logs.read(RUN, 2) == []
    add(logs, "three")
    assert texts(logs.read(RUN, 2)) == [(3, "three")]
    assert texts(logs.read(RUN, 1)) == [(2, "two"), (3, "three")]


def test_a_file_that_was_removed_and_written_anew_is_read_from_its_beginning(logs):
    add(logs, *(f"old {n}" for n in range(10)))
    assert len(logs.read(RUN, 0, 5)) == 5
    assert logs.sweep("2027-01-01T00:00:00.000000Z", 10) == 1
    add(logs, *(f"new {n} and longer than before" for n in range(20)))
    assert texts(logs.read(RUN, 5, 1)) == [(6, "new 5 and longer than before")]


def test_only_so_many_places_are_remembered(logs, monkeypatch):
    monkeypatch.setattr(log_files, "READ", 2)
    monkeypatch.setattr(log_files, "PLACES", 2)
    for run in "abcd":
        logs.add([(RunId(run), line(str(n))) for n in range(5)])
        for after in range(4):
            assert texts(logs.read(RunId(run), after, 1)) == [(after + 1, str(after))]
    assert [len(places) for places in logs._places.values()] == [2, 2]

"""The benchmark of `dir:` runs and measures what it says; how fast is no matter of a test."""

from __future__ import annotations

from benchmarks.dir import run
from holdfast.journal import filesystem


def test_every_row_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "_sync", lambda _fd, *, metadata: None)  # nor how fast the disk is
    rows = list(run(tmp_path, commits=4, sizes=(30,), pending=60))
    assert [row.name for row in rows] == [
        "dir: create, single commits",
        "dir: lease, single commits",
        "dir: complete, single commits",
        "dir: create, groups of 50",
        "dir: lease, groups of 50",
        "dir: complete, groups of 50",
        "dir: open, 30 completed, 10 pending",
        "  memory when opened",
        "  memory with every ended job read",
        "  reading every ended job, once",
        "dir: lease one of 60 pending, beside fsync",
    ]
    assert all(row.ours > 0 for row in rows)
    assert all(row.line() for row in rows)

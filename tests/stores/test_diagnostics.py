"""The place of a store: measured without leaving anything, judged by fixed marks."""

import os

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.stores import diagnostics
from holdfast.stores.diagnostics import Vitals, measure, summary, time_syncs, weak_points
from holdfast.stores.opening import open_store, parse_url

NOW = "2026-01-01T12:00:00.000000Z"
WELL = Vitals(
    url="wal:jobs",
    directory="/srv",
    filesystem="ext4",
    free_bytes=1 << 40,
    store_bytes=1 << 20,
    sync_p50_s=0.002,
    sync_p99_s=0.01,
    descriptors_open=9,
    descriptors_most=1024,
    opening_s=0.1,
    last_event_at=NOW,
)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("network_filesystem", {"filesystem": "nfs4"}),
        ("space_low", {"free_bytes": (256 << 20) - 1}),
        ("space_low", {"free_bytes": 1 << 30, "store_bytes": (1 << 30) + 1}),
        ("sync_slow", {"sync_p50_s": 0.3}),
        ("descriptors_few", {"descriptors_most": 255}),
        ("torn_tail", {"torn_bytes": 17}),
        ("recovery_slow", {"opening_s": 31.0, "replayed": 5, "snapshot_at": "2025"}),
        ("quarantined", {"set_aside": 1}),
        ("clock_behind", {"last_event_at": "2026-01-01T12:00:06.000000Z"}),
        ("clock_jumped", {"clock_jumps": 2}),
    ],
)
def test_each_weak_point_has_its_code_and_a_remedy(code, change):
    (found,) = weak_points(msgspec.structs.replace(WELL, **change), NOW)
    assert found.code == code
    assert found.remedy


def test_what_is_well_has_no_weak_points():
    assert list(weak_points(WELL, NOW)) == []
    assert list(weak_points(msgspec.structs.replace(WELL, sync_p50_s=None, sync_p99_s=None), NOW)) == []


def test_a_tail_that_somebody_is_writing_is_not_torn():
    assert list(weak_points(msgspec.structs.replace(WELL, torn_bytes=17, holder="{}"), NOW)) == []


@pytest.mark.parametrize("scheme", ["wal", "sqlite", "dir"])
def test_measuring_leaves_nothing_behind(scheme, tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostics, "SYNCS", 3)
    url = f"{scheme}:{tmp_path / 'jobs'}"
    open_store(url).close()

    def files():
        return sorted((str(path), path.stat().st_size) for path in tmp_path.rglob("*"))

    store = open_store(url, readonly=True)
    try:
        before = files()
        found = measure(url, parse_url(url), store, 0.5, SystemClock())
        assert files() == before
    finally:
        store.close()
    assert found.free_bytes > 0
    assert found.store_bytes > 0
    assert found.format
    assert found.sync_p50_s > 0
    assert found.holder == ""
    assert [title for title, _ in summary(found)]


def test_the_holder_of_a_store_of_one_process_is_named(tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    held = open_store(url)
    try:
        looking = open_store(url, readonly=True)
        found = measure(url, parse_url(url), looking, 0.5, SystemClock())
        looking.close()
    finally:
        held.close()
    assert str(os.getpid()) in found.holder


def test_a_directory_that_nobody_may_write_to_is_not_timed(tmp_path):
    assert time_syncs(tmp_path / "missing", SystemClock()) == []

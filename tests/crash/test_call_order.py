"""The order of calls that everything rests on, read from the list of all calls of a life."""

from __future__ import annotations

import pytest
from stories import life, rehearse


@pytest.fixture(scope="module")
def calls():
    return rehearse(life)


def places(calls, kind, test=lambda call: True):
    return [at for at, call in enumerate(calls) if call.kind == kind and test(call)]


def parent(path):
    return path.rpartition("/")[0]


def test_every_file_is_synced_after_its_last_write_and_before_its_rename(calls):
    renames = places(calls, "rename")
    assert len(renames) >= 8
    for at in renames:
        draft = calls[at].path
        wrote = max(places(calls[:at], "write", lambda call, draft=draft: call.path == draft))
        assert places(calls[wrote:at], "sync", lambda call, draft=draft: call.path == draft), f"{draft} was not synced"


def test_every_rename_is_followed_by_a_sync_of_its_directory_before_anything_is_removed(calls):
    for at in places(calls, "rename"):
        folder = parent(calls[at].dst)
        synced = min(places(calls[at:], "sync_dir", lambda call, folder=folder: call.path == folder), default=None)
        assert synced is not None
        assert not places(calls[at : at + synced], "unlink")


def test_no_segment_is_written_before_its_name_is_durable(calls):
    made = places(calls, "create", lambda call: call.path.endswith(".jsonl"))
    assert len(made) >= 8
    for at in made:
        path = calls[at].path
        writes = places(calls[at:], "write", lambda call, path=path: call.path == path)
        if writes:
            assert places(calls[at : at + writes[0]], "sync_dir", lambda call: call.path == "log")


def test_the_log_is_shortened_only_after_a_second_snapshot_is_durable(calls):
    removed = places(calls, "unlink", lambda call: call.path.startswith("log/") and call.path.endswith(".jsonl"))
    assert len(removed) >= 4
    for at in removed:
        snapshots = places(calls[:at], "rename", lambda call: call.dst.startswith("snapshots/"))
        assert len(snapshots) >= 2
        assert places(calls[snapshots[-1] : at], "sync_dir", lambda call: call.path == "snapshots")


def test_every_removal_is_synced_before_the_next_file_of_the_log_goes(calls):
    removed = places(calls, "unlink", lambda call: call.path.startswith("log/") and call.path.endswith(".jsonl"))
    for at in removed:
        following = places(calls[at + 1 :], "unlink", lambda call: call.path.startswith("log/"))
        end = at + 1 + following[0] if following else len(calls)
        assert places(calls[at:end], "sync_dir", lambda call: call.path == "log")


def test_one_batch_is_one_write_and_one_sync(calls):
    """Between the write of a batch and its sync there is nothing, and no batch takes two of either."""
    written = places(calls, "write", lambda call: call.path.endswith(".jsonl"))
    for at in written:
        assert calls[at + 1].kind == "sync"
        assert calls[at + 1].path == calls[at].path

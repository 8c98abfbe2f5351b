"""Files that people and other programs write, edit and move: noticed at opening, and while the store is open."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import datetime

import pytest
from dir_kit import Desk, job

from holdfast import Holdfast
from holdfast.engine.file_adoption import adopt
from holdfast.engine.maintenance import tick
from holdfast.errors import JobNotFound
from holdfast.journal.filesystem import OsFS
from holdfast.model.jobs import Job, JobStatus
from holdfast.rules.jobs.retention import DAY_S
from holdfast.stores.dir import DirStore
from holdfast.stores.dir.manual_edits import AT_ONCE


@pytest.fixture(params=["running", "stopped"])
def running(request):
    return request.param == "running"


@pytest.fixture
def desk(tmp_path, running):
    """A store that was opened once; open still, or closed again."""
    desk = Desk(tmp_path / "store")
    yield desk
    desk.close()


def stop(desk, running):
    if not running:
        desk.close()


def test_the_smallest_file_is_a_job(desk, running):
    stop(desk, running)
    desk.write("pending", "hello", {"payload": {"type": "EMAIL_SEND"}})
    desk.settle(running=running)
    found = desk.job("hello")
    assert (found.job_type, found.status, bytes(found.params)) == ("EMAIL_SEND", JobStatus.QUEUED, b"{}")
    assert desk.where() == {"hello": ["pending"]}
    page = desk.file("pending", "hello")
    assert list(page)[:5] == ["taskId", "state", "createdAt", "payload", "queue"]
    assert page["seq"] == found.seq > 0
    desk.demand_sound()
    (grant,) = desk.take()
    desk.complete(grant)
    assert desk.where() == {"hello": ["completed"]}


def test_what_a_file_says_counts_and_what_is_ours_to_say_does_not(desk, running):
    stop(desk, running)
    said = {
        "taskId": "A/1",
        "state": "PENDING",
        "createdAt": "2020-01-06T11:15:30+01:00",
        "payload": {"type": "send", "data": {"n": [1, {"deep": None}]}},
        "queue": "mail",
        "priority": 7,
        "maxAttempts": 2,
        "backoff": {"baseS": 1, "jitter": 0},
        "tags": {"a": "b"},
        "attempts": 3,
        "runs": [{"anything": 1}],
        "workerId": "me",
        "token": 99,
        "position": 5,
        "seq": 10**9,
        "colour": {"of": ["the", "sky"]},
    }
    desk.write("pending", "whatever", said)
    desk.settle(running=running)
    found = desk.job("A/1")
    assert found.created_at == "2020-01-06T10:15:30.000000Z"
    assert (found.queue, found.priority, found.max_attempts, found.tags) == ("mail", 7, 2, {"a": "b"})
    assert (found.backoff.base_s, found.attempts, found.token, found.position) == (1, 0, None, 100)
    assert desk.where() == {"%41%2f1": ["pending"]}, "under its right name, and the original gone"
    assert desk.file("pending", "%41%2f1")["extra"] == {"colour": {"of": ["the", "sky"]}}
    grant = desk.take(queues=("mail",))[0]
    desk.fail(grant, retry_after_s=0)
    desk.reopen()
    desk.complete(desk.take(queues=("mail",))[0])
    assert desk.file("completed", "%41%2f1")["extra"] == {"colour": {"of": ["the", "sky"]}}
    desk.demand_sound()


def test_a_missing_time_is_that_of_the_file_and_a_missing_id_its_stem_or_a_new_one(desk, running):
    stop(desk, running)
    desk.write("pending", "a%2fb", {"payload": {"type": "send"}}, age_s=3600)
    desk.write("pending", " odd ", {"payload": {"type": "send"}})
    when = desk.folder("pending") / "a%2fb.json"
    stamp = when.stat().st_mtime
    desk.settle(running=running)
    found = desk.job("a/b")
    assert abs(json_time(found.created_at) - stamp) < 0.001
    (other,) = [name for name in desk.where() if name != "a%2fb"]
    assert len(other) == 36, "a new UUID"
    desk.demand_sound()


def json_time(text):
    return datetime.fromisoformat(text).timestamp()


def test_other_data_than_an_object_is_wrapped(desk, running):
    stop(desk, running)
    desk.write("pending", "n", {"payload": {"type": "send", "data": [1, 2]}})
    desk.settle(running=running)
    assert bytes(desk.job("n").params) == b'{"data":[1,2]}'


def test_a_duplicate_key_is_kept_as_cancelled_and_names_the_holder(desk, running):
    desk.add(job("first", key="k", job_type="send"))
    stop(desk, running)
    desk.write("pending", "second", {"payload": {"type": "send"}, "key": "k"})
    desk.settle(running=running)
    assert desk.where() == {"first": ["pending"], "second": ["failed"]}
    found = desk.job("second")
    assert found.status is JobStatus.CANCELLED
    assert "first" in found.cancel_reason
    desk.demand_sound()


def test_a_file_for_a_job_that_is_known_is_deleted_if_it_says_the_same_else_set_aside(desk, running):
    desk.add(job("known", {"n": 1}, job_type="send"))
    stop(desk, running)
    same = (desk.folder("pending") / "known.json").read_bytes()
    desk.write("pending", "copy", same)
    desk.write("pending", "short", {"taskId": "known", "payload": {"type": "send", "data": {"n": 1}}})
    desk.write("pending", "other", {"taskId": "known", "payload": {"type": "send", "data": {"n": 2}}})
    desk.settle(running=running)
    assert desk.where() == {"known": ["pending"]}
    (aside,) = desk.quarantined().values()
    assert b'"n": 2' in aside.read_bytes()
    reason = aside.with_name(aside.name.replace(".json", ".reason.txt")).read_text()
    assert "known" in reason
    desk.demand_sound(quarantined=1)


def test_two_files_for_one_new_job_make_one(desk, running):
    stop(desk, running)
    for name in ("x", "y"):
        desk.write("pending", name, {"taskId": "one", "payload": {"type": "send"}})
    desk.settle(running=running)
    desk.settle(running=True)
    assert desk.where() == {"one": ["pending"]}
    desk.demand_sound()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\0" * 600, b"\xff\xfe{}", b'{"payload": {"type": "a"}', b"NaN", b"[" * 5000],
    ids=["empty", "half", "nul", "binary", "cut", "nan", "deep"],
)
def test_a_file_that_does_not_parse_is_left_alone_for_ten_seconds(desk, running, text):
    desk.add(job("good"))
    stop(desk, running)
    desk.write("pending", "bad", text, age_s=3)
    desk.settle(running=running)
    assert desk.where() == {"bad": ["pending"], "good": ["pending"]}
    desk.clock.advance(8)
    desk.settle(running=True)
    assert desk.where() == {"good": ["pending"]}
    assert next(iter(desk.quarantined().values())).read_bytes() == text
    desk.demand_sound(quarantined=1)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"payload": 5},
        {"payload": {}},
        {"payload": {"type": 5}},
        {"payload": {"type": "no name"}},
        {"payload": {"type": "a"}, "state": "COMPLETED"},
        {"payload": {"type": "a"}, "state": "WAITING"},
        {"payload": {"type": "a"}, "priority": 1000},
        {"payload": {"type": "a"}, "priority": "high"},
        {"payload": {"type": "a"}, "createdAt": "yesterday"},
        {"payload": {"type": "a"}, "taskId": " x"},
        {"payload": {"type": "a"}, "tags": [1]},
        b'{"payload": {"type": "a"}, "payload": {"type": "b"}}',
        b'{"payload": {"type": "a", "data": {"n": 1e999}}}',
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_file_that_asks_for_what_cannot_be_is_set_aside_with_the_reason(desk, running, content):
    stop(desk, running)
    desk.write("pending", "bad", content, age_s=11)
    desk.settle(running=running)
    assert desk.where() == {}
    (aside,) = desk.quarantined().values()
    assert len(aside.with_name(aside.name.replace(".json", ".reason.txt")).read_text()) > 20
    desk.demand_sound(quarantined=1)
    with pytest.raises(JobNotFound):
        desk.job("bad")


def test_a_file_that_this_user_may_not_read_is_set_aside_and_stops_nobody(desk, running, monkeypatch):
    desk.add(job("mine"))
    stop(desk, running)
    really = OsFS.open

    def refused(self, path, mode):
        if mode == "read" and path.endswith(("pending/closed.json", "pending/mine.json")):
            raise PermissionError(13, "Permission denied", path)
        return really(self, path, mode)

    monkeypatch.setattr(OsFS, "open", refused)
    desk.clock.advance(60)
    for name in ("closed", "mine", "open"):
        desk.write("pending", name, {"payload": {"type": "work"}}, age_s=30)
    desk.settle(running=running)
    monkeypatch.undo()
    assert sorted(desk.quarantined()) == ["closed.json", "mine.json"]
    assert desk.where() == {"mine": ["pending"], "open": ["pending"]}
    assert {grant.job.job_id for grant in desk.take(5)} == {"mine", "open"}
    desk.demand_sound(quarantined=2)


def test_a_file_whose_name_is_no_text_is_told_of_once_and_left_alone(desk, running, caplog):
    stop(desk, running)
    odd = os.fsencode(desk.folder("pending")) + b"/bad\xff.json"
    with open(odd, "wb") as file:  # noqa: PTH123 - a path that is no text
        file.write(b'{"payload": {"type": "work"}}')
    desk.settle(running=running)
    desk.settle(running=True)
    told = [record.file for record in caplog.records if record.message == "record.irregular"]
    assert told == ["tasks/pending/bad\\udcff.json"]
    assert os.path.exists(odd)  # noqa: PTH110 - the same
    os.unlink(odd)  # noqa: PTH108 - the same


def test_what_editors_leave_lying_is_ignored(desk, running):
    stop(desk, running)
    names = ["x.json~", "#x.json#", ".x.json.swp", ".hidden.json", "x.txt", "4913"]
    for name in names:
        (desk.folder("pending") / name).write_text('{"payload": {"type": "a"}}')
    desk.settle(running=running)
    desk.clock.advance(60)
    desk.settle(running=True)
    assert desk.ls("pending") == sorted(names)
    assert desk.quarantined() == {}


# --- edits ------------------------------------------------------------------------------------------------------------


def edit(desk, name, **changes):
    """Save as an editor that replaces the file."""
    page = desk.file("pending", name)
    data = changes.pop("data", None)
    if data is not None:
        page["payload"]["data"] = data
    page |= changes
    desk.write("pending", name, page)
    os.utime(desk.folder("pending") / f"{name}.json")  # as late as can be: now


def test_an_edit_of_what_may_be_edited_counts_and_the_rest_is_restored(desk, running):
    desk.add(job("a", {"n": 1}), job("b", priority=3))
    stop(desk, running)
    edit(
        desk,
        "a",
        data={"n": 2},
        priority=9,
        notBefore="2099-01-01T00:00:00Z",
        expiresAt="2100-01-01T00:00:00Z",
        maxAttempts=1,
        timeoutS=5,
        tags={"x": "y"},
        queue="elsewhere",
        attempts=77,
        leaseS=99,
        seq=1,
    )
    desk.settle(running=running)
    found = desk.job("a")
    assert (bytes(found.params), found.priority, found.max_attempts) == (b'{"n":2}', 9, 1)
    assert (found.timeout_s, found.tags) == (5, {"x": "y"})
    assert (found.not_before, found.expires_at) == ("2099-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z")
    assert (found.queue, found.attempts, found.lease_s) == ("default", 0, 30)
    assert desk.file("pending", "a")["queue"] == "default"
    desk.demand_sound()


def test_an_edit_of_the_priority_changes_the_order(desk, running):
    desk.add(job("a"), job("b"))
    stop(desk, running)
    edit(desk, "b", priority=5)
    desk.settle(running=running)
    assert [grant.job.job_id for grant in desk.take(2)] == ["b", "a"]


def test_parameters_are_frozen_by_the_first_lease(desk, running):
    desk.add(job("a", {"n": 1}))
    desk.fail(desk.take()[0], retry_after_s=0)
    stop(desk, running)
    edit(desk, "a", data={"n": 2}, maxAttempts=9)
    desk.settle(running=running)
    found = desk.job("a")
    assert (bytes(found.params), found.max_attempts) == (b'{"n":1}', 9)
    assert desk.file("pending", "a")["payload"]["data"] == {"n": 1}
    desk.demand_sound()


@pytest.mark.parametrize("changes", [{"priority": 1000}, {"notBefore": "soon"}, {"tags": {"a": 5}}, {"taskId": "b"}])
def test_an_invalid_edit_is_set_aside_and_the_last_good_version_stays(desk, running, changes):
    desk.add(job("a", {"n": 1}, priority=2, key="k"))
    stop(desk, running)
    edit(desk, "a", **changes)
    desk.settle(running=running)
    assert desk.where() == {"a": ["pending"]}
    assert (desk.job("a").priority, desk.file("pending", "a")["priority"]) == (2, 2)
    assert len(desk.quarantined()) == 1
    desk.demand_sound(quarantined=1)
    assert desk.take()[0].job.job_id == "a"


def test_an_edit_that_does_not_parse_holds_the_job_back_until_it_is_saved_again_or_given_up(desk, running):
    desk.add(job("a"))
    stop(desk, running)
    desk.write("pending", "a", b'{"taskId": "a", "priority": ')
    os.utime(desk.folder("pending") / "a.json")
    if not running:
        desk.open()
    else:
        desk.settle(running=True)
    assert desk.take() == ()
    desk.clock.advance(15)
    desk.settle(running=True)
    assert desk.where() == {"a": ["pending"]}
    assert desk.take()[0].job.job_id == "a"
    desk.demand_sound(quarantined=1)


def test_an_edit_in_place_is_seen_before_the_job_is_leased(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(job("a", {"n": 1}))
    desk.settle(running=True)
    path = desk.folder("pending") / "a.json"
    path.write_text(json.dumps(desk.file("pending", "a") | {"payload": {"type": "work", "data": {"n": 2}}}))
    assert desk.take() == (), "it waits until the edit was looked at"
    desk.settle(running=True)
    (grant,) = desk.take()
    assert bytes(grant.job.params) == b'{"n":2}'
    desk.close()


def test_a_touched_file_changes_nothing_but_its_time(desk, running):
    desk.add(job("a", {"n": 1}))
    before = desk.job("a")
    stop(desk, running)
    os.utime(desk.folder("pending") / "a.json")
    desk.settle(running=running)
    after = desk.job("a")
    assert (after.params, after.position) == (before.params, before.position)
    assert len(desk.take()) == 1
    desk.demand_sound()


# --- moves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [None, "completed", "failed"])
def test_taking_a_pending_file_away_cancels_the_job(desk, running, to):
    desk.add(job("a", key="k"), job("b"))
    stop(desk, running)
    path = desk.folder("pending") / "a.json"
    if to is None:
        path.unlink()
    else:
        path.rename(desk.folder(to) / "a.json")
    desk.settle(running=running)
    found = desk.job("a")
    assert (found.status, found.cancel_reason) == (JobStatus.CANCELLED, "file removed")
    assert desk.where() == {"a": ["failed"], "b": ["pending"]}
    assert desk.file("failed", "a")["state"] == "CANCELLED"
    desk.demand_sound()
    assert [grant.job.job_id for grant in desk.take(2)] == ["b"]


def test_a_file_taken_away_is_not_leased_before_that_was_noticed(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(job("a"))
    (desk.folder("pending") / "a.json").unlink()
    assert desk.take() == ()
    desk.settle(running=True)
    assert desk.job("a").status is JobStatus.CANCELLED
    desk.close()


def test_moving_a_failed_file_to_pending_is_a_manual_retry(desk, running):
    desk.add(job("a", {"n": 1}, max_attempts=1))
    desk.fail(desk.take()[0])
    stop(desk, running)
    (desk.folder("failed") / "a.json").rename(desk.folder("pending") / "a.json")
    desk.settle(running=running)
    states = desk.where()
    assert states.pop("a") == ["failed"]
    ((made, where),) = states.items()
    assert where == ["pending"]
    again = desk.job(made)
    assert (again.retry_of, again.status, bytes(again.params)) == ("a", JobStatus.QUEUED, b'{"n":1}')
    assert desk.job("a").status is JobStatus.FAILED
    desk.demand_sound()


def test_moving_a_completed_file_to_pending_only_brings_it_back(desk, running):
    desk.add(job("a"))
    desk.complete(desk.take()[0], {"answer": 42})
    stop(desk, running)
    (desk.folder("completed") / "a.json").rename(desk.folder("pending") / "a.json")
    desk.settle(running=running)
    assert desk.where() == {"a": ["completed"]}
    assert desk.take() == (), "what is completed never runs again"
    desk.demand_sound()


def test_a_pending_file_moved_into_running_goes_back(desk, running):
    desk.add(job("a"))
    stop(desk, running)
    (desk.folder("pending") / "a.json").rename(desk.folder("running") / "a.json")
    desk.settle(running=running)
    assert desk.where() == {"a": ["pending"]}
    assert desk.job("a").status is JobStatus.QUEUED
    desk.demand_sound()
    assert len(desk.take()) == 1


def test_edits_of_files_in_running_and_completed_are_overwritten_or_reported(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(job("a"), job("b"))
    a, b = desk.take(2)
    desk.complete(b)
    for state, name in (("running", "a"), ("completed", "b")):
        page = desk.file(state, name) | {"priority": 50}
        (desk.folder(state) / f"{name}.json").write_text(json.dumps(page))
    assert sorted(one.id for one in desk.store.check()) == ["a", "b"]
    desk.complete(a)
    assert desk.file("completed", "a")["priority"] == 0
    assert [one.id for one in desk.store.check()] == ["b"]
    desk.close()


# --- a directory of document 000 --------------------------------------------------------------------------------------


def test_a_directory_of_another_program_just_opens(tmp_path):
    desk = Desk(tmp_path / "store", opened=False)
    desk.make_folders()

    def page(name, state):
        return {
            "taskId": name,
            "state": state,
            "createdAt": "2026-01-06T10:15:30Z",
            "payload": {"type": "EMAIL_SEND", "data": {"to": "user@example.com"}},
        }

    desk.write("pending", "task-1", page("task-1", "PENDING"))
    desk.write("running", "task-2", page("task-2", "RUNNING"))
    desk.write("completed", "task-3", page("task-3", "COMPLETED"))
    desk.write("completed", "Task 4", page("Task 4", "COMPLETED"))
    desk.write("failed", "task-5", page("task-5", "FAILED"))
    (desk.folder("running") / ".tmp-task-9.json").write_text("{")
    desk.open()
    assert [desk.job(f"task-{n}").status.value for n in (1, 2, 3, 5)] == ["QUEUED", "QUEUED", "COMPLETED", "FAILED"]
    assert desk.job("Task 4").status is JobStatus.COMPLETED
    assert desk.job("task-3").created_at == "2026-01-06T10:15:30.000000Z"
    assert sorted(desk.where()) == ["%54ask%204", "task-1", "task-2", "task-3", "task-5"]
    assert [grant.job.job_id for grant in desk.take(5)] == ["task-1", "task-2"]
    desk.demand_sound()
    desk.reopen()
    assert desk.job("task-5").status is JobStatus.FAILED
    desk.demand_sound()
    desk.close()


def test_retention_counts_adopted_history_from_its_adoption(tmp_path, caplog):
    """A directory of another program keeps its history: what is older than the retention is not deleted at once."""
    desk = Desk(tmp_path / "store", opened=False)
    desk.make_folders()
    for state, name in (("completed", "old"), ("failed", "bad")):
        said = {"taskId": name, "finishedAt": "2020-01-06T10:15:31Z", "payload": {"type": "EMAIL_SEND"}}
        desk.write(state, name, said, age_s=90 * DAY_S)
    desk.write("pending", "waits", {"payload": {"type": "EMAIL_SEND"}})
    desk.open()
    (adopted,) = [record for record in caplog.records if record.message == "dir.adopted"]
    assert (adopted.completed, adopted.failed, adopted.pending, adopted.running) == (1, 1, 1, 0)
    assert "7 days" in adopted.retention
    assert "30" in adopted.retention
    opened_at = desk.store.adopted.at
    tick(desk.engine)
    assert desk.where() == {"bad": ["failed"], "old": ["completed"], "waits": ["pending"]}
    assert desk.job("old").finished_at >= opened_at
    desk.clock.advance(6 * DAY_S)
    desk.reopen()
    tick(desk.engine)
    assert sorted(desk.where()) == ["bad", "old", "waits"], "the opening that adopted it counts, not the last one"
    desk.write("pending", "again", {"taskId": "old", "payload": {"type": "EMAIL_SEND"}})
    desk.settle(running=True)
    assert desk.job("old").status is JobStatus.COMPLETED, "its id is not free"
    desk.clock.advance(2 * DAY_S)
    tick(desk.engine)
    assert sorted(desk.where()) == ["bad", "waits"]
    desk.clock.advance(30 * DAY_S)
    tick(desk.engine)
    assert sorted(desk.where()) == ["waits"]
    assert sum(record.message == "dir.adopted" for record in caplog.records) == 1
    desk.close()


def test_history_that_comes_after_the_first_opening_is_kept_from_then_on(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.close()
    desk.write("completed", "old", {"taskId": "old", "payload": {"type": "send"}}, age_s=90 * DAY_S)
    desk.open()
    tick(desk.engine)
    assert desk.where() == {"old": ["completed"]}
    desk.close()


def test_a_directory_that_is_only_looked_at_is_not_adopted(tmp_path, caplog):
    desk = Desk(tmp_path / "store", opened=False)
    desk.make_folders()
    desk.write("completed", "old", {"taskId": "old", "payload": {"type": "send"}}, age_s=90 * DAY_S)
    looked = DirStore.open(desk.path, readonly=True)
    looked.close()
    (told,) = [record for record in caplog.records if record.message == "dir.not_adopted"]
    assert told.completed == 1
    assert not (desk.path / "holdfast.json").exists()


# --- races ------------------------------------------------------------------------------------------------------------


def test_an_editor_that_saves_in_place_and_the_scan_never_spoil_a_job(tmp_path):
    """A thousand saves (truncate, write) by one thread, looked for by another all the while."""
    desk = Desk(tmp_path / "store")
    desk.add(job("a", {"n": -1}))
    path = desk.folder("pending") / "a.json"
    page = desk.file("pending", "a")
    saves, over, looked = 1000, threading.Event(), threading.Event()

    def save():
        for number in range(saves):
            page["payload"]["data"] = {"n": number, "text": "x" * (number % 50)}
            with path.open("w") as file:
                text = json.dumps(page)
                file.write(text[: len(text) // 2])
                file.flush()
                file.write(text[len(text) // 2 :])
            if number % 50 == 0:  # now and then it rests until somebody has looked
                looked.clear()
                looked.wait(60)
        over.set()

    editor = threading.Thread(target=save)
    editor.start()
    seen = [-1]
    while not over.is_set():
        adopt(desk.engine)
        found = desk.job("a")
        assert found.status is JobStatus.QUEUED
        seen.append(json.loads(bytes(found.params))["n"])
        looked.set()
    editor.join()
    adopt(desk.engine)
    desk.clock.advance(1)
    adopt(desk.engine)
    assert len(set(seen)) > 10, "some saves were met"
    assert seen == sorted(seen), "none was undone by an earlier one"
    assert desk.quarantined() == {}
    assert desk.where() == {"a": ["pending"]}
    desk.demand_sound()
    desk.close()


def test_files_that_arrive_while_others_are_taken_are_each_taken_once(tmp_path):
    desk = Desk(tmp_path / "store")

    def drop():
        for number in range(200):
            desk.write("pending", f"j{number:03}", {"payload": {"type": "work", "data": {"n": number}}})

    writer = threading.Thread(target=drop)
    writer.start()
    while writer.is_alive():
        adopt(desk.engine)
    writer.join()
    desk.settle(running=True)
    assert desk.where() == {f"j{number:03}": ["pending"] for number in range(200)}
    desk.demand_sound()
    desk.close()


def test_of_very_many_files_some_are_taken_at_a_time_so_that_nobody_waits_for_them(desk, running):
    stop(desk, running)
    many = [f"j{number:03}" for number in range(2 * AT_ONCE + 7)]
    for name in many:
        desk.write("pending", name, {"payload": {"type": "work"}})
    if running:
        desk.clock.advance(1)
        assert adopt(desk.engine) == AT_ONCE
    else:
        desk.open()
    with desk.store.read() as view:
        assert [one.job_id for one in view.all(Job)] == many[:AT_ONCE]
    before = desk.store.feed(0)
    assert desk.store.has_more
    (grant,) = desk.take()
    desk.complete(grant)
    desk.look()
    assert desk.where() == {name: ["completed" if name == grant.job.job_id else "pending"] for name in many}
    assert len({entry.ts for entry in before}) <= AT_ONCE, "they were committed together"
    desk.demand_sound()


def test_files_that_nobody_can_use_are_not_looked_at_without_rest(tmp_path):
    desk = Desk(tmp_path / "store")
    for number in range(AT_ONCE + 1):
        desk.write("pending", f"j{number:03}", b"{")
    desk.clock.advance(1)
    desk.look()  # it comes to an end, and all are left alone for their ten seconds
    assert not desk.store.has_more
    assert len(desk.where()) == AT_ONCE + 1
    desk.close()


def test_what_was_done_to_files_is_not_forgotten_by_an_opening_that_decides_nothing(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(job("gone"), job("edited"))
    desk.close()
    (desk.folder("pending") / "gone.json").unlink()
    desk.clock.advance(60)
    page = desk.file("pending", "edited")
    desk.write("pending", "edited", page | {"priority": 17, "queue": "other"})
    for _ in range(2):
        store = DirStore.open(desk.path, clock=desk.clock)
        store.snapshot()
        store.close()
    desk.open().look()
    assert desk.job("gone").status is JobStatus.CANCELLED
    assert (desk.job("edited").priority, desk.job("edited").queue) == (17, "default")
    desk.demand_sound()
    desk.close()


def test_an_edit_from_before_the_opening_holds_its_job_back_until_it_is_decided(tmp_path):
    desk = Desk(tmp_path / "store")
    many = [f"j{number:03}" for number in range(AT_ONCE + 1)]
    desk.add(*(job(name) for name in many))
    desk.close()
    desk.clock.advance(60)
    for name in many:
        desk.write("pending", name, desk.file("pending", name) | {"maxAttempts": 9, "queue": "other"})
    desk.open()
    assert desk.store.has_more
    assert {grant.job.max_attempts for grant in desk.take(n=len(many))} == {9}
    assert desk.job(many[-1]).status is JobStatus.QUEUED
    desk.look()
    assert [grant.job.max_attempts for grant in desk.take()] == [9]
    desk.demand_sound()
    desk.close()


def test_a_file_taken_away_after_its_process_died_cancels_its_job_too(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(job("old"), job("done"))
    desk.reopen()
    desk.add(job("new"), job("kept"), job("lost"))
    for grant in desk.take(2):
        desk.complete(grant)
    died = Desk(tmp_path / "copy", opened=False)
    shutil.copytree(desk.path, died.path)  # as it was when the process died
    for name in ("new", "lost"):
        (died.folder("pending") / f"{name}.json").unlink()
    died.open().look()
    statuses = {name: died.job(name).status.value for name in ("old", "done", "kept", "new", "lost")}
    ended = {"old": "COMPLETED", "done": "COMPLETED", "new": "CANCELLED", "lost": "CANCELLED"}
    assert statuses == ended | {"kept": "QUEUED"}
    died.demand_sound()
    died.close()
    desk.close()


def test_a_worker_until_idle_sees_to_all_files(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.close()
    for number in range(AT_ONCE + 3):
        desk.write("pending", f"a{number:03}", "[]")
    desk.write("pending", "z", {"payload": {"type": "hello"}})
    with Holdfast(f"dir:{tmp_path / 'store'}") as hf:
        hf.task(name="hello")(lambda: None)
        hf.work(until_idle=True)
        assert hf.job("z").status is JobStatus.COMPLETED


def test_a_running_worker_notices_a_file_within_a_second(tmp_path):
    done = threading.Event()
    with Holdfast(f"dir:{tmp_path / 'store'}") as hf:

        @hf.task(name="hello")
        def hello() -> None:
            done.set()

        worker = hf.worker(concurrency=1)
        worker.start()
        inbox = tmp_path / "store" / "data" / "tasks" / "pending"
        (inbox / ".x").write_text('{"payload": {"type": "hello"}}')
        (inbox / ".x").rename(inbox / "x.json")
        assert done.wait(30)
        worker.drain(0)
        assert worker.join(30)
        assert hf.job("x").status is JobStatus.COMPLETED

"""What hands do to the files of a `dir:` store: while it is open, after it was closed, after its process was killed.

Each row states what becomes of the job, which event the feed has for it, and which line the log has. The outcome does
not depend on whether a process had the store open.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from dir_kit import Desk, job

from holdfast.model.commands import CreateGroup, Update
from holdfast.model.events import JobChanges
from holdfast.model.groups import Group
from holdfast.model.jobs import JobStatus

MODES = ("running", "stopped", "killed")


class Bench(Desk):
    """A store in one of the three conditions, with the verbs of a person at a terminal."""

    mode: str = "running"

    def leave(self) -> None:
        if self.mode == "stopped":
            self.close()
        elif self.mode == "killed":
            self.kill()

    def notice(self) -> None:
        """Have what was done noticed; where a process is missing, one starts."""
        if self.engine is None:
            self.open()
        self.settle(running=True)

    def path_of(self, state, name):
        return self.folder(state) / f"{name}.json"

    def mv(self, src, dst):
        (src_state, src_name), (dst_state, dst_name) = src.split("/"), dst.split("/")
        (self.folder(src_state) / src_name).rename(self.folder(dst_state) / dst_name)

    def save(self, name, *, state="pending", age_s=0.0, **changes):
        """Save as an editor that writes beside and renames; `age_s` sets the file's own time back."""
        page = self.file(state, name)
        if "data" in changes:
            page["payload"]["data"] = changes.pop("data")
        self.write(state, name, page | changes)
        now = self.path_of(state, name).stat().st_mtime - age_s
        os.utime(self.path_of(state, name), (now, now))

    def events_since(self, seq, job_id):
        """Give the events that tell of one job, or of a job that retries it."""
        found = []
        for entry in self.store.feed(seq):
            event = msgspec.json.decode(entry.event)
            made = event.get("job", {})
            if job_id in (event.get("job_id"), made.get("job_id"), made.get("retry_of")):
                found.append(event["type"])
        return found


@pytest.fixture(params=MODES)
def desk(request, tmp_path):
    desk = Bench(tmp_path / "store")
    desk.mode = request.param
    yield desk
    desk.close()


@dataclass(frozen=True)
class Row:
    """What somebody does, and what comes of it."""

    does: tuple[Callable[[Bench], object], ...]
    #: Where the files of jobs are afterwards; "*" is the name of a job that was made.
    where: dict[str, list[str]]
    events: tuple[str, ...]
    log: str
    #: Fields of job `a` afterwards.
    job: dict[str, Any]
    before: Callable[[Bench], object] = lambda desk: desk.add(job("a", {"n": 1}))


def fail_for_good(desk):
    desk.add(job("a", {"n": 1}, max_attempts=1))
    desk.fail(desk.take()[0])


def complete(desk):
    desk.add(job("a", {"n": 1}))
    desk.complete(desk.take()[0])


def put_back(desk, name, text):
    desk.write("pending", name, text)
    os.utime(desk.path_of("pending", name), (1_000_000_000, 1_000_000_000))


def keep_and_update(desk):
    """Keep a copy of the file, then have the store change the job."""
    desk.add(job("a", {"n": 1}))
    desk.copy = desk.path_of("pending", "a").read_bytes()
    desk.engine.ask(Update(job_id="a", changes=JobChanges(priority=7)))


def write_in_place(desk, name, share):
    """Save as an editor that truncates and writes: so far only a share of it."""
    page = desk.file("pending", name) if share == 1 else None
    if page is None:
        desk.page = desk.file("pending", name) | {"priority": 4}
    text = json.dumps(desk.page)
    desk.path_of("pending", name).write_text(text[: int(len(text) * share)])


COUNTERS = {
    "attempts": 3,
    "executions": 9,
    "expiries": 4,
    "deliveries": 9,
    "position": 7,
    "token": 10**9,
    "workerId": "me",
    "runs": [{"runId": "r", "runNo": 1, "startedAt": "2026-01-06T10:15:30.000000Z", "token": 10**9}],
}
WAITS = {"status": JobStatus.QUEUED, "attempts": 0, "executions": 0, "expiries": 0, "token": None, "position": 100}
CANCELLED = {"status": JobStatus.CANCELLED, "cancel_reason": "file removed"}

ROWS = {
    "create": Row(
        (lambda desk: desk.write("pending", "a", {"payload": {"type": "work"}, "attempts": 3}),),
        {"a": ["pending"]},
        ("job:created",),
        "wish.granted",
        WAITS,
        before=lambda desk: None,
    ),
    "delete": Row(
        (lambda desk: desk.path_of("pending", "a").unlink(),),
        {"a": ["failed"]},
        ("job:cancelled",),
        "record.removed",
        CANCELLED,
    ),
    "edit the parameters": Row(
        (lambda desk: desk.save("a", data={"n": 2}),),
        {"a": ["pending"]},
        ("job:updated",),
        "wish.granted",
        WAITS | {"params": msgspec.Raw(b'{"n":2}')},
    ),
    "edit the priority": Row(
        (lambda desk: desk.save("a", priority=5),),
        {"a": ["pending"]},
        ("job:updated",),
        "wish.granted",
        WAITS | {"priority": 5, "rank": -5},
    ),
    "edit the priority, time set back": Row(
        (lambda desk: desk.save("a", priority=5, age_s=86_400),),
        {"a": ["pending"]},
        ("job:updated",),
        "wish.granted",
        WAITS | {"priority": 5, "rank": -5},
    ),
    "edit the counters": Row(
        (lambda desk: desk.save("a", **COUNTERS),), {"a": ["pending"]}, (), "record.restored", WAITS
    ),
    "edit the counters, time set back": Row(
        (lambda desk: desk.save("a", age_s=86_400, **COUNTERS),), {"a": ["pending"]}, (), "record.restored", WAITS
    ),
    "edit the counters and the priority": Row(
        (lambda desk: desk.save("a", age_s=86_400, priority=5, **COUNTERS),),
        {"a": ["pending"]},
        ("job:updated",),
        "record.restored",
        WAITS | {"priority": 5},
    ),
    "edit the state": Row(
        (lambda desk: desk.save("a", state="pending") or desk.write("pending", "a", ended_page(desk)),),
        {"a": ["pending"]},
        (),
        "record.restored",
        WAITS,
    ),
    "put an older version back": Row(
        (lambda desk: put_back(desk, "a", desk.copy),),
        {"a": ["pending"]},
        (),
        "record.restored",
        WAITS | {"priority": 7},
        before=keep_and_update,
    ),
    "save by renaming the old file": Row(
        (
            lambda desk: setattr(desk, "page", desk.file("pending", "a") | {"priority": 5}),
            lambda desk: desk.mv("pending/a.json", "pending/a.json~"),
            lambda desk: desk.path_of("pending", "a").write_text(json.dumps(desk.page)),
        ),
        {"a": ["pending"]},
        ("job:updated",),
        "wish.granted",
        WAITS | {"priority": 5},
    ),
    "save in two writes": Row(
        (lambda desk: write_in_place(desk, "a", 0.5), lambda desk: write_rest(desk, "a")),
        {"a": ["pending"]},
        ("job:updated",),
        "wish.granted",
        WAITS | {"priority": 4},
    ),
    "rename to a backup and leave it": Row(
        (lambda desk: desk.mv("pending/a.json", "pending/a.json.bak"), lambda desk: desk.clock.advance(11)),
        {"a": ["failed"]},
        ("job:cancelled",),
        "record.removed",
        CANCELLED,
    ),
    "rename in pending": Row(
        (lambda desk: desk.mv("pending/a.json", "pending/other.json"),),
        {"a": ["pending"]},
        (),
        "record.returned",
        WAITS,
    ),
    "rename in pending and edit": Row(
        (lambda desk: desk.save("a", priority=5) or desk.mv("pending/a.json", "pending/other.json"),),
        {"a": ["pending"]},
        ("job:updated",),
        "record.returned",
        WAITS | {"priority": 5},
    ),
    "mv pending completed": Row(
        (lambda desk: desk.mv("pending/a.json", "completed/a.json"),),
        {"a": ["failed"]},
        ("job:cancelled",),
        "record.removed",
        CANCELLED,
    ),
    "mv pending failed": Row(
        (lambda desk: desk.mv("pending/a.json", "failed/a.json"),),
        {"a": ["failed"]},
        ("job:cancelled",),
        "record.removed",
        CANCELLED,
    ),
    "mv pending running": Row(
        (lambda desk: desk.mv("pending/a.json", "running/a.json"),),
        {"a": ["pending"]},
        (),
        "record.returned",
        WAITS,
    ),
    "mv failed pending": Row(
        (lambda desk: desk.mv("failed/a.json", "pending/a.json"),),
        {"a": ["failed"], "*": ["pending"]},
        ("job:created",),
        "wish.granted",
        {"status": JobStatus.FAILED, "attempts": 1},
        before=fail_for_good,
    ),
    "mv completed pending": Row(
        (lambda desk: desk.mv("completed/a.json", "pending/a.json"),),
        {"a": ["completed"]},
        (),
        "record.returned",
        {"status": JobStatus.COMPLETED, "attempts": 1},
        before=complete,
    ),
}


def ended_page(desk):
    return desk.file("pending", "a") | {"state": "FAILED"}


def write_rest(desk, name):
    desk.path_of("pending", name).write_text(json.dumps(desk.page))


@pytest.mark.parametrize("what", ROWS)
def test_hand_edit_has_its_outcome_its_event_and_its_log_line(desk, what, caplog):
    caplog.set_level("INFO", logger="holdfast")
    row = ROWS[what]
    desk.add(job("beside", queue="other"))
    row.before(desk)
    desk.look()
    seq = desk.store.read().__enter__().seq
    caplog.clear()
    desk.leave()
    for does in row.does:
        does(desk)
        desk.notice()
    found = desk.where()
    made = {name for name in found if name not in ("a", "beside")}
    assert {"*" if name in made else name: states for name, states in found.items()} == row.where | {
        "beside": ["pending"]
    }
    after = desk.job("a")
    assert {name: getattr(after, name) for name in row.job} == row.job
    assert desk.events_since(seq, "a") == list(row.events)
    assert row.log in [record.message for record in caplog.records if tells_of(record, "a")], told(caplog)
    desk.demand_sound()
    page = desk.file(row.where["a"][0], "a")
    assert page.get("attempts") == after.attempts
    assert "token" not in page
    assert desk.file("pending", "beside")["priority"] == 0
    desk.reopen()
    desk.settle(running=True)
    assert desk.job("a") == after, "the next opening finds nothing more to do"
    desk.demand_sound()


def tells_of(record, job_id):
    return getattr(record, "job", None) == job_id or f"/{job_id}.json" in getattr(record, "file", "")


def told(caplog):
    return [(record.message, getattr(record, "file", ""), getattr(record, "job", "")) for record in caplog.records]


# --- what concerns more than one file ---------------------------------------------------------------------------------


def test_group_ends_when_the_file_of_a_member_is_moved_to_completed(desk):
    """The job that never ran is CANCELLED, not COMPLETED, and its group does not wait for it."""
    desk.engine.ask(CreateGroup(group_id="g", members=(job("a"),)))
    desk.fail(desk.take()[0], retry_after_s=0)
    desk.leave()
    desk.mv("pending/a.json", "completed/a.json")
    desk.notice()
    assert desk.job("a").status is JobStatus.CANCELLED
    with desk.engine.read() as view:
        assert view.get(Group, "g").finished_at is not None
    desk.demand_sound()


@pytest.mark.parametrize("to", ["completed", "failed", "pending"])
def test_running_job_whose_file_is_moved_has_not_ended(desk, to):
    desk.add(job("a"))
    (grant,) = desk.take()
    desk.leave()
    desk.mv("running/a.json", f"{to}/a.json")
    desk.notice()
    if desk.mode == "running":
        assert desk.job("a").status is JobStatus.RUNNING
        desk.complete(grant)
        assert desk.job("a").status is JobStatus.COMPLETED
        if to != "failed":  # there it lies until the next opening, and a check reports it
            assert desk.where() == {"a": ["completed"]}
    else:
        found = desk.job("a")
        assert (found.status, found.attempts, found.expiries) == (JobStatus.QUEUED, 0, 1)
        assert desk.events_since(2, "a") == ["lease:expired"]
        assert desk.where() == {"a": ["pending"]}
        desk.demand_sound()


@pytest.mark.parametrize(
    "edit", [COUNTERS, {"expiries": 4}, {"state": "PENDING"}], ids=["counters", "expiries", "state"]
)
def test_edit_of_a_running_file_is_overwritten(desk, edit):
    desk.add(job("a"))
    (grant,) = desk.take()
    token = grant.token
    desk.leave()
    desk.save("a", state="running", age_s=86_400) if "state" in edit else desk.save("a", state="running", **edit)
    if "state" in edit:
        desk.write("running", "a", desk.file("running", "a") | edit)
    desk.notice()
    if desk.mode == "running":
        desk.complete(grant)
        assert desk.file("completed", "a")["attempts"] == 1
    else:
        found = desk.job("a")
        assert (found.status, found.attempts, found.executions, found.expiries) == (JobStatus.QUEUED, 0, 1, 1)
        assert [run.token for run in desk.engine.runs("a")] == [token]
    desk.demand_sound()


@pytest.mark.parametrize(("src", "dst"), [("failed", "completed"), ("completed", "failed")])
def test_ended_job_stays_what_it_is_when_its_file_is_moved_between_ended_ones(desk, src, dst, caplog):
    fail_for_good(desk) if src == "failed" else complete(desk)
    before = desk.job("a")
    desk.leave()
    desk.mv(f"{src}/a.json", f"{dst}/a.json")
    desk.notice()
    if desk.mode == "running":
        assert [one.code for one in desk.store.check()] == ["file_missing", "file_unknown"]
        desk.reopen()
    assert desk.job("a") == before
    assert desk.where() == {"a": [src]}
    assert "record.returned" in [record.message for record in caplog.records]
    desk.demand_sound()


def test_edit_of_an_ended_file_is_reported_by_a_check(desk):
    complete(desk)
    desk.leave()
    desk.save("a", state="completed", attempts=3)
    desk.notice()
    (found,) = desk.store.check()
    assert (found.code, found.id) == ("file_differs", "a")


def test_copy_of_a_pending_file_in_completed_makes_nothing_completed(desk):
    desk.add(job("a"))
    desk.leave()
    copy = desk.path_of("completed", "a")
    copy.write_bytes(desk.path_of("pending", "a").read_bytes())
    desk.notice()
    assert desk.job("a").status is JobStatus.QUEUED
    desk.complete(desk.take()[0])
    assert desk.job("a").status is JobStatus.COMPLETED


def test_draft_of_a_producer_is_left_to_it_and_counts_once_renamed(desk):
    """Document 000 has programs write `.tmp-<task-id>.json` and rename it; an opening in between takes nothing away."""
    desk.add(job("x"))
    desk.leave()
    draft, other = desk.folder("pending") / ".tmp-mine.json", desk.folder("pending") / ".tmp-x.json"
    draft.write_text('{"payload": {"type": ')
    other.write_text("{")
    desk.notice()
    desk.engine.ask(Update(job_id="x", changes=JobChanges(priority=7)))
    assert draft.read_text() == '{"payload": {"type": '
    assert other.exists(), "also one with the name of a job that was written since"
    desk.demand_sound()
    draft.write_text('{"payload": {"type": "send"}}')
    draft.rename(desk.path_of("pending", "mine"))
    desk.notice()
    assert desk.job("mine").status is JobStatus.QUEUED


def test_job_older_than_the_feed_is_not_believed_in_what_is_not_its_authors_to_say(tmp_path, caplog):
    """The feed does not reach so far back; the file's own sum tells that its counters are not the store's."""
    desk = Bench(tmp_path / "store")
    desk.add(job("touched"), job("edited"), job("forged"), job("moved"))
    for grant in desk.take(4):
        desk.fail(grant, retry_after_s=0)
    desk.store.snapshot()
    desk.add(job("new"))
    desk.clock.advance(90 * 86_400)
    assert desk.store.trim(msgspec.json.decode(json.dumps("2999-01-01T00:00:00.000000Z")), 100) > 0
    desk.close()
    os.utime(desk.path_of("pending", "touched"))
    desk.save("edited", priority=5)
    desk.save("forged", attempts=0, executions=0, priority=6)
    desk.mv("pending/moved.json", "completed/moved.json")
    desk.open()
    desk.settle(running=True)
    touched, edited, forged = (desk.job(name) for name in ("touched", "edited", "forged"))
    assert (touched.attempts, touched.executions, touched.priority) == (1, 1, 0)
    assert (edited.attempts, edited.executions, edited.priority, edited.rank) == (1, 1, 5, -5)
    assert (forged.attempts, forged.executions, forged.priority, desk.engine.runs("forged")) == (0, 0, 6, ())
    assert desk.job("moved").status is JobStatus.CANCELLED
    assert "record.not_believed" in [record.message for record in caplog.records]
    desk.demand_sound()
    desk.close()

"""What lies on disk: one readable file a job, in the directory of its state, under a name no id can misuse."""

from __future__ import annotations

import json
import os
import stat

import msgspec
import pytest
from dir_kit import STATES, Desk, job

from holdfast.engine import Engine
from holdfast.errors import StoreDamaged, StoreFailed, StoreLocked, TooNew
from holdfast.model.commands import (
    Bury,
    Cancel,
    Complete,
    Enqueue,
    Expire,
    Extend,
    GiveUp,
    Lease,
    Move,
    PauseDispatch,
    Release,
    Retry,
    SetQueue,
    Snooze,
    Update,
)
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.jobs import Backoff, Job, JobStatus, RetryMode
from holdfast.model.payloads import MAX_DEPTH
from holdfast.stores.dir import DirStore, job_locations
from holdfast.stores.dir.format import file_names
from holdfast.stores.dir.format.record_files import FOLDERS
from holdfast.stores.dir.tables import NARROW, DirTables
from holdfast.testing import ManualClock, SimFS

NOW = Backoff(base_s=0, jitter=0)


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path / "store")
    yield desk
    desk.close()


def clean(desk):
    """Demand that no draft and no intent is left, and that nothing contradicts the files."""
    data = desk.path / "data"
    assert list(data.rglob(".tmp-*")) == []
    assert list((data / "intent").iterdir()) == []
    desk.demand_sound()


# --- 1: each change ---------------------------------------------------------------------------------------------------

CHANGES = {
    "create": ([], None, "pending"),
    "edit": ([], lambda grant: Update(job_id="a", changes=JobChanges(priority=5)), "pending"),
    "move in order": ([], lambda grant: Move(job_id="a", to="first"), "pending"),
    "lease": (["lease"], None, "running"),
    "extend": (["lease"], lambda grant: Extend(job_id="a", token=grant.token, lease_s=900), "running"),
    "complete": (["lease", "complete"], None, "completed"),
    "fail for good": (["lease", "fatal"], None, "failed"),
    "fail with retry": (["lease", "fail"], None, "pending"),
    "snooze": (["lease"], lambda grant: Snooze(job_id="a", token=grant.token, delay_s=5), "pending"),
    "release": (["lease"], lambda grant: Release(job_id="a", token=grant.token, begun=True), "pending"),
    "give up": (["lease"], lambda grant: GiveUp(job_id="a", token=grant.token), "failed"),
    "lease expired": (["lease", "later"], lambda grant: Expire(), "pending"),
    "die": (["one expiry", "lease", "later"], lambda grant: Expire(), "failed"),
    "cancel while running": (["lease"], lambda grant: Cancel(job_id="a", force=True), "failed"),
    "bury while running": (["lease"], lambda grant: Bury(job_id="a"), "failed"),
    "cancel while pending": ([], lambda grant: Cancel(job_id="a"), "failed"),
    "bury while pending": ([], lambda grant: Bury(job_id="a"), "failed"),
    "ttl while pending": (["ttl", "later"], lambda grant: Expire(), "failed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_leaves_exactly_one_copy_where_it_belongs(desk, change):
    steps, command, state = CHANGES[change]
    options = {"max_expiries": 1} if "one expiry" in steps else {"ttl_s": 5} if "ttl" in steps else {}
    desk.add(job("a", {"n": 1}, **options), job("other", not_before="2090-01-01T00:00:00.000000Z"))
    grant = None
    for step in steps:
        match step:
            case "lease":
                (grant,) = desk.take()
            case "complete":
                desk.complete(grant, "done")
            case "fail":
                desk.fail(grant)
            case "fatal":
                desk.fail(grant, fatal=True)
            case "later":
                desk.clock.advance(60)
    if command is not None:
        desk.engine.ask(command(grant))
    assert desk.where() == {"a": [state], "other": ["pending"]}
    page, status = desk.file(state, "a"), desk.job("a").status
    assert page["state"] == ("PENDING" if status is JobStatus.QUEUED else status.value)
    assert page["seq"] == desk.job("a").seq
    clean(desk)
    desk.reopen()
    clean(desk)


def test_a_chain_retry_leaves_the_old_failed_and_the_new_pending_with_the_key(desk):
    desk.add(job("a", retry_mode=RetryMode.CHAIN, key="k", backoff=NOW))
    desk.fail(desk.take()[0])
    states = desk.where()
    assert states.pop("a") == ["failed"]
    ((heir, where),) = states.items()
    assert where == ["pending"]
    (key,) = (desk.path / "data" / "keys").glob("*.json")
    assert json.loads(key.read_text())["jobId"] == heir
    clean(desk)


def test_every_kind_of_record_has_its_directory_and_comes_back(desk):
    desk.engine.ask(SetQueue(queue="mail", changes=QueueChanges(max_running=3)))
    desk.engine.ask(PauseDispatch(reason="a storm"))
    desk.add(job("a", key="k"))
    data = desk.path / "data"
    assert json.loads((data / "queues" / "settings" / ",mail.json").read_text())["maxRunning"] == 3
    assert json.loads((data / "dispatch.json").read_text()) == {"paused": True, "reason": "a storm", "seq": 2}
    for folder in FOLDERS.values():
        assert (data / folder).is_dir()


# --- the text of a job file -------------------------------------------------------------------------------------------


def test_a_job_file_is_what_the_format_shows(desk):
    desk.add(job("task-123", {"to": "user@example.com"}, job_type="EMAIL_SEND"))
    text = (desk.folder("pending") / "task-123.json").read_text()
    created = desk.job("task-123").created_at
    assert text == (
        f"""{{
  "taskId": "task-123",
  "state": "PENDING",
  "createdAt": "{created}",
  "payload": {{
    "type": "EMAIL_SEND",
    "data": {{
      "to": "user@example.com"
    }}
  }},
  "queue": "default",
  "priority": 0,
  "position": 100,
  "maxAttempts": 4,
  "attempts": 0,
  "runs": [],
  "seq": 1,
  "sum": "{json.loads(text)["sum"]}"
}}
"""
    )


def test_only_the_newest_twenty_runs_are_kept_and_the_others_counted(desk):
    desk.add(job("a", max_attempts=1000, backoff=NOW))
    for _ in range(25):
        desk.fail(desk.take()[0], retry_after_s=0)
    page = desk.file("pending", "a")
    assert [run["runNo"] for run in page["runs"]] == list(range(6, 26))
    assert page["runsDropped"] == 5
    assert "paramsSnapshot" not in page["runs"][0]
    before = desk.engine.runs("a")
    assert len(before) == 20
    desk.demand_sound()
    desk.reopen()
    assert desk.engine.runs("a") == before
    desk.demand_sound()


def test_runs_that_count_for_a_rate_are_kept(desk):
    desk.engine.ask(SetQueue(queue="default", changes=QueueChanges(rate_count=100, rate_period_s=3600)))
    desk.add(job("a", max_attempts=1000, backoff=NOW))
    for _ in range(25):
        desk.fail(desk.take()[0], retry_after_s=0)
    assert len(desk.file("pending", "a")["runs"]) == 25
    desk.reopen()
    with desk.engine.read() as view:
        assert len(list(view.starts("", "default", None, "2000"))) == 25


# --- 12: what is inside -----------------------------------------------------------------------------------------------


def nested(levels):
    value = {"end": 1}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


PAYLOADS = {
    "deep": nested(MAX_DEPTH),
    "big": {"most": 2**63 - 1, "least": -(2**63), "float": 1e308, "small": 5e-324, "zero": -0.0},
    "text": {"é": "é", "e\u0301": "\u2028\u2029\x7f\U0001f600\uffff", "": '\\"\n\t\u0000', "z": "\u202e"},
    "empty": {"list": [], "object": {}, "null": None, "text": ""},
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_payloads_survive_every_transition_unchanged(desk, name):
    payload = PAYLOADS[name]
    raw = msgspec.json.encode(payload)
    desk.add(job("a", payload, max_attempts=2, backoff=NOW))
    for step in range(2):
        desk.reopen()
        (grant,) = desk.take()
        assert bytes(grant.job.params) == raw
        assert msgspec.json.decode(grant.job.params) == payload
        if step == 0:
            desk.fail(grant, details=msgspec.Raw(raw), retry_after_s=0)
        else:
            desk.complete(grant, payload)
    desk.reopen()
    found = desk.job("a")
    assert bytes(found.params) == bytes(found.result) == raw
    first, _ = desk.engine.runs("a")
    assert bytes(first.details) == bytes(first.params_snapshot) == raw
    page = desk.file("completed", "a")
    assert page["payload"]["data"] == page["result"] == payload
    desk.demand_sound()


# --- 8: names ---------------------------------------------------------------------------------------------------------

IDS = [
    "../../etc/passwd",
    "a/b",
    "A",
    "a",
    "é",
    "e\u0301",
    "con",
    "CON",
    "nul.txt",
    "com1",
    ".",
    "..",
    "...",
    "x.",
    ".x",
]
IDS += ["\U0001f600" * 200, "a" * 200, "%41", "a%2fb", "~", ",", "a,b", "a b", "-", "ﬁ", "ß", "ss", "İ", "a::sub::1-7"]


def test_different_ids_have_different_names_on_every_file_system():
    made = {file_names.name_of(job_id): job_id for job_id in IDS}
    assert len(made) == len(IDS)
    assert len({name.casefold() for name in made}) == len(IDS)
    assert all(name.isascii() and len(name) <= 200 and "/" not in name and name[0] != "." for name in made)
    assert [file_names.name_of(one) for one in ("a/b", "a::sub::1-7", "..", "A")] == [
        "a%2fb",
        "a%3a%3asub%3a%3a1-7",
        "%2e%2e",
        "%41",
    ]
    assert [file_names.name_of(one) for one in ("con", "x.", "nul.txt", "console")] == [
        "%63on",
        "x%2e",
        "%6eul.txt",
        "console",
    ]
    assert all(file_names.id_in(name) == job_id for name, job_id in made.items() if "~" not in name)
    assert file_names.name_of("mail\0a,b") == "mail,a%2cb"
    assert file_names.name_of("a\0b") != file_names.name_of("a,b")


def test_every_id_makes_its_round_and_none_escapes(tmp_path):
    desk = Desk(tmp_path / "in" / "store")
    outside = sorted(path for path in tmp_path.rglob("*") if desk.path not in path.parents)
    desk.add(*(job(one, {"id": one}) for one in IDS))
    assert len(desk.ls("pending")) == len(IDS)
    desk.reopen()
    for grant in desk.take(100):
        assert json.loads(bytes(grant.job.params)) == {"id": grant.job.job_id}
        desk.complete(grant, grant.job.job_id)
    desk.reopen()
    for one in IDS:
        assert json.loads(bytes(desk.job(one).result)) == one
    assert sorted(path for path in tmp_path.rglob("*") if desk.path not in path.parents) == outside
    desk.demand_sound()
    desk.close()


def test_planted_links_pipes_and_directories_are_left_alone(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(job("good"))
    desk.complete(desk.take()[0])
    desk.add(job("next"))
    desk.close()
    victim = tmp_path / "victim"
    victim.write_text('{"payload": {"type": "evil"}}')
    for state in STATES:
        place = desk.folder(state)
        (place / "link.json").symlink_to(victim)
        (place / "dangling.json").symlink_to(tmp_path / "nowhere")
        (place / "loop.json").symlink_to(place / "loop.json")
        (place / "folder.json").mkdir()
        os.mkfifo(place / "pipe.json")
        (place / os.fsdecode(b"\xff\xfe.json")).write_text("{}")
    (desk.path / "data" / "tasks" / "pending" / "ab").symlink_to(tmp_path)
    planted = {state: desk.ls(state) for state in STATES}
    desk.open()
    with desk.engine.read() as view:
        assert sorted(one.job_id for one in view.all(Job)) == ["good", "next"]
    assert desk.store.report.irregular >= 5
    (grant,) = desk.take()
    desk.complete(grant)
    assert victim.read_text() == '{"payload": {"type": "evil"}}'
    for state in STATES:
        assert set(planted[state]) - {"next.json"} <= set(desk.ls(state))
    desk.close()


# --- 5, 7: copies, leftovers, damage ----------------------------------------------------------------------------------


def page_of(name, state, **more):
    return {
        "taskId": name,
        "state": state,
        "createdAt": "2026-01-06T10:15:30.000000Z",
        "payload": {"type": "work", "data": {}},
        **more,
    }


@pytest.mark.parametrize(
    ("copies", "winner", "kept_aside"),
    [
        ({"completed": 5, "running": 4}, "completed", False),
        ({"completed": 4, "running": 5}, "completed", True),
        ({"completed": None, "running": None}, "completed", True),
        ({"running": 4, "pending": 5}, "pending", False),
        ({"running": 5, "pending": 4}, "running", False),
        ({"running": 5, "pending": 5}, "running", True),
        ({"running": None, "pending": None}, "running", True),
        ({"failed": 5, "running": 4}, "failed", False),
        ({"failed": 4, "pending": 5}, "pending", False),
        ({"completed": 2, "pending": 5}, "completed", True),
        ({"completed": 3, "failed": 9}, "completed", True),
    ],
    ids=str,
)
def test_of_two_copies_one_counts(tmp_path, copies, winner, kept_aside):
    desk = Desk(tmp_path / "store")
    desk.add(*(job(f"filler-{number}") for number in range(10)))
    desk.close()
    words = {"pending": "PENDING", "running": "RUNNING", "completed": "COMPLETED", "failed": "FAILED"}
    for state, seq in copies.items():
        more = {} if seq is None else {"seq": seq}
        if state == "running":
            lease = {"token": 1, "workerId": "w", "leaseExpiresAt": "2099-01-01T00:00:00.000000Z", "executions": 1}
            run = {"runId": "r", "runNo": 1, "startedAt": "2026-01-06T10:15:30.000000Z", "workerId": "w", "token": 1}
            more |= {**lease, "startedAt": run["startedAt"], "runs": [run]} if seq else {}
        if state in ("completed", "failed"):
            more["finishedAt"] = "2026-01-06T10:15:30.000000Z"
        desk.write(state, "twice", page_of("twice", words[state], **more))
    desk.open()
    expected = "pending" if winner == "running" and copies["running"] is None else winner
    assert desk.where()["twice"] == [expected]
    assert len(desk.quarantined()) == kept_aside
    found = {path: path.read_bytes() for path in desk.path.rglob("*.json") if path.name != "meta.json"}
    assert (desk.job("twice").status is JobStatus.COMPLETED) == (winner == "completed")
    desk.reopen()
    assert {path: path.read_bytes() for path in desk.path.rglob("*.json") if path.name != "meta.json"} == found
    desk.close()


def test_drafts_in_every_directory_are_swept_and_never_state(desk):
    desk.add(job("x"))
    desk.close()
    data = desk.path / "data"
    folders = [path for path in (data, *data.rglob("*")) if path.is_dir() and path.name not in ("blobs", "logs")]
    assert len(folders) > 15
    for folder in folders:
        ours = ".tmp-," if folder == desk.folder("pending") else ".tmp-"
        (folder / f"{ours}x.json").write_bytes(b'{"taskId": "x", "sta')
        (folder / f"{ours}0000000000000099.json").write_bytes(b"")
    desk.open()
    assert desk.where() == {"x": ["pending"]}
    assert desk.store.report.drafts == 2 * len(folders)
    clean(desk)


@pytest.mark.parametrize("state", ["RUNNING", "DEAD_WRONG", "PENDING"])
def test_the_directory_decides_the_status(desk, state):
    desk.add(job("x"))
    desk.take()
    desk.close()
    path = desk.folder("running") / "x.json"
    page = json.loads(path.read_text()) | {"state": state}
    path.unlink()
    desk.write("pending", "x", page, age_s=30)
    desk.open()
    if state == "DEAD_WRONG":
        # No word of ours: set aside, and what the feed knows says it was running, so nothing is made up.
        assert desk.where() == {}
        assert len(desk.quarantined()) == 1
        return
    found = desk.job("x")
    assert (found.status, found.token, desk.file("pending", "x")["state"]) == (JobStatus.QUEUED, None, "PENDING")
    assert [run.status.value for run in desk.engine.runs("x")] == ["LOST"]
    desk.demand_sound()


BAD = {
    "half": b'{"taskId": "x", "state": "COMPL',
    "empty": b"",
    "nul": b"\0" * 400,
    "binary": bytes(range(256)),
    "wrongly typed": b'{"taskId": "x", "state": 7, "payload": [], "seq": "a"}',
    "a list": b"[]",
    "another's": None,
    "too large": b'{"taskId": "x", "payload": {"type": "a", "data": {"t": "' + b"x" * (4 << 20) + b'"}}, "seq": 1}',
    "too deep": b'{"taskId": "x", "seq": 1, "payload": {"type": "a", "data": ' + b'{"a":' * 70 + b"1" + b"}" * 72,
    "twice": b'{"taskId": "x", "taskId": "x", "payload": {"type": "a"}, "seq": 1}',
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", BAD)
def test_a_damaged_record_is_set_aside_and_all_others_go_on(desk, state, kind):
    desk.add(job("x"), job("y"))
    _, y = desk.take(2)
    desk.complete(y)
    desk.add(job("z"))
    desk.close()
    (desk.folder("running") / "x.json").unlink()
    text = BAD[kind] if BAD[kind] is not None else (desk.folder("pending") / "z.json").read_bytes()
    desk.write(state, "x", text, age_s=60)
    desk.open()
    desk.clock.advance(1)
    with desk.engine.read() as view:
        others = {one.job_id: one.status.value for one in view.all(Job) if one.job_id != "x"}
    assert others == {"y": "COMPLETED", "z": "QUEUED"}
    assert "x" not in desk.where()
    if kind != "another's" or state not in ("pending", "running"):  # a copy of a live file says what is known, and goes
        (aside,) = desk.quarantined().values()
        assert aside.read_bytes() == text
    assert [grant.job.job_id for grant in desk.take(5)] == ["z"]


def test_damage_in_other_records_is_set_aside_too(desk):
    desk.engine.ask(SetQueue(queue="mail", changes=QueueChanges(max_running=3)))
    desk.add(job("a", key="k"))
    desk.close()
    data = desk.path / "data"
    (data / "queues" / "settings" / ",mail.json").write_text("{")
    (key,) = (data / "keys").glob("*.json")
    key.write_text(key.read_text().replace('"a"', '"b"').replace("task", "tusk"))
    desk.open()
    assert len(desk.quarantined()) == 2
    assert desk.take()[0].job.job_id == "a"
    desk.demand_sound(quarantined=2)


def test_an_intent_with_a_wrong_sum_is_refused_and_named(desk):
    desk.add(job("a"))
    desk.close()
    intent = desk.path / "data" / "intent" / "0000000000000002.json"
    intent.write_bytes(b'{"format":1,"first":2,"last":2,"crc":"00000000","body":{"effects":[],"events":[]}}\n')
    before = {path: path.read_bytes() for path in desk.path.rglob("*") if path.is_file() and path.name != "LOCK"}
    with pytest.raises(StoreDamaged, match=r"0000000000000002\.json.*store repair"):
        desk.open()
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_feed_is_refused_and_named(desk):
    desk.add(job("a"))
    desk.add(job("b"))
    desk.close()
    feed = desk.path / "data" / "feed" / "0000000000000001.jsonl"
    lines = feed.read_bytes().splitlines(keepends=True)
    feed.write_bytes(lines[0] + lines[1].replace(b'"work"', b'"wirk"'))
    with pytest.raises(StoreDamaged, match=r"0000000000000001\.jsonl, line 2"):
        desk.open()


# --- 10, 11: who may --------------------------------------------------------------------------------------------------


def test_modes_are_private_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:
        desk = Desk(tmp_path / "store")
        desk.add(job("a", key="k"))
        desk.complete(desk.take()[0])
        desk.close()
    finally:
        os.umask(old)
    for path in (desk.path, *desk.path.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_that_others_can_write_is_refused(tmp_path, caplog):
    place = tmp_path / "store"
    place.mkdir()
    for mode in (0o770, 0o707, 0o777):
        place.chmod(mode)
        with pytest.raises(StoreFailed, match="can be written by others"):
            DirStore.open(place)
    assert list(place.iterdir()) == []
    place.chmod(0o755)
    DirStore.open(place).close()
    assert "dir.readable" in caplog.text


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    place = tmp_path / "store"
    DirStore.open(place).close()
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(StoreFailed, match="belongs to user"):
        DirStore.open(place)


def test_a_second_opening_is_refused_and_names_the_first(desk):
    with pytest.raises(StoreLocked, match=f"pid {os.getpid()} "):
        DirStore.open(desk.path)


def test_a_newer_format_is_refused(desk):
    desk.close()
    path = desk.path / "holdfast.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(TooNew):
        desk.open()


def test_the_root_may_be_a_link(tmp_path):
    real = Desk(tmp_path / "real")
    real.add(job("a"))
    real.close()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    through = DirStore.open(tmp_path / "link")
    with through.read() as view:
        assert view.get(Job, "a") is not None
    through.close()


# --- looking from outside ---------------------------------------------------------------------------------------------


def test_reading_takes_no_lock_and_changes_nothing(desk):
    desk.add(job("a"), job("b"), job("c"))
    desk.complete(desk.take()[0])
    desk.take()
    (desk.folder("pending") / ".tmp-x.json").write_text("{")
    before = {path: path.read_bytes() for path in desk.path.rglob("*") if path.is_file()}
    reader = DirStore.open(desk.path, readonly=True)
    with reader.read() as view:
        assert {one.job_id: one.status.value for one in view.all(Job)} == {
            "a": "COMPLETED",
            "b": "RUNNING",
            "c": "QUEUED",
        }
        assert view.seq == 6
    assert [entry.seq for entry in reader.feed(0)] == [1, 2, 3, 4, 5, 6]
    reader.close()
    assert {path: path.read_bytes() for path in desk.path.rglob("*") if path.is_file()} == before


# --- scale ------------------------------------------------------------------------------------------------------------


def test_a_crowded_directory_shares_its_files_out_and_both_places_are_read(desk, monkeypatch):
    monkeypatch.setattr(job_locations, "CROWDED", 5)
    for number in range(20):
        desk.add(job(f"j{number:03}"))
    assert len([name for name in desk.ls("pending") if name.endswith(".json")]) == 5
    assert len(desk.where()) == 20
    clean(desk)
    desk.reopen()
    taken = desk.take(20)
    assert [grant.job.job_id for grant in taken] == [f"j{number:03}" for number in range(20)]
    for grant in taken:
        desk.complete(grant)
    desk.reopen()
    assert all(states == ["completed"] for states in desk.where().values())
    for number in range(20):
        assert desk.job(f"j{number:03}").status is JobStatus.COMPLETED
    clean(desk)
    path = next(desk.folder("completed").rglob("j0*.json"))
    path.rename(desk.folder("pending") / path.name)
    desk.settle(running=True)
    assert desk.where()[path.stem] == ["completed"]


def test_ten_thousand_jobs_work(tmp_path):
    desk = Desk(tmp_path / "store")
    for at in range(0, 10_000, 1000):
        desk.add(*(job(f"j{number:05}") for number in range(at, at + 1000)))
    desk.reopen()
    grants = desk.take(100)
    assert [grant.job.job_id for grant in grants] == [f"j{number:05}" for number in range(100)]
    for grant in grants[:5]:
        desk.complete(grant)
    with desk.engine.read() as view:
        assert {count.status.value: count.count for count in view.counts()} == {
            "QUEUED": 9900,
            "RUNNING": 95,
            "COMPLETED": 5,
        }
    assert len(desk.where()) == 10_000
    desk.close()


def test_more_than_it_is_meant_for_is_told_at_opening(desk, monkeypatch, caplog):
    desk.add(*(job(f"j{number}") for number in range(5)))
    desk.reopen()
    assert "dir.crowded" not in caplog.text
    monkeypatch.setattr("holdfast.stores.dir.store.MOST_LIVE", 4)
    desk.reopen()
    assert "dir.crowded" in caplog.text


def test_a_network_file_system_is_refused_unless_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.stores.dir.store.filesystem_kind", lambda _path: "nfs4")
    with pytest.raises(StoreFailed, match="network=allow"):
        DirStore.open(tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
    DirStore.open(tmp_path / "store", network=True).close()


def test_ended_jobs_are_read_when_somebody_asks(tmp_path):
    desk = Desk(tmp_path / "store")
    desk.add(*(job(f"j{number}") for number in range(10)))
    for grant in desk.take(9):
        desk.complete(grant)
    desk.reopen()
    unread = desk.store._tables.unread
    assert len(unread) == 9
    desk.add(job("new"))
    (grant,) = desk.take()
    desk.fail(grant, fatal=True)
    assert len(unread) == 9, "ordinary work reads none of them"
    assert desk.job("j3").status is JobStatus.COMPLETED
    assert len(unread) == 8
    with desk.engine.read() as view:
        assert sum(count.count for count in view.counts()) == 11
    assert not unread
    desk.close()


def test_an_ended_job_that_the_disk_does_not_give_is_never_taken_for_missing():
    fs = SimFS()
    holder = Engine(DirStore.open("store", fs=fs, clock=ManualClock()), clock=ManualClock())
    holder.ask(Enqueue(jobs=(job("a"),)))
    (grant,) = holder.ask(Lease(worker_id="w")).grants
    holder.ask(Complete(job_id="a", token=grant.token))
    holder.close()
    again = Engine(DirStore.open("store", fs=fs, clock=ManualClock()), clock=ManualClock())
    for _ in range(3):
        fs.fail("read", 1)
        with pytest.raises(StoreFailed):
            again.job("a")
    assert again.job("a").status is JobStatus.COMPLETED


def test_every_look_up_that_is_called_narrow_exists():
    assert sorted(name for name in NARROW if not callable(getattr(DirTables, name, None))) == []


def test_a_long_chain_of_retries_is_found_after_reopening(desk):
    desk.add(job("a", retry_mode=RetryMode.CHAIN, max_attempts=3, backoff=NOW))
    desk.fail(desk.take()[0])
    desk.reopen()
    desk.clock.advance(3600)
    desk.fail(desk.take()[0], fatal=True)
    desk.reopen()
    with desk.engine.read() as view:
        (heir,) = view.successors("a")
    assert heir.status is JobStatus.FAILED
    desk.engine.ask(Retry(job_id=heir.job_id, new_job_id="again"))
    desk.demand_sound()


def test_the_feed_begins_a_new_file_when_one_is_full_and_old_files_can_go(desk, monkeypatch):
    monkeypatch.setattr("holdfast.stores.dir.store.ROTATE", 1000)
    for number in range(12):
        desk.add(job(f"j{number}"))
        desk.clock.advance(60)
    files = sorted(path.name for path in (desk.path / "data" / "feed").iterdir())
    assert len(files) > 2
    assert [entry.seq for entry in desk.store.feed(0)] == list(range(1, 13))
    desk.reopen()
    assert [entry.seq for entry in desk.store.feed(3)] == list(range(4, 13))
    while desk.store.trim("2999", 500):
        pass
    assert sorted(path.name for path in (desk.path / "data" / "feed").iterdir()) == files[-1:]
    desk.reopen()
    assert desk.engine.read().__enter__().seq == 12
    desk.demand_sound()


def test_a_run_is_told_by_the_engine_in_the_directory_it_is_in(tmp_path):
    """Nothing but the store's own calls moves a file: a lease is durable before its grant is known."""
    desk = Desk(tmp_path / "store", clock=ManualClock())
    desk.add(job("a"))
    outcome = Engine.submit(desk.engine, Lease(worker_id="w"))
    assert desk.where() == {"a": ["running"]}
    assert desk.file("running", "a")["token"] == outcome.grants[0].token
    desk.close()

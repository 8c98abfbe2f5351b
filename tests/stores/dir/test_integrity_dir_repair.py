"""Checking and repairing a `dir:` store from outside: everything wrong is named, what was mended returns."""

from __future__ import annotations

import json
import os

import pytest
from dir_kit import Desk, job

from holdfast.errors import StoreDamaged, StoreLocked
from holdfast.model.jobs import JobStatus
from holdfast.stores import check_and_repair
from holdfast.stores.dir.integrity import repair
from holdfast.stores.dir.store import DirStore


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path / "store")
    yield desk
    desk.close()


def url(desk):
    return f"dir:{desk.path}"


def codes(desk):
    return [one.code for one in check_and_repair.check(url(desk))]


def test_a_sound_store_is_well_open_or_closed(desk):
    desk.add(job("a"), job("b"))
    desk.complete(desk.take()[0])
    assert codes(desk) == []
    desk.close()
    assert codes(desk) == []
    plan = check_and_repair.plan_repair(url(desk))
    assert (plan.is_needed, plan.lines) == (False, ["nothing is damaged, and nothing was set aside"])


def test_damage_is_found_in_files_that_opening_does_not_read(desk):
    desk.add(job("a"), job("b"))
    for grant in desk.take(2):
        desk.complete(grant)
    desk.close()
    (desk.folder("completed") / "a.json").write_text("{")
    assert "file_damaged" in codes(desk)
    assert desk.ls("completed") == ["a.json", "b.json"], "looking changes nothing"


def test_what_the_feed_knows_is_compared(desk):
    desk.add(job("a"), job("b"))
    desk.complete(desk.take()[0])
    desk.close()
    path = desk.folder("completed") / "a.json"
    path.write_text(path.read_text().replace('"attempts": 1', '"attempts": 3'))
    (found,) = check_and_repair.check(url(desk))
    assert (found.code, found.id) == ("file_differs", "a")
    assert "attempts" in found.message
    (desk.folder("pending") / "b.json").unlink()
    assert sorted(codes(desk)) == ["file_differs", "file_missing"]


def test_a_damaged_intent_is_set_aside_and_the_store_opens(desk):
    desk.add(job("a"))
    desk.close()
    intent = desk.path / "data" / "intent" / "0000000000000002.json"
    intent.write_text("{}")
    assert codes(desk) == ["store_damaged"]
    plan = check_and_repair.plan_repair(url(desk))
    assert plan.is_needed
    assert "0000000000000002.json" in plan.lines[0]
    assert intent.exists(), "a plan changes nothing"
    plan.apply()
    desk.open()
    assert len(desk.take()) == 1
    assert [path.read_text() for path in desk.quarantined().values()] == ["{}"]


def test_a_damaged_feed_is_kept_aside_and_numbers_and_tokens_go_on(desk):
    for name in "abc":
        desk.add(job(name))
    (grant,) = desk.take()
    desk.close()
    feed = desk.path / "data" / "feed" / "0000000000000001.jsonl"
    lines = feed.read_bytes().splitlines(keepends=True)
    feed.write_bytes(b"".join([lines[0], lines[1].replace(b'"b"', b'"x"'), *lines[2:]]))
    assert "feed_damaged" in codes(desk)
    with pytest.raises(StoreDamaged):
        desk.open()
    check_and_repair.plan_repair(url(desk)).apply()
    assert feed.with_name(f"{feed.name}.bak").exists()
    desk.open()
    assert sorted(desk.where()) == ["a", "b", "c"]
    assert desk.job("c").status is JobStatus.QUEUED
    (again,) = desk.take()
    assert again.token > grant.token
    desk.demand_sound()


def test_a_file_that_was_mended_in_quarantine_returns_and_one_that_was_not_stays(desk):
    desk.write("pending", "bad", {"payload": {"type": "send"}, "priority": 1000})
    desk.write("pending", "worse", {"payload": {"type": "no name"}})
    desk.settle(running=True)
    desk.close()
    assert codes(desk) == ["quarantined", "quarantined"]
    assert not check_and_repair.plan_repair(url(desk)).is_needed
    bad = desk.quarantined()["bad.json"]
    bad.write_text(json.dumps({"payload": {"type": "send"}, "priority": 100}))
    os.utime(bad, (bad.stat().st_mtime + 5,) * 2)
    plan = check_and_repair.plan_repair(url(desk))
    assert plan.is_needed
    assert any("worse" in line and "stays" in line for line in plan.lines)
    plan.apply()
    desk.open()
    assert desk.job("bad").priority == 100
    assert len(desk.quarantined()) == 1


def test_a_store_that_is_open_is_not_repaired_beneath_its_holder(desk):
    (desk.path / "data" / "intent" / "0000000000000099.json").write_text("{}")
    plan = check_and_repair.plan_repair(url(desk))
    with pytest.raises(StoreLocked):
        plan.apply()


@pytest.mark.parametrize("spoilt", ["{", "", "[1]"])
def test_repair_speaks_of_the_same_files_as_check_and_brings_back_what_the_feed_knows(desk, spoilt):
    desk.add(job("a", {"n": 1}), job("b"), job("c", {"n": 3}))
    desk.complete(desk.take()[0], "done")
    desk.close()
    for state, name in (("completed", "a"), ("pending", "c")):
        path = desk.folder(state) / f"{name}.json"
        path.write_text(spoilt)
        os.utime(path, (1, 1))
    plan = check_and_repair.plan_repair(url(desk))
    named = {one.file for one in check_and_repair.check(url(desk)) if one.code == "file_damaged"}
    assert named == {"data/tasks/completed/a.json", "data/tasks/pending/c.json"}
    assert plan.is_needed
    assert all(any(line.startswith(file) for line in plan.lines) for file in named)
    assert desk.where() == {"a": ["completed"], "b": ["pending"], "c": ["pending"]}, "nothing is done yet"
    plan.apply()
    assert codes(desk) == ["quarantined", "quarantined"]
    assert sorted(path.read_text() for path in desk.quarantined().values()) == [spoilt, spoilt]
    desk.open().look()
    assert (desk.job("a").status, bytes(desk.job("a").result)) == (JobStatus.COMPLETED, b'"done"')
    assert [(bytes(desk.job(name).params), desk.job(name).status.value) for name in "bc"] == [
        (b"{}", "QUEUED"),
        (b'{"n":3}', "QUEUED"),
    ]
    desk.demand_sound(quarantined=2)


def test_repair_writes_ended_jobs_again_that_are_gone_or_were_changed_and_leaves_wishes_alone(desk):
    desk.add(job("gone"), job("changed"), job("wish"))
    for grant in desk.take(2):
        desk.complete(grant, "done")
    desk.close()
    (desk.folder("completed") / "gone.json").unlink()
    (desk.folder("pending") / "wish.json").unlink()
    path = desk.folder("completed") / "changed.json"
    path.write_text(path.read_text().replace('"done"', '"undone"'))
    plan = check_and_repair.plan_repair(url(desk))
    assert any("wish" in line and "The next opening cancels it" in line for line in plan.lines)
    plan.apply()
    assert sorted(codes(desk)) == ["file_missing", "quarantined"]
    desk.open().look()
    assert {name: bytes(desk.job(name).result) for name in ("gone", "changed")} == {
        "gone": b'"done"',
        "changed": b'"done"',
    }
    assert desk.job("wish").status is JobStatus.CANCELLED
    desk.demand_sound(quarantined=1)


def test_repair_says_that_a_pending_file_moved_to_completed_cancels_its_job(desk):
    desk.add(job("wish"))
    desk.close()
    (desk.folder("pending") / "wish.json").rename(desk.folder("completed") / "wish.json")
    plan = check_and_repair.plan_repair(url(desk))
    assert not plan.is_needed
    assert any("wish" in line and "The next opening cancels it" in line for line in plan.lines)


def test_a_damaged_record_that_is_no_job_is_set_aside_by_repair(desk):
    desk.add(job("a", key="once"))
    desk.close()
    (path,) = (desk.path / "data" / "keys").iterdir()
    path.write_text("{")
    plan = check_and_repair.plan_repair(url(desk))
    assert plan.is_needed
    plan.apply()
    assert [path.read_text() for path in desk.quarantined().values()] == ["{"]
    desk.open()
    desk.demand_sound(quarantined=1)


def test_a_directory_of_another_program_has_nothing_to_repair(tmp_path):
    desk = Desk(tmp_path / "other", opened=False)
    desk.make_folders()
    desk.write("pending", "a", {"payload": {"type": "work"}})
    plan = check_and_repair.plan_repair(url(desk))
    assert not plan.is_needed
    assert codes(desk) == []


def test_repair_that_knows_no_step_says_so_and_not_to_repair(monkeypatch, tmp_path):
    DirStore.open(str(tmp_path / "s")).close()

    def refuse(*_args, **_options):
        raise StoreDamaged("s/data: odd. Nothing was changed.", hint="Run `holdfast store repair dir:s`.", file="x")

    monkeypatch.setattr(repair.DirStore, "open", refuse)
    with pytest.raises(StoreDamaged, match="No step of a repair") as caught:
        repair.plan(str(tmp_path / "s"))
    assert "store repair" not in str(caught.value)
    assert "Restore the store from a copy" in caught.value.hint
    assert caught.value.facts == {"file": "x"}

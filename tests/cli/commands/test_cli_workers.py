"""`holdfast workers`: who works here, on what, and asking them to stop."""

from __future__ import annotations

import re

import msgspec
import pytest
from pseudoterminal import Terminal

from holdfast.cli.store_access.target import now
from holdfast.model.commands import Complete, Lease, Release
from holdfast.model.times import later
from holdfast.model.workers import LiveRun, Progress, Wish, WorkerState


@pytest.fixture
def busy(filled, opened, hire):
    """One worker of two runs `a` and is 40 % through, with `b` leased as well; the other one is idle."""
    filled("a", "b")
    with opened() as engine:
        first, second = engine.ask(Lease(worker_id="box:1:aa", n=2)).grants
    run = LiveRun(first.job.job_id, first.run_id, "work", now(), Progress(0.4, 2, 5, "resizing"))
    hire("box:1:aa", name="front", runs=(run,), slots=8, job_types=("work", "mail"))
    hire("box:2:bb", queues=("mail", "default"), state=WorkerState.DRAINING)
    return first, second


def test_workers_are_listed_with_what_they_hold(busy, rows, holdfast):
    front, other = rows("workers", "ls")
    assert (front["worker_id"], front["state"], front["host"], front["pid"]) == ("box:1:aa", "ready", "far", 7)
    assert (front["used"], front["slots"], [job["job_id"] for job in front["jobs"]]) == (2, 8, ["a", "b"])
    assert (other["state"], other["used"], other["queues"]) == ("draining", 0, ["mail", "default"])
    title, *lines = holdfast("workers", "ls").stdout.splitlines()
    assert title.split() == ["STATE", "WORKER", "NAME", "SLOTS", "SEEN", "QUEUES", "HOST", "PID", "VERSION", "RUNNING"]
    first, second = (line.split() for line in lines)
    assert first[:5] + first[6:] == ["✓", "ready", "box:1:aa", "front", "2/8", "default", "far", "7", "0.1.0", "a", "b"]
    assert re.fullmatch(r"\d+s", first[5])
    assert second[:4] == ["‖", "draining", "box:2:bb", "0/4"]
    assert [worker["worker_id"] for worker in rows("workers", "ls", "--state", "ready")] == ["box:1:aa"]
    assert holdfast("workers", "ls", "-o", "ids").stdout.split() == ["box:1:aa", "box:2:bb"]
    assert rows("workers", "ls", "--namespace", "other") == []


def test_a_worker_nobody_named_is_shown_by_its_id_alone(filled, hire, holdfast):
    filled("a")
    hire("box:1:aa", name="box:1:aa")
    assert holdfast("workers", "ls").stdout.count("box:1:aa") == 1
    assert "name" not in holdfast("workers", "show", "box").stdout.split()


def test_a_worker_of_few_words_is_shown_without_a_process(filled, hire, holdfast):
    filled("a")
    hire("script", name="script", host="", pid=0, version="")
    assert "process" not in holdfast("workers", "show", "script").stdout.split()
    assert holdfast("workers", "ls").stdout.splitlines()[1].split()[-1] == "default"


def test_a_store_nobody_works_on_has_an_empty_list(rows, filled):
    filled("a")
    assert rows("workers", "ls") == []


def test_jobs_leased_ahead_of_free_slots_take_none(filled, opened, hire, rows):
    filled("a", "b", "c")
    with opened() as engine:
        engine.ask(Lease(worker_id="w", n=3))
    hire(slots=2)
    (worker,) = rows("workers", "ls")
    assert (worker["used"], len(worker["jobs"])) == (2, 3)


def test_a_worker_is_shown_with_its_leases_and_how_far_they_are(busy, rows, holdfast):
    page = holdfast("workers", "show", "box:1").stdout
    assert re.search(r"✓ ready  takes jobs; seen \d+ s ago", page)
    assert "7 on far" in page
    assert "work, mail" in page
    assert "2 of 8 in use" in page
    *_, title, first, second = page.splitlines()
    assert title.split() == ["STATUS", "ID", "TASK", "QUEUE", "AGE", "LEASE", "PROGRESS"]
    assert "[████▊       ]  40 %  2 of 5  resizing" in first
    assert re.search(r" \d+s  \[", first), "the lease has so much time left"
    assert second.split()[:3] == ["▶", "RUNNING", "b"]
    told = rows("workers", "show", "front")
    assert told["runs"][0]["progress"]["fraction"] == 0.4
    assert told["jobs"][0]["lease_expires_at"] > now()


def test_what_a_worker_said_of_a_run_is_not_shown_for_the_next_run_of_the_job(busy, rows, opened):
    first, _ = busy
    with opened() as engine:
        engine.ask(Release(job_id=first.job.job_id, token=first.token, begun=True))
        engine.ask(Lease(worker_id="box:2:bb", n=1))
    assert rows("jobs", "show", first.job.job_id)["progress"] is None
    running = {job["job_id"]: job["progress"] for job in rows("top")["running_jobs"]}
    assert running == {"a": None, "b": None}


def test_a_lease_that_has_run_out_is_named(busy, holdfast, opened):
    from holdfast.cli.render.worker_rows import countdown  # noqa: PLC0415 - beside the one test that needs it

    with opened() as engine:
        job = engine.job("b")
    assert countdown(job, later(job.lease_expires_at, 1)) == "lapsed"


def test_what_a_worker_has_ended_it_no_longer_holds(busy, rows, opened):
    first, _ = busy
    with opened() as engine:
        engine.ask(Complete(job_id=first.job.job_id, token=first.token))
    assert [job["job_id"] for job in rows("workers", "show", "front")["jobs"]] == ["b"]


@pytest.mark.parametrize(("verb", "wish"), [("quiet", Wish.QUIET), ("stop", Wish.STOP)])
def test_a_wish_reaches_the_worker_also_while_another_process_has_the_store(busy, holdfast, rows, opened, verb, wish):
    with opened() as engine:
        told = rows("workers", verb, "front")
        assert told == [{"worker_id": "box:1:aa", "outcome": f"{wish} asked"}]
        assert engine.store.workers.wish("box:1:aa") is wish
        assert engine.store.workers.wish("box:2:bb") is None
    assert "asked to" in holdfast("workers", "show", "front").stdout


def test_several_are_asked_together_and_ids_come_from_stdin(busy, holdfast, opened):
    told = holdfast("workers", "stop", "-", "-o", "ids", stdin="box:1:aa\nbox:2:bb\n")
    assert (told.exit_code, told.stdout.split()) == (0, ["box:1:aa", "box:2:bb"])
    with opened() as engine:
        assert {worker.wish for worker in engine.store.workers.all()} == {Wish.STOP}


def test_on_a_terminal_it_asks_before_it_stops_several(busy, place, opened):
    asking = Terminal(place, "workers", "stop", "box:1:aa", "box:2:bb")
    asking.until(r"Stop 2 workers: box:1:aa, box:2:bb\? \[y/N\]: ")
    asking.keys("n\n")
    text, code = asking.end()
    assert (code, "Nothing was changed." in text) == (1, True)
    with opened() as engine:
        assert engine.store.workers.wish("box:1:aa") is None


def test_a_dry_run_asks_nobody(busy, holdfast, opened):
    told = holdfast("workers", "stop", "front", "--dry-run")
    assert (told.exit_code, "Nothing was changed" in told.stderr) == (0, True)
    with opened() as engine:
        assert engine.store.workers.wish("box:1:aa") is None


@pytest.mark.parametrize("verb", ["show", "quiet", "stop"])
def test_a_worker_that_is_not_there_exits_3(busy, holdfast, verb):
    told = holdfast("workers", verb, "nobody", "-o", "json")
    assert (told.exit_code, msgspec.json.decode(told.stderr)["code"]) == (3, "worker_not_found")
    assert "workers ls" in msgspec.json.decode(told.stderr)["hint"]


def test_an_ambiguous_beginning_lists_the_candidates_and_exits_2(busy, holdfast):
    told = holdfast("workers", "stop", "box", "-o", "json")
    assert told.exit_code == 2
    assert msgspec.json.decode(told.stderr)["candidates"] == ["box:1:aa", "box:2:bb"]
    assert holdfast("workers", "show", "").exit_code == 2


@pytest.mark.parametrize("verb", ["quiet", "stop"])
def test_a_lost_worker_cannot_be_asked_and_nobody_else_is(busy, holdfast, hire, opened, verb):
    hire("gone:3:cc", last_seen=later(now(), -600))
    told = holdfast("workers", verb, "front", "gone")
    assert told.exit_code == 6
    assert "worker gone:3:cc is lost: it was last seen 10 m ago" in told.stderr
    assert "other workers by itself" in told.stderr
    with opened() as engine:
        assert engine.store.workers.wish("box:1:aa") is None


def test_a_lost_worker_is_shown_as_lost(hire, filled, holdfast, rows):
    filled("a")
    hire("gone:3:cc", last_seen=later(now(), -600))
    assert [worker["state"] for worker in rows("workers", "ls")] == ["lost"]
    assert "? lost" in holdfast("workers", "ls").stdout
    assert "seen 10 m ago, then not again" in holdfast("workers", "show", "gone").stdout


def test_what_a_worker_says_of_itself_cannot_steer_a_terminal(hire, filled, holdfast):
    filled("a")
    hire("w", host="\x1b[2Jevil", version="\u202e", name="\n", job_types=("\x9b",))
    for told in (holdfast("workers", "ls"), holdfast("workers", "show", "w"), holdfast("workers", "ls", "-o", "json")):
        assert told.exit_code == 0
        assert not {"\x1b", "\x9b", "\u202e"} & set(told.stdout)

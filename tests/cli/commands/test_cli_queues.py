"""`holdfast queues` and `holdfast dispatch`, on real stores."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.model.commands import Lease


def test_queues_are_listed_with_their_jobs_by_status(holdfast, rows, filled):
    filled("a", "b", queue="mail")
    filled("c")
    filled("d", namespace="x", queue="far")
    holdfast("jobs", "cancel", "a")
    listed = rows("queues", "ls")
    assert [(row["name"], row["counts"]["QUEUED"], row["counts"]["CANCELLED"]) for row in listed] == [
        ("default", 1, 0),
        ("mail", 1, 1),
    ]
    assert [row["name"] for row in rows("queues", "ls", "--namespace", "x")] == ["far"]
    assert holdfast("queues", "ls", "-o", "ids").stdout == "default\nmail\n"
    assert " ".join(holdfast("queues", "ls").stdout.splitlines()[2].split()) == "mail 1 0 0 0 0 1 ○ open"


def test_a_paused_queue_gives_nothing_until_it_is_resumed(holdfast, rows, filled, opened):
    filled("a", queue="mail")

    def leased():
        with opened() as engine:
            return len(engine.ask(Lease(worker_id="w", queues=("mail",))).grants)

    assert holdfast("queues", "pause", "mail", "--reason", "too fast", "--dry-run").exit_code == 0
    assert not rows("queues", "show", "mail")["paused"]
    told = holdfast("queues", "pause", "mail", "--reason", "too fast")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "queue mail is paused\n")
    queue = rows("queues", "show", "mail")
    assert (queue["paused"], queue["pause_reason"]) == (True, "too fast")
    assert "‖ paused: too fast" in holdfast("queues", "ls").stdout
    assert leased() == 0
    assert holdfast("queues", "resume", "mail").exit_code == 0
    assert leased() == 1


def test_a_queue_shows_who_is_next(rows, holdfast, filled):
    filled("low", priority=-1)
    filled("b", "a")
    filled("later", delay_s=3600)
    assert [job["job_id"] for job in rows("queues", "show", "default")["head"]] == ["b", "a", "low"]
    assert holdfast("queues", "show", "default").stdout.count("QUEUED") == 4


def test_a_queue_of_nothing_exits_3(holdfast, filled):
    filled("a")
    told = holdfast("queues", "show", "nowhere", "-o", "json")
    assert (told.exit_code, msgspec.json.decode(told.stderr)["code"]) == (3, "queue_not_found")


@pytest.mark.parametrize("verb", ["pause", "resume", "normalize"])
def test_a_name_that_is_none_exits_2(holdfast, filled, verb):
    filled("a")
    assert holdfast("queues", verb, "no name!").exit_code == 2
    assert holdfast("queues", verb, "mail", "--namespace", "no name!").exit_code == 2


def test_normalizing_spaces_positions_and_keeps_the_order(rows, holdfast, filled):
    filled("a", "b", "c")
    holdfast("jobs", "move", "c", "--before", "b")
    assert holdfast("queues", "normalize", "default").exit_code == 0
    head = rows("queues", "show", "default")["head"]
    assert [(job["job_id"], job["position"]) for job in head] == [("a", 100), ("c", 200), ("b", 300)]


def test_dispatch_can_be_paused_as_a_whole(rows, holdfast, filled, opened):
    filled("a")
    assert holdfast("dispatch", "pause", "--dry-run").exit_code == 0
    assert rows("status")["dispatching"]
    assert holdfast("dispatch", "pause", "--reason", "upgrade").stderr == "dispatch is paused\n"
    status = rows("status")
    assert (status["dispatching"], status["dispatch_reason"]) == (False, "upgrade")
    assert rows("jobs", "show", "a")["reason"]["sentence"] == "dispatch is paused: upgrade"
    with opened() as engine:
        assert engine.ask(Lease(worker_id="w")).grants == ()
    assert holdfast("dispatch", "resume").stderr == "dispatch goes on\n"
    assert rows("status")["dispatching"]


def test_limits_are_set_shown_and_taken_away(holdfast, rows, filled):
    filled("a", queue="mail")
    told = holdfast("queues", "limit", "mail", "--max-running", "4", "--rate", "100/1m", "--aging", "5m")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "queue mail has new limits\n")
    shown = rows("queues", "show", "mail")
    limits = ("max_running", "rate_count", "rate_period_s", "rate_scope", "aging_s")
    assert [shown[name] for name in limits] == [4, 100, 60, "queue", 300]
    assert "○ open, 4 at a time, 100 in 60 s, ages in 300 s" in holdfast("queues", "ls").stdout
    assert holdfast("queues", "limit", "mail", "--rate-scope", "key", "--max-running", "none").exit_code == 0
    assert "○ open, 100 in 60 s for each key, ages in 300 s" in holdfast("queues", "ls").stdout
    assert holdfast("queues", "limit", "mail", "--rate", "none", "--aging", "none", "--dry-run").exit_code == 0
    assert holdfast("queues", "limit", "mail", "--rate", "none", "--aging", "none").exit_code == 0
    assert "○ open\n" in holdfast("queues", "ls").stdout


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--max-running", "0"),
        ("--max-running", "many"),
        ("--rate", "100"),
        ("--rate", "-1/60"),
        ("--rate", "1/0"),
        ("--rate", "1/soon"),
        ("--rate", "²/60"),
        ("--rate-scope", "task"),
        ("--aging", "0"),
    ],
)
def test_a_limit_that_is_none_exits_2_and_changes_nothing(holdfast, rows, filled, words):
    filled("a")
    before = rows("queues", "show", "default")
    told = holdfast("queues", "limit", "default", *words)
    assert told.exit_code == 2, told
    assert rows("queues", "show", "default") == before


def test_how_long_ended_jobs_stay_is_set_shown_and_taken_away(holdfast, rows, filled):
    filled("a", queue="mail")
    told = holdfast("queues", "keep", "mail", "--done", "1h", "--failed-max", "10")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "queue mail keeps its jobs so\n")
    assert rows("queues", "show", "mail")["retention"] == {"done_s": 3600, "failed_max": 10}
    assert "○ open, keeps done jobs: for 3600 s, keeps failed jobs: 10" in holdfast("queues", "ls").stdout
    assert holdfast("queues", "keep", "mail", "--done", "none", "--failed", "2d", "--dry-run").exit_code == 0
    assert rows("queues", "show", "mail")["retention"] == {"done_s": 3600, "failed_max": 10}
    assert holdfast("queues", "keep", "mail", "--done", "none", "--failed", "2d").exit_code == 0
    assert rows("queues", "show", "mail")["retention"] == {"failed_s": 172_800, "failed_max": 10}
    assert holdfast("queues", "keep", "mail", "--failed", "none", "--failed-max", "none").exit_code == 0
    assert rows("queues", "show", "mail")["retention"] is None


@pytest.mark.parametrize("words", [(), ("--done", "soon"), ("--done-max", "-1"), ("--failed", "99999d")])
def test_what_is_no_retention_exits_2_and_changes_nothing(holdfast, rows, filled, words):
    filled("a")
    before = rows("queues", "show", "default")
    assert holdfast("queues", "keep", "default", *words).exit_code == 2
    assert rows("queues", "show", "default") == before


def test_a_job_held_back_by_a_limit_says_by_whom(holdfast, rows, filled, opened):
    filled("a", "b")
    holdfast("queues", "limit", "default", "--max-running", "1")
    with opened() as engine:
        engine.ask(Lease(worker_id="w"))
    told = rows("explain", "b")
    assert (told["reason"]["code"], told["reason"]["held_by"]) == ("queue_limit", ["a"])
    assert "‖" in holdfast("jobs", "ls").stdout
    assert "holdfast queues limit default --max-running N" in holdfast("explain", "b").stdout


def test_programs_are_told_since_when_somebody_waits_in_each_queue(rows, filled, opened):
    filled("a")
    with opened() as engine:
        began = engine.job("a").created_at
    assert [row["oldest_at"] for row in rows("queues", "ls")] == [began]

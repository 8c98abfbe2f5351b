"""`holdfast jobs` as people and programs run it, on real stores."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import open_store
from holdfast.model.commands import Complete, Fail, Lease
from holdfast.model.jobs import Job, RetryMode


def problem(told):
    """The one problem object on stderr."""
    return msgspec.json.decode(told.stderr.strip().splitlines()[-1])


# --- adding -----------------------------------------------------------------------------------------------------------


def test_a_job_that_was_added_is_there_as_asked(holdfast, rows):
    told = holdfast(
        *("jobs", "add", "mail.send", "--params", ' {"to": "a", "n": [1, 2]} ', "--queue", "mail", "--priority", "7"),
        *("--at", "2999-01-01T01:00:00+01:00", "--ttl", "2d", "--timeout", "1.5m", "--max-attempts", "2"),
        *("--retry", "chain", "--tag", "a=b", "--tag", "c=d=e", "--key", "k", "--id", "mine"),
    )
    assert (told.exit_code, told.stdout) == (0, "mine\n")
    job = rows("jobs", "show", "mine")
    assert {name: job[name] for name in ("job_id", "job_type", "queue", "priority", "params", "not_before")} == {
        "job_id": "mine",
        "job_type": "mail.send",
        "queue": "mail",
        "priority": 7,
        "params": {"to": "a", "n": [1, 2]},
        "not_before": "2999-01-01T00:00:00.000000Z",
    }
    assert (job["timeout_s"], job["max_attempts"], job["retry_mode"], job["key"]) == (90, 2, "chain", "k")
    assert job["tags"] == {"a": "b", "c": "d=e"}
    assert job["expires_at"] > job["created_at"]


def test_adding_makes_the_store_and_says_so(holdfast, tmp_path):
    told = holdfast("jobs", "add", "work")
    assert "is new" in told.stderr
    assert len(told.stdout.strip()) == 36
    assert "is new" not in holdfast("jobs", "add", "work").stderr


def test_parameters_can_come_from_stdin(holdfast, rows):
    holdfast("jobs", "add", "work", "--id", "a", "--params", "-", stdin='{"x": 1}')
    assert rows("jobs", "show", "a")["params"] == {"x": 1}


@pytest.mark.parametrize(
    "args",
    [
        ["--params", "[1]"],
        ["--params", "{"],
        ["--params", '{"a":1,"a":2}'],
        ["--params", '{"a":NaN}'],
        ["--priority", "101"],
        ["--priority", "high"],
        ["--delay", "soon"],
        ["--at", "tomorrow"],
        ["--at", "2026-01-01T00:00:00"],
        ["--max-attempts", "0"],
        ["--queue", "no such name!"],
        ["--tag", "alone"],
        ["--id", " "],
        ["--key-hold", "window", "--key", "k"],
        ["--retry", "sometimes"],
    ],
)
def test_bad_input_exits_2_as_one_problem_object_and_stores_nothing(holdfast, filled, rows, args):
    filled("a")
    told = holdfast("jobs", "add", "work", *args, "-o", "json")
    assert (told.exit_code, told.stdout) == (2, "")
    assert len(told.stderr.strip().splitlines()) == 1
    assert set(problem(told)) >= {"code", "message", "hint"}
    assert [job["job_id"] for job in rows("jobs", "ls")] == ["a"]


def test_a_held_key_gives_the_job_that_holds_it(holdfast, rows):
    assert holdfast("jobs", "add", "work", "--id", "a", "--key", "k").stdout == "a\n"
    second = holdfast("jobs", "add", "work", "--id", "b", "--key", "k")
    assert (second.exit_code, second.stdout) == (0, "a\n")
    assert "was there before" in second.stderr
    refused = holdfast("jobs", "add", "work", "--key", "k", "--on-conflict", "reject")
    assert (refused.exit_code, refused.stdout) == (6, "")


def test_a_dry_run_tells_and_changes_nothing(holdfast, filled, rows):
    filled("a")
    assert holdfast("jobs", "add", "work", "--id", "b", "--dry-run").stdout == "b\n"
    told = holdfast("jobs", "cancel", "a", "--dry-run")
    assert (told.exit_code, "Nothing was changed" in told.stderr) == (0, True)
    assert rows("jobs", "cancel", "a", "--dry-run") == [{"job_id": "a", "outcome": "cancelled", "dry_run": True}]
    (job,) = rows("jobs", "ls")
    assert (job["job_id"], job["status"]) == ("a", "QUEUED")
    assert holdfast("jobs", "retry", "a", "--dry-run").exit_code == 6


# --- looking ----------------------------------------------------------------------------------------------------------


def test_an_empty_list_is_an_empty_json_array(holdfast, filled):
    filled("a")
    for args in (["jobs", "ls", "--queue", "none"], ["jobs", "ls", "--namespace", "other"]):
        assert holdfast(*args, "-o", "json").stdout == "[]\n"
        assert holdfast(*args, "-o", "jsonl").stdout == ""
        assert holdfast(*args, "-o", "ids").stdout == ""
        assert len(holdfast(*args).stdout.splitlines()) == 1


def test_a_list_can_be_narrowed(holdfast, filled):
    filled("a")
    filled("b", queue="mail")
    filled("c", task="other")
    filled("d", namespace="x")
    holdfast("jobs", "cancel", "a")

    def ids(*args):
        return holdfast("jobs", "ls", *args, "-o", "ids").stdout.split()

    assert ids() == ["c", "b", "a"]
    assert ids("--queue", "mail") == ["b"]
    assert ids("--task", "other") == ["c"]
    assert ids("--status", "cancelled") == ["a"]
    assert ids("--limit", "2") == ["c", "b"]
    assert ids("--namespace", "x") == ["d"]
    assert holdfast("jobs", "ls", "--status", "asleep").exit_code == 2


def test_every_form_shows_the_same_reason(holdfast, filled, rows, hire):
    filled("a", "b")
    hire()
    sentences = {job["job_id"]: job["reason"]["sentence"] for job in rows("jobs", "ls")}
    assert sentences == {"a": "next in queue default", "b": "1 ahead in queue default"}
    table = holdfast("jobs", "ls").stdout.splitlines()
    assert [line.split("  ")[0] for line in table[1:]] == ["○ QUEUED", "○ QUEUED"]
    assert all(any(line.endswith(sentence) for line in table) for sentence in sentences.values())
    lined = [msgspec.json.decode(line) for line in holdfast("jobs", "ls", "-o", "jsonl").stdout.splitlines()]
    assert [job["reason"]["sentence"] for job in lined] == [sentences["b"], sentences["a"]]
    assert rows("jobs", "show", "b")["reason"]["sentence"] == sentences["b"]
    assert rows("explain", "b")["reason"]["sentence"] == sentences["b"]
    assert sentences["b"] in holdfast("jobs", "show", "b").stdout


def test_a_list_carries_how_a_payload_begins_and_not_the_payload(holdfast, rows, filled):
    filled("a", params=msgspec.Raw(b'{"x":"%s"}' % (b"y" * 500)))
    (job,) = rows("jobs", "ls")
    assert "params" not in job
    assert len(job["preview"]) == 120


def test_a_table_in_a_pipe_is_never_cut(holdfast, filled, opened):
    filled("a" * 200, queue="q" * 100, task="t" * 128)
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w", queues=("q" * 100,))).grants
        engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="e" * 100, fatal=True))
    told = holdfast("jobs", "ls", env={"COLUMNS": "40"}).stdout
    assert all(part in told for part in ("a" * 200, "q" * 100, "t" * 128, "e" * 100))


def test_a_job_is_shown_with_its_runs(holdfast, rows, filled, opened):
    filled("a", max_attempts=1)
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w-1")).grants
        engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="Traceback:\n  deep\nValueError: no"))
    job = rows("jobs", "show", "a")
    assert [(run["run_no"], run["status"], run["worker_id"]) for run in job["runs"]] == [(1, "FAILED", "w-1")]
    page = holdfast("jobs", "show", "a").stdout
    assert page.startswith("✕ FAILED  failed after 1 of 1 attempts: ValueError: no\n")
    assert "  Traceback:\n    deep\n  ValueError: no\n" in page
    assert "exception: ValueError: no" in page


def test_several_jobs_are_shown_as_a_list(rows, filled):
    filled("a", "b")
    assert [job["job_id"] for job in rows("jobs", "show", "b", "a")] == ["b", "a"]


# --- ids --------------------------------------------------------------------------------------------------------------


def test_an_unambiguous_beginning_of_an_id_is_enough(holdfast, rows, filled):
    filled("abc-1", "abc-2", "abd", "ab")
    assert rows("jobs", "show", "abc-2")["job_id"] == "abc-2"
    assert rows("jobs", "show", "abd")["job_id"] == "abd"
    assert rows("jobs", "show", "ab")["job_id"] == "ab", "a whole id is meant, though others begin with it"
    told = holdfast("jobs", "show", "abc", "-o", "json")
    assert told.exit_code == 2
    assert (problem(told)["code"], problem(told)["candidates"]) == ("ambiguous_id", ["abc-1", "abc-2"])
    assert "abc-1, abc-2" in holdfast("jobs", "cancel", "abc").stderr


def test_an_id_of_nothing_exits_3(holdfast, filled):
    filled("a")
    for verb in (["show"], ["cancel"], ["retry"], ["bury"], ["wait"], ["move", "--to", "first"]):
        told = holdfast("jobs", *verb, "zz", "-o", "json")
        assert (told.exit_code, told.stdout, problem(told)["code"]) == (3, "", "job_not_found")
    assert holdfast("jobs", "show", "a", "--namespace", "other").exit_code == 3
    assert holdfast("jobs", "show", "").exit_code == 2


def test_ids_are_read_from_stdin(holdfast, rows, filled):
    filled("a", "b", "c")
    told = holdfast("jobs", "cancel", "-", "-o", "ids", stdin="a\nc\n\na\n")
    assert (told.exit_code, told.stdout) == (0, "a\nc\n")
    assert {job["job_id"]: job["status"] for job in rows("jobs", "ls")} == {
        "a": "CANCELLED",
        "b": "QUEUED",
        "c": "CANCELLED",
    }
    assert holdfast("jobs", "cancel", "-", "-o", "json", stdin="").stdout == "[]\n"


def test_ids_that_one_command_prints_another_takes(holdfast, rows, filled):
    filled("my job; x", "\u202eodd", "plain")
    listed = holdfast("jobs", "ls", "-o", "ids").stdout
    assert holdfast("jobs", "cancel", "-", stdin=listed).exit_code == 0
    assert {job["status"] for job in rows("jobs", "ls")} == {"CANCELLED"}
    assert holdfast("jobs", "show", "-", stdin=b"\xff\xfe\n").exit_code == 3


@pytest.mark.parametrize("args", [["jobs", "show"], ["jobs", "ls", "--task"], ["jobs", "add"], ["queues", "pause"]])
def test_bytes_that_are_no_text_exit_2(holdfast, filled, args):
    filled("a")
    told = holdfast(*args, b"\xff".decode(errors="surrogateescape"), "-o", "json")
    assert told.exit_code == 2
    assert "is not UTF-8" in problem(told)["message"]


# --- changing ---------------------------------------------------------------------------------------------------------


def test_one_wrong_id_among_many_changes_none(holdfast, rows, filled):
    filled("a", "b")
    assert holdfast("jobs", "cancel", "a", "zz", "b").exit_code == 3
    assert {job["status"] for job in rows("jobs", "ls")} == {"QUEUED"}


def test_a_refusal_among_many_is_told_and_the_others_are_done(holdfast, rows, filled):
    filled("a", "b")
    holdfast("jobs", "cancel", "a", "--reason", "not needed")
    told = holdfast("jobs", "cancel", "a", "b", "-o", "json")
    assert told.exit_code == 6
    assert msgspec.json.decode(told.stdout) == [{"job_id": "b", "outcome": "cancelled"}]
    assert (problem(told)["code"], problem(told)["refused"]) == ("invalid_operation", ["a"])
    assert "1 of 2" in problem(told)["message"]
    assert rows("jobs", "show", "a")["reason"]["sentence"].endswith(": not needed")


def test_a_running_job_is_asked_to_stop_and_by_force_ended(rows, opened, filled):
    filled("a")
    with opened() as engine:
        engine.ask(Lease(worker_id="w"))
    assert rows("jobs", "cancel", "a", "--reason", "stop it") == [{"job_id": "a", "outcome": "requested"}]
    assert rows("jobs", "show", "a")["reason"]["code"] == "cancel_requested"
    assert rows("jobs", "cancel", "a", "--force") == [{"job_id": "a", "outcome": "cancelled"}]
    assert rows("jobs", "show", "a")["status"] == "CANCELLED"


def test_a_buried_job_is_dead_and_a_retry_is_a_new_job(holdfast, rows, filled):
    filled("a", params=msgspec.Raw(b'{"x":1}'))
    assert rows("jobs", "bury", "a", "--reason", "poison") == [{"job_id": "a", "outcome": "buried"}]
    assert rows("jobs", "show", "a")["reason"]["sentence"] == "buried: poison"
    told = holdfast("jobs", "retry", "a", "--priority", "5", "--params", '{"x":2}')
    assert told.exit_code == 0
    new = rows("jobs", "show", told.stdout.strip())
    assert (new["retry_of"], new["status"], new["priority"], new["params"]) == ("a", "QUEUED", 5, {"x": 2})


def test_a_job_can_be_edited_and_moved_while_it_waits(holdfast, rows, filled):
    filled("a", "b", "c")
    holdfast("jobs", "move", "c", "--to", "first")
    holdfast("jobs", "move", "a", "--after", "b")
    order = [job["job_id"] for job in rows("queues", "show", "default")["head"]]
    assert order == ["c", "b", "a"]
    assert holdfast("jobs", "move", "a").exit_code == 2
    assert holdfast("jobs", "move", "a", "--before", "c", "--to", "last").exit_code == 2
    assert holdfast("jobs", "update", "a").exit_code == 2
    told = holdfast("jobs", "update", "a", "--priority", "3", "--at", "2999-01-01T00:00:00Z", "--tag", "x=y")
    assert told.exit_code == 0
    job = rows("jobs", "show", "a")
    assert (job["priority"], job["not_before"][:4], job["tags"]) == (3, "2999", {"x": "y"})
    holdfast("jobs", "update", "a", "--at", "now")
    assert rows("jobs", "show", "a")["not_before"] is None


def test_jobs_share_the_places_of_a_limit_key_until_one_is_allowed_more(holdfast, rows, opened):
    for job_id in ("a", "b"):
        holdfast("jobs", "add", "work", "--id", job_id, "--limit-key", "shop-1", "--key-limit", "1")
    with opened() as engine:
        engine.ask(Lease(worker_id="w"))
    told = rows("explain", "b")
    assert (told["reason"]["code"], told["reason"]["held_by"]) == ("key_limit", ["a"])
    assert told["ways_on"][0]["command"] == "holdfast jobs update b --key-limit N"
    assert "shop-1 (1 at a time)" in holdfast("jobs", "show", "b").stdout
    holdfast("jobs", "update", "b", "--key-limit", "2")
    assert rows("explain", "b")["reason"]["code"] == "no_worker"
    holdfast("jobs", "update", "b", "--limit-key", "shop-2", "--key-limit", "1")
    assert rows("jobs", "show", "b")["limit_key"] == "shop-2"
    assert holdfast("jobs", "update", "b", "--key-limit", "0").exit_code == 2


def test_details_that_lie_beside_a_run_are_shown_whole(rows, filled, opened):
    filled("a")
    details = {"stack": "x" * 70_000}
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        raw = msgspec.Raw(msgspec.json.encode(details))
        engine.ask(Fail(job_id="a", token=grant.token, error="no", fatal=True, details=raw))
    assert rows("jobs", "show", "a")["runs"][0]["details"] == details


def test_changes_carry_who_asked(holdfast, filled, place):
    filled("a")
    holdfast("jobs", "cancel", "a")
    store = open_store(place, readonly=True)
    events = [msgspec.json.decode(entry.event) for entry in store.feed(0)]
    store.close()
    assert [event["actor"].partition(":")[0] for event in events if event["type"] == "job:cancelled"] == ["cli"]


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "code"),
    [("complete", 0), ("fail", 1), ("bury", 1), ("cancel", 4)],
)
def test_waiting_exits_by_how_the_job_ended(holdfast, rows, filled, opened, ending, code):
    filled("a")
    with opened() as engine:
        if ending in ("complete", "fail"):
            (grant,) = engine.ask(Lease(worker_id="w")).grants
            held = {"job_id": grant.job.job_id, "token": grant.token}
            engine.ask(Complete(**held) if ending == "complete" else Fail(**held, error="no", fatal=True))
    if ending in ("bury", "cancel"):
        holdfast("jobs", ending, "a")
    told = holdfast("jobs", "wait", "a", "-o", "ids")
    assert (told.exit_code, told.stdout) == (code, "a\n")


def test_waiting_follows_automatic_retries(holdfast, filled, opened):
    filled("a", retry_mode=RetryMode.CHAIN, max_attempts=2)
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="no", retry_after_s=0))
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
        last = grant.job.job_id
    told = holdfast("jobs", "wait", "a", "-o", "ids")
    assert (told.exit_code, told.stdout) == (0, f"{last}\n")


def test_waiting_that_runs_out_exits_5_and_the_job_goes_on(holdfast, rows, filled):
    filled("a")
    told = holdfast("jobs", "wait", "a", "--timeout", "0", "-o", "json")
    assert (told.exit_code, told.stdout, problem(told)["code"]) == (5, "", "timeout")
    assert problem(told)["message"] == (
        "job a is QUEUED after 0 s: no live worker knows task work on queue default. It goes on."
    )
    assert rows("jobs", "show", "a")["status"] == "QUEUED"


# --- whose store ------------------------------------------------------------------------------------------------------


def test_without_a_store_it_exits_2_and_names_both_ways_to_give_one(holdfast):
    for args in (["jobs", "ls"], ["jobs", "add", "x"], ["queues", "pause", "x"], ["status"], ["explain", "a"]):
        told = holdfast(*args, env={"HOLDFAST_STORE": ""})
        assert told.exit_code == 2
        assert "--store" in told.stderr
        assert "HOLDFAST_STORE" in told.stderr


def test_where_there_is_no_store_only_adding_makes_one(holdfast, tmp_path):
    for args in (["jobs", "ls"], ["status"], ["jobs", "cancel", "a"], ["queues", "pause", "q"], ["dispatch", "pause"]):
        assert holdfast(*args).exit_code == 3
    assert holdfast("jobs", "add", "work", "--dry-run").exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_memory_cannot_be_looked_at_from_outside(holdfast):
    assert holdfast("jobs", "ls", "--store", "memory:").exit_code == 6
    assert holdfast("jobs", "add", "x", "--store", "memory:").exit_code == 6


def test_a_store_in_use_can_be_read_but_a_wal_not_changed(holdfast, rows, filled, opened, place):
    filled("a")
    with opened() as engine:
        assert [job["job_id"] for job in rows("jobs", "ls")] == ["a"]
        assert rows("status")["counts"]["QUEUED"] == 1
        told = holdfast("jobs", "cancel", "a", "-o", "json")
        if place.startswith("wal:"):
            assert (told.exit_code, problem(told)["code"]) == (6, "store_locked")
            assert all(word in problem(told)["message"] for word in ("pid", "host"))
            assert holdfast("jobs", "cancel", "a", "--dry-run").exit_code == 0
        else:
            assert told.exit_code == 0
        with engine.read() as view:
            assert (view.get(Job, "a").status == "CANCELLED") is not place.startswith("wal:")


def test_reading_changes_nothing(holdfast, filled, opened, tmp_path):
    filled("a")
    with opened() as engine:
        engine.ask(Lease(worker_id="w", session_id=engine.session_id))

    def content():
        return {
            path: path.read_bytes()
            for path in tmp_path.rglob("*")
            if path.is_file() and not path.name.endswith(("-shm", "-wal"))
        }

    before = content()
    for args in (["jobs", "ls"], ["jobs", "show", "a"], ["queues", "ls"], ["status"], ["explain", "a"]):
        assert holdfast(*args).exit_code == 0
    assert content() == before


# --- what cannot be trusted -------------------------------------------------------------------------------------------


def test_control_characters_never_reach_the_terminal_raw(holdfast, filled, opened):
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2028line\r"
    filled("id\u202egnp", params=msgspec.Raw(msgspec.json.encode({"x": evil})))
    holdfast("queues", "pause", "default", "--reason", evil)
    for args in (["jobs", "ls"], ["jobs", "show", "id"], ["explain", "id"], ["queues", "ls"], ["status"]):
        for form in ("table", "json", "jsonl"):
            told = holdfast(*args, "-o", form)
            assert told.exit_code == 0
            for char in "\x1b\x07\x9b\u202e\u2028\r":
                assert char not in told.stdout, (args, form, char)
    holdfast("queues", "resume", "default")
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w\u202e")).grants
        engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error=f"first\n{evil}", fatal=True))
    page = holdfast("jobs", "show", "id").stdout
    assert "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202e" in page
    assert not set("\x1b\x07\x9b\u202e\r") & set(page)
    assert not set("\x1b\x9b") & set(holdfast("jobs", "show", evil).stderr)


def test_json_gives_strange_text_back_unchanged(rows, filled):
    evil = "\x1b[2J\x9b\u202e\u2028é🚀\ufeff\x7f"
    filled("a", params=msgspec.Raw(msgspec.json.encode({"x": evil})))
    assert rows("jobs", "show", "a")["params"] == {"x": evil}

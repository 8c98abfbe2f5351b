"""`holdfast groups`, on real stores."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.cli.render import group_rows
from holdfast.cli.render.terminal import Screen
from holdfast.model.commands import Complete, CreateGroup, Fail, Lease, NewJob
from holdfast.model.groups import Group, GroupMode, GroupStatus, OnFailure
from holdfast.model.jobs import RetryMode

NO_PARAMS = msgspec.Raw(b"{}")


def new(job_id, **options):
    return NewJob(job_id=job_id, job_type="work", params=NO_PARAMS, **{"max_attempts": 1, **options})


@pytest.fixture
def grouped(opened):
    """Make a group of three, and end its members in these ways."""

    def make(*ways, group_id="nightly-run", **options):
        members = tuple(new(f"{group_id}-{letter}") for letter in "abc")
        with opened() as engine:
            engine.ask(CreateGroup(group_id=group_id, members=members, **{"name": "nightly", **options}))
            for way in ways:
                (grant,) = engine.ask(Lease(worker_id="w")).grants
                held = {"job_id": grant.job.job_id, "token": grant.token}
                match way:
                    case "completed":
                        engine.ask(Complete(**held))
                    case "failed":
                        engine.ask(Fail(**held, error="boom"))

    return make


def test_groups_are_listed_newest_first_with_how_far_they_are(grouped, holdfast, rows):
    grouped("completed", "running", group_id="first")
    grouped("failed", group_id="second", name=None)
    assert [(row["group_id"], row["status"]) for row in rows("groups", "ls")] == [
        ("second", "FAILED"),
        ("first", "RUNNING"),
    ]
    assert [row["group_id"] for row in rows("groups", "ls", "--status", "running")] == ["first"]
    assert len(rows("groups", "ls", "--limit", "1")) == 1
    assert holdfast("groups", "ls", "-o", "ids").stdout == "second\nfirst\n"
    title, _, line = holdfast("groups", "ls").stdout.splitlines()
    assert title.split() == ["STATUS", "ID", "MODE", "PROGRESS", "AGE", "NAME"]
    assert "] 1 of 3" in line
    assert line.endswith("nightly")


def test_a_page_shows_the_bar_the_counts_and_the_members_with_their_reasons(grouped, holdfast, rows):
    grouped("completed", "running", callback=new("called"))
    page = holdfast("groups", "show", "night").stdout
    assert "] 1 of 3" in page.splitlines()[0]
    assert "3: 1 queued, 1 running, 1 completed" in page
    assert "sequential, on failure stop" in page
    assert "work (called)" in page
    assert "waits for job nightly-run-b, number 2 of 3 in its group, which is RUNNING" in page
    record = rows("groups", "show", "nightly-run")
    assert (record["members"], record["completed"]) == (3, 1)
    assert [(job["sequence_number"], job["status"]) for job in record["jobs"]] == [
        (0, "COMPLETED"),
        (1, "RUNNING"),
        (2, "QUEUED"),
    ]
    assert record["jobs"][2]["reason"]["code"] == "group_wait"


def test_a_page_shows_as_many_members_as_asked_for(grouped, holdfast, rows):
    grouped()
    page = holdfast("groups", "show", "nightly-run", "--limit", "1").stdout
    assert page.splitlines()[-1] == "and 2 more: --limit 3"
    assert len(rows("groups", "show", "nightly-run", "--limit", "2")["jobs"]) == 2
    assert holdfast("groups", "show", "nightly-run", "--limit", "0").exit_code == 0


def test_a_member_is_shown_by_the_last_of_its_retries(opened, rows):
    with opened() as engine:
        member = new("a", max_attempts=2, retry_mode=RetryMode.CHAIN)
        engine.ask(CreateGroup(group_id="g", members=(member,)))
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        engine.ask(Fail(job_id="a", token=grant.token, error="boom"))
    (job,) = rows("groups", "show", "g")["jobs"]
    assert (job["retry_of"], job["status"]) == ("a", "QUEUED")


def test_cancelling_ends_what_waits_and_says_how_much(grouped, holdfast, rows):
    grouped("running")
    told = rows("groups", "cancel", "nightly", "--running", "--reason", "not today")
    assert told == {"group_id": "nightly-run", "cancelled": 2, "requested": 1}
    (job,) = rows("jobs", "ls", "--status", "cancelled", "--limit", "1")
    assert job["cancel_reason"] == "not today"
    assert rows("groups", "show", "nightly-run")["status"] == "RUNNING"


def test_a_dry_run_tells_and_changes_nothing(grouped, holdfast, rows):
    grouped()
    told = holdfast("groups", "cancel", "nightly-run", "--dry-run")
    assert "3 cancelled, 0 asked to stop" in told.stdout
    assert "--dry-run" in told.stderr
    assert rows("groups", "show", "nightly-run")["status"] == "QUEUED"


def test_refusals_and_unknown_ids_have_their_exit_codes(grouped, holdfast):
    grouped("failed")
    assert holdfast("groups", "cancel", "nightly-run").exit_code == 6
    assert holdfast("groups", "show", "nobody").exit_code == 3
    assert holdfast("groups", "show", "").exit_code == 2
    grouped(group_id="nightly-other")
    told = holdfast("groups", "show", "nightly")
    assert told.exit_code == 2
    assert "nightly-other" in told.stderr
    assert holdfast("groups", "show", "nightly-run", "--namespace", "x").exit_code == 3


def test_the_page_of_a_job_names_its_group(grouped, holdfast):
    grouped("completed", "failed", callback=new("called"))
    assert "nightly-run, number 2" in holdfast("jobs", "show", "nightly-run-b").stdout
    assert "nightly-run, called back by it" in holdfast("jobs", "show", "called").stdout


def test_explain_shows_the_job_that_is_before_it(grouped, holdfast, rows):
    grouped("running")
    told = rows("explain", "nightly-run-c")
    assert told["reason"]["holder"] == "nightly-run-a"
    assert [(link["role"], link["job_id"]) for link in told["chain"]] == [("before it", "nightly-run-a")]


def test_a_group_without_members_has_no_bar():
    at = "2026-01-01T00:00:00.000000Z"
    screen = Screen(
        is_terminal=False, can_redraw=False, colour=False, true_colour=False, light=False, unicode=False, width=100
    )
    empty = Group("g", at, mode=GroupMode.CONCURRENT, on_failure=OnFailure.SKIP, status=GroupStatus.CREATED)
    assert group_rows.group_page(empty, [], at, screen)[0] == "o CREATED  no members"

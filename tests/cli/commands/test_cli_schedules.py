"""`holdfast schedules` and `holdfast templates`, on real stores."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast import Engine, open_store
from holdfast.clock import SystemClock
from holdfast.engine.maintenance import tick
from holdfast.model.commands import PutSchedule
from holdfast.model.jobs import Job
from holdfast.model.schedules import NewSchedule
from holdfast.testing import ManualClock
from holdfast.workflows.provider import Provider


def add(holdfast, name="nightly", *options):
    told = holdfast("schedules", "add", name, "--task", "report", *(options or ("--cron", "0 3 * * *")))
    assert told.exit_code == 0, told.stderr
    return told


def test_a_schedule_is_made_listed_and_shown(holdfast, rows):
    assert (
        "schedule nightly is made"
        in add(
            holdfast,
            "nightly",
            "--cron",
            "0 3 * * *",
            "--timezone",
            "Europe/Berlin",
            "--params",
            '{"n":1}',
            "--queue",
            "q",
        ).stderr
    )
    (row,) = rows("schedules", "ls")
    assert (row["name"], row["job_type"], row["cron_expression"], row["timezone"]) == (
        "nightly",
        "report",
        "0 3 * * *",
        "Europe/Berlin",
    )
    assert (row["preview"], row["queue"], row["enabled"]) == ('{"n":1}', "q", True)
    assert holdfast("schedules", "ls", "-o", "ids").stdout == "nightly\n"
    assert "0 3 * * * (Europe/Berlin)" in holdfast("schedules", "ls").stdout
    shown = rows("schedules", "show", "nightly")
    assert len(shown["preview"]) == 5
    page = holdfast("schedules", "show", "nightly").stdout
    assert "overlap    skip" in page
    assert "03:00:00" in page
    assert rows("schedules", "ls", "--namespace", "x") == []


def test_preview_needs_no_store_and_says_what_is_odd(holdfast):
    told = holdfast(
        "schedules",
        "preview",
        "--cron",
        "30 2 * * *",
        "--timezone",
        "Europe/Paris",
        "--after",
        "2033-03-26T12:00",
        "-n",
        "2",
        "-o",
        "json",
    )
    found = msgspec.json.decode(told.stdout)
    assert [(fire["fire_at"][5:16], "does not exist" in fire["note"]) for fire in found] == [
        ("03-27T01:00", True),
        ("03-28T00:30", False),
    ]


def test_preview_of_a_schedule_as_it_is_and_as_it_could_be(holdfast, rows):
    add(holdfast)
    assert len(rows("schedules", "preview", "nightly")) == 10
    minutes = {fire["fire_at"][14:16] for fire in rows("schedules", "preview", "nightly", "--cron", "15 * * * *")}
    assert minutes == {"15"}
    assert rows("schedules", "ls")[0]["cron_expression"] == "0 3 * * *"


def test_update_changes_what_is_named_and_minds_the_version(holdfast, rows):
    add(holdfast)
    told = holdfast("schedules", "update", "nightly", "--every", "5m", "--priority", "3", "--if-version", "1")
    assert told.exit_code == 0, told.stderr
    (row,) = rows("schedules", "ls")
    assert (row["interval_s"], row["cron_expression"], row["priority"], row["version"]) == (300, None, 3, 2)
    assert holdfast("schedules", "update", "nightly", "--grace", "5", "--if-version", "1").exit_code == 6
    assert holdfast("schedules", "update", "nightly").exit_code == 2
    holdfast("schedules", "update", "nightly", "--priority", "none", "--rename", "other", "--task", "t2")
    (row,) = rows("schedules", "ls")
    assert (row["name"], row["priority"], row["job_type"]) == ("other", None, "t2")


def test_the_target_of_a_schedule_is_exchanged(holdfast, rows):
    add(holdfast)
    holdfast("templates", "add", "welcome", "mail.send")
    told = holdfast("schedules", "update", "nightly", "--template", "welcome")
    assert told.exit_code == 0, told.stderr
    assert "template welcome" in holdfast("schedules", "ls").stdout
    assert holdfast("schedules", "update", "nightly", "--template", "welcome", "--task", "t").exit_code == 2
    holdfast("schedules", "update", "nightly", "--task", "t")
    (row,) = rows("schedules", "ls")
    assert (row["job_type"], row["template_id"]) == ("t", None)


def test_a_preview_ends_with_the_calendar(holdfast, rows):
    words = ("schedules", "preview", "--cron", "0 0 29 2 *", "--start", "9990-01-01T00:00:00Z", "-n", "1000")
    assert [row["fire_at"][:10] for row in rows(*words)] == ["9992-02-29", "9996-02-29"]
    assert rows("schedules", "preview", "--at", "9999-12-31T23:00:00Z", "--timezone", "Asia/Tokyo") == []


def test_a_change_of_what_code_declares_is_told_to_last_until_its_next_start(holdfast, opened):
    new = NewSchedule(name="mine", job_type="t", interval_s=60, source="code")
    with opened() as engine:
        engine.ask(PutSchedule(schedule_id="s", schedule=new))
    assert "until the application starts again" in holdfast("schedules", "update", "mine", "--grace", "5").stderr
    told = holdfast("schedules", "update", "mine", "--rename", "other")
    assert (told.exit_code, "declared in code" in told.stderr) == (6, True)
    assert "until the application starts again" in holdfast("schedules", "rm", "mine").stderr


def test_trigger_prints_the_job(holdfast, rows):
    add(holdfast, "nightly", "--cron", "0 3 * * *", "--params", '{"a":1,"b":2}')
    told = holdfast("schedules", "trigger", "nightly", "--params", '{"b":3}')
    assert told.exit_code == 0, told.stderr
    job = rows("jobs", "show", told.stdout.strip())
    assert (job["params"], job["schedule_id"] is not None) == ({"a": 1, "b": 3}, True)
    assert holdfast("schedules", "trigger", "nightly", "--dry-run").exit_code == 0
    assert len(rows("jobs", "ls")) == 1


def test_backfill_tells_how_many_first_and_adds_once(holdfast, rows):
    add(holdfast)
    words = ("schedules", "backfill", "nightly", "2026-01-01T00:00", "2026-01-08T00:00Z", "--id", "week")
    told = holdfast(*words, "--dry-run")
    assert "7 fires of nightly" in told.stderr
    assert rows("jobs", "ls") == []
    assert "7 jobs are made" in holdfast(*words).stderr
    assert "0 jobs are made" in holdfast(*words).stderr
    assert len(rows("jobs", "ls")) == 7


def test_pause_resume_reset_and_remove(holdfast, rows):
    add(holdfast)
    assert holdfast("schedules", "pause", "nightly", "--reason", "holiday").exit_code == 0
    assert "‖ paused: holiday" in holdfast("schedules", "ls").stdout
    assert rows("schedules", "show", "nightly")["next_fire_at"] is None
    assert holdfast("schedules", "resume", "nightly").exit_code == 0
    assert holdfast("schedules", "reset", "nightly").exit_code == 0
    assert holdfast("schedules", "rm", "nightly", "--dry-run").exit_code == 0
    assert len(rows("schedules", "ls")) == 1
    assert holdfast("schedules", "rm", "nightly").exit_code == 0
    assert rows("schedules", "ls") == []


def test_a_schedule_that_a_wrong_clock_has_silenced_is_named_and_reset_mends_it(holdfast, rows, place):
    add(holdfast, "hourly", "--cron", "0 * * * *")
    ahead = ManualClock(SystemClock().now() + timedelta(days=365))
    engine = Engine(open_store(place, clock=ahead), clock=ahead)
    assert tick(engine).fired == 1
    engine.close()
    told = holdfast("store", "check", place)
    assert (told.exit_code, "schedule_ahead" in told.stdout) == (1, True)
    assert "holdfast schedules reset hourly" in told.stderr
    assert "had run ahead" in holdfast("schedules", "ls").stdout
    assert holdfast("schedules", "reset", "hourly").exit_code == 0
    assert holdfast("store", "check", place).exit_code == 0
    assert "next in" in holdfast("schedules", "ls").stdout


def test_a_look_fires_nothing(holdfast, rows, opened):
    add(holdfast, "soon", "--every", "1")
    rows("schedules", "ls")
    holdfast("schedules", "pause", "soon")
    with opened() as engine, engine.read() as view:
        assert list(view.all(Job)) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "x", "--task", "t", "--cron", "0 0 30 2 *"), 2, "fits no day"),
        (("add", "x", "--task", "t", "--every", "1h", "--timezone", "Mars/Olympus"), 2, "Mars/Olympus"),
        (("add", "x", "--task", "t", "--every", "-5"), 2, "-5"),
        (("add", "x", "--task", "t", "--at", "tomorrow"), 2, "tomorrow"),
        (("add", "x", "--task", "t", "--at", "2020-01-01T00:00"), 2, "never fire"),
        (("add", "x", "--task", "t"), 2, "cron expression"),
        (("add", "x", "--every", "60"), 2, "one task"),
        (("add", "x", "--template", "gone", "--every", "60"), 3, "gone"),
        (("add", "nightly", "--task", "t", "--every", "60"), 6, "exists already"),
        (("show", "gone"), 3, "gone"),
        (("trigger", "gone"), 3, "gone"),
        (("trigger", "nightly", "--params", "[1]"), 2, "object"),
        (("backfill", "nightly", "2026-01-01", "2099-01-01"), 2, "10,000"),
        (("backfill", "nightly", "2026-01-02", "2026-01-01"), 2, "no time of the past"),
        (("backfill", "nightly", "2026-01-02", "2026-01-01", "--dry-run"), 2, "no time of the past"),
        (("backfill", "nightly", "now", "2026-01-01"), 2, "FROM: 'now'"),
        (("backfill", "nightly", "2026-01-01", "2026-01-02", "--id", ""), 2, "backfill_id"),
        (("add", "x", "--task", "t", "--at", "9999-12-31T23:00", "--timezone", "America/New_York"), 2, "--at: 9999"),
        (("add", "x", "--task", "t", "--cron", "@every 99999999999d"), 2, "ten years"),
        (("update", "nightly", "--template", "gone"), 3, "gone"),
        (("preview", "--cron", "bad"), 2, "fields"),
    ],
)
def test_bad_input_is_told_before_anything_changed(holdfast, rows, words, code, said):
    add(holdfast)
    before = rows("schedules", "ls")
    told = holdfast("schedules", *words)
    assert (told.exit_code, said in told.stderr) == (code, True), told.stderr
    assert rows("schedules", "ls") == before
    assert rows("jobs", "ls") == []


# --- templates --------------------------------------------------------------------------------------------------------


def test_a_template_is_made_changed_used_and_archived(holdfast, rows, opened):
    told = holdfast("templates", "add", "welcome", "mail.send", "--params", '{"a":1}', "--queue", "q", "--tag", "x=y")
    assert told.exit_code == 0, told.stderr
    assert holdfast("templates", "add", "welcome", "mail.send").exit_code == 6
    (row,) = rows("templates", "ls")
    assert (row["name"], row["job_type"], row["version"]) == ("welcome", "mail.send", 1)
    assert "mail.send" in holdfast("templates", "ls").stdout
    told = holdfast("templates", "enqueue", "welcome", "--params", '{"b":2}')
    job = rows("jobs", "show", told.stdout.strip())
    assert (job["params"], job["queue"], job["tags"]) == ({"a": 1, "b": 2}, "q", {"x": "y"})
    assert holdfast("templates", "update", "welcome", "--priority", "4", "--if-version", "1").exit_code == 0
    shown = rows("templates", "show", "welcome")
    assert (shown["options"]["priority"], shown["options"]["queue"], shown["version"]) == (4, "q", 2)
    assert "mail.send" in holdfast("templates", "show", "welcome").stdout
    assert holdfast("templates", "update", "welcome", "--priority", "5", "--if-version", "1").exit_code == 6
    assert holdfast("schedules", "add", "s", "--template", "welcome", "--every", "1").exit_code == 0
    assert "template welcome" in holdfast("schedules", "ls").stdout
    assert holdfast("templates", "rm", "welcome").exit_code == 6
    assert holdfast("templates", "archive", "welcome").exit_code == 0
    assert "template welcome was archived" in rows("schedules", "show", "s")["pause_reason"]
    assert holdfast("templates", "enqueue", "welcome").exit_code == 6
    with opened() as engine:
        assert tick(engine).fired == 0
    holdfast("schedules", "rm", "s")
    assert holdfast("templates", "rm", "welcome").exit_code == 0
    assert holdfast("templates", "show", "welcome").exit_code == 3


def test_a_schedule_of_a_workflow_begins_instances(holdfast, rows, opened):
    told = holdfast("schedules", "add", "nightly", "--workflow", "onboard", "--every", "1h", "--params", '{"user": 1}')
    assert told.exit_code == 0, told.stderr
    (listed,) = rows("schedules", "ls")
    assert (listed["workflow"], listed["job_type"]) == ("onboard", None)
    assert "workflow onboard" in holdfast("schedules", "ls").stdout
    assert rows("schedules", "show", "nightly")["last_instance"] is None
    instance = holdfast("schedules", "trigger", "nightly", "--params", '{"user": 2}').stdout.strip()
    shown = rows("schedules", "show", "nightly")
    assert shown["last_instance"] == instance
    assert f"holdfast explain {instance}" in holdfast("schedules", "show", "nightly").stdout
    with opened() as engine:
        item, _, _ = Provider(engine).fetch_orchestration_item(30)
    assert (item.instance, item.messages[0].input) == (instance, '{"user":2}')
    assert holdfast("schedules", "update", "nightly", "--task", "send").exit_code == 0
    assert rows("schedules", "show", "nightly")["workflow"] is None
    assert holdfast("schedules", "update", "nightly", "--workflow", "onboard").exit_code == 0
    assert rows("schedules", "show", "nightly")["job_type"] is None


def test_a_schedule_has_one_target(holdfast):
    told = holdfast("schedules", "add", "nightly", "--workflow", "onboard", "--task", "send", "--every", "1h")
    assert told.exit_code == 2
    assert "one task, one template or one workflow" in told.stderr
    told = holdfast("schedules", "add", "nightly", "--workflow", "onboard", "--every", "1h", "--queue", "mail")
    assert told.exit_code == 2
    assert "stands in no queue" in told.stderr

"""Schedules: what may be one, and what edits, pauses and resets do to its next fire."""

import msgspec
import pytest
from world import START, World

from holdfast.model import commands as c
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, NewTemplate
from holdfast.model.times import later
from holdfast.rules.schedules.next_fire import passes_over

RAW = msgspec.Raw


def new(name="s", **fields):
    if not {"template_id"} & set(fields):
        fields.setdefault("job_type", "t")
    if not {"cron_expression", "run_at", "interval_s"} & set(fields):
        fields["interval_s"] = 60
    return NewSchedule(name=name, **fields)


def put(name="s", schedule_id=None, *, replace=False, cmd="", **fields):
    return c.PutSchedule(schedule_id=schedule_id or name, schedule=new(name, **fields), replace=replace, cmd=cmd)


def update(**fields):
    version = fields.pop("version", None)
    return c.UpdateSchedule(schedule_id="s", changes=ScheduleChanges(**fields), version=version)


@pytest.fixture
def world():
    return World()


def the(world, schedule_id="s"):
    return world.tables.get(Schedule, schedule_id)


# --- making -----------------------------------------------------------------------------------------------------------


def test_a_new_schedule_knows_its_next_fire(world):
    saved = world.do(put(jitter_s=10))
    assert (saved.id, saved.version, saved.created) == ("s", 1, True)
    made = the(world)
    assert made.next_fire_at == later(START, 60)
    assert made.next_fire_at < made.next_trigger_at < later(START, 70)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron_expression": "0 0 30 2 *"}, "cron_expression"),
        ({"cron_expression": "61 * * * *"}, "cron_expression"),
        ({"cron_expression": "* * * * * *"}, "cron_expression"),
        ({"timezone": "Europe/Atlantis"}, "timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"interval_s": -5}, "interval_s"),
        ({"interval_s": 0.5}, "interval_s"),
        ({"interval_s": float("nan")}, "interval_s"),
        ({"interval_s": 60, "cron_expression": "* * * * *"}, "cron_expression"),
        ({"run_at": "2025-01-01T00:00:00.000000Z"}, "run_at"),
        ({"run_at": "yesterday"}, "run_at"),
        ({"start_at": later(START, 60), "end_at": later(START, 60)}, "end_at"),
        ({"end_at": START}, "end_at"),
        ({"job_type": "not a name"}, "job_type"),
        ({"queue": "no queue"}, "queue"),
        ({"priority": 101}, "priority"),
        ({"grace_s": -1}, "grace_s"),
        ({"jitter_s": float("inf")}, "jitter_s"),
        ({"catch_up_window_s": -1}, "catch_up_window_s"),
        ({"catch_up": CatchUp.ALL}, "overlap"),
        ({"options": JobOptions(max_attempts=0)}, "options.max_attempts"),
        ({"options": JobOptions(timeout_s=-1)}, "options.timeout_s"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_and_named(world, fields, field):
    outcome = world.tell(put(**fields))
    assert (outcome.code, outcome.facts["field"]) == ("invalid_value", field)
    assert "Nothing was changed" in outcome.message
    assert the(world) is None
    world.do(put())
    if "job_type" not in fields:
        clear = {"interval_s": None} if {"cron_expression", "run_at"} & set(fields) - {"interval_s"} else {}
        assert world.refused(update(**({} if "interval_s" in fields else clear) | fields)) == "invalid_value"


def test_a_name_is_unique_within_its_namespace(world):
    world.do(put("s", "one"))
    outcome = world.tell(put("s", "two"))
    assert (outcome.code, outcome.facts["schedule_id"]) == ("invalid_operation", "one")
    world.do(put("s", "two", namespace="x"))
    world.do(put("other", "three"))
    rename = c.UpdateSchedule(schedule_id="three", changes=ScheduleChanges(name="s"))
    assert world.refused(rename) == "invalid_operation"
    world.do(c.UpdateSchedule(schedule_id="one", changes=ScheduleChanges(name="free")))
    world.do(rename)


def test_a_schedule_sent_again_is_not_made_again(world):
    first = world.do(put())
    length = len(world.groups)
    assert world.do(put()) == first
    assert len(world.groups) == length
    assert world.refused(put("another", "s")) == "id_reused"


def test_a_command_sent_again_gives_its_first_outcome(world):
    world.do(put())
    pause = c.PauseSchedule(schedule_id="s", cmd="p")
    first = world.do(pause)
    world.do(c.ResumeSchedule(schedule_id="s"))
    assert world.do(pause) == first
    assert the(world).enabled


@pytest.mark.parametrize(
    "command",
    [
        update(grace_s=5),
        c.PauseSchedule(schedule_id="s"),
        c.ResumeSchedule(schedule_id="s"),
        c.ResetSchedule(schedule_id="s"),
        c.DeleteSchedule(schedule_id="s"),
        c.Trigger(schedule_id="s", job_id="j"),
        c.Backfill(schedule_id="s", backfill_id="b", since=later(START, -60), until=START),
        c.Fire(schedule_id="s", expected=START),
    ],
)
def test_what_names_no_schedule_is_refused(world, command):
    assert world.refused(command) == "schedule_not_found"


# --- editing ----------------------------------------------------------------------------------------------------------


def test_a_stale_edit_is_refused(world):
    world.do(put())
    assert world.do(update(version=1, grace_s=5)).version == 2
    outcome = world.tell(update(version=1, grace_s=6))
    assert (outcome.code, outcome.facts["version"]) == ("version_conflict", "2")
    assert the(world).grace_s == 5


def test_an_edit_that_changes_nothing_writes_nothing(world):
    world.do(put(grace_s=5))
    length = len(world.groups)
    assert world.do(update(grace_s=5)).version == 1
    assert world.do(put(replace=True, grace_s=5)).version == 1
    assert len(world.groups) == length


def test_an_edit_of_the_expression_counts_from_now(world):
    world.do(put(cron_expression="0 * * * *"))
    world.wait(5400)  # 01:30; 01:00 is overdue
    world.do(update(cron_expression="15 * * * *"))
    assert the(world).next_fire_at == "2026-01-01T02:15:00.000000Z"
    world.do(update(timezone="Asia/Kolkata"))
    assert the(world).next_fire_at == "2026-01-01T01:45:00.000000Z"


def test_an_edit_that_names_the_same_times_leaves_what_is_overdue(world):
    world.do(put(cron_expression="0 * * * *", jitter_s=10))
    world.wait(5400)
    before = the(world)
    world.do(update(cron_expression="0 * * * *", timezone="UTC", jitter_s=10, priority=3))
    after = the(world)
    assert (after.next_fire_at, after.next_trigger_at) == (before.next_fire_at, before.next_trigger_at)
    assert (after.priority, after.version) == (3, 2)


def test_an_edit_of_something_else_leaves_the_next_fire(world):
    world.do(put(jitter_s=10))
    before = the(world)
    world.do(update(queue="slow", param_overrides=RAW(b'{"a":1}')))
    after = the(world)
    assert (after.next_fire_at, after.next_trigger_at) == (before.next_fire_at, before.next_trigger_at)
    world.do(update(param_overrides=RAW(b"{}")))
    assert the(world).param_overrides == RAW(b"null")


def test_a_target_or_a_kind_of_time_is_exchanged_whole(world):
    world.do(put())
    assert world.refused(update(cron_expression="0 * * * *")) == "invalid_value"
    world.do(update(cron_expression="0 * * * *", interval_s=None))
    assert the(world).next_fire_at == later(START, 3600)


def test_declaring_again_edits_what_differs_and_does_not_resume(world):
    world.do(put(queue="slow", source="code"))
    world.do(c.PauseSchedule(schedule_id="s", reason="holiday"))
    world.do(put("s", "never-used", replace=True, interval_s=120, source="code"))
    made = the(world)
    assert (made.interval_s, made.queue, made.enabled, made.pause_reason) == (120, None, False, "holiday")
    assert made.next_fire_at is None
    assert the(world, "never-used") is None


def test_a_schedule_of_code_is_renamed_in_the_code(world):
    world.do(put(source="code"))
    # Renamed here, it would fire beside the one that the next start makes under the old name.
    assert world.refused(update(name="other")) == "invalid_operation"
    world.do(update(queue="slow"))
    world.do(put("mine"))
    world.do(c.UpdateSchedule(schedule_id="mine", changes=ScheduleChanges(name="other")))
    assert the(world, "mine").name == "other"


def test_a_one_off_that_is_over_goes_on_with_a_new_time(world):
    world.do(put(run_at=later(START, 60)))
    world.wait(60)
    world.do(c.Fire(schedule_id="s", expected=later(START, 60)))
    assert (the(world).enabled, the(world).next_fire_at) == (False, None)
    world.do(put(replace=True, run_at=later(START, 600)))
    assert (the(world).enabled, the(world).next_fire_at) == (True, later(START, 600))


# --- pausing ----------------------------------------------------------------------------------------------------------


def test_time_spent_paused_is_not_missed(world):
    world.do(put())
    world.do(c.PauseSchedule(schedule_id="s", reason="holiday"))
    assert (the(world).enabled, the(world).pause_reason, the(world).next_fire_at) == (False, "holiday", None)
    world.wait(3600)
    world.do(c.ResumeSchedule(schedule_id="s"))
    assert (the(world).enabled, the(world).pause_reason) == (True, None)
    assert (the(world).next_fire_at, the(world).missed) == (later(START, 3660), 0)


def test_a_schedule_without_a_fire_left_is_not_resumed(world):
    world.do(put(end_at=later(START, 100)))
    world.do(c.PauseSchedule(schedule_id="s"))
    world.wait(200)
    assert world.refused(c.ResumeSchedule(schedule_id="s")) == "invalid_value"


def test_pausing_twice_and_resuming_twice_write_once(world):
    world.do(put())
    for command in (c.PauseSchedule(schedule_id="s", reason="r"), c.ResumeSchedule(schedule_id="s")):
        world.do(command)
        length = len(world.groups)
        world.do(command)
        assert len(world.groups) == length


# --- planning anew ----------------------------------------------------------------------------------------------------


def test_reset_begins_now_after_a_clock_that_ran_ahead(world):
    world.do(put(cron_expression="0 * * * *"))
    world.wait(86_400 * 365)
    world.do(c.Fire(schedule_id="s", expected=later(START, 3600)))
    assert the(world).next_fire_at[:4] == "2027"
    world.wait(-86_400 * 365)
    world.do(c.ResetSchedule(schedule_id="s"))
    assert (the(world).last_fire_at, the(world).next_fire_at) == (None, later(START, 3600))
    world.wait(3600)
    assert world.do(c.Fire(schedule_id="s", expected=later(START, 3600))).jobs[0].created


def test_reset_mends_an_interval_that_was_made_while_the_clock_ran_ahead(world):
    world.wait(365 * 86_400)
    world.do(put(interval_s=60))
    world.wait(-365 * 86_400 + 10)
    assert passes_over(the(world), world.now) is not None
    world.do(c.ResetSchedule(schedule_id="s"))
    assert the(world).next_fire_at == later(START, 70)
    assert passes_over(the(world), world.now) is None
    world.wait(60)
    assert len(world.do(c.Fire(schedule_id="s", expected=later(START, 70))).jobs) == 1
    assert the(world).next_fire_at == later(START, 130)


def test_reset_of_what_is_right_writes_nothing(world):
    world.do(put())
    length = len(world.groups)
    world.do(c.ResetSchedule(schedule_id="s"))
    assert len(world.groups) == length


def test_a_zone_with_new_rules_moves_the_next_fire_and_says_so(world):
    world.do(put(cron_expression="0 9 * * *", timezone="Europe/Berlin"))
    right = the(world).next_fire_at
    world.tables.put(Schedule, "s", msgspec.structs.replace(the(world), next_fire_at=later(right, 3600)))
    world.do(c.Replan(schedule_id="s", expected=later(right, 3600)))
    assert the(world).next_fire_at == right
    assert the(world).version == 1
    length = len(world.groups)
    world.do(c.Replan(schedule_id="s", expected=right))
    assert len(world.groups) == length


def test_a_schedule_is_removed_and_its_jobs_stay(world):
    world.do(put())
    world.wait(60)
    (made,) = world.do(c.Fire(schedule_id="s", expected=later(START, 60))).jobs
    world.do(c.DeleteSchedule(schedule_id="s"))
    assert the(world) is None
    assert world.job(made.job_id).schedule_id == "s"
    assert world.refused(c.DeleteSchedule(schedule_id="s")) == "schedule_not_found"


def test_a_template_that_is_no_more_or_elsewhere_is_no_target(world):
    world.do(c.PutTemplate(template_id="t", template=NewTemplate(name="t", job_type="t", namespace="x")))
    assert world.refused(put(template_id="nowhere")) == "template_not_found"
    assert world.refused(put(template_id="t")) == "invalid_value"
    world.do(put(template_id="t", namespace="x"))
    world.do(c.ArchiveTemplate(template_id="t"))
    assert the(world).pause_reason == "template t was archived"
    assert world.refused(c.ResumeSchedule(schedule_id="s")) == "invalid_operation"
    assert world.refused(put("other", template_id="t", namespace="x", overlap=Overlap.ALLOW)) == "invalid_operation"

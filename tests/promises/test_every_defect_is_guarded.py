"""Every defect that the design of a job scheduler invites has a test that guards against it, and most guards are tried.

`GUARDS` names, for each of the twenty-one demands, the tests that hold it; they are there by these names. `NAIVE` takes
the right behaviour out of the rules, the way a first draft would have it, and sees the guard go red. What has no such
trial here: 15 and 20, whose guards are the tables of a database and killed processes; 15 is tried below with the
trigger taken away, 20 in tests/crash/test_checks_can_fail.py by every way a log can lose what it said.
"""

import ast
import inspect
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest

from holdfast import Engine, open_store
from holdfast.errors import HoldfastError
from holdfast.model import events as ev
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.groups import GroupStatus, OnFailure
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.outcomes import Done, Reported
from holdfast.model.reservations import ReservationStatus
from holdfast.model.schedules import CatchUp
from holdfast.rules import decide, fold
from holdfast.rules.decision import Decision, answer
from holdfast.rules.groups import effects
from holdfast.rules.groups import fold as groupfold
from holdfast.rules.jobs import complete, edits, leases, limits
from holdfast.rules.jobs.retry import successor
from holdfast.rules.reservations import commands as reservations
from holdfast.rules.reservations import direct
from holdfast.rules.schedules import fire, fire_times, next_fire
from holdfast.rules.schedules.cron import parse_cron
from holdfast.rules.webhooks import deliveries
from holdfast.stores.memory import batch
from holdfast.stores.memory.indexes import queued
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.conformance import Conformance, Harness

ROOT = Path(__file__).parents[2]
SUITE = "src/holdfast/testing/conformance"

#: Number of the demand, what it says, and the tests that hold it.
GUARDS = {
    1: (
        "of many who reserve at once one is ACTIVE, and the losers get the holder's id",
        f"{SUITE}/reservations.py::test_of_many_who_reserve_one_wins_and_the_others_are_told_by_whom",
        f"{SUITE}/reservations.py::test_of_many_openings_that_reserve_one_wins_and_the_others_are_told_by_whom",
        "tests/stores/sqlite/test_sqlite_reservations.py::test_of_processes_that_reserve_at_once_exactly_one_wins_each_time",
    ),
    2: (
        "a reservation that expired an hour ago does not stop dispatch, without restart",
        f"{SUITE}/reservations.py::test_one_that_expired_an_hour_ago_stops_nothing",
    ),
    3: (
        "the second attempt does not start before not_before, nor after reopening; delays are 10, 20, 40",
        f"{SUITE}/retry.py::test_the_second_attempt_does_not_start_before_its_time_nor_after_a_restart",
        f"{SUITE}/retry.py::test_without_jitter_the_delays_are_ten_twenty_and_forty",
    ),
    4: (
        "a group whose first member fails and is retried with success is COMPLETED, in both retry modes",
        f"{SUITE}/groups.py::test_a_member_whose_retry_succeeds_has_not_failed",
    ),
    5: (
        "after completion the job leaves RUNNING, counts drop, three recoveries report zero",
        f"{SUITE}/clocks.py::test_after_completion_nothing_is_left_for_three_recoveries",
    ),
    6: (
        "nothing makes a RUNNING job QUEUED, revives an ended job or changes an ended run",
        f"{SUITE}/reports.py::test_no_question_makes_a_running_job_queued_but_those_that_end_its_execution",
        f"{SUITE}/reports.py::test_nothing_changes_an_ended_run",
        "tests/stores/sqlite/test_sqlite_tables.py::test_raw_sql_cannot_revive_or_rewrite_an_ended_job",
        "tests/stores/sqlite/test_sqlite_tables.py::test_raw_sql_cannot_change_an_ended_run",
    ),
    7: (
        "a second dispatcher process gets nothing while the only place is taken, and the job afterwards",
        f"{SUITE}/limits.py::test_another_dispatcher_gets_nothing_while_the_one_place_is_taken",
        "tests/stores/sqlite/test_sqlite_limits.py::test_a_second_dispatcher_process_gets_nothing_while_the_one_place_is_taken",
    ),
    8: (
        "max_attempts 1 is one execution, 4 are exactly four",
        f"{SUITE}/retry.py::test_one_attempt_is_one_execution_with_no_retry_from_report_or_recovery",
        f"{SUITE}/retry.py::test_four_attempts_are_exactly_four_executions",
    ),
    9: (
        "a direct run that fails, crashes or is killed is not retried, now or after a restart",
        f"{SUITE}/reservations.py::test_it_is_not_tried_again_now_or_after_a_restart",
        "tests/app/test_killed_callers.py::test_a_caller_killed_at_work_is_dead_and_the_queue_goes_on",
    ),
    10: (
        "the same failure reported twice, and by two processes, makes one successor",
        f"{SUITE}/retry.py::test_the_same_failure_reported_twice_makes_one_successor",
        f"{SUITE}/retry.py::test_the_same_failure_reported_by_two_processes_makes_one_successor",
        f"{SUITE}/concurrency.py::test_one_failure_reported_by_many_threads_makes_one_successor",
    ),
    11: (
        "every row of the group table; started_at is set",
        f"{SUITE}/groups.py::test_the_status_follows_from_the_members",
        f"{SUITE}/groups.py::test_a_group_started_with_its_first_lease_and_ends_with_its_last_member",
    ),
    12: (
        "five microseconds decide the order; with equal times the id",
        f"{SUITE}/order.py::test_with_equal_priority_and_position_five_microseconds_decide",
        f"{SUITE}/order.py::test_with_everything_else_equal_the_id_decides",
    ),
    13: (
        "another dispatcher in a tight loop never gets a direct job",
        f"{SUITE}/reservations.py::test_a_dispatcher_in_a_tight_loop_never_gets_one",
        f"{SUITE}/reservations.py::test_it_runs_from_its_first_moment_in_one_commit",
    ),
    14: (
        "where the run cannot be inserted the job is QUEUED without one, and the next claim works",
        f"{SUITE}/atomicity.py::test_a_grant_whose_run_cannot_be_inserted_leaves_the_job_queued",
    ),
    15: (
        "changing job_id or params_snapshot of a run is rejected with an error",
        "tests/stores/sqlite/test_sqlite_tables.py::test_raw_sql_cannot_change_what_a_run_was_made_of",
    ),
    16: (
        "direct that arrives while a job runs: job 1, direct, job 2",
        f"{SUITE}/reservations.py::test_order_is_current_direct_queue",
        "tests/app/test_direct_calls.py::test_it_waits_for_what_runs_and_comes_before_what_waits",
    ),
    17: (
        "a crash at every commit boundary of fail, retry, group, delivery leaves all or nothing",
        f"{SUITE}/atomicity.py::test_no_crash_falls_between_a_failure_and_its_retry",
        f"{SUITE}/atomicity.py::test_a_failure_at_any_point_of_a_commit_leaves_all_of_it_or_nothing",
        f"{SUITE}/groups.py::test_a_crash_at_any_point_of_a_commit_leaves_the_whole_effect_or_nothing",
        f"{SUITE}/webhooks.py::test_a_crash_at_every_point_of_the_store_leaves_all_or_none",
    ),
    18: (
        "a receiver that fails, times out, redirects or dies; the same body and run id; private addresses refused",
        f"{SUITE}/webhooks.py::test_a_try_that_fails_is_repeated_after_5_15_and_45_seconds_and_then_no_more",
        f"{SUITE}/webhooks.py::test_the_body_is_frozen",
        (
            "tests/workers/webhooks/test_webhook_dispatcher.py::"
            "test_a_failure_is_tried_again_when_its_time_has_come_with_the_same_body"
        ),
        "tests/workers/webhooks/test_webhook_send.py::test_a_redirect_is_not_followed",
        "tests/workers/webhooks/test_webhook_send.py::test_a_receiver_that_never_answers_is_given_up",
        "tests/workers/webhooks/test_webhook_send.py::test_a_receiver_that_dies_after_receiving_is_no_success",
        (
            "tests/workers/webhooks/test_webhook_send.py::"
            "test_what_arrives_is_the_body_with_its_headers_and_a_signature_that_another_implementation_accepts"
        ),
        (
            "tests/workers/webhooks/test_webhook_send.py::"
            "test_a_name_that_stands_for_another_address_a_moment_later_leads_nowhere_else"
        ),
        "tests/rules/webhooks/test_addresses.py::test_what_is_no_public_address_is_refused_however_it_is_spelled",
        "tests/crash/test_webhook_killed.py::test_a_delivery_is_resumed_after_kill_nine",
    ),
    19: (
        "the table of summer times; suspend by each policy; a clock set back; schedulers that race a thousand fires",
        "tests/rules/schedules/test_fire_times.py::test_a_schedule_fires_as_the_table_says",
        f"{SUITE}/clocks.py::test_three_days_asleep",
        f"{SUITE}/clocks.py::test_a_clock_set_back_two_hours",
        (
            "tests/workers/test_faked_clock.py::"
            "test_suspend_a_clock_set_back_and_a_year_forward_make_the_jobs_of_the_policy"
        ),
        "tests/stores/sqlite/test_sqlite_schedules.py::test_two_schedulers_that_race_a_thousand_fires_make_one_job_each",
    ),
    20: (
        "kill -9 of one of four workers: everything completes, no token is used twice, explain has a reason",
        (
            "tests/crash/test_four_workers.py::"
            "test_workers_killed_again_and_again_lose_no_job_and_repeat_only_what_a_lost_run_explains"
        ),
    ),
    21: (
        "priority 1, 10, 5, 5, 10 gives the order 2, 5, 3, 4, 1, ten times, and after reopening",
        f"{SUITE}/order.py::test_higher_priority_first_then_first_come_ten_times",
        f"{SUITE}/order.py::test_the_order_is_the_same_after_reopening",
    ),
}


def test_every_demand_has_its_guards():
    assert sorted(GUARDS) == list(range(1, 22))


@pytest.mark.parametrize("guard", [guard for _, *guards in GUARDS.values() for guard in guards])
def test_every_guard_is_there(guard):
    file, _, name = guard.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


# --- guards that are tried --------------------------------------------------------------------------------------------


class Memory(Conformance):
    """The suite on `memory:`, one check at a time."""

    def open(self, path):
        del path
        return MemoryStore(clock=self.clock)


def examine(check, place, monkeypatch, *given):
    """Run one check of the suite."""
    topic = Memory()
    topic.clock = ManualClock()
    found = getattr(topic, check)
    with monkeypatch.context() as own:
        wanted = {"monkeypatch": own} if "monkeypatch" in inspect.signature(found).parameters else {}
        found(Harness(topic.open, place, topic.clock), *given, **wanted)


def only_first(self, events, now):
    """Tear a commit: of several events only the first is kept."""
    return ADD(self, events[:1], now)


ADD = batch.BatchTables.add
START_DIRECT = direct.decide_start_direct
COMPLETED = fold._FOLDS[ev.JobCompleted]


def without_lease(*args):
    """Start a direct job as an ordinary one: made first, leased by whoever comes."""
    decision = START_DIRECT(*args)
    return Decision(tuple(one for one in decision.events if not isinstance(one, ev.LeaseGranted)), decision.outcome)


def run_only(state, event, stamp):
    """End the run and forget the job."""
    return [change for change in COMPLETED(state, event, stamp) if change.kind is Run]


def update_requeues(state, command):
    """Let an edit of a running job put it back into its queue."""
    job = state.get(Job, command.job_id)
    if job is not None and job.status is JobStatus.RUNNING:
        return answer(Done(), ev.LeaseReleased(job_id=job.job_id, token=job.token, begun=True, to=JobStatus.QUEUED))
    return edits.decide_move(state, command)


def retries_whatever_came_before(state, job, report):
    """Make a retry for every failure that is reported."""
    heir = successor(job, f"{job.job_id}-again-{len(state.successors(job.job_id))}", job.created_at, position=100)
    return answer(Reported(job_status=job.status, successor=heir.job_id), ev.JobCreated(job=heir, cmd=report.cmd))


def status_by_failures(group):
    """Judge a group by whether anything in it failed."""
    if group.failed:
        return GroupStatus.FAILED
    return GroupStatus.COMPLETED if group.completed == group.members else GroupStatus.RUNNING


def counted_at_once(event):
    """Count a member as failed before its retry."""
    return JobStatus.FAILED if isinstance(event, ev.JobFailed) else groupfold._TO.get(type(event))


def every_fire(schedule, now):
    """Make up for everything that was missed, whatever the policy."""
    if schedule.next_fire_at is None or schedule.next_fire_at > now:
        return None
    later = [at for at in next_fire.preview(schedule, schedule.next_fire_at, 200) if at.fire_at <= now]
    times = (schedule.next_fire_at, *(at.fire_at for at in later))
    return next_fire.Round(times, 0, times[-1])


PLACE = queued.place
#: Demand → check, what it is given, and how the right behaviour is taken out.
NAIVE = {
    "1: whoever asks holds the queue": (
        "test_the_loser_learns_holder_id_and_expiry",
        (),
        [(reservations, "holds", lambda _reservation, _now: False)],
    ),
    "2: a reservation holds until it is released": (
        "test_one_that_expired_an_hour_ago_stops_nothing",
        (),
        [
            (reservations, "holds", lambda reservation, _now: reservation.status is ReservationStatus.ACTIVE),
            (leases, "lapsed_in_the_way", lambda *_args: ()),
        ],
    ),
    "3: a retry is due at once": (
        "test_the_second_attempt_does_not_start_before_its_time_nor_after_a_restart",
        ("requeue",),
        [(complete, "delay_s", lambda *_args: 0)],
    ),
    "3: the delay is always the same": (
        "test_without_jitter_the_delays_are_ten_twenty_and_forty",
        ("requeue",),
        [(complete, "delay_s", lambda backoff, *_args: backoff.base_s)],
    ),
    "4: a failure counts before its retry": (
        "test_a_member_whose_retry_succeeds_has_not_failed",
        ("requeue",),
        [(groupfold, "counted_as", counted_at_once), (effects, "counted_as", counted_at_once)],
    ),
    "5: only the run ends": (
        "test_after_completion_nothing_is_left_for_three_recoveries",
        (),
        [(fold._FOLDS, ev.JobCompleted, run_only)],
    ),
    "6: an edit puts a running job back": (
        "test_no_question_makes_a_running_job_queued_but_those_that_end_its_execution",
        (),
        [(edits, "decide_update", update_requeues)],
    ),
    "7: places are not counted": (
        "test_another_dispatcher_gets_nothing_while_the_one_place_is_taken",
        (),
        [(limits, "_capacity", lambda *_args: None)],
    ),
    "8: attempts are counted from nothing": (
        "test_four_attempts_are_exactly_four_executions",
        ("requeue",),
        [(complete, "is_last_attempt", lambda job: job.attempts >= job.max_attempts)],
    ),
    "9: a direct run is retried": (
        "test_it_is_not_tried_again_now_or_after_a_restart",
        ("fails",),
        [(complete, "is_last_attempt", lambda _job: False)],
    ),
    "10: every report makes a retry": (
        "test_the_same_failure_reported_twice_makes_one_successor",
        (),
        [(complete, "_late", retries_whatever_came_before)],
    ),
    "11: cancelled and completed is completed": (
        "test_the_status_follows_from_the_members",
        ("completed cancelled", OnFailure.CONTINUE, GroupStatus.PARTIAL),
        [(groupfold, "status_of", status_by_failures), (effects, "status_of", status_by_failures)],
    ),
    "12: times are kept in seconds": (
        "test_with_equal_priority_and_position_five_microseconds_decide",
        (),
        [(queued, "place", lambda job: (*PLACE(job)[:2], job.created_at[:19], job.job_id))],
    ),
    "13: a direct job is made first and leased then": (
        "test_it_runs_from_its_first_moment_in_one_commit",
        (),
        [(decide, "decide_start_direct", without_lease)],
    ),
    "14: a command that broke is not taken back": (
        "test_a_grant_whose_run_cannot_be_inserted_leaves_the_job_queued",
        (),
        [(batch.BatchTables, "_undo_to", lambda _self, _mark: None), (batch.BatchTables, "undo", lambda _self: None)],
    ),
    "16: dispatch minds no reservation": (
        "test_order_is_current_direct_queue",
        (),
        [(limits, "reserved_by", lambda *_args: None)],
    ),
    "17: a failure and its retry are two commits": (
        "test_no_crash_falls_between_a_failure_and_its_retry",
        (),
        [(batch.BatchTables, "add", only_first)],
    ),
    "18: tried again at once": (
        "test_a_try_that_fails_is_repeated_after_5_15_and_45_seconds_and_then_no_more",
        (500, None),
        [(deliveries, "WAITS_S", (0.0, 0.0, 0.0))],
    ),
    "19: every missed fire is made up for": (
        "test_three_days_of_suspend",
        (CatchUp.LATEST, 1, 71),
        [(fire, "due", every_fire)],
    ),
    "21: first come, first served": (
        "test_higher_priority_first_then_first_come_ten_times",
        (),
        [(queued, "place", lambda job: (0, *PLACE(job)[1:]))],
    ),
}
#: What a check that goes red may raise: its own word, a refusal it did not expect, or one value too many or too few.
RED = (AssertionError, HoldfastError, LookupError, ValueError)


@pytest.mark.parametrize("name", NAIVE)
def test_a_guard_is_green_as_it_is_and_red_with_the_naive_behaviour(name, tmp_path, monkeypatch):
    check, given, changes = NAIVE[name]
    examine(check, tmp_path, monkeypatch, *given)
    with monkeypatch.context() as naive:
        for place, attribute, instead in changes:
            if isinstance(place, dict):
                naive.setitem(place, attribute, instead)
            else:
                naive.setattr(place, attribute, instead)
        with pytest.raises(RED):
            examine(check, tmp_path, monkeypatch, *given)


@pytest.mark.parametrize("guard", ["_is_second", "_fits_between"])
def test_a_summer_time_that_is_not_minded_is_found_by_the_table(guard, monkeypatch):
    """19: without the one a time that occurs twice fires twice, without the other one that is left out is lost."""
    golden = json.loads((ROOT / "tests/golden/cron/fires.json").read_text())

    def wrong():
        return [row for row in golden if found_for(row) != row["fires"]]

    assert wrong() == []
    monkeypatch.setattr(fire_times, guard, lambda *_args: False)
    assert len(wrong()) > 5


def found_for(row):
    """Give the fires of a row of the table."""
    after, before = (datetime.fromisoformat(row[end]).replace(tzinfo=UTC) for end in ("after", "before"))
    found = fire_times.fires_after(parse_cron(row["cron"]), fire_times.parse_zone(row["zone"]), after)
    return [f"{at:%Y-%m-%dT%H:%M}" for at in takewhile(lambda at: at < before, found)]


def test_without_its_trigger_a_table_would_let_a_run_be_rewritten(tmp_path):
    """15: what refuses is the database itself, and nothing before it."""
    engine = Engine(open_store(f"sqlite:{tmp_path / 'jobs'}"))
    engine.ask(Enqueue(jobs=(NewJob(job_id="a", job_type="t", params=msgspec.Raw(b"{}")),)))
    (grant,) = engine.ask(Lease(worker_id="w")).grants
    engine.ask(Complete(job_id="a", token=grant.token))
    engine.close()
    with closing(sqlite3.connect(tmp_path / "jobs")) as db:
        change = "UPDATE job_runs SET params_snapshot = '{\"a\":2}'"
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(change)
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f'DROP TRIGGER "{trigger}"')
        assert db.execute(change).rowcount == 1

"""Schedules and templates: one job for each nominal time, whoever asks, whatever the clock does. Scheduler §11, §12."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.engine.maintenance import next_wake
from holdfast.engine.schedule_rounds import fire_due, replan
from holdfast.errors import IdReused, InvalidOperation, InvalidValue, PayloadTooLarge, ScheduleNotFound, VersionConflict
from holdfast.model.commands import (
    ArchiveTemplate,
    Backfill,
    Command,
    DeleteSchedule,
    DeleteTemplate,
    Fire,
    PauseSchedule,
    PutSchedule,
    PutTemplate,
    ResetSchedule,
    ResumeSchedule,
    Retry,
    Trigger,
    UpdateSchedule,
    UseTemplate,
)
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job, JobStatus, RetryMode, RunStatus
from holdfast.model.outcomes import Backfilled, Enqueued, Fired, Saved
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, NewTemplate, Template
from holdfast.model.times import FIRST, later
from holdfast.rules.explain import explain
from holdfast.rules.schedules.overlaps import fire_id
from holdfast.testing.conformance.harness import BEGINNING, Harness, Topic
from holdfast.testing.conformance.marks import counts_writes

DAY = 86_400


def raw(value: Any) -> msgspec.Raw:
    """Write plain values as a payload."""
    return msgspec.Raw(msgspec.json.encode(value))


def put(name: str = "s", *, replace: bool = False, **fields: Any) -> PutSchedule:
    """Ask for a schedule of a task, hourly unless told otherwise."""
    if "template_id" not in fields:
        fields.setdefault("job_type", "work")
    if not {"cron_expression", "run_at", "interval_s"} & set(fields):
        fields["cron_expression"] = "0 * * * *"
    return PutSchedule(schedule_id=name, schedule=NewSchedule(name=name, **fields), replace=replace)


def schedule(harness: Harness, schedule_id: str = "s") -> Schedule:
    """Read a schedule."""
    with harness.engine.read() as view:
        found = view.get(Schedule, schedule_id)
    assert found is not None
    return found


def fires(harness: Harness, schedule_id: str = "s") -> list[str]:
    """Give the nominal times that have a job, in order."""
    with harness.engine.read() as view:
        return sorted(
            job.fire_at for job in view.all(Job) if job.schedule_id == schedule_id and job.fire_at is not None
        )


def made(seconds: float, schedule_id: str = "s") -> str:
    """Give the id of the job of a nominal time, in seconds from the beginning."""
    return fire_id(schedule_id, later(BEGINNING, seconds))


class Fires(Topic):
    """By the timetable."""

    @counts_writes
    def test_each_nominal_time_makes_one_job(self, harness: Harness) -> None:
        harness.ask(put(job_type="mail", param_overrides=raw({"to": "x"}), queue="slow", priority=7))
        assert next_wake(harness.engine) == harness.after(3600)
        harness.advance(3599.999999)
        with harness.unchanged():
            assert harness.tick().fired == 0
        harness.advance(0.000001)
        seq = harness.seq
        assert harness.tick().fired == 1
        assert harness.kinds(seq) == ["schedule:fired", "job:created"]
        with harness.unchanged():
            assert harness.tick().fired == 0
        job = harness.job(made(3600))
        assert (job.job_type, job.queue, job.priority, bytes(job.params)) == ("mail", "slow", 7, b'{"to":"x"}')
        assert (job.schedule_id, job.fire_at, job.backfill_id, job.overlap) == ("s", harness.after(3600), "", "skip")
        found = schedule(harness)
        assert (found.last_fire_at, found.last_triggered_at, found.fires) == (job.fire_at, harness.now, 1)
        assert next_wake(harness.engine) == found.next_trigger_at == harness.after(7200)

    def test_a_schedule_survives_a_restart_with_all_it_says(self, harness: Harness) -> None:
        options = JobOptions(max_attempts=2, timeout_s=5, retry_mode=RetryMode.CHAIN, backoff=Backoff(jitter=0))
        harness.ask(
            put(
                interval_s=90,
                timezone="Europe/Berlin",
                param_overrides=raw({"a": [1, None]}),
                options=options,
                catch_up=CatchUp.ALL,
                catch_up_window_s=7200,
                grace_s=5,
                overlap=Overlap.QUEUE,
                jitter_s=10,
                start_at=harness.after(60),
                end_at=harness.after(DAY),
                source="code",
            )
        )
        harness.ask(put("other", run_at=harness.after(60), overlap=Overlap.ALLOW))
        harness.ask(PauseSchedule(schedule_id="other", reason="why not"))
        before = [schedule(harness), schedule(harness, "other")]
        harness.restart()
        assert [schedule(harness), schedule(harness, "other")] == before
        harness.authority.store.snapshot()
        harness.restart()
        assert [schedule(harness), schedule(harness, "other")] == before
        harness.advance(70)
        harness.tick()
        job = harness.job(made(60))
        assert (job.max_attempts, job.timeout_s, job.retry_mode, job.backoff.jitter) == (2, 5, RetryMode.CHAIN, 0)

    def test_a_fire_that_somebody_else_did_gives_their_job(self, harness: Harness) -> None:
        harness.ask(put())
        harness.advance(3600)
        fire = Fire(schedule_id="s", expected=harness.after(3600))
        first, second = harness.engine.submit_many([fire, fire])
        assert isinstance(first, Fired)
        assert isinstance(second, Fired)
        assert [(job.job_id, job.created) for job in first.jobs + second.jobs] == [
            (made(3600), True),
            (made(3600), False),
        ]
        with harness.unchanged():
            harness.ask(fire)
            harness.ask(Fire(schedule_id="s", expected=harness.after(7200)))
        harness.refused(ScheduleNotFound, Fire(schedule_id="gone", expected=harness.after(0)), schedule_id="gone")

    def test_schedulers_that_race_make_one_job_for_each_fire(self, harness: Harness) -> None:
        many = harness.authority.store.promises.many_processes
        engines = [harness.authority, *(harness.neighbour() if many else harness.authority for _ in range(2))]
        for number in range(40):
            harness.ask(put(f"s{number:02}", overlap=Overlap.ALLOW, catch_up=CatchUp.ALL))
        harness.advance(5 * 3600)
        gate = threading.Barrier(len(engines))

        def tick(number: int) -> int:
            gate.wait()
            return fire_due(engines[number])[0]

        with ThreadPoolExecutor(len(engines)) as pool:
            counts = list(pool.map(tick, range(len(engines))))
        while (rest := fire_due(harness.authority)[0]) > 0:  # whoever met only others' work has left
            counts.append(rest)
        assert sum(counts) == 200
        for number in range(40):
            assert fires(harness, f"s{number:02}") == [harness.after(3600 * n) for n in range(1, 6)]

    def test_jitter_is_drawn_once_and_kept(self, harness: Harness) -> None:
        harness.ask(put(jitter_s=600))
        planned = schedule(harness)
        assert planned.next_fire_at == harness.after(3600)
        assert planned.next_trigger_at is not None
        assert harness.after(3600) < planned.next_trigger_at <= harness.after(4200)
        harness.restart()
        assert schedule(harness) == planned
        harness.advance(3600)
        assert harness.tick().fired == 0
        harness.advance(600)
        assert harness.tick().fired == 1
        assert fires(harness) == [harness.after(3600)]

    def test_fires_lie_between_start_and_end(self, harness: Harness) -> None:
        harness.ask(put(start_at=harness.after(7200), end_at=harness.after(4 * 3600)))
        for _ in range(6):
            harness.advance(3600)
            harness.tick()
        assert fires(harness) == [harness.after(7200), harness.after(3 * 3600)]
        found = schedule(harness)
        assert (found.enabled, found.next_fire_at, found.missed) == (True, None, 0)
        assert next_wake(harness.engine) is None

    def test_a_one_off_fires_once_and_is_disabled(self, harness: Harness) -> None:
        harness.ask(put(run_at=harness.after(90)))
        harness.advance(90)
        assert harness.tick().fired == 1
        assert (schedule(harness).enabled, schedule(harness).next_fire_at) == (False, None)
        harness.advance(DAY)
        assert harness.tick().fired == 0

    @pytest.mark.parametrize("catch_up", list(CatchUp))
    def test_a_one_off_that_nobody_was_there_for(self, harness: Harness, catch_up: CatchUp) -> None:
        harness.ask(put(run_at=harness.after(90), catch_up=catch_up, overlap=Overlap.QUEUE))
        harness.advance(7200)
        harness.tick()
        found = schedule(harness)
        assert (found.fires, found.missed) == ((0, 1) if catch_up is CatchUp.NONE else (1, 0))
        assert not found.enabled

    def test_a_task_that_nobody_knows_does_not_stop_its_schedule(self, harness: Harness) -> None:
        harness.ask(put(job_type="removed.task"))
        harness.advance(3600)
        harness.tick()
        job = harness.job(made(3600))
        with harness.engine.read() as view:
            assert explain(view, job, harness.now, served=lambda *_: False).code == "no_worker"

    def test_a_zone_whose_rules_changed_is_corrected_at_start(self, harness: Harness) -> None:
        harness.ask(put(cron_expression="0 9 * * *", timezone="Europe/Berlin"))
        with harness.unchanged():
            assert replan(harness.authority) == 0
        right = schedule(harness).next_fire_at
        assert right == "2026-01-01T08:00:00.000000Z"


class Late(Topic):
    """Outages, suspends, and clocks that step."""

    @pytest.mark.parametrize(
        ("catch_up", "expected", "missed"),
        [(CatchUp.NONE, 0, 72), (CatchUp.LATEST, 1, 71), (CatchUp.ALL, 24, 48)],
    )
    def test_three_days_of_suspend(self, harness: Harness, catch_up: CatchUp, expected: int, missed: int) -> None:
        harness.ask(put(catch_up=catch_up, overlap=Overlap.QUEUE))
        harness.clock.set_wall(harness.clock.now() + timedelta(days=3, minutes=30))
        round_ = harness.tick()
        assert (round_.fired, round_.missed) == (expected, missed)
        times = [harness.after(3600 * n) for n in range(73 - expected, 73)]
        assert fires(harness) == times
        assert (schedule(harness).fires, schedule(harness).missed) == (expected, missed)
        assert schedule(harness).next_fire_at == harness.after(73 * 3600)
        with harness.unchanged():
            assert harness.tick().fired == 0

    def test_a_wake_up_is_no_burst_even_where_each_fire_would_be_on_time(self, harness: Harness) -> None:
        harness.ask(put(interval_s=1, overlap=Overlap.ALLOW))
        harness.clock.set_wall(harness.clock.now() + timedelta(days=3))
        round_ = harness.tick()
        assert (round_.fired, round_.missed) == (1, 3 * DAY - 1)
        assert fires(harness) == [harness.after(3 * DAY)]

    def test_a_little_late_is_on_time_whatever_the_policy(self, harness: Harness) -> None:
        harness.ask(put(catch_up=CatchUp.NONE))
        harness.advance(3660)
        assert harness.tick().fired == 1
        harness.advance(3600.000001)
        assert (harness.tick().fired, schedule(harness).missed) == (0, 1)

    def test_what_is_made_up_for_comes_in_portions_and_in_order(self, harness: Harness) -> None:
        harness.ask(put(interval_s=60, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW))
        harness.advance(250 * 60 + 30)
        seq = harness.seq
        assert harness.tick().fired == 250
        assert harness.kinds(seq).count("schedule:fired") == 250
        assert fires(harness) == [harness.after(60 * n) for n in range(1, 251)]
        assert [harness.job(job_id).fire_at for job_id in harness.waiting()] == fires(harness)

    def test_time_spent_paused_is_not_missed(self, harness: Harness) -> None:
        harness.ask(put(catch_up=CatchUp.ALL, overlap=Overlap.ALLOW))
        harness.ask(PauseSchedule(schedule_id="s", reason="holiday"))
        assert next_wake(harness.engine) is None
        harness.advance(DAY)
        assert harness.tick().fired == 0
        harness.ask(ResumeSchedule(schedule_id="s"))
        assert (harness.tick().fired, schedule(harness).missed) == (0, 0)
        harness.advance(3600)
        assert harness.tick().fired == 1

    @pytest.mark.parametrize("hours", [1, 2])
    def test_a_clock_set_back_fires_nothing_twice(self, harness: Harness, hours: int) -> None:
        harness.ask(put(overlap=Overlap.ALLOW))
        for _ in range(3):
            harness.advance(3600)
            harness.tick()
        harness.clock.set_wall(harness.clock.now() - timedelta(hours=hours))
        for _ in range(4 * hours):
            harness.advance(900)
            harness.tick()
        assert fires(harness) == [harness.after(3600 * n) for n in range(1, 4)]
        harness.advance(3600)
        harness.tick()
        assert fires(harness)[-1] == harness.after(4 * 3600)
        assert schedule(harness).missed == 0

    def test_a_clock_set_forward_a_year_and_back(self, harness: Harness) -> None:
        harness.ask(put(overlap=Overlap.ALLOW))
        harness.clock.set_wall(harness.clock.now() + timedelta(days=365))
        assert harness.tick().fired == 1
        harness.clock.set_wall(harness.clock.now() - timedelta(days=365))
        harness.advance(3600)
        assert harness.tick().fired == 0
        assert schedule(harness).last_fire_at == harness.after(365 * DAY)
        harness.ask(ResetSchedule(schedule_id="s"))
        assert (schedule(harness).last_fire_at, schedule(harness).next_fire_at) == (None, harness.after(7200))
        harness.advance(3600)
        assert harness.tick().fired == 1


class Overlaps(Topic):
    """A fire while a job of the schedule is not over."""

    def test_skip_makes_the_job_and_skips_it_in_one_commit(self, harness: Harness) -> None:
        harness.ask(put())
        harness.advance(3600)
        harness.tick()
        first = made(3600)
        harness.advance(3600)
        seq = harness.seq
        harness.tick()
        assert harness.kinds(seq) == ["schedule:fired", "job:created", "job:skipped"]
        job = harness.job(made(7200))
        (run,) = harness.runs(job.job_id)
        assert (job.status, run.status, run.reason, run.token) == (
            JobStatus.CANCELLED,
            RunStatus.SKIPPED,
            "overlap",
            None,
        )
        assert first in (run.error or "")
        assert first in (job.cancel_reason or "")
        harness.complete(harness.take())
        harness.advance(3600)
        harness.tick()
        assert harness.status(made(3 * 3600)) is JobStatus.QUEUED

    def test_skip_counts_retries_that_wait(self, harness: Harness) -> None:
        harness.ask(put(options=JobOptions(retry_mode=RetryMode.CHAIN, backoff=Backoff(base_s=9000, cap_s=9000))))
        harness.advance(3600)
        harness.tick()
        harness.fail(harness.take())
        (heir,) = harness.heirs(made(3600))
        harness.advance(3600)
        harness.tick()
        assert heir.job_id in (harness.job(made(7200)).cancel_reason or "")

    def test_queue_holds_a_job_until_no_other_of_its_schedule_runs(self, harness: Harness) -> None:
        harness.ask(put(overlap=Overlap.QUEUE))
        harness.ask(put("other", overlap=Overlap.QUEUE))
        for _ in range(2):
            harness.advance(3600)
            harness.tick()
        grants = harness.lease(9)
        assert [grant.job.job_id for grant in grants] == [made(3600, name) for name in ("other", "s")] or [
            grant.job.job_id for grant in grants
        ] == [made(3600, name) for name in ("s", "other")]
        held = harness.job(made(7200))
        with harness.engine.read() as view:
            reason = explain(view, held, harness.now)
        assert (reason.code, reason.holder) == ("overlap_wait", made(3600))
        with harness.unchanged():
            assert harness.order() == []
        harness.enqueue("behind")
        assert harness.order() == ["behind"]
        for grant in grants:
            if grant.job.schedule_id == "s":
                harness.complete(grant)
        assert harness.order() == [held.job_id]

    def test_allow_lets_them_run_side_by_side(self, harness: Harness) -> None:
        harness.ask(put(overlap=Overlap.ALLOW))
        for _ in range(3):
            harness.advance(3600)
            harness.tick()
        assert len(harness.order()) == 3

    def test_a_retry_by_hand_is_a_job_of_the_schedule(self, harness: Harness) -> None:
        harness.ask(put())
        harness.advance(3600)
        harness.tick()
        harness.fail(harness.take(), fatal=True)
        harness.ask(Retry(job_id=JobId(made(3600)), new_job_id=JobId("again")))
        again = harness.job("again")
        assert (again.schedule_id, again.fire_at) == ("s", harness.after(3600))
        harness.advance(3600)
        harness.tick()
        assert "again" in (harness.job(made(7200)).cancel_reason or "")


class Wishes(Topic):
    """What people do with schedules."""

    def test_trigger_makes_a_job_now_and_leaves_the_timetable(self, harness: Harness) -> None:
        harness.ask(put(param_overrides=raw({"a": 1, "b": {"c": 2}})))
        before = schedule(harness)
        trigger = Trigger(schedule_id="s", job_id=JobId("now"), params=raw({"b": None}))
        for created in (True, False):
            outcome = harness.ask(trigger)
            assert isinstance(outcome, Enqueued)
            assert [job.created for job in outcome.jobs] == [created]
        job = harness.job("now")
        assert (job.fire_at, job.schedule_id, msgspec.json.decode(job.params)) == (None, "s", {"a": 1, "b": None})
        assert schedule(harness) == before
        # Nobody who asks for it wants it skipped.
        harness.ask(Trigger(schedule_id="s", job_id=JobId("too")))
        assert harness.status("too") is JobStatus.QUEUED
        harness.enqueue("foreign")
        harness.refused(IdReused, Trigger(schedule_id="s", job_id=JobId("foreign")), job_id="foreign")

    def test_backfill_makes_the_jobs_of_past_times_once(self, harness: Harness) -> None:
        harness.ask(put())
        harness.advance(30 * 60)
        before = schedule(harness)
        command = Backfill(
            schedule_id="s", backfill_id="b1", since=later(BEGINNING, -DAY), until=harness.after(0), limit=10
        )
        counts: list[int] = []
        while True:
            outcome = harness.ask(command)
            assert isinstance(outcome, Backfilled)
            counts.append(outcome.count)
            if outcome.next_since is None:
                break
            command = msgspec.structs.replace(command, since=outcome.next_since)
        assert counts == [10, 10, 4]
        assert fires(harness) == [later(BEGINNING, 3600 * n) for n in range(-24, 0)]
        assert [harness.job(job_id).fire_at for job_id in harness.waiting()] == fires(harness)
        assert schedule(harness) == before
        with harness.unchanged():
            harness.ask(command)
        other = harness.ask(msgspec.structs.replace(command, backfill_id="b2", limit=500))
        assert isinstance(other, Backfilled)
        assert other.count == 4
        # They take turns, although the schedule would skip.
        assert len(harness.order()) == 1

    @pytest.mark.parametrize(
        ("since", "until"),
        [(-60, 60), (0, 0), (-3600, -7200), (-20_000 * 60, -60)],
        ids=["future", "empty", "backwards", "too many"],
    )
    def test_a_backfill_that_makes_no_sense_is_refused(self, harness: Harness, since: int, until: int) -> None:
        harness.ask(put(cron_expression="* * * * *"))
        start, end = later(BEGINNING, since), later(BEGINNING, until)
        command = Backfill(schedule_id="s", backfill_id="b", since=start, until=end)
        harness.refused(InvalidValue, command, field="until")

    def test_a_stale_edit_is_refused_and_a_fresh_one_counts_from_now(self, harness: Harness) -> None:
        harness.ask(put())
        harness.advance(90 * 60)
        edit = UpdateSchedule(schedule_id="s", changes=ScheduleChanges(cron_expression="45 * * * *"), version=1)
        assert harness.ask(edit) == Saved(id="s", version=2)
        assert schedule(harness).next_fire_at == harness.after(105 * 60)
        harness.refused(VersionConflict, edit, version="2")

    def test_an_edit_touches_no_job_that_was_made(self, harness: Harness) -> None:
        harness.ask(put(param_overrides=raw({"a": 1}), overlap=Overlap.QUEUE))
        harness.advance(3600)
        harness.tick()
        before = harness.job(made(3600))
        changes = ScheduleChanges(
            job_type="other", param_overrides=raw({"a": 2}), queue="q", overlap=Overlap.ALLOW, priority=9
        )
        harness.ask(UpdateSchedule(schedule_id="s", changes=changes))
        assert harness.job(made(3600)) == before
        harness.ask(DeleteSchedule(schedule_id="s"))
        assert harness.job(made(3600)) == before

    def test_names_are_unique_and_found(self, harness: Harness) -> None:
        harness.ask(put("a"))
        twin = msgspec.structs.replace(put("a"), schedule_id="b")
        harness.refused(InvalidOperation, twin, schedule_id="a")
        other = msgspec.structs.replace(put("a", namespace="x"), schedule_id="b")
        harness.ask(other)
        with harness.engine.read() as view:
            assert [_id(view.by_name(Schedule, space, "a")) for space in ("", "x", "y")] == ["a", "b", None]
        rename: list[Command] = [
            UpdateSchedule(schedule_id="a", changes=ScheduleChanges(name="c")),
            put("a2", job_type="t"),
            UpdateSchedule(schedule_id="a2", changes=ScheduleChanges(name="a")),
            UpdateSchedule(schedule_id="a", changes=ScheduleChanges(name="a2")),
        ]
        outcomes = harness.engine.submit_many(rename)
        assert all(isinstance(outcome, Saved) for outcome in outcomes), outcomes
        harness.restart()
        with harness.engine.read() as view:
            assert [_id(view.by_name(Schedule, "", name)) for name in ("a", "a2", "c")] == ["a2", "a", None]

    def test_deleting_and_making_again_in_one_batch(self, harness: Harness) -> None:
        harness.ask(put("a"))
        again = msgspec.structs.replace(put("a", interval_s=60), schedule_id="a-2")
        first, second, third = harness.engine.submit_many([DeleteSchedule(schedule_id="a"), again, put("b")])
        assert isinstance(second, Saved)
        assert isinstance(third, Saved)
        del first
        harness.advance(60)
        assert harness.tick().fired == 1

    @pytest.mark.parametrize(
        "command",
        [
            put(cron_expression="0 0 30 2 *"),
            put(timezone="Mars/Olympus"),
            put(interval_s=-1),
            put(run_at=FIRST),
            put(catch_up=CatchUp.ALL),
            put(job_type="no name"),
            put(param_overrides=msgspec.Raw(b"[1]")),
            put(param_overrides=msgspec.Raw(b'{"$blob":"x"}')),
            put(grace_s="soon"),
            put(overlap="skip"),
        ],
    )
    def test_bad_input_is_refused_before_anything_changed(self, harness: Harness, command: Command) -> None:
        harness.refused(InvalidValue, command)

    def test_parameters_too_large_to_be_joined_are_refused(self, harness: Harness) -> None:
        large = raw({"pad": "x" * 20_000})
        harness.refused(PayloadTooLarge, put(param_overrides=large), field="param_overrides")
        harness.ask(put())
        harness.refused(PayloadTooLarge, Trigger(schedule_id="s", job_id=JobId("j"), params=raw({"pad": "x" * 40_000})))


def _id(found: Schedule | None) -> str | None:
    return None if found is None else found.schedule_id


def template(name: str = "t", *, replace: bool = False, version: int | None = None, **fields: Any) -> PutTemplate:
    """Ask for a template."""
    fields.setdefault("job_type", "work")
    content = NewTemplate(name=name, **fields)
    return PutTemplate(template_id=name, template=content, replace=replace, version=version)


class Templates(Topic):
    """A task with parameters and options, used again and again."""

    def test_parameters_are_laid_over_each_other_by_name(self, harness: Harness) -> None:
        options = JobOptions(queue="slow", priority=3, max_attempts=2)
        harness.ask(template(default_params=raw({"a": 1, "b": {"x": 1}, "c": 3}), options=options))
        harness.ask(UseTemplate(template_id="t", job_id=JobId("j"), params=raw({"b": {"y": 2}, "c": None})))
        job = harness.job("j")
        assert msgspec.json.decode(job.params) == {"a": 1, "b": {"y": 2}, "c": None}
        assert (job.template_id, job.queue, job.priority, job.max_attempts) == ("t", "slow", 3, 2)
        harness.ask(put(template_id="t", param_overrides=raw({"a": 2}), priority=9))
        harness.advance(3600)
        harness.tick()
        fired = harness.job(made(3600))
        assert msgspec.json.decode(fired.params) == {"a": 2, "b": {"x": 1}, "c": 3}
        assert (fired.template_id, fired.queue, fired.priority) == ("t", "slow", 9)

    def test_an_edit_touches_no_job_and_a_stale_one_nothing(self, harness: Harness) -> None:
        harness.ask(template(default_params=raw({"a": 1})))
        harness.ask(UseTemplate(template_id="t", job_id=JobId("j")))
        before = harness.job("j")
        edit = template(default_params=raw({"a": 2}), replace=True, version=1)
        assert harness.ask(edit) == Saved(id="t", version=2)
        assert harness.job("j") == before
        harness.refused(VersionConflict, template(job_type="x", replace=True, version=1), version="2")
        harness.restart()
        harness.ask(UseTemplate(template_id="t", job_id=JobId("k")))
        assert msgspec.json.decode(harness.job("k").params) == {"a": 2}

    def test_archiving_stops_new_jobs_and_pauses_schedules(self, harness: Harness) -> None:
        harness.ask(template())
        harness.ask(put("a", template_id="t"))
        harness.ask(put("b"))
        harness.refused(InvalidOperation, DeleteTemplate(template_id="t"), schedule_id="a")
        harness.ask(ArchiveTemplate(template_id="t"))
        assert (schedule(harness, "a").enabled, schedule(harness, "b").enabled) == (False, True)
        assert "archived" in (schedule(harness, "a").pause_reason or "")
        harness.refused(InvalidOperation, UseTemplate(template_id="t", job_id=JobId("j")))
        harness.refused(InvalidOperation, ResumeSchedule(schedule_id="a"))
        harness.advance(3600)
        assert harness.tick().fired == 1
        harness.engine.submit_many([DeleteSchedule(schedule_id="a"), DeleteTemplate(template_id="t")])
        with harness.engine.read() as view:
            assert view.get(Template, "t") is None

    def test_a_name_that_is_taken_is_refused(self, harness: Harness) -> None:
        harness.ask(template())
        harness.refused(InvalidOperation, msgspec.structs.replace(template(), template_id="u"), template_id="t")
        harness.refused(InvalidValue, template("no name"))
        harness.refused(InvalidValue, template("u", options=JobOptions(priority=101)), field="options.priority")

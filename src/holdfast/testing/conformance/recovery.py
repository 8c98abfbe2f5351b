"""Recovery, row by row of its matrix: what is found, what is done, a second pass that writes nothing. Scheduler §18.

Two rows are states that no command and no event makes. A store whose records can be changed from below says how
(`plant`); where they are folded from a checked log, or a run lies in the file of its job, such a state cannot be there,
and the row is skipped, saying so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.engine import Engine, maintenance
from holdfast.engine.maintenance import Report, mend, recover, tick
from holdfast.errors import InvalidOperation, LeaseLost, RunNotFound
from holdfast.failpoints import listening
from holdfast.model.commands import (
    Complete,
    DropRuns,
    PutSchedule,
    Reserve,
    StartDirect,
)
from holdfast.model.events import JobFailed
from holdfast.model.groups import GroupStatus
from holdfast.model.ids import JobId, RunId
from holdfast.model.jobs import Backoff, Job, JobStatus, Run, RunStatus
from holdfast.model.outcomes import Grant, Leased, Mended, Swept
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.schedules import NewSchedule
from holdfast.model.webhooks import DeliveryStatus
from holdfast.rules.invariants import violations
from holdfast.testing.conformance.commands import A, webhook
from holdfast.testing.conformance.groups import group, group_of
from holdfast.testing.conformance.harness import Broken, Harness, Topic, new_job, tables_of
from holdfast.testing.conformance.webhooks import claim, deliveries

AT_ONCE = Backoff(base_s=0, jitter=0)
HOUR = 3600
replace = msgspec.structs.replace


def recovery(engine: Engine) -> Report:
    """Do all that is done before a worker dispatches: on opening, at its start, and by its first tick."""
    opened, chains, ticked = recover(engine), mend(engine, chains=True), tick(engine)
    return replace(
        opened,
        carried_on=chains.chains,
        expired=opened.expired + ticked.expired,
        fired=ticked.fired,
        missed=ticked.missed,
        failed=opened.failed + ticked.failed,
    )


class Row(NamedTuple):
    """One row of the matrix."""

    found: str
    #: Bring the store into the state.
    arrange: Callable[[Matrix, Harness], Any]
    #: Demand what recovery made of it, given what `arrange` gave.
    demand: Callable[[Harness, Any], None]
    #: What the report counts; everything else is zero.
    counts: dict[str, int]


class Matrix(Topic):
    """The decision matrix."""

    @pytest.mark.parametrize("number", range(13))
    def test_a_row_of_the_matrix(self, harness: Harness, number: int) -> None:
        row = ROWS[number]
        known = row.arrange(self, harness)
        assert recovery(harness.authority) == Report(**row.counts), row.found  # type: ignore[arg-type]  # only counts
        with harness.engine.read() as view:
            before, seq = tables_of(view), view.seq
        assert recovery(harness.authority) == Report(), row.found
        with harness.engine.read() as view:
            assert (tables_of(view), view.seq) == (before, seq), row.found
        row.demand(harness, known)

    def test_every_row_is_there(self, harness: Harness) -> None:
        del harness
        assert len(ROWS) == 13
        assert len({row.found for row in ROWS}) == 13

    # --- damage -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("mode", ["requeue", "chain"])
    @pytest.mark.parametrize(
        ("end", "requeued", "chained"),
        [
            ({"status": RunStatus.COMPLETED}, JobStatus.COMPLETED, JobStatus.COMPLETED),
            ({"status": RunStatus.FAILED, "error": "boom"}, JobStatus.QUEUED, JobStatus.FAILED),
            ({"status": RunStatus.FAILED, "error": "no", "error_kind": "fatal"}, JobStatus.FAILED, JobStatus.FAILED),
            (
                {"status": RunStatus.FAILED, "error": "no", "error_kind": "bad_result"},
                JobStatus.FAILED,
                JobStatus.FAILED,
            ),
            ({"status": RunStatus.SKIPPED, "reason": "snoozed"}, JobStatus.QUEUED, JobStatus.CANCELLED),
            ({"status": RunStatus.CANCELLED, "reason": "released"}, JobStatus.QUEUED, JobStatus.CANCELLED),
            ({"status": RunStatus.CANCELLED, "reason": "gave_up"}, JobStatus.CANCELLED, JobStatus.CANCELLED),
            ({"status": RunStatus.CANCELLED, "reason": "buried"}, JobStatus.DEAD, JobStatus.DEAD),
            ({"status": RunStatus.LOST, "reason": "timeout"}, JobStatus.QUEUED, JobStatus.FAILED),
        ],
        ids=["completed", "failed", "fatal", "bad result", "snoozed", "released", "gave up", "buried", "lost"],
    )
    def test_a_running_job_takes_the_outcome_of_its_ended_run(
        self, harness: Harness, mode: str, end: dict[str, Any], requeued: JobStatus, chained: JobStatus
    ) -> None:
        harness.enqueue("a", retry_mode=mode, backoff=AT_ONCE)
        run = self._end_run_below(harness, harness.take(), **end)
        assert recover(harness.authority) == Report(settled=1)
        job = harness.job("a")
        assert job.status is (requeued if mode == "requeue" else chained)
        assert harness.runs("a") == (run,)
        assert job.finished_at == (None if job.status is JobStatus.QUEUED else run.finished_at)
        goes_on = requeued is JobStatus.QUEUED
        (ready,) = harness.order(5) if goes_on else [""]
        heirs = [heir.job_id for heir in harness.heirs("a")]
        assert heirs == ([ready] if goes_on and mode == "chain" else [])
        last = harness.job(ready or "a")
        assert (last.attempts, last.snoozes, last.expiries) == (
            run.status in (RunStatus.COMPLETED, RunStatus.FAILED),
            run.reason == "snoozed",
            run.status is RunStatus.LOST,
        )

    def test_a_budget_that_an_ended_run_has_used_up_is_used_up(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", max_attempts=1), new_job("b", max_expiries=1))
        for grant in harness.lease(2):
            lost = {"status": RunStatus.LOST, "reason": "timeout"}
            failed = {"status": RunStatus.FAILED, "error": "boom"}
            self._end_run_below(harness, grant, **(failed if grant.job.job_id == "a" else lost))
        assert recover(harness.authority).settled == 2
        assert [harness.status(name) for name in "ab"] == [JobStatus.FAILED, JobStatus.DEAD]

    def test_the_worker_of_a_lease_without_a_run_is_told_that_it_lost_it(self, harness: Harness) -> None:
        harness.enqueue("a", lease_s=HOUR)
        grant = harness.take()
        self._without_run(harness, grant)
        assert recover(harness.authority) == Report(lost_runs=1)
        harness.refused(LeaseLost, Complete(job_id=A, token=grant.token), job_id="a")
        assert harness.take().token > grant.token

    def test_damage_is_named_by_the_check_with_its_remedy_and_told_by_the_feed(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        first, second = harness.lease(2)
        self._without_run(harness, first)
        self._end_run_below(harness, second, status=RunStatus.COMPLETED)
        findings = [finding for finding in harness.authority.store.check() if finding.code == "PERS-001"]
        assert [(finding.id, "worker starts" in finding.remedy) for finding in findings] == [("a", True), ("b", True)]
        seq = harness.seq
        recover(harness.authority)
        assert harness.kinds(seq) == ["lease:expired", "job:mended"]

    def test_members_of_groups_are_mended_with_their_groups(self, harness: Harness) -> None:
        group_of(harness, "a", "b")
        self._end_run_below(harness, harness.take(), status=RunStatus.FAILED, error="boom")
        assert recover(harness.authority).settled == 1
        assert (harness.status("b"), group(harness).status) == (JobStatus.CANCELLED, GroupStatus.FAILED)

    def test_more_damage_than_one_commit_takes_is_mended_in_several(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(maintenance, "LIMIT", 2)
        harness.enqueue_many(*(new_job(name) for name in "abcde"))
        for grant in harness.lease(5):
            self._without_run(harness, grant)
        assert mend(harness.authority) == Mended(runs=5)

    # --- runs without a job -----------------------------------------------------------------------------------------

    def test_a_run_without_its_job_is_named_and_goes_only_by_hand(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.complete(harness.take())
        (run,) = harness.runs("a")
        orphan = replace(run, run_id=RunId("orphan"), job_id=JobId("gone"), token=None)
        self.plant(harness.authority.store, Run, "orphan", orphan)
        assert recovery(harness.authority) == Report()
        with harness.engine.read() as view:
            (fault,) = [fault for fault in violations(view) if fault.id == "orphan"]
        assert (fault.code, "store repair" in fault.remedy) == ("PERS-002", True)
        harness.refused(InvalidOperation, DropRuns(runs=(run.run_id,)), run_id=run.run_id)
        harness.refused(RunNotFound, DropRuns(runs=(orphan.run_id, RunId("none"))), run_id="none")
        assert harness.ask(DropRuns(runs=(orphan.run_id,))) == Swept(count=1)
        assert harness.runs("a") == (run,)

    # --- below the rules --------------------------------------------------------------------------------------------

    def _without_run(self, harness: Harness, grant: Grant) -> None:
        self.plant(harness.authority.store, Run, grant.run_id, None)

    def _end_run_below(self, harness: Harness, grant: Grant, **end: Any) -> Run:
        """End the run of a lease, and leave its job RUNNING; the store is recovered a minute later."""
        run = harness.runs(grant.job.job_id)[-1]
        harness.advance(1)
        ended = replace(run, finished_at=harness.now, **end)
        self.plant(harness.authority.store, Run, run.run_id, ended)
        harness.advance(1)
        return ended


# --- the rows ---------------------------------------------------------------------------------------------------------


def _queued(topic: Matrix, harness: Harness) -> list[str]:
    del topic
    harness.enqueue_many(new_job("a"), new_job("b", priority=5), new_job("c", delay_s=HOUR), new_job("d"))
    before = harness.waiting()
    harness.restart()
    return before


def _same_order(harness: Harness, before: list[str]) -> None:
    assert harness.waiting() == before
    assert harness.order() == ["b", "a", "d"]


def _claim_not_committed(topic: Matrix, harness: Harness) -> None:
    del topic
    harness.enqueue("a")

    def fail() -> None:
        raise Broken

    with listening("engine.decided", fail), pytest.raises(harness.breaks):
        harness.lease()
    harness.restart()


def _still_queued(harness: Harness, _: None) -> None:
    assert (harness.status("a"), harness.runs("a")) == (JobStatus.QUEUED, ())
    assert harness.take().job.executions == 1


def _valid_elsewhere(topic: Matrix, harness: Harness) -> Grant:
    del topic
    harness.enqueue("a")
    grant = harness.take("remote")
    harness.advance(29)
    harness.restart()
    return grant


def _goes_on(harness: Harness, grant: Grant) -> None:
    assert harness.complete(grant).job_status is JobStatus.COMPLETED


def _lapsed(topic: Matrix, harness: Harness) -> None:
    del topic
    webhook(harness)
    harness.enqueue_many(
        new_job("a"), new_job("b", retry_mode="chain"), new_job("c", max_expiries=1), new_job("d", lease_s=86_400)
    )
    harness.lease(4, "remote")
    harness.advance(31)
    harness.restart()


def _lost(harness: Harness, _: None) -> None:
    statuses = [harness.status(name) for name in "abcd"]
    assert statuses == [JobStatus.QUEUED, JobStatus.FAILED, JobStatus.DEAD, JobStatus.RUNNING]
    assert len(harness.heirs("b")) == 1
    for name in "abc":
        (run,) = harness.runs(name)
        assert (run.status, run.error) == (RunStatus.LOST, "worker did not report")
    assert [one.event for one in deliveries(harness)] == ["job.run.lost"] * 3


def _no_run(topic: Matrix, harness: Harness) -> Grant:
    webhook(harness)
    harness.enqueue("a")
    grant = harness.take("remote")
    topic.plant(harness.authority.store, Run, grant.run_id, None)
    return grant


def _run_made(harness: Harness, grant: Grant) -> None:
    job, (run,) = harness.job("a"), harness.runs("a")
    assert (job.status, job.expiries) == (JobStatus.QUEUED, 1)
    assert (run.status, run.reason, run.run_no, run.token) == (RunStatus.LOST, "damaged", 1, grant.token)
    assert [one.run_id for one in deliveries(harness)] == [run.run_id]


def _ended_run(topic: Matrix, harness: Harness) -> Run:
    harness.enqueue("a")
    return topic._end_run_below(harness, harness.take("remote"), status=RunStatus.COMPLETED)  # noqa: SLF001 - its rows


def _outcome_taken(harness: Harness, run: Run) -> None:
    job = harness.job("a")
    assert (job.status, job.finished_at, job.token) == (JobStatus.COMPLETED, run.finished_at, None)
    assert harness.runs("a") == (run,)


def _unfollowed(topic: Matrix, harness: Harness) -> None:
    del topic
    harness.enqueue("a", retry_mode="chain", backoff=Backoff(base_s=100, jitter=0))
    grant = harness.take("remote")
    failed = JobFailed(job_id=A, token=grant.token, error="boom", error_kind="exception", to=JobStatus.FAILED)
    # The failure alone: what no command leaves behind, but a torn commit would.
    with harness.authority.store.write() as batch:
        batch.add([failed], harness.now)
    with harness.engine.read() as view:
        assert [fault.code for fault in violations(view)] == ["chain"]


def _followed(harness: Harness, _: None) -> None:
    (heir,) = harness.heirs("a")
    assert (heir.status, heir.attempts, heir.max_attempts) == (JobStatus.QUEUED, 1, 4)
    assert heir.not_before == harness.after(100)


def _reserved_and_lapsed(topic: Matrix, harness: Harness) -> None:
    del topic
    harness.ask(Reserve(reservation_id="r", queue="default", reserved_by="me"))
    harness.enqueue("a")
    harness.advance(61)
    harness.restart()


def _free_again(harness: Harness, _: None) -> None:
    with harness.engine.read() as view:
        found = view.get(Reservation, "r")
    assert found is not None
    assert found.status is ReservationStatus.EXPIRED
    assert harness.order() == ["a"]


def _reserved_elsewhere(topic: Matrix, harness: Harness) -> None:
    del topic
    harness.ask(Reserve(reservation_id="r", queue="default", reserved_by="me"))
    harness.enqueue("a")
    harness.advance(59)
    harness.restart()


def _still_held(harness: Harness, _: None) -> None:
    assert harness.order() == []
    harness.advance(1)
    assert harness.order() == ["a"]


def _direct_and_lapsed(topic: Matrix, harness: Harness) -> None:
    del topic
    harness.ask(Reserve(reservation_id="r", queue="default", reserved_by="me", ttl_s=HOUR))
    started = harness.ask(StartDirect(reservation_id="r", job=new_job("d"), worker_id="here"))
    assert isinstance(started, Leased)
    harness.advance(31)
    harness.restart()


def _dead(harness: Harness, _: None) -> None:
    (run,) = harness.runs("d")
    assert (harness.status("d"), run.status, list(harness.heirs("d"))) == (JobStatus.DEAD, RunStatus.LOST, [])


def _stopped_group(topic: Matrix, harness: Harness) -> None:
    del topic
    group_of(harness, "a", "b", "c")
    grant = harness.take("remote")
    failed = JobFailed(job_id=A, token=grant.token, error="boom", error_kind="exception", to=JobStatus.FAILED)
    with harness.authority.store.write() as batch:
        batch.add([failed], harness.now)


def _group_over(harness: Harness, _: None) -> None:
    assert [harness.status(name) for name in "bc"] == [JobStatus.CANCELLED] * 2
    assert group(harness).status is GroupStatus.FAILED


def _claimed_and_lapsed(topic: Matrix, harness: Harness) -> str:
    del topic
    webhook(harness)
    harness.enqueue("a")
    harness.complete(harness.take())
    (held,) = claim(harness)
    harness.advance(61)
    harness.restart()
    return held.delivery_id


def _due_again(harness: Harness, delivery_id: str) -> None:
    assert [one.status for one in deliveries(harness)] == [DeliveryStatus.PENDING]
    assert [held.delivery_id for held in claim(harness)] == [delivery_id]


def _overdue(topic: Matrix, harness: Harness) -> None:
    del topic
    new = NewSchedule(name="s", job_type="work", cron_expression="0 * * * *")
    harness.ask(PutSchedule(schedule_id="s", schedule=new))
    harness.advance(5 * HOUR + 1800)
    harness.restart()


def _caught_up(harness: Harness, _: None) -> None:
    with harness.engine.read() as view:
        assert [job.fire_at for job in view.all(Job)] == [harness.after(5 * HOUR)]


ROWS = [
    Row("QUEUED", _queued, _same_order, {}),
    Row("claim not committed", _claim_not_committed, _still_queued, {}),
    Row("RUNNING, open run, lease valid elsewhere", _valid_elsewhere, _goes_on, {}),
    Row("RUNNING, open run, lease lapsed", _lapsed, _lost, {"expired": 3}),
    Row("RUNNING, no run", _no_run, _run_made, {"lost_runs": 1}),
    Row("RUNNING, ended run", _ended_run, _outcome_taken, {"settled": 1}),
    Row("chain job FAILED with attempts left, no successor", _unfollowed, _followed, {"carried_on": 1}),
    Row("reservation ACTIVE, lapsed", _reserved_and_lapsed, _free_again, {"expired": 1}),
    Row("reservation ACTIVE, unexpired elsewhere", _reserved_elsewhere, _still_held, {}),
    Row("direct job RUNNING, lapsed", _direct_and_lapsed, _dead, {"expired": 1}),
    Row("group with final failure and stop", _stopped_group, _group_over, {"mended": 1}),
    Row("delivery PENDING, claim lapsed", _claimed_and_lapsed, _due_again, {}),
    Row("schedule overdue", _overdue, _caught_up, {"fired": 1, "missed": 4}),
]

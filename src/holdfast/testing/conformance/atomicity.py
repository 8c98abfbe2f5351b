"""Atomicity: a command is there whole or not at all, whatever happens around its commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast.errors import IdReused, InvalidValue, StoreError
from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue, Fail, Lease
from holdfast.model.events import LeaseGranted
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import Enqueued, Refusal, Reported, Submitted
from holdfast.rules import fold
from holdfast.rules.fold_changes import Change
from holdfast.testing.conformance.commands import SAMPLES, A
from holdfast.testing.conformance.harness import Broken, Harness, Topic, break_here, new_job
from holdfast.testing.conformance.marks import sends_once

each_command = pytest.mark.parametrize("sample", SAMPLES)


class _BrokenHalfway(list[Change]):
    """Changes of which the store gets the first, and the second fails. The fold itself looks through them before."""

    def __init__(self, changes: list[Change]) -> None:
        super().__init__(changes)
        self._seen = False

    def __iter__(self) -> Iterator[Change]:
        if not self._seen:
            self._seen = True
            yield from super().__iter__()
            return
        yield self[0]
        raise Broken


class Atomicity(Topic):
    """Whole or not at all."""

    def test_jobs_of_one_command_are_created_all_or_none(self, harness: Harness) -> None:
        harness.enqueue("b", params={"n": 1})
        both = Enqueue(jobs=(new_job("a"), new_job("b", params={"n": 2})))
        harness.refused(IdReused, both, job_id="b")

    def test_one_bad_value_keeps_all_jobs_of_its_command_out(self, harness: Harness) -> None:
        harness.refused(InvalidValue, Enqueue(jobs=(new_job("a"), new_job("b", priority=101))), field="priority")

    def test_a_bad_command_does_not_touch_the_others_sent_with_it(self, harness: Harness) -> None:
        outcomes = harness.engine.submit_many(
            [Enqueue(jobs=(new_job("a"),)), Enqueue(jobs=(new_job("b", priority=101),)), Enqueue(jobs=(new_job("c"),))]
        )
        assert outcomes[0] == Enqueued(jobs=(Submitted(JobId("a"), created=True),))
        assert isinstance(outcomes[1], Refusal)
        assert outcomes[2] == Enqueued(jobs=(Submitted(JobId("c"), created=True),))
        assert harness.waiting() == ["a", "c"]

    def test_commands_sent_together_see_each_other(self, harness: Harness) -> None:
        lease = Lease(worker_id="w1", n=2)
        _, leased = harness.engine.submit_many([Enqueue(jobs=(new_job("a"), new_job("b"))), lease])
        assert [grant.job.job_id for grant in leased.grants] == ["a", "b"]  # type: ignore[union-attr]  # a Leased

    @each_command
    def test_a_command_that_breaks_before_its_commit_leaves_nothing(self, harness: Harness, sample: str) -> None:
        command = SAMPLES[sample](harness)
        with harness.unchanged(), listening("engine.decided", break_here), pytest.raises(harness.breaks):
            harness.engine.submit(command)
        seq = harness.seq
        harness.ask(command)
        assert harness.seq > seq

    @each_command
    def test_a_command_that_breaks_after_its_commit_is_whole(self, harness: Harness, sample: str) -> None:
        command = SAMPLES[sample](harness)
        seq = harness.seq
        with listening("engine.committed", break_here), pytest.raises(harness.breaks):
            harness.engine.submit(command)
        after = harness.dump()
        assert after.feed[-1].seq > seq
        harness.demand_sound()
        harness.ask(command)
        assert harness.dump() == after, "sent again it must find its own effect and add nothing"

    @each_command
    def test_an_undone_command_leaves_nothing_after_reopening_either(self, harness: Harness, sample: str) -> None:
        command = SAMPLES[sample](harness)
        before = harness.dump()
        with listening("engine.decided", break_here), pytest.raises(harness.breaks):
            harness.engine.submit(command)
        harness.reopen()
        assert harness.dump() == before

    def test_a_grant_whose_run_cannot_be_inserted_leaves_the_job_queued(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness.enqueue("a")
        whole = fold._FOLDS[LeaseGranted]  # noqa: SLF001 - the only door between the job's change and its run's

        def halfway(*args: Any) -> list[Change]:
            return _BrokenHalfway(whole(*args))

        with harness.unchanged(), monkeypatch.context() as patch:
            patch.setitem(fold._FOLDS, LeaseGranted, halfway)  # noqa: SLF001 - the same
            with pytest.raises(harness.breaks):
                harness.engine.submit(Lease(worker_id="w1"))
        assert harness.status("a") is JobStatus.QUEUED
        assert list(harness.runs("a")) == []
        assert harness.take().job.job_id == "a"

    def test_no_crash_falls_between_a_failure_and_its_retry(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain", key="k")
        report = Fail(job_id=A, token=harness.take().token, error="boom", cmd="x")
        with harness.unchanged(), listening("engine.decided", break_here), pytest.raises(harness.breaks):
            harness.engine.submit(report)
        assert (harness.status("a"), harness.heirs("a")) == (JobStatus.RUNNING, [])
        with listening("engine.committed", break_here), pytest.raises(harness.breaks):
            harness.engine.submit(report)
        (heir,) = harness.heirs("a")
        assert (harness.status("a"), heir.status) == (JobStatus.FAILED, JobStatus.QUEUED)
        again = harness.report(report)
        assert again == Reported(job_status=JobStatus.FAILED, duplicate=True, successor=heir.job_id)
        assert harness.heirs("a") == [heir]

    def test_a_failure_at_any_point_of_a_commit_leaves_all_of_it_or_nothing(self, harness: Harness) -> None:
        for number, point in enumerate(self.points):
            job_id = JobId(f"j{number}")
            reached: list[str] = []

            def fail(reached: list[str] = reached, point: str = point) -> None:
                reached.append(point)
                raise Broken

            harness.enqueue(job_id, retry_mode="chain", queue=point)
            report = Fail(job_id=job_id, token=harness.take(queues=(point,)).token, error="boom")
            with listening(point, fail), suppress(Broken, StoreError):
                harness.engine.submit(report)
            assert reached, f"no commit passes {point}"
            harness.restart()
            harness.recover()
            found = (harness.status(job_id), len(harness.heirs(job_id)))
            assert found in ((JobStatus.RUNNING, 0), (JobStatus.FAILED, 1)), point
            assert harness.report(report).duplicate is (found[1] == 1)
            assert (harness.status(job_id), len(harness.heirs(job_id))) == (JobStatus.FAILED, 1)

    def test_events_of_one_command_stand_side_by_side_in_the_feed(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        grant, seq = harness.take(), harness.seq
        harness.fail(grant)
        assert harness.kinds(seq) == ["job:failed", "job:created"]

    def test_a_batch_left_by_an_exception_shows_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = LeaseGranted(
            job_id=A,
            run_id=RunId("r"),
            run_no=1,
            token=Token(1),
            worker_id="w",
            lease_expires_at=harness.after(30),
        )

        def write() -> None:
            with harness.authority.store.write() as batch:
                batch.add((grant,), harness.now)
                assert [run.run_id for run in batch.runs(A)] == ["r"]
                break_here()

        with harness.unchanged(), pytest.raises(Broken):
            write()
        assert harness.take().token == 1

    @sends_once
    def test_a_reader_sees_all_of_a_commit_or_nothing(self, harness: Harness) -> None:
        seen: list[tuple[int, int]] = []

        def look() -> None:
            with harness.store.read() as view:
                seen.append((view.seq, sum(1 for _ in view.all(Job))))

        reader = threading.Thread(target=look)
        # It looks while the batch is open: a store may let it in or make it wait.
        with listening("engine.decided", reader.start):
            harness.enqueue_many(new_job("a"), new_job("b"))
        reader.join()
        whole = [(0, 0), (2, 2)] if harness.store.promises.frozen_views else [(0, 0), (0, 2), (2, 2)]
        assert len(seen) == 1
        assert seen[0] in whole

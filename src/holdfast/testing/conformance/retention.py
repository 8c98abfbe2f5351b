"""Retention: what is old goes, in whole chains, never what lives."""

from __future__ import annotations

from holdfast.engine.maintenance import Report
from holdfast.model.commands import Bury, Cancel, Prune, Retention, Retry
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job, Run
from holdfast.model.outcomes import Swept
from holdfast.model.records import DoneCommand
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job

DAY = 86_400
AT_ONCE = Backoff(base_s=0, jitter=0)


def _kept(harness: Harness) -> list[str]:
    with harness.engine.read() as view:
        runs = {run.job_id for run in view.all(Run)}
        jobs: list[str] = [job.job_id for job in view.all(Job)]
    assert runs <= set(jobs)
    return jobs


class Keeping(Topic):
    """Pruning by the tick."""

    def test_done_jobs_go_after_seven_days_and_failed_ones_after_thirty(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(name, max_attempts=1) for name in "abcd"), new_job("e"))
        first, second = harness.lease(2)
        harness.complete(first)
        harness.fail(second)
        harness.ask(Cancel(job_id=JobId("c")))
        harness.ask(Bury(job_id=JobId("d")))
        harness.advance(7 * DAY - 1)
        assert harness.tick().pruned == 0
        harness.advance(1)
        assert harness.tick().pruned == 2
        assert _kept(harness) == ["b", "d", "e"]
        harness.advance(23 * DAY)
        assert harness.tick().pruned == 2
        assert _kept(harness) == ["e"]

    def test_the_runs_go_with_their_job(self, harness: Harness) -> None:
        harness.enqueue("a", backoff=AT_ONCE)
        harness.fail(harness.take())
        harness.complete(harness.take())
        harness.advance(7 * DAY)
        harness.tick()
        assert harness.runs("a") == ()

    def test_what_lives_is_never_pruned(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", lease_s=86_400), new_job("b"), new_job("c", delay_s=400 * DAY))
        harness.take()
        harness.ask(Prune(retention=Retention(done_s=0, failed_s=0)))
        assert _kept(harness) == ["a", "b", "c"]

    def test_a_chain_goes_as_a_whole_when_its_last_job_is_old_enough(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain", backoff=Backoff(base_s=100, jitter=0))
        keep = Retention(done_s=50, failed_s=50)
        harness.fail(harness.take())
        harness.advance(100)
        assert harness.tick(keep) == Report()
        harness.complete(harness.take())
        harness.advance(49)
        assert harness.tick(keep).pruned == 0
        assert len(_kept(harness)) == 2
        harness.advance(1)
        assert harness.tick(keep).pruned == 2
        assert _kept(harness) == []

    def test_a_job_and_its_manual_retries_go_together(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(Cancel(job_id=A))
        harness.ask(Retry(job_id=A, new_job_id=JobId("b")))
        harness.advance(8 * DAY)
        assert harness.tick().pruned == 0
        harness.complete(harness.take())
        harness.advance(8 * DAY)
        assert harness.tick().pruned == 2

    def test_one_commit_removes_no_more_than_its_limit(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(f"j{number}") for number in range(5)))
        for grant in harness.lease(5):
            harness.complete(grant)
        harness.advance(8 * DAY)
        assert harness.ask(Prune(limit=2)) == Swept(count=2, more=True)
        assert len(_kept(harness)) == 3
        assert harness.tick().pruned == 3

    def test_a_second_tick_finds_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.complete(harness.take())
        harness.advance(8 * DAY)
        harness.tick()
        seq = harness.seq
        assert harness.tick().pruned == 0
        assert harness.seq == seq

    def test_what_was_pruned_stays_away_after_a_restart(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.complete(harness.take())
        harness.advance(8 * DAY)
        harness.tick()
        harness.restart()
        assert _kept(harness) == ["b"]

    def test_a_pruned_id_may_be_used_again(self, harness: Harness) -> None:
        harness.enqueue("a", params={"n": 1})
        harness.complete(harness.take())
        harness.advance(8 * DAY)
        harness.tick()
        assert harness.enqueue("a", params={"n": 2}).created

    def test_remembered_commands_go_after_an_hour(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.ask(Cancel(cmd="x", job_id=A))
        harness.advance(1800)
        harness.ask(Cancel(cmd="y", job_id=JobId("b")))
        harness.advance(1800)
        assert harness.tick().pruned == 1
        with harness.engine.read() as view:
            assert [done.cmd for done in view.all(DoneCommand)] == ["y"]

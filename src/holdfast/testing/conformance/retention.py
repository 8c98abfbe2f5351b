"""Retention: what is old goes, in whole chains, never what lives. Scheduler §15."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engine.maintenance import Report
from holdfast.errors import InvalidValue
from holdfast.model.commands import Bury, Cancel, Command, Complete, Fail, Prune, Retention, Retry, SetQueue
from holdfast.model.events import QueueChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job, Run
from holdfast.model.outcomes import Swept
from holdfast.model.records import DoneCommand, Queue, pair
from holdfast.model.retention import OF_THE_STORE
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job
from holdfast.testing.conformance.marks import counts_writes

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

    @counts_writes
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

    @counts_writes
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

    @counts_writes
    def test_a_job_and_its_manual_retries_go_together(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(Cancel(job_id=A))
        harness.ask(Retry(job_id=A, new_job_id=JobId("b")))
        harness.advance(8 * DAY)
        assert harness.tick().pruned == 0
        harness.complete(harness.take())
        harness.advance(8 * DAY)
        assert harness.tick().pruned == 2

    @counts_writes
    def test_one_commit_removes_no_more_than_its_limit(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(f"j{number}") for number in range(5)))
        for grant in harness.lease(5):
            harness.complete(grant)
        harness.advance(8 * DAY)
        assert harness.ask(Prune(limit=4)) == Swept(count=2, more=True)  # each with its run
        assert len(_kept(harness)) == 3
        assert harness.ask(Prune(limit=5)) == Swept(count=3, more=True)  # a job is not parted from its runs
        assert harness.tick().pruned == 0

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


def _keep(harness: Harness, queue: str, **kept: Any) -> None:
    changes = QueueChanges(retention=Retention(**kept) if kept else None)
    harness.ask(SetQueue(queue=queue, changes=changes))


def _end(harness: Harness, *names: str, queue: str = "default", failed: bool = False) -> None:
    """Run jobs to their end, a second after one another."""
    for name in names:
        harness.enqueue(name, queue=queue, max_attempts=1)
        grant = harness.take(queues=(queue,))
        if failed:
            harness.fail(grant)
        else:
            harness.complete(grant)
        harness.advance(1)


class KeepingByQueue(Topic):
    """Queues that are kept by a rule of their own."""

    @counts_writes
    def test_a_queue_is_kept_as_it_says_and_the_others_as_the_store_says(self, harness: Harness) -> None:
        _keep(harness, "short", done_s=60, failed_s=120)
        _keep(harness, "long", done_s=400 * DAY)
        for queue in ("short", "long", "default"):
            _end(harness, f"{queue} done", queue=queue)
            _end(harness, f"{queue} failed", queue=queue, failed=True)
        harness.advance(60)
        assert harness.tick().pruned == 1
        harness.advance(60)
        assert harness.tick().pruned == 1
        assert _kept(harness) == ["default done", "default failed", "long done", "long failed"]
        harness.advance(30 * DAY)
        assert harness.tick().pruned == 3
        assert _kept(harness) == ["long done"]
        harness.advance(370 * DAY)
        assert harness.tick().pruned == 1

    @counts_writes
    def test_what_a_queue_leaves_open_the_store_says(self, harness: Harness) -> None:
        _keep(harness, "default", failed_s=10)
        _end(harness, "done")
        _end(harness, "failed", failed=True)
        harness.advance(10)
        assert harness.tick(Retention(done_s=1000, failed_s=1000)).pruned == 1
        assert _kept(harness) == ["done"]
        harness.advance(990)
        assert harness.tick(Retention(done_s=1000)).pruned == 1

    def test_the_rule_of_a_queue_survives_a_restart_and_can_be_taken_away(self, harness: Harness) -> None:
        _keep(harness, "default", done_s=60, failed_max=3)
        harness.restart()
        harness.authority.store.snapshot()
        harness.restart()
        with harness.engine.read() as view:
            queue = view.get(Queue, pair("", "default"))
        assert queue is not None
        assert queue.retention == Retention(done_s=60, failed_max=3)
        _end(harness, "a")
        _keep(harness, "default")
        harness.advance(60)
        assert harness.tick().pruned == 0

    @pytest.mark.parametrize("failed", [False, True])
    @pytest.mark.parametrize("by", ["queue", "store"])
    def test_beyond_a_number_the_oldest_go(self, harness: Harness, by: str, *, failed: bool) -> None:
        kept = {"failed_max": 2} if failed else {"done_max": 2}
        if by == "queue":
            _keep(harness, "default", **kept)
        store = Retention(**kept) if by == "store" else Retention()
        _end(harness, "c", "a", "d", "b", failed=failed)
        _end(harness, "x", failed=not failed)  # of the other kind, and counted apart
        _end(harness, "y", queue="other", failed=failed)
        assert harness.tick(store).pruned == 2
        assert _kept(harness) == ["b", "d", "x", "y"]
        assert harness.tick(store).pruned == 0
        _end(harness, "e", failed=failed)
        assert harness.tick(store).pruned == 1
        assert _kept(harness) == ["b", "e", "x", "y"]

    def test_of_jobs_that_ended_at_one_time_exactly_so_many_stay(self, harness: Harness) -> None:
        _keep(harness, "default", done_max=3)
        harness.enqueue_many(*(new_job(name) for name in "abcde"))
        for grant in harness.lease(5):
            harness.complete(grant)
        assert harness.tick().pruned == 2
        assert _kept(harness) == ["c", "d", "e"]

    def test_a_number_of_none_keeps_nothing_but_what_lives(self, harness: Harness) -> None:
        _keep(harness, "default", done_max=0, failed_max=0)
        _end(harness, "a", "b")
        _end(harness, "c", failed=True)
        harness.enqueue("d")
        assert harness.tick().pruned == 3
        assert _kept(harness) == ["d"]

    def test_a_chain_over_two_queues_goes_when_both_let_it_go(self, harness: Harness) -> None:
        _keep(harness, "default", done_s=10, failed_s=10)
        _keep(harness, "other", done_s=100)
        _end(harness, "a", failed=True)
        harness.ask(Retry(job_id=A, new_job_id=JobId("b")))
        harness.ask(SetQueue(queue="default", changes=QueueChanges(max_running=1)))  # another setting, the same rule
        harness.complete(harness.take())
        _end(harness, "c", queue="other")
        harness.ask(Prune())
        harness.advance(10)
        assert harness.tick().pruned == 2
        assert _kept(harness) == ["c"]

    def test_retention_that_is_none_is_refused(self, harness: Harness) -> None:
        wrong: list[tuple[str, Any]] = [("done_s", -1), ("failed_s", float("nan")), ("done_s", float("inf"))]
        wrong += [("done_max", -1), ("failed_max", 1 << 70)]
        wrong += [(field, 7) for field in OF_THE_STORE]
        for field, value in wrong:
            changes = QueueChanges(retention=Retention(**{field: value}))
            harness.refused(InvalidValue, SetQueue(queue="q", changes=changes), field=f"retention.{field}")


class Bounded(Topic):
    """What a store needs under a constant load does not grow with time."""

    def test_by_default_a_steady_load_leaves_a_steady_store(self, harness: Harness) -> None:
        sizes: list[tuple[int, ...]] = []
        seqs: list[int] = []
        for day in range(75):
            seqs.append(harness.seq)
            _live_a_day(harness, day)
            harness.tick()
            harness.authority.store.snapshot()
            with harness.engine.read() as view:
                sizes.append(tuple(sum(1 for _ in view.all(kind)) for kind in (Job, Run, DoneCommand)))
        # Thirty days after the beginning the first failures go; from then on one day is like the other.
        assert len(set(sizes[32:])) == 1, sizes
        assert sizes[-1] == (6 * 5 + 29 * 1, 6 * 4 + 29 * 1, 0)
        try:
            events = sum(1 for _ in harness.store.feed(seqs[-9]))
        except InvalidValue:
            return
        # A feed of whole files goes file by file, and this load has not filled one.
        assert events < 9 * 40

    def test_a_feed_is_kept_for_its_time_and_in_its_number(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        if harness.authority.store.trim(harness.after(1), 1) == 0:
            pytest.skip(f"{harness.authority.store.promises.name}: keeps these events for its own recovery")
        harness.advance(100)
        first = harness.seq
        harness.enqueue_many(*(new_job(name) for name in "cdefgh"))
        assert harness.tick(Retention(feed_s=50)).trimmed == 1
        assert [entry.seq for entry in harness.store.feed(first)] == list(range(first + 1, harness.seq + 1))
        assert harness.tick(Retention(feed_s=50, feed_max=4)).trimmed == 2
        assert [entry.seq for entry in harness.store.feed(first + 2)] == list(range(first + 3, harness.seq + 1))
        with pytest.raises(InvalidValue):
            list(harness.store.feed(first))


def _live_a_day(harness: Harness, day: int) -> None:
    """Make six jobs: four are done, one fails, one is cancelled; an edit is remembered."""
    names = [f"{day:03}-{number}" for number in range(6)]
    harness.enqueue_many(*(new_job(name, max_attempts=1) for name in names))
    grants = harness.lease(5)
    reports: list[Command] = [Complete(job_id=grant.job.job_id, token=grant.token) for grant in grants[:4]]
    reports.append(Fail(job_id=grants[4].job.job_id, token=grants[4].token, error="boom"))
    harness.engine.submit_many([*reports, Cancel(job_id=JobId(names[5]), cmd=f"cancel {day}")])
    harness.advance(DAY)

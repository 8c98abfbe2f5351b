"""Concurrency: many threads on one store, and many processes where they are promised."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast.engine import Engine
from holdfast.failpoints import listening
from holdfast.model.commands import Complete, Enqueue, Fail, Lease
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, RetryKind
from holdfast.model.outcomes import Enqueued, Leased, Refusal, Reported
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job, told
from holdfast.testing.conformance.marks import counts_writes, sends_once

THREADS = 8


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in `count` threads that start together; raise what any of them raised."""
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(run, number) for number in range(count)]:
            done.result()


def _drain(engine: Engine, worker: str, seen: list[tuple[str, int]]) -> None:
    """Lease and complete until nothing is left."""
    while True:
        outcome = engine.ask(Lease(worker_id=worker, n=3))
        assert isinstance(outcome, Leased)
        if not outcome.grants:
            return
        seen.extend((grant.job.job_id, grant.token) for grant in outcome.grants)
        reports = [Complete(job_id=grant.job.job_id, token=grant.token) for grant in outcome.grants]
        for reply in engine.submit_many(reports):
            assert reply == Reported(job_status=JobStatus.COMPLETED)


class Concurrency(Topic):
    """Many at once, each outcome as if alone."""

    def test_of_many_who_lease_one_job_one_gets_it(self, harness: Harness) -> None:
        for turn in range(10):
            harness.enqueue(f"j{turn}")
            got: list[tuple[str, ...]] = []
            at_once(THREADS, lambda number, got=got: got.append(tuple(_lease(harness.engine, number))))  # type: ignore[misc]  # bound now, called now
            assert sorted(got, reverse=True) == [(f"j{turn}",)] + [()] * (THREADS - 1)

    def test_of_many_openings_that_lease_one_job_one_gets_it(self, harness: Harness) -> None:
        engines = [harness.engine, *(harness.second() for _ in range(3))]
        for turn in range(10):
            harness.enqueue(f"j{turn}")
            got: list[tuple[str, ...]] = []
            at_once(4, lambda number, got=got: got.append(tuple(_lease(engines[number], number))))  # type: ignore[misc]  # the same
            assert sorted(got, reverse=True) == [(f"j{turn}",), (), (), ()]

    def test_everything_many_threads_submit_is_there_once(self, harness: Harness) -> None:
        def submit(number: int) -> None:
            for turn in range(25):
                outcome = harness.engine.submit(Enqueue(jobs=(new_job(f"{number}-{turn}"),)))
                assert isinstance(outcome, Enqueued)
                assert outcome.jobs[0].created

        at_once(THREADS, submit)
        with harness.engine.read() as view:
            jobs = list(view.all(Job))
        assert {job.job_id for job in jobs} == {f"{n}-{turn}" for n in range(THREADS) for turn in range(25)}
        assert sorted(job.position for job in jobs) == [100 * (at + 1) for at in range(25 * THREADS)]
        assert [entry.seq for entry in told(harness.store)] == list(range(1, 25 * THREADS + 1))

    def test_the_same_submission_from_many_threads_gives_one_record(self, harness: Harness) -> None:
        created: list[bool] = []

        def submit(_: int) -> None:
            outcome = harness.engine.submit(Enqueue(cmd="x", jobs=(new_job("a"),)))
            assert isinstance(outcome, Enqueued)
            created.append(outcome.jobs[0].created)

        at_once(THREADS, submit)
        assert Counter(created) == {True: 1, False: THREADS - 1}
        assert harness.kinds() == ["job:created"]

    @counts_writes
    def test_one_key_asked_for_by_many_threads_has_one_holder(self, harness: Harness) -> None:
        holders: list[str] = []

        def submit(number: int) -> None:
            outcome = harness.engine.submit(Enqueue(jobs=(new_job(f"j{number}", key="k"),)))
            assert isinstance(outcome, Enqueued)
            holders.append(outcome.jobs[0].job_id)

        at_once(THREADS, submit)
        assert len(set(holders)) == 1
        assert len(harness.kinds()) == 1

    def test_one_failure_reported_by_many_threads_makes_one_successor(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        token = harness.take().token
        replies: list[Reported] = []

        def report(_: int) -> None:
            outcome = harness.engine.submit(Fail(job_id=A, token=token, error="boom"))
            assert isinstance(outcome, Reported)
            replies.append(outcome)

        at_once(THREADS, report)
        (heir,) = harness.heirs("a")
        assert heir.retry_kind is RetryKind.AUTO
        assert {reply.successor for reply in replies} == {heir.job_id}
        assert sorted(reply.duplicate for reply in replies) == [False] + [True] * (THREADS - 1)

    def test_completion_and_failureat_once_end_in_one_of_them(self, harness: Harness) -> None:
        for turn in range(10):
            job_id = JobId(f"j{turn}")
            harness.enqueue(job_id, max_attempts=1)
            token = harness.take().token
            reports = [Complete(job_id=job_id, token=token), Fail(job_id=job_id, token=token, error="x")]
            outcomes: list[object] = []
            at_once(2, lambda number, r=reports, o=outcomes: o.append(harness.engine.submit(r[number])))  # type: ignore[misc]  # the same
            assert sorted(isinstance(outcome, Refusal) for outcome in outcomes) == [False, True]
            (run,) = harness.runs(job_id)
            assert str(run.status) == str(harness.status(job_id))

    def test_many_workers_finish_everything_and_run_nothing_twice(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(f"j{number}") for number in range(200)))
        seen: list[tuple[str, int]] = []
        at_once(THREADS, lambda number: _drain(harness.engine, f"w{number}", seen))
        assert Counter(job_id for job_id, _ in seen) == {f"j{number}": 1 for number in range(200)}
        assert len({token for _, token in seen}) == 200

    def test_many_openings_finish_everything_and_run_nothing_twice(self, harness: Harness) -> None:
        engines = [harness.engine, *(harness.second() for _ in range(3))]
        harness.enqueue_many(*(new_job(f"j{number}") for number in range(60)))
        seen: list[tuple[str, int]] = []
        at_once(4, lambda number: _drain(engines[number], f"w{number}", seen))
        assert Counter(job_id for job_id, _ in seen) == {f"j{number}": 1 for number in range(60)}
        assert len({token for _, token in seen}) == 60

    def test_openings_see_each_others_work(self, harness: Harness) -> None:
        other = harness.second()
        harness.enqueue("a")
        leased = other.ask(Lease(worker_id="w2"))
        assert isinstance(leased, Leased)
        assert harness.status("a") is JobStatus.RUNNING
        harness.complete(leased.grants[0])
        assert other.job(A).status is JobStatus.COMPLETED

    @sends_once
    def test_commands_that_wait_for_one_commit_share_the_next(self, harness: Harness) -> None:
        batches: list[int] = []
        arrived = threading.Event()
        pool = ThreadPoolExecutor(THREADS)

        def hold() -> None:
            batches.append(len(batches))
            if len(batches) == 1:
                # The first commit is held until all others stand in line behind it.
                for number in range(1, THREADS):
                    pool.submit(harness.enqueue, f"j{number}")
                while harness.in_line() < THREADS - 1:
                    arrived.wait(0.001)

        with listening("engine.decided", hold):
            harness.enqueue("j0")
            pool.shutdown(wait=True)
        assert len(batches) == 2
        assert sorted(harness.waiting()) == [f"j{number}" for number in range(THREADS)]

    def test_reading_while_others_write_sees_whole_commands_only(self, harness: Harness) -> None:
        stop = threading.Event()
        halves: list[int] = []

        def look() -> None:
            while not stop.is_set():
                with harness.engine.read() as view:
                    found = sum(1 for _ in view.all(Job))
                if found % 2:
                    halves.append(found)

        watcher = threading.Thread(target=look)
        watcher.start()
        for number in range(50):
            harness.enqueue_many(new_job(f"{number}-a"), new_job(f"{number}-b"))
        stop.set()
        watcher.join()
        assert halves == []


def _lease(engine: Engine, number: int) -> list[str]:
    outcome = engine.ask(Lease(worker_id=f"w{number}"))
    assert isinstance(outcome, Leased)
    return [grant.job.job_id for grant in outcome.grants]

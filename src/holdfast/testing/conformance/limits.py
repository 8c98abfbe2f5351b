"""Limits: places of a queue and of a key, rates, aging. Counted in the store, inside the commit that leases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.engine import Engine
from holdfast.errors import InvalidValue
from holdfast.model.commands import Complete, Fail, Lease, Release, Retention, SetQueue
from holdfast.model.events import QueueChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import JobStatus
from holdfast.model.outcomes import Done, Leased
from holdfast.model.records import Queue, pair
from holdfast.model.times import later
from holdfast.rules.explain import explain
from holdfast.rules.jobs.limits import next_opening
from holdfast.testing.conformance.harness import BEGINNING, Harness, Topic, new_job
from holdfast.testing.conformance.marks import counts_writes


def limit(harness: Harness, queue: str = "default", namespace: str = "", **changes: Any) -> None:
    """Set limits of a queue."""
    command = SetQueue(queue=queue, namespace=namespace, changes=QueueChanges(**changes))
    assert harness.ask(command) == Done()


def settings(harness: Harness, queue: str = "default", namespace: str = "") -> Queue | None:
    """Read the settings of a queue."""
    with harness.engine.read() as view:
        return view.get(Queue, pair(namespace, queue))


class Limits(Topic):
    """How many at once, and how often."""

    @counts_writes
    def test_settings_survive_a_restart_and_are_changed_by_name(self, harness: Harness) -> None:
        limit(harness, "mail", "x", max_running=4, rate_count=100, rate_period_s=60, rate_scope="key", aging_s=0.5)
        expected = Queue("x", "mail", max_running=4, rate_count=100, rate_period_s=60, rate_scope="key", aging_s=0.5)
        assert settings(harness, "mail", "x") == expected
        harness.restart()
        assert settings(harness, "mail", "x") == expected
        limit(harness, "mail", "x", max_running=None, rate_count=None, rate_period_s=None)
        harness.restart()
        assert settings(harness, "mail", "x") == Queue("x", "mail", rate_scope="key", aging_s=0.5)
        assert harness.kinds() == ["queue:set", "queue:set"]

    @counts_writes
    def test_setting_what_is_set_writes_nothing(self, harness: Harness) -> None:
        limit(harness, max_running=1)
        with harness.unchanged():
            limit(harness, max_running=1)

    def test_a_limit_that_is_none_is_refused(self, harness: Harness) -> None:
        for changes in (
            QueueChanges(),
            QueueChanges(max_running=0),
            QueueChanges(rate_count=1),
            QueueChanges(aging_s=float("nan")),
        ):
            harness.refused(InvalidValue, SetQueue(queue="default", changes=changes))

    # --- places -------------------------------------------------------------------------------------------------------

    def test_another_dispatcher_gets_nothing_while_the_one_place_is_taken(self, harness: Harness) -> None:
        limit(harness, max_running=1)
        harness.enqueue_many(new_job("a"), new_job("b"))
        grant = harness.take()
        other = harness.second() if harness.store.promises.many_processes else harness.engine
        with harness.unchanged():
            assert _leased(other, "w2") == []
        assert (harness.status("a"), harness.status("b")) == (JobStatus.RUNNING, JobStatus.QUEUED)
        harness.complete(grant)
        assert _leased(other, "w2") == ["b"]

    def test_a_queue_gives_as_many_as_it_has_places(self, harness: Harness) -> None:
        limit(harness, max_running=3)
        harness.enqueue_many(*(new_job(f"j{n}") for n in range(6)))
        assert harness.order(2) == ["j0", "j1"]
        assert harness.order(9) == ["j2"]
        assert harness.order(9) == []

    def test_leases_of_one_batch_share_the_places(self, harness: Harness) -> None:
        limit(harness, max_running=3, rate_count=9, rate_period_s=60)
        harness.enqueue_many(*(new_job(f"j{n}", limit_key=f"k{n % 2}", key_limit=2) for n in range(9)))
        grant = harness.take()
        outcomes = harness.engine.submit_many(
            [
                Lease(worker_id="w1", n=2),
                Complete(job_id=JobId("j0"), token=grant.token),
                Lease(worker_id="w2", n=2),
                Lease(worker_id="w3", n=2),
            ]
        )
        counts = [len(outcome.grants) for outcome in outcomes if isinstance(outcome, Leased)]
        assert counts == [2, 1, 0]

    def test_a_full_queue_does_not_hold_back_others_asked_for_together(self, harness: Harness) -> None:
        limit(harness, max_running=1)
        harness.enqueue_many(
            new_job("a", priority=1), new_job("b", priority=1), new_job("c", queue="other"), new_job("d")
        )
        assert harness.order(queues=("default", "other")) == ["a", "c"]

    def test_a_place_is_free_when_the_lease_of_a_lost_worker_has_expired(self, harness: Harness) -> None:
        limit(harness, max_running=1)
        harness.enqueue_many(new_job("a", limit_key="k"), new_job("b", limit_key="k", priority=-1))
        harness.take()
        harness.advance(29.999999)
        assert harness.order() == []
        harness.advance(0.000001)
        assert harness.order() == ["a"]

    def test_limits_hold_after_a_restart(self, harness: Harness) -> None:
        limit(harness, max_running=2)
        limit(harness, "rated", rate_count=2, rate_period_s=60)
        harness.enqueue_many(
            *(new_job(f"j{n}") for n in range(4)), *(new_job(f"r{n}", queue="rated") for n in range(4))
        )
        harness.enqueue_many(*(new_job(f"k{n}", limit_key="k", queue="keyed") for n in range(2)))
        queues = ("default", "rated", "keyed")
        assert harness.order(queues=queues) == ["j0", "k0", "r0", "j1", "r1"]
        harness.restart()
        assert harness.order(queues=queues) == []
        harness.advance(29)
        harness.authority.store.snapshot()
        harness.restart()
        assert harness.order(queues=queues) == []

    # --- keys ---------------------------------------------------------------------------------------------------------

    def test_jobs_of_one_key_take_turns_and_hold_back_no_other(self, harness: Harness) -> None:
        harness.enqueue_many(
            new_job("a", limit_key="k"),
            new_job("b", limit_key="k"),
            new_job("c", limit_key="k", key_limit=2, queue="other"),
            new_job("d"),
            new_job("e", limit_key="k", namespace="x"),
        )
        grants = harness.lease(9, queues=("default", "other"))
        assert [grant.job.job_id for grant in grants] == ["a", "c", "d"]
        assert harness.order(namespace="x") == ["e"]
        harness.complete(grants[1])
        assert harness.order(queues=("default", "other")) == []
        harness.fail(grants[0])
        assert harness.order(queues=("default", "other")) == ["b"]

    # --- rates --------------------------------------------------------------------------------------------------------

    def test_a_rate_counts_starts_in_any_period(self, harness: Harness) -> None:
        limit(harness, rate_count=2, rate_period_s=10)
        harness.enqueue_many(*(new_job(f"j{n}") for n in range(6)))
        harness.complete(harness.take())
        harness.advance(4)
        assert harness.order() == ["j1"]
        harness.advance(5.999999)
        assert harness.order() == []
        with harness.engine.read() as view:
            assert next_opening(view, "", ("default",), harness.now) == later(BEGINNING, 10)
        harness.advance(0.000001)
        assert harness.order() == ["j2"]
        harness.advance(4)
        assert harness.order() == ["j3"]

    def test_a_rate_for_each_key_counts_them_apart(self, harness: Harness) -> None:
        limit(harness, rate_count=1, rate_period_s=10, rate_scope="key")
        harness.enqueue_many(
            *(new_job(f"{key}{n}", limit_key=key, key_limit=9) for n in range(2) for key in ("k", "l")), new_job("free")
        )
        assert harness.order() == ["k0", "l0", "free"]
        with harness.engine.read() as view:
            job = harness.job("k1")
            assert explain(view, job, harness.now).until == later(BEGINNING, 10)
        harness.advance(10)
        assert harness.order() == ["k1", "l1"]

    def test_starts_before_the_rate_was_set_count_and_skipped_jobs_do_not(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("stale", ttl_s=1), new_job("b"), new_job("c"))
        harness.take()
        harness.advance(1)
        harness.tick()
        assert harness.status("stale") is JobStatus.CANCELLED
        limit(harness, rate_count=2, rate_period_s=10)
        assert harness.order() == ["b"]

    def test_retention_keeps_what_a_rate_still_counts(self, harness: Harness) -> None:
        limit(harness, rate_count=1, rate_period_s=60)
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.complete(harness.take())
        harness.advance(59)
        assert harness.tick(Retention(done_s=0, failed_s=0)).pruned == 0
        assert harness.order() == []
        harness.advance(1)
        assert harness.tick(Retention(done_s=0, failed_s=0)).pruned == 1
        assert harness.order() == ["b"]

    # --- aging --------------------------------------------------------------------------------------------------------

    def test_waiting_is_worth_priority_where_a_queue_ages(self, harness: Harness) -> None:
        limit(harness, aging_s=60)
        harness.enqueue("old")
        harness.advance(120)
        harness.enqueue_many(new_job("urgent", priority=1), new_job("very", priority=3))
        assert harness.waiting() == ["very", "old", "urgent"]
        harness.restart()
        assert harness.order() == ["very", "old", "urgent"]

    @counts_writes
    def test_another_aging_reorders_the_queue_in_one_commit(self, harness: Harness) -> None:
        for number in range(6):
            harness.enqueue(f"j{number}", priority=number % 2, delay_s=1000 if number == 4 else None)
            harness.advance(60)
        grant = harness.take()
        assert grant.job.job_id == "j1"
        seq = harness.seq
        limit(harness, aging_s=60)
        assert harness.kinds(seq) == ["queue:set"]
        assert harness.waiting() == ["j0", "j3", "j2", "j5", "j4"]
        harness.restart()
        assert harness.waiting() == ["j0", "j3", "j2", "j5", "j4"]
        # What ran meanwhile comes back to its place.
        harness.report(Release(job_id=grant.job.job_id, token=grant.token, begun=True))
        assert harness.waiting() == ["j1", "j0", "j3", "j2", "j5", "j4"]
        limit(harness, aging_s=None)
        assert harness.waiting() == ["j1", "j3", "j5", "j0", "j2", "j4"]
        assert harness.job("j5").position == 300

    def test_another_aging_in_one_batch_with_what_it_reorders(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", priority=1))
        grant = harness.take()
        outcomes = harness.engine.submit_many(
            [
                Fail(job_id=grant.job.job_id, token=grant.token, error="boom", retry_after_s=0),
                SetQueue(queue="default", changes=QueueChanges(aging_s=60)),
                Lease(worker_id="w"),
                SetQueue(queue="default", changes=QueueChanges(aging_s=None)),
                Lease(worker_id="w", n=5),
            ]
        )
        assert [g.job.job_id for outcome in outcomes if isinstance(outcome, Leased) for g in outcome.grants] == [
            "b",
            "a",
        ]

    # --- many at once -------------------------------------------------------------------------------------------------

    def test_many_workers_at_once_never_exceed_a_limit(self, harness: Harness) -> None:
        many = harness.store.promises.many_processes
        engines = [harness.engine, *(harness.second() if many else harness.engine for _ in range(3))]
        limit(harness, max_running=2)
        harness.enqueue_many(*(new_job(f"j{n:02}", limit_key=f"k{n % 3}") for n in range(24)))
        gate = threading.Barrier(4)
        seen: list[str] = []
        crowds: list[int] = []

        def work(number: int) -> None:
            gate.wait()
            while len(seen) < 24:
                outcome = engines[number].submit(Lease(worker_id=f"w{number}", n=2))
                assert isinstance(outcome, Leased)
                with engines[number].read() as view:
                    crowds.append(len(view.running("", "default")))
                for grant in outcome.grants:
                    engines[number].ask(Complete(job_id=grant.job.job_id, token=grant.token))
                    seen.append(grant.job.job_id)

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work, number) for number in range(4)]:
                done.result()
        assert sorted(seen) == [f"j{n:02}" for n in range(24)]
        assert max(crowds) <= 2


def _leased(engine: Engine, worker: str) -> list[str]:
    outcome = engine.ask(Lease(worker_id=worker, n=9))
    assert isinstance(outcome, Leased)
    return [grant.job.job_id for grant in outcome.grants]

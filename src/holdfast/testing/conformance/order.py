"""Order: which job is next. Stored fields decide, and nothing else."""

from __future__ import annotations

import msgspec

from holdfast.model.commands import Cancel, Release, Snooze
from holdfast.model.events import JobCreated
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job, JobStatus
from holdfast.testing.conformance.harness import BEGINNING, NO_PARAMS, Harness, Topic, new_job

#: Jobs in a queue that several programs share: more than a look passes over before it looks by task.
SHARED = 150
NO_JITTER = Backoff(jitter=0)


def _place(harness: Harness, *jobs: Job) -> None:
    """Put jobs into the store as they are, past the rules that would give them a position of their own."""
    with harness.authority.store.write() as batch:
        batch.add([JobCreated(job=job) for job in jobs], harness.now)


def _bare(job_id: str, **fields: object) -> Job:
    job = Job(job_id=JobId(job_id), job_type="work", params=NO_PARAMS, created_at=BEGINNING, position=100)
    return msgspec.structs.replace(job, **fields)


def _demand_filtered(harness: Harness) -> None:
    """Demand that asking for tasks gives what passing over all others gives."""
    with harness.engine.read() as view:
        for queues in (("one",), ("two",), ("one", "two")):
            for free in (False, True):
                line = list(view.ready("", queues, None, harness.now, free=free))
                assert len(line) > SHARED // 2
                for tasks in (("sweep",), ("cook", "paint"), ("sweep", "nothing", "cook", "paint"), ("nothing",)):
                    found = [job.job_id for job in view.ready("", queues, tasks, harness.now, free=free)]
                    assert found == [job.job_id for job in line if job.job_type in tasks]


class Order(Topic):
    """Priority, position, time, id."""

    def test_higher_priority_first_then_first_come_ten_times(self, harness: Harness) -> None:
        for turn in range(10):
            names = [f"{turn}-{number}" for number in (1, 2, 3, 4, 5)]
            for name, priority in zip(names, (1, 10, 5, 5, 10), strict=True):
                harness.enqueue(name, priority=priority)
            assert harness.order() == [names[at - 1] for at in (2, 5, 3, 4, 1)]

    def test_the_order_is_the_same_after_reopening(self, harness: Harness) -> None:
        for number, priority in enumerate((1, 10, 5, 5, 10), start=1):
            harness.enqueue(str(number), priority=priority)
        harness.reopen()
        assert harness.order() == ["2", "5", "3", "4", "1"]

    def test_with_equal_priority_and_position_five_microseconds_decide(self, harness: Harness) -> None:
        _place(harness, _bare("a", created_at=harness.after(0.000005)), _bare("b", created_at=harness.after(0)))
        assert harness.order() == ["b", "a"]

    def test_with_everything_else_equal_the_id_decides(self, harness: Harness) -> None:
        _place(harness, _bare("b"), _bare("a"), _bare("c"), _bare("B"))
        assert harness.order() == ["B", "a", "b", "c"]

    def test_ids_are_ordered_by_their_characters_not_by_a_locale(self, harness: Harness) -> None:
        names = ["\U0001f600", "zebra", "é", "\uffff", "Zebra", "10", "9"]
        _place(harness, *(_bare(name) for name in names))
        assert harness.order() == sorted(names)

    def test_new_jobs_stand_a_hundred_apart_in_their_band(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"), new_job("c", priority=1))
        harness.enqueue("d")
        assert [harness.job(name).position for name in "abcd"] == [100, 200, 100, 300]
        assert [harness.job(name).rank for name in "abcd"] == [0, 0, -1, 0]

    def test_a_new_job_stands_behind_the_last_queued_one_not_behind_the_running(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.lease(2)
        harness.enqueue("c")
        assert harness.job("c").position == 100

    def test_several_queues_asked_together_are_merged_by_the_same_order(self, harness: Harness) -> None:
        harness.enqueue("a", queue="one")
        harness.enqueue("b", queue="two", priority=1)
        harness.enqueue("c", queue="one", priority=1)
        harness.enqueue("d", queue="two")
        harness.enqueue("e", queue="three", priority=9)
        assert harness.order(queues=("one", "two")) == ["b", "c", "a", "d"]

    def test_a_queue_named_twice_is_asked_once(self, harness: Harness) -> None:
        harness.enqueue("a")
        assert harness.order(queues=("default", "default")) == ["a"]

    def test_namespaces_do_not_see_each_other(self, harness: Harness) -> None:
        harness.enqueue("a", namespace="x")
        harness.enqueue("b", namespace="y")
        assert harness.order() == []
        assert harness.order(namespace="y") == ["b"]
        assert harness.order(namespace="x") == ["a"]

    def test_a_task_the_worker_does_not_know_does_not_block_the_one_behind_it(self, harness: Harness) -> None:
        harness.enqueue("a", "paint", priority=9)
        harness.enqueue("b", "sweep")
        assert harness.order(job_types=("sweep", "cook")) == ["b"]
        assert harness.order(job_types=()) == []
        assert harness.order(job_types=("paint",)) == ["a"]

    def test_jobs_of_some_tasks_come_in_the_order_they_have_among_all_others(self, harness: Harness) -> None:
        names = ("paint", "sweep", "cook", "wait", "wait", "wait", "wait")  # what nobody asks for stands everywhere
        for queue in ("one", "two"):
            harness.enqueue_many(
                *(
                    new_job(
                        f"{queue}-{number:03}",
                        names[number * number % 11 % len(names)],
                        queue=queue,
                        priority=number % 3 if number > SHARED // 2 else 0,
                        limit_key="k" if number % 5 == 1 else None,
                        delay_s=10 if number % 9 == 4 else None,
                    )
                    for number in range(SHARED)
                )
            )
        _demand_filtered(harness)
        (held,) = harness.lease(1, queues=("two",), job_types=("sweep",))
        grants = harness.lease(15, queues=("one", "two"), job_types=("paint", "cook"))
        assert {grant.job.job_type for grant in grants} == {"paint", "cook"}
        _demand_filtered(harness)
        for grant in grants[::4]:
            harness.report(Release(job_id=grant.job.job_id, token=grant.token, begun=False))
        for number in range(0, SHARED, 17):
            if harness.job(f"one-{number:03}").status is JobStatus.QUEUED:
                harness.ask(Cancel(job_id=JobId(f"one-{number:03}")))
        _demand_filtered(harness)
        harness.advance(10)
        harness.complete(held)
        _demand_filtered(harness)

    def test_a_delayed_job_is_not_leased_before_its_time(self, harness: Harness) -> None:
        harness.enqueue("a", delay_s=10, priority=9)
        harness.enqueue("b")
        assert harness.order() == ["b"]
        harness.advance(9.999999)
        assert harness.order() == []
        harness.advance(0.000001)
        assert harness.order() == ["a"]

    def test_a_delayed_job_keeps_its_place_in_the_band(self, harness: Harness) -> None:
        harness.enqueue("a", delay_s=10)
        harness.enqueue("b")
        harness.advance(10)
        assert harness.order() == ["a", "b"]

    def test_the_later_of_delay_and_not_before_counts(self, harness: Harness) -> None:
        harness.enqueue("a", delay_s=10, not_before=harness.after(20))
        harness.enqueue("b", delay_s=10, not_before=harness.after(5))
        harness.enqueue("c", not_before=harness.after(-5))
        assert [harness.job(name).not_before for name in "abc"] == [harness.after(20), harness.after(10), None]

    def test_a_time_that_the_clock_was_set_back_from_holds_the_job_again(self, harness: Harness) -> None:
        harness.enqueue("a", delay_s=100)
        harness.advance(100)
        assert harness.order(job_types=("other",)) == []
        harness.clock.set_wall(harness.clock.now().replace(minute=0, second=10))
        assert harness.order() == []

    def test_a_failed_job_goes_to_the_back_of_its_band(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", backoff=Backoff(base_s=0, jitter=0)), new_job("b"), new_job("c"))
        harness.fail(harness.take())
        assert harness.order() == ["b", "c", "a"]

    def test_a_snoozed_job_goes_to_the_back_of_its_band(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        grant = harness.take()
        harness.report(Snooze(job_id=grant.job.job_id, token=grant.token, delay_s=5))
        harness.advance(5)
        assert harness.order() == ["b", "a"]

    def test_a_released_job_keeps_its_place(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        grant = harness.take()
        harness.report(Release(job_id=grant.job.job_id, token=grant.token, begun=True))
        assert harness.order() == ["a", "b"]

    def test_a_lost_job_keeps_its_place(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.take()
        harness.advance(30)
        assert harness.order() == ["a", "b"]

    def test_more_jobs_than_are_asked_for_stay_in_order(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(f"{number:03}") for number in range(250)))
        first, second, third = harness.order(100), harness.order(100), harness.order(100)
        assert first + second + third == [f"{number:03}" for number in range(250)]

    def test_what_has_ended_leaves_the_order(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"), new_job("c"))
        harness.ask(Cancel(job_id=JobId("b")))
        assert harness.waiting() == ["a", "c"]
        assert harness.order() == ["a", "c"]

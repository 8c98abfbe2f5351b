"""The order of dispatch: rank, position, created_at, id. Stored fields only."""

import msgspec
from world import START, World

from holdfast.model.jobs import Job, Run
from holdfast.model.records import Queue
from holdfast.model.times import later
from holdfast.rules.jobs.dispatch_order import back, place, rank_of, run_place

JOB = Job("j", "t", msgspec.Raw(b"{}"), START)


def job(**fields):
    return msgspec.structs.replace(JOB, **fields)


def test_each_field_decides_only_where_those_before_it_are_equal():
    ordered = [
        job(rank=-1, position=900, created_at=later(START, 9), job_id="z"),
        job(rank=0, position=-100, created_at=later(START, 9), job_id="z"),
        job(rank=0, position=100, created_at=START, job_id="z"),
        job(rank=0, position=100, created_at=later(START, 0.000005), job_id="a"),
        job(rank=0, position=100, created_at=later(START, 0.000005), job_id="b"),
        job(rank=1, position=-999, job_id="a"),
    ]
    shuffled = ordered[::-1]
    assert sorted(shuffled, key=place) == ordered


def test_a_higher_priority_has_a_lower_rank():
    assert sorted([0, 100, -100, 1], key=lambda priority: rank_of(priority, START, None)) == [100, 1, 0, -100]
    assert rank_of(5, START, Queue("", "q", paused=True)) == -5


def test_with_aging_each_step_of_waiting_is_worth_a_step_of_priority():
    queue = Queue("", "q", aging_s=60)
    first = rank_of(0, START, queue)
    assert [rank_of(0, later(START, s), queue) - first for s in (0, 59.999999, 60, 119, 120)] == [0, 0, 1, 1, 2]
    assert rank_of(0, START, queue) == rank_of(2, later(START, 120), queue)
    assert rank_of(3, later(START, 120), queue) < rank_of(0, START, queue) < rank_of(1, later(START, 120), queue)
    assert rank_of(0, START, queue) < rank_of(0, START, Queue("", "q", aging_s=0.5))


def test_the_back_of_an_empty_band_is_a_hundred():
    world = World()
    assert back(world.tables, "", "default", 0) == 100
    world.enqueue("a")
    world.enqueue("delayed", delay_s=9)
    assert back(world.tables, "", "default", 0) == 300
    assert back(world.tables, "", "default", 1) == back(world.tables, "n", "default", 0) == 100


def test_the_place_of_running_and_ended_jobs_is_free():
    world = World()
    world.start("a")
    assert back(world.tables, "", "default", 0) == 100


def test_a_run_that_was_skipped_comes_behind_those_that_started():
    runs = [Run(f"r{number}", "j", number, START, msgspec.Raw(b"{}")) for number in (0, 10, 2, 1)]
    assert [run.run_no for run in sorted(runs, key=run_place)] == [1, 2, 10, 0]

"""The example that kills its own worker, run as users run it."""

from __future__ import annotations


def test_a_job_that_killed_its_worker_is_run_again_and_all_are_done(example):
    head, *jobs = example("crash_demo")()
    assert head.startswith("the first worker ended by signal 9; ")
    assert len(jobs) == 6
    assert all(line.startswith(f"COMPLETED picture {number}, run ") for number, line in enumerate(jobs))
    assert jobs[3].endswith("run 2 ['LOST', 'COMPLETED']")
    assert jobs[5].endswith("run 1 ['COMPLETED']")


def test_what_was_reported_before_the_crash_is_not_run_again(example):
    head, *jobs = example("crash_demo")()
    done = int(head.partition("; ")[2].split()[0])
    assert all(line.endswith("run 1 ['COMPLETED']") for line in jobs[:done])

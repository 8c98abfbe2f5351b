"""The example with a coordinator that is killed, run as users run it."""

from __future__ import annotations


def test_workers_go_on_when_their_coordinator_was_killed_and_every_job_ends_once(example):
    assert example("remote_workers")() == [
        "picture 20",
        "{'COMPLETED'} attempts: {1}",
        "workers ended with {0}",
        "coordinator ended with 0",
    ]

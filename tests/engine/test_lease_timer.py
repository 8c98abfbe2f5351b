"""Leases timed by the monotonic clock."""

import pytest

from holdfast.engine.lease_timer import LeaseWatch
from holdfast.model import events as ev
from holdfast.model.commands import Overdue
from holdfast.model.jobs import JobStatus
from holdfast.model.times import later

NOW = "2026-01-01T00:00:00.000000Z"


def granted(job_id="j", token=1, seconds=30):
    return ev.LeaseGranted(
        job_id=job_id, token=token, run_id="r", run_no=1, worker_id="w", lease_expires_at=later(NOW, seconds)
    )


def test_a_lease_is_overdue_when_its_seconds_have_passed_and_told_once():
    watch = LeaseWatch()
    watch.note([granted(), granted("k", 2, 60)], NOW, 1000.0)
    assert watch.overdue(1029.999) == ()
    assert watch.overdue(1030.0) == (Overdue("j", 1),)
    assert watch.overdue(1030.0) == ()
    assert watch.overdue(2000.0) == (Overdue("k", 2),)


def test_an_extension_counts_from_when_it_was_seen():
    watch = LeaseWatch()
    watch.note([granted()], NOW, 1000.0)
    extended = ev.LeaseExtended(job_id="j", token=1, lease_expires_at=later(NOW, 50))
    watch.note([extended], later(NOW, 20), 1020.0)
    assert watch.overdue(1049.999) == ()
    assert watch.overdue(1050.0) == (Overdue("j", 1),)


HELD = {"job_id": "j", "token": 1}


@pytest.mark.parametrize(
    "end",
    [
        ev.JobCompleted(**HELD),
        ev.JobFailed(**HELD, error="e", error_kind="exception", to=JobStatus.FAILED),
        ev.JobSnoozed(**HELD, not_before=NOW, to=JobStatus.QUEUED),
        ev.LeaseReleased(**HELD, begun=True, to=JobStatus.QUEUED),
        ev.LeaseExpired(**HELD, reason="timeout", counted=True, to=JobStatus.QUEUED),
        ev.JobCancelled(**HELD),
        ev.JobDead(job_id="j"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_lease_that_ended_is_no_longer_watched(end):
    watch = LeaseWatch()
    watch.note([granted(), end], NOW, 0.0)
    assert watch.overdue(1e9) == ()


def test_other_events_change_nothing():
    watch = LeaseWatch()
    watch.note([granted(), ev.JobCancelRequested(job_id="j"), ev.DispatchPaused()], NOW, 0.0)
    assert watch.overdue(30.0) == (Overdue("j", 1),)


def test_a_lease_of_unknown_start_is_timed_from_first_sight_unless_it_is_timed_already():
    watch = LeaseWatch()
    watch.limit("j", 1, 30.0)
    watch.limit("j", 1, 99.0)
    assert watch.overdue(30.0) == (Overdue("j", 1),)
    watch.note([granted("k", 2)], NOW, 0.0)
    watch.limit("k", 2, 5.0)
    assert watch.overdue(29.0) == ()
    watch.limit("k", 3, 5.0)  # another lease of the same job
    assert watch.overdue(29.0) == (Overdue("k", 3),)


def test_a_holder_that_is_alive_gets_more_time_and_never_less():
    watch = LeaseWatch()
    watch.note([granted()], NOW, 0.0)
    watch.renew("j", 1, 50.0)
    watch.renew("j", 1, 40.0)
    watch.renew("j", 2, 99.0)  # another lease of the same job
    watch.renew("k", 1, 10.0)  # one that is not watched
    assert watch.overdue(49.0) == ()
    assert watch.overdue(50.0) == (Overdue("j", 1),)
    assert watch.overdue(1e9) == ()

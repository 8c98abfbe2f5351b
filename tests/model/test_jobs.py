"""Jobs: what they are when nothing is said, and when they are over."""

import msgspec
import pytest

from holdfast.model.jobs import ENDED, Backoff, Job, JobStatus, KeyHold, KeyScope, RetryMode

JOB = Job("j", "t", msgspec.Raw(b"{}"), "2026-01-01T00:00:00.000000Z")


def test_the_defaults_are_those_of_the_contract():
    assert (JOB.namespace, JOB.queue, JOB.priority, JOB.status) == ("", "default", 0, JobStatus.QUEUED)
    assert (JOB.lease_s, JOB.max_attempts, JOB.max_expiries, JOB.retry_mode) == (30, 4, 5, RetryMode.REQUEUE)
    assert JOB.backoff == Backoff(base_s=10, factor=2, cap_s=3600, jitter=0.2)
    assert (JOB.key_scope, JOB.key_hold, JOB.key_limit) == (KeyScope.TASK, KeyHold.ACTIVE, 1)


@pytest.mark.parametrize("status", JobStatus)
def test_a_job_has_ended_in_four_of_six_statuses(status):
    assert (
        msgspec.structs.replace(JOB, status=status).has_ended
        == (status in ENDED)
        == (status not in {"QUEUED", "RUNNING"})
    )


def test_a_job_cannot_be_changed_in_place():
    with pytest.raises(AttributeError):
        JOB.status = JobStatus.COMPLETED

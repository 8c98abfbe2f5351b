"""What a delivery says. Made once, from the records as they are when a run ends, and never changed.

Flat, so that a receiver needs no schema to find its way; the words are those of the API. No parameters and no result:
whoever may know them can ask for the job.
"""

from __future__ import annotations

import msgspec

from holdfast.model.jobs import Job, Run
from holdfast.model.payloads import NULL
from holdfast.model.webhooks import TEST_EVENT, Webhook

_NOTHING = msgspec.Raw(b"[]")


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a body, in their order. All are always there."""

    event: str
    delivery_id: str
    run_id: str | None = None
    job_id: str | None = None
    job_type: str | None = None
    namespace: str
    queue: str | None = None
    status: str | None = None
    job_status: str | None = None
    #: The job has ended, and no automatic retry follows it.
    final: bool = False
    run_no: int | None = None
    started_at: str | None = None
    finished_at: str | None = None
    exit_code: int | None = None
    error: str | None = None
    artifacts: msgspec.Raw = _NOTHING
    template_id: str | None = None
    schedule_id: str | None = None
    group_id: str | None = None
    retry_of: str | None = None
    #: Number of the event in the store's feed: of two bodies about one job, the higher one is the later.
    seq: int


_encode = msgspec.json.Encoder().encode


def run_body(delivery_id: str, event: str, job: Job, run: Run, *, has_heir: bool) -> str:
    """Give the body that tells of a run's end."""
    body = _Body(
        event=event,
        delivery_id=delivery_id,
        run_id=run.run_id,
        job_id=job.job_id,
        job_type=job.job_type,
        namespace=job.namespace,
        queue=run.queue,
        status=run.status,
        job_status=job.status,
        final=job.has_ended and not has_heir,
        run_no=run.run_no,
        started_at=run.started_at,
        finished_at=run.finished_at,
        exit_code=run.exit_code,
        error=run.error,
        artifacts=_NOTHING if run.artifacts == NULL else run.artifacts,
        template_id=job.template_id,
        schedule_id=job.schedule_id,
        group_id=job.group_id,
        retry_of=job.retry_of,
        seq=job.seq,
    )
    return _encode(body).decode()


def probe_body(delivery_id: str, webhook: Webhook, seq: int) -> str:
    """Give the body of a delivery that tells of nothing but that it arrives."""
    body = _Body(event=TEST_EVENT, delivery_id=delivery_id, namespace=webhook.namespace, seq=seq)
    return _encode(body).decode()

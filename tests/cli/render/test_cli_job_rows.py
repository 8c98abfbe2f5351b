"""Jobs as they are shown: the reason is that of the rules, however many rows ask for theirs."""

from __future__ import annotations

import msgspec

from holdfast import Engine, open_store
from holdfast.cli.render.job_rows import row_record
from holdfast.cli.store_access.target import now
from holdfast.engine.reasons import Reasons
from holdfast.engine.views.projection import PREVIEW
from holdfast.model.commands import Cancel, Enqueue, Fail, Lease, NewJob, PauseQueue
from holdfast.rules import explain as rules
from holdfast.stores.protocol import JobQuery


def test_the_reasons_of_many_rows_are_those_of_the_rules(tmp_path, monkeypatch):
    for module in ("holdfast.rules.explain", "holdfast.engine.reasons"):
        monkeypatch.setattr(f"{module}.COUNTED", 20)
    engine = Engine(open_store(f"sqlite:{tmp_path / 'jobs'}"))
    for n in range(60):
        queue, priority = ("default", "mail", "shut")[n % 3], n % 4
        job = NewJob(job_id=f"job-{n:02}", job_type="work", params=msgspec.Raw(b"{}"), queue=queue, priority=priority)
        engine.ask(Enqueue(jobs=(msgspec.structs.replace(job, delay_s=60 if n % 7 == 0 else None),)))
    first, _ = engine.ask(Lease(worker_id="w", n=2)).grants
    engine.ask(Fail(job_id=first.job.job_id, token=first.token, error="no"))
    engine.ask(Cancel(job_id="job-10"))
    engine.ask(PauseQueue(queue="shut"))
    at = now()
    with engine.read() as view:
        reasons = Reasons(view, at)
        jobs = view.jobs(JobQuery(limit=100))
        found = {job.job_id: reasons.of(job) for job in jobs}
        assert found == {job.job_id: rules.explain(view, job, at) for job in jobs}
    engine.close()
    codes = {reason.code for reason in found.values()}
    assert codes == {"ready", "behind", "delayed", "queue_paused", "running", "ended"}


def test_a_row_has_every_field_but_the_payloads(tmp_path):
    engine = Engine(open_store(f"sqlite:{tmp_path / 'jobs'}"))
    params = msgspec.Raw(msgspec.json.encode({"x": "é" * 500}))
    engine.ask(Enqueue(jobs=(NewJob(job_id="a", job_type="work", params=params),)))
    job = engine.job("a")
    engine.close()
    record = row_record(job, rules.Reason(code="ready", sentence="next"))
    assert set(record) == {*job.__struct_fields__, "preview", "reason"} - {"params", "result"}
    assert len(record["preview"]) == PREVIEW

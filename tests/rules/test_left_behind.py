"""What an execution leaves behind (artifacts, its last progress) stays with its run, however it ended."""

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.engine.engine import Engine
from holdfast.model.commands import Complete, Enqueue, Fail, GiveUp, Lease, NewJob, Release, Snooze
from holdfast.model.events import decode_event
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Refusal
from holdfast.model.payloads import NULL
from holdfast.stores.memory.store import MemoryStore

ARTIFACTS = msgspec.Raw(b'[{"name":"out.csv","size":3}]')
PROGRESS = msgspec.Raw(b'{"fraction":0.5}')
REPORTS = [
    (Complete, {}),
    (Fail, {"error": "broken"}),
    (Snooze, {"delay_s": 5}),
    (GiveUp, {"reason": "no"}),
    (Release, {"begun": True}),
]


@pytest.fixture
def engine():
    opened = Engine(MemoryStore(), clock=SystemClock())
    yield opened
    opened.close()


def leased(engine):
    engine.ask(Enqueue(jobs=(NewJob(job_id=JobId("j"), job_type="t", params=msgspec.Raw(b"{}")),)))
    (grant,) = engine.ask(Lease(worker_id="w")).grants
    return {"job_id": grant.job.job_id, "token": grant.token}


@pytest.mark.parametrize(("kind", "fields"), REPORTS)
def test_every_report_keeps_it_with_the_run(engine, kind, fields):
    engine.ask(kind(**leased(engine), **fields, artifacts=ARTIFACTS, progress=PROGRESS))
    (run,) = engine.runs(JobId("j"))
    assert (bytes(run.artifacts), bytes(run.progress)) == (bytes(ARTIFACTS), bytes(PROGRESS))


@pytest.mark.parametrize(("kind", "fields"), REPORTS)
def test_a_report_without_it_writes_what_it_wrote_before(engine, kind, fields):
    engine.ask(kind(**leased(engine), **fields))
    text = bytes([entry.event for entry in engine.store.feed(0)][-1])
    assert b"artifacts" not in text
    assert b"progress" not in text
    event = decode_event(text, seq=1, file="f")
    assert (event.artifacts, event.progress) == (NULL, NULL)


@pytest.mark.parametrize(("kind", "fields"), REPORTS)
@pytest.mark.parametrize("field", ["artifacts", "progress"])
def test_what_is_no_json_is_refused(engine, kind, fields, field):
    reply = engine.submit(kind(**leased(engine), **fields, **{field: msgspec.Raw(b"[NaN")}))
    assert isinstance(reply, Refusal)
    assert reply.facts["field"] == field


def test_a_progress_beyond_its_size_is_refused(engine):
    large = msgspec.Raw(b'{"data":"' + b"x" * 9000 + b'"}')
    reply = engine.submit(Complete(**leased(engine), progress=large))
    assert isinstance(reply, Refusal)
    assert "progress: 9,011 bytes" in reply.message
    assert engine.runs(JobId("j"))[0].progress == NULL

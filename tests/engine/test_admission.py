"""Payloads are checked once, before any store sees them."""

import msgspec
import pytest

from holdfast.engine.admission import admitted
from holdfast.model import commands as c
from holdfast.model.events import JobChanges
from holdfast.model.payloads import MAX_BYTES

GOOD, SPACED, COMPACT = msgspec.Raw(b'{"a":1}'), msgspec.Raw(b'{ "a" : 1 }'), b'{"a":1}'
BAD = msgspec.Raw(b'{"a":NaN}')
HELD = {"job_id": "j", "token": 1}


def enqueue(params):
    jobs = tuple(c.NewJob(job_id=f"j{number}", job_type="t", params=raw) for number, raw in enumerate(params))
    return c.Enqueue(jobs=jobs)


WITH_PAYLOAD = {
    "params": (lambda raw: enqueue([GOOD, raw]), lambda command: command.jobs[1].params),
    "result": (lambda raw: c.Complete(**HELD, result=raw), lambda command: command.result),
    "artifacts": (lambda raw: c.Complete(**HELD, artifacts=raw), lambda command: command.artifacts),
    "details": (lambda raw: c.Fail(**HELD, error="e", details=raw), lambda command: command.details),
    "update": (
        lambda raw: c.Update(job_id="j", changes=JobChanges(params=raw)),
        lambda command: command.changes.params,
    ),
    "retry": (lambda raw: c.Retry(job_id="j", new_job_id="k", params=raw), lambda command: command.params),
}


@pytest.mark.parametrize("name", WITH_PAYLOAD)
def test_a_good_payload_passes_unchanged_and_a_loose_one_is_made_compact(name):
    make, take = WITH_PAYLOAD[name]
    assert admitted(make(GOOD)) == make(GOOD)
    assert bytes(take(admitted(make(SPACED)))) == COMPACT


@pytest.mark.parametrize("name", WITH_PAYLOAD)
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (BAD, "invalid_value"),
        (msgspec.Raw(b""), "invalid_value"),
        (msgspec.Raw(b'"' + b"x" * MAX_BYTES + b'"'), "payload_too_large"),
    ],
    ids=["nan", "empty", "large"],
)
def test_a_bad_payload_is_refused_by_the_name_of_its_field(name, raw, code):
    make, _ = WITH_PAYLOAD[name]
    refusal = admitted(make(raw))
    assert refusal.code == code
    assert refusal.facts["field"] == ("params" if name in ("update", "retry") else name)


@pytest.mark.parametrize("name", ["params", "update", "retry"])
def test_params_are_objects(name):
    make, _ = WITH_PAYLOAD[name]
    assert admitted(make(msgspec.Raw(b"[1]"))).code == "invalid_value"


@pytest.mark.parametrize(
    "command",
    [
        c.Lease(worker_id="w"),
        c.Complete(**HELD),
        c.Fail(**HELD, error="e"),
        c.Retry(job_id="j", new_job_id="k"),
        c.Cancel(job_id="j"),
    ],
)
def test_a_command_without_payload_passes(command):
    assert admitted(command) is command


def test_a_command_is_bounded_as_a_whole_not_only_in_each_job():
    params = msgspec.Raw(b'{"pad":"%s"}' % (b"x" * 1_000_000))
    jobs = tuple(c.NewJob(job_id=f"{n}", job_type="work", params=params) for n in range(70))
    refused = admitted(c.Enqueue(jobs=jobs))
    assert refused.code == "payload_too_large"
    assert "several commands" in refused.hint
    assert admitted(c.Enqueue(jobs=jobs[:60])) == c.Enqueue(jobs=jobs[:60])

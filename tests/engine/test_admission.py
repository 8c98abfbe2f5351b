"""Payloads are checked once, before any store sees them."""

from hashlib import sha256

import msgspec
import pytest

from holdfast.engine.admission import admitted
from holdfast.errors import StoreFull
from holdfast.model import commands as c
from holdfast.model.events import JobChanges
from holdfast.model.payloads import MAX_BYTES, MAX_INLINE, MAX_LISTED, blob_ref, ref_in
from holdfast.stores.memory.store import MemoryStore

GOOD, SPACED, COMPACT = msgspec.Raw(b'{"a":1}'), msgspec.Raw(b'{ "a" : 1 }'), b'{"a":1}'
BAD = msgspec.Raw(b'{"a":NaN}')
BLOBS = MemoryStore().blobs
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
    assert admitted(make(GOOD), BLOBS) == make(GOOD)
    assert bytes(take(admitted(make(SPACED), BLOBS))) == COMPACT


@pytest.mark.parametrize("name", WITH_PAYLOAD)
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (BAD, "invalid_value"),
        (msgspec.Raw(b""), "invalid_value"),
        (msgspec.Raw(bytes(MAX_BYTES + 1)), "payload_too_large"),
    ],
    ids=["nan", "empty", "large"],
)
def test_a_bad_payload_is_refused_by_the_name_of_its_field(name, raw, code):
    make, _ = WITH_PAYLOAD[name]
    refusal = admitted(make(raw), BLOBS)
    assert refusal.code == code
    assert refusal.facts["field"] == ("params" if name in ("update", "retry") else name)


@pytest.mark.parametrize("name", ["params", "update", "retry"])
def test_params_are_objects(name):
    make, _ = WITH_PAYLOAD[name]
    assert admitted(make(msgspec.Raw(b"[1]")), BLOBS).code == "invalid_value"


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
    assert admitted(command, BLOBS) is command


def test_a_command_is_bounded_as_a_whole_not_only_in_each_job():
    params = msgspec.Raw(b'{"pad":"%s"}' % (b"x" * 60_000))
    jobs = tuple(c.NewJob(job_id=f"{n}", job_type="work", params=params) for n in range(1200))
    refused = admitted(c.Enqueue(jobs=jobs), BLOBS)
    assert refused.code == "payload_too_large"
    assert "several commands" in refused.hint
    assert admitted(c.Enqueue(jobs=jobs[:1000]), BLOBS) == c.Enqueue(jobs=jobs[:1000])


@pytest.mark.parametrize("name", ["params", "result", "details", "update", "retry"])
def test_a_large_payload_becomes_a_reference_and_the_largest_that_fits_stays(name):
    make, take = WITH_PAYLOAD[name]
    blobs = MemoryStore().blobs
    fits = msgspec.Raw(b'{"a":"%s"}' % (b"x" * (MAX_INLINE - 8)))
    assert take(admitted(make(fits), blobs)) == fits
    large = b'{"a":"%s"}' % (b"x" * (MAX_INLINE - 7))
    kept = take(admitted(make(msgspec.Raw(large)), blobs))
    assert ref_in(kept) == (sha256(large).hexdigest(), len(large))
    assert blobs.get(ref_in(kept).digest) == large
    loose = take(admitted(make(msgspec.Raw(b" " + large)), blobs))
    assert loose == kept


def test_artifacts_stay_in_their_run_up_to_a_limit_of_their_own():
    listed = msgspec.Raw(b'["%s"]' % (b"x" * MAX_INLINE))
    assert admitted(c.Complete(**HELD, artifacts=listed), BLOBS).artifacts == listed
    assert admitted(c.Complete(**HELD, artifacts=msgspec.Raw(bytes(MAX_LISTED + 1))), BLOBS).code == "payload_too_large"


@pytest.mark.parametrize("name", ["params", "result", "details", "update", "retry"])
def test_a_reference_is_taken_only_for_content_that_is_there_and_good(name):
    make, take = WITH_PAYLOAD[name]
    blobs = MemoryStore().blobs
    large = b'{"a":"%s"}' % (b"x" * MAX_INLINE)
    refused = admitted(make(blob_ref(sha256(large).hexdigest(), len(large))), blobs)
    assert (refused.code, refused.facts["field"]) == (
        "invalid_value",
        "params" if name in ("update", "retry") else name,
    )
    given = blob_ref(blobs.put(large), len(large))
    assert take(admitted(make(given), blobs)) == given
    # What it names is what counts, not what it says of the size; and small content stays in the record.
    assert take(admitted(make(blob_ref(blobs.put(large), 7)), blobs)) == given
    assert bytes(take(admitted(make(blob_ref(blobs.put(b'{ "a" : 1 }'), 70_000)), blobs))) == COMPACT
    assert admitted(make(blob_ref(blobs.put(b"no JSON"), 70_000)), blobs).code == "invalid_value"


def test_a_store_that_cannot_keep_the_content_is_told_as_such():
    class Full:
        def put(self, content):
            raise StoreFull("no space")

    with pytest.raises(StoreFull):
        admitted(enqueue([msgspec.Raw(b'{"a":"%s"}' % (b"x" * MAX_INLINE))]), Full())

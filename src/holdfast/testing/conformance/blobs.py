"""Blobs: content by its hash, and payloads too large for a record. What a record names is there as long as it does."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from holdfast.engine.blob_content import fetch
from holdfast.engine.maintenance import ORPHAN_S, SWEEP_EVERY_S
from holdfast.errors import BlobMissing, IdReused, InvalidValue
from holdfast.model.artifacts import Artifact
from holdfast.model.commands import Complete, Enqueue, Extend, Fail, NewJob, Prune, Retention, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.payloads import MAX_INLINE, blob_ref, ref_in
from holdfast.model.times import FOREVER
from holdfast.testing.conformance.commands import A, B
from holdfast.testing.conformance.harness import Harness, Topic

DAY = 86_400.0


def large(mark: str) -> dict[str, Any]:
    """Give parameters that do not fit a record."""
    return {"mark": mark, "pad": "ü" * MAX_INLINE}


def digest_of(value: object) -> str:
    """Give the name of the blob that a payload becomes."""
    return sha256(msgspec.json.encode(value)).hexdigest()


class Contents(Topic):
    """The blobs of a store, by themselves."""

    @pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 1000], ids=["nothing", "one byte", "bytes"])
    def test_content_comes_back_as_it_was(self, harness: Harness, content: bytes) -> None:
        blobs = harness.store.blobs
        assert blobs.put(content) == sha256(content).hexdigest()
        assert blobs.has(sha256(content).hexdigest())
        assert blobs.get(sha256(content).hexdigest()) == content

    def test_what_was_never_put_is_missing_by_name(self, harness: Harness) -> None:
        blobs = harness.store.blobs
        for digest in ("a" * 64, "", "../../etc/passwd", "A" * 64, "a" * 63 + "/", "a" * 64 + "\n"):
            assert not blobs.has(digest)
            with pytest.raises(BlobMissing) as caught:
                blobs.get(digest)
            assert caught.value.facts["digest"] == digest

    def test_the_same_content_twice_is_one_blob_whose_age_starts_anew(self, harness: Harness) -> None:
        blobs = harness.store.blobs
        old, renewed = blobs.put(b"old"), blobs.put(b"renewed")
        harness.advance(10)
        between = harness.now
        harness.advance(10)
        assert blobs.put(b"renewed") == renewed
        assert harness.authority.store.blobs.sweep(between, 10) == 1
        assert (blobs.has(old), blobs.has(renewed)) == (False, True)
        assert harness.authority.store.blobs.sweep(FOREVER, 10) == 1
        assert not blobs.has(renewed)
        assert blobs.put(b"renewed") == renewed
        assert blobs.get(renewed) == b"renewed"

    def test_a_sweep_of_blobs_takes_no_more_than_it_may(self, harness: Harness) -> None:
        blobs = harness.store.blobs
        for number in range(5):
            blobs.put(b"%d" % number)
        assert [harness.authority.store.blobs.sweep(FOREVER, 2) for _ in range(4)] == [2, 2, 1, 0]

    def test_content_is_there_after_reopening(self, harness: Harness) -> None:
        digest = harness.store.blobs.put(b"x" * 100_000)
        harness.enqueue("a")
        harness.reopen()
        assert harness.store.blobs.get(digest) == b"x" * 100_000
        assert harness.store.blobs.put(b"x" * 100_000) == digest

    def test_what_one_opening_puts_another_can_read(self, harness: Harness) -> None:
        other = harness.second()
        digest = harness.store.blobs.put(b"shared")
        assert other.store.blobs.get(digest) == b"shared"


class LargePayloads(Topic):
    """Payloads that do not fit a record, on the ordinary way of a job."""

    def _whole(self, harness: Harness, raw: msgspec.Raw) -> Any:
        return msgspec.json.decode(fetch(harness.store, raw))

    def test_a_large_payload_is_kept_as_a_reference_and_comes_back_whole(self, harness: Harness) -> None:
        harness.enqueue("a", params=large("a"))
        grant = harness.take()
        assert ref_in(grant.job.params) == (digest_of(large("a")), len(msgspec.json.encode(large("a"))))
        harness.complete(grant, large("result"))
        job, (run,) = harness.job("a"), harness.runs("a")
        assert self._whole(harness, job.params) == self._whole(harness, run.params_snapshot) == large("a")
        assert self._whole(harness, job.result) == large("result")
        assert harness.authority.store.check() == []
        harness.reopen()
        assert self._whole(harness, harness.job("a").result) == large("result")
        assert harness.authority.store.check() == []

    def test_details_of_an_error_and_edited_parameters_may_be_large(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(Update(job_id=A, changes=JobChanges(params=msgspec.Raw(msgspec.json.encode(large("new"))))))
        grant = harness.take()
        details = msgspec.Raw(msgspec.json.encode(large("details")))
        harness.ask(Fail(job_id=A, token=grant.token, error="e", details=details))
        (run,) = harness.runs("a")
        assert self._whole(harness, run.params_snapshot) == large("new")
        assert self._whole(harness, run.details) == large("details")

    def test_the_same_submission_again_is_a_repeat_and_another_is_refused(self, harness: Harness) -> None:
        assert harness.enqueue("a", params=large("a")).created
        assert not harness.enqueue("a", params=large("a")).created
        with pytest.raises(IdReused):
            harness.enqueue("a", params=large("b"))

    def test_the_same_report_again_is_a_repeat(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        report = Complete(job_id=A, token=grant.token, result=msgspec.Raw(msgspec.json.encode(large("r"))))
        harness.ask(report)
        assert harness.ask(report).duplicate  # type: ignore[union-attr]  # a report is answered by Reported

    def test_a_retry_runs_with_the_content_of_the_first(self, harness: Harness) -> None:
        harness.enqueue("a", params=large("a"), max_attempts=1)
        harness.fail(harness.take())
        harness.ask(Retry(job_id=A, new_job_id=B))
        assert self._whole(harness, harness.job("b").params) == large("a")
        harness.authority.store.blobs.sweep(FOREVER, 100)
        assert self._whole(harness, harness.job("b").params) == large("a")

    def test_a_reference_from_outside_is_taken_only_for_content_that_is_there(self, harness: Harness) -> None:
        content = msgspec.json.encode(large("put before"))
        named = blob_ref(sha256(content).hexdigest(), len(content))
        harness.refused(InvalidValue, Enqueue(jobs=(NewJob(job_id=A, job_type="work", params=named),)), field="params")
        harness.store.blobs.put(content)
        harness.ask(Enqueue(jobs=(NewJob(job_id=A, job_type="work", params=named),)))
        assert self._whole(harness, harness.job("a").params) == large("put before")

    # --- how long ---------------------------------------------------------------------------------------------------

    def _forget(self, harness: Harness, *job_ids: str) -> None:
        """Remove ended jobs, and sweep whatever may be swept."""
        harness.advance(DAY + 10)
        harness.ask(Prune(retention=Retention(done_s=DAY, failed_s=DAY)))
        for job_id in job_ids:
            with harness.engine.read() as view:
                assert JobId(job_id) not in view.ids_with_prefix(job_id, 100)
        harness.authority.store.blobs.sweep(harness.now, 100)

    def test_a_blob_is_there_as_long_as_a_job_or_run_names_it(self, harness: Harness) -> None:
        harness.enqueue("a", params=large("params"))
        harness.enqueue("b", params=large("params"))
        grant = harness.take()
        copied = Artifact("a.txt", 8, harness.store.blobs.put(b"artifact"), "text/plain")
        elsewhere = Artifact("b.txt", 9, harness.store.blobs.put(b"elsewhere"), "text/plain", "/tmp/b.txt")  # noqa: S108 - only named
        harness.ask(
            Complete(
                job_id=A,
                token=grant.token,
                result=msgspec.Raw(msgspec.json.encode(large("result"))),
                artifacts=msgspec.Raw(msgspec.json.encode([copied, elsewhere])),
            )
        )
        harness.advance(3 * DAY)
        blobs = harness.store.blobs
        assert harness.authority.store.blobs.sweep(harness.now, 100) == 1
        assert not blobs.has(elsewhere.sha256)
        assert blobs.get(copied.sha256) == b"artifact"
        named = [digest_of(large(mark)) for mark in ("params", "result")]
        assert all(map(blobs.has, named))
        self._forget(harness, "a")
        # The other job still names the parameters; the rest went with its job.
        assert [blobs.has(digest) for digest in (*named, copied.sha256)] == [True, False, False]
        assert self._whole(harness, harness.job("b").params) == large("params")
        assert harness.authority.store.check() == []

    def test_content_handed_from_job_to_job_outlives_each_of_them(self, harness: Harness) -> None:
        harness.enqueue("r0", params=large("a"), max_attempts=1)
        for number in range(3):
            harness.fail(harness.take())
            harness.ask(Retry(job_id=JobId(f"r{number}"), new_job_id=JobId(f"r{number + 1}")))
            harness.authority.store.blobs.sweep(FOREVER, 100)
        assert self._whole(harness, harness.job("r3").params) == large("a")

    def test_an_orphan_is_forgotten_by_the_tick_after_a_day(self, harness: Harness) -> None:
        blobs = harness.store.blobs
        orphan = blobs.put(b"put, and then the process died")
        harness.enqueue("a", params=large("a"))
        harness.tick()
        harness.advance(ORPHAN_S)
        harness.tick()
        assert blobs.has(orphan)
        harness.advance(1)
        assert harness.tick().swept == 0  # looked for once an hour only
        harness.advance(SWEEP_EVERY_S)
        assert harness.tick().swept == 1
        assert not blobs.has(orphan)
        assert self._whole(harness, harness.job("a").params) == large("a")

    def test_what_a_long_run_has_put_waits_for_its_report(self, harness: Harness) -> None:
        harness.enqueue("a", lease_s=86_400)
        grant = harness.take()
        early = harness.store.blobs.put(b"made on the first day")
        for _ in range(4):
            harness.advance(DAY * 0.9)
            harness.ask(Extend(job_id=A, token=grant.token))
            harness.tick()
        listed = [Artifact("a.txt", 21, early, "text/plain")]
        artifacts = msgspec.Raw(msgspec.json.encode(listed))
        harness.ask(Complete(job_id=A, token=grant.token, artifacts=artifacts))
        harness.advance(2 * DAY)
        harness.tick()
        assert harness.store.blobs.get(early) == b"made on the first day"
        assert harness.authority.store.check() == []

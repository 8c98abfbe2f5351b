"""Bad input: a typed refusal, and not one byte of state or feed changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.errors import HoldfastError, IdReused, InvalidValue, JobNotFound, PayloadTooLarge, UnknownLease
from holdfast.model.commands import (
    Bury,
    Cancel,
    Command,
    Complete,
    Enqueue,
    Expire,
    Extend,
    Fail,
    GiveUp,
    Lease,
    Move,
    NewJob,
    Normalize,
    PauseDispatch,
    PauseQueue,
    Release,
    Retry,
    SetQueue,
    Snooze,
    Update,
)
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Backoff, JobStatus
from holdfast.model.outcomes import Refusal
from holdfast.model.payloads import MAX_BYTES, MAX_INLINE
from holdfast.model.times import Timestamp
from holdfast.testing.conformance.commands import A, B
from holdfast.testing.conformance.harness import NO_PARAMS, Harness, Topic, new_job

LONE = "\ud800"
#: Texts that are no ids: empty, blank, with outer blanks, control characters, lone surrogates, or too long.
NO_IDS = ["", " ", "a ", "\ta", "a\nb", "a\x00b", "a\x7f", LONE, f"a{LONE}b", "x" * 201]
NO_NAMES = ["", "a b", "ü", "a\n", "x" * 129, "a;b", LONE, "../x y"]
#: JSON that is none, or that not every reader would read the same way.
NO_PAYLOADS: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{a: 1}",
    "half": b'{"a":',
    "two values": b"{} {}",
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "number beyond all numbers": b'{"a":1e999}',
    "lone surrogate": b'{"a":"\\ud800"}',
    "lone surrogate in a name": b'{"\\udc00":1}',
    "raw lone surrogate": b'{"a":"\xed\xa0\x80"}',
    "invalid UTF-8": b'{"a":"\xff"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "a name twice": b'{"a":1,"a":2}',
    "integer beyond 64 bits": b'{"a":9223372036854775808}',
    "huge integer": b'{"a":' + b"9" * 400 + b"}",
    "10,000 levels": b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "10,000 levels, unclosed": b'{"a":' + b"[" * 10_000,
    "65 levels": b'{"a":' * 65 + b"1" + b"}" * 65,
    "control character": b'{"a":"\n"}',
}
#: Payloads that are JSON but no object of parameter names.
NO_PARAMS_AT_ALL = [b"[]", b"1", b'"a"', b"null", b"true"]
PAYLOAD_FIELDS: dict[str, Callable[[msgspec.Raw, Token], Command]] = {
    "params": lambda raw, _: Enqueue(jobs=(new_job("fine"), NewJob(job_id=B, job_type="work", params=raw))),
    "result": lambda raw, token: Complete(job_id=A, token=token, result=raw),
    "artifacts": lambda raw, token: Complete(job_id=A, token=token, artifacts=raw),
    "details": lambda raw, token: Fail(job_id=A, token=token, error="x", details=raw),
    "changed params": lambda raw, _: Update(job_id=JobId("waiting"), changes=JobChanges(params=raw)),
    "retried params": lambda raw, _: Retry(job_id=JobId("over"), new_job_id=B, params=raw),
}
#: Option of a new job → values it does not take.
BAD_OPTIONS: list[tuple[str, Any]] = [
    ("priority", -101),
    ("priority", 101),
    ("priority", -(1 << 70)),
    ("lease_s", 0.5),
    ("lease_s", 86_401),
    ("lease_s", float("nan")),
    ("lease_s", float("inf")),
    ("max_attempts", 0),
    ("max_attempts", 1001),
    ("max_expiries", 0),
    ("max_expiries", 101),
    ("max_expiries", None),
    ("timeout_s", 0),
    ("timeout_s", -1),
    ("timeout_s", float("nan")),
    ("delay_s", -1),
    ("delay_s", float("inf")),
    ("delay_s", 1e300),
    ("ttl_s", float("nan")),
    ("not_before", "tomorrow"),
    ("not_before", "2026-01-01"),
    ("not_before", "2026-01-01T00:00:00Z"),
    ("not_before", "2026-13-01T00:00:00.000000Z"),
    ("expires_at", "2026-01-01T00:00:00.000000+"),
    ("expires_at", LONE * 27),
    ("backoff", Backoff(base_s=-1)),
    ("backoff", Backoff(factor=0.5)),
    ("backoff", Backoff(jitter=2)),
    ("backoff", Backoff(cap_s=float("nan"))),
    ("key", ""),
    ("key", LONE),
    ("key", "x" * 201),
    ("key_hold", "window"),
    ("key_window_s", 5),
    ("limit_key", "a\nb"),
    ("key_limit", 0),
    ("key_limit", 1 << 70),
    ("tags", {f"t{number}": "x" for number in range(17)}),
    ("tags", {"a": LONE}),
    ("tags", {"": "x"}),
    ("queue", "a b"),
    ("namespace", "a b"),
    ("job_type", ""),
    ("submitted_by", LONE),
    ("traceparent", LONE),
    ("owner", LONE),
    ("affinity", LONE),
    ("traceparent", "x" * 5_000_000),
]
#: Commands with one value that their field does not take.
BAD_COMMANDS: list[Command] = [
    Enqueue(jobs=()),
    Enqueue(jobs=tuple(new_job(f"j{number}") for number in range(1001))),
    Enqueue(cmd=LONE, jobs=(new_job("x"),)),
    Enqueue(actor=LONE, jobs=(new_job("x"),)),
    Lease(worker_id=""),
    Lease(worker_id=LONE),
    Lease(worker_id="w", n=0),
    Lease(worker_id="w", n=101),
    Lease(worker_id="w", queues=()),
    Lease(worker_id="w", queues=("a b",)),
    Lease(worker_id="w", namespace=LONE),
    Lease(worker_id="w", job_types=(LONE,)),
    Lease(worker_id="w", session_id=LONE),
    Lease(worker_id="w", lease_s=0),
    Lease(worker_id="w", lease_s=float("nan")),
    Extend(job_id=A, token=Token(1), lease_s=0),
    Extend(job_id=A, token=Token(1 << 63)),
    Complete(job_id=A, token=Token(1 << 70)),
    Complete(job_id=A, token=Token(-(1 << 70))),
    Complete(job_id=A, token=Token(1), exit_code=1 << 70),
    Fail(job_id=A, token=Token(1), error="x", retry_after_s=-1),
    Fail(job_id=A, token=Token(1), error="x", exit_code=-(1 << 70)),
    Snooze(job_id=A, token=Token(1), delay_s=float("inf")),
    Release(job_id=A, token=Token(1), begun=True, delay_s=-1),
    Update(job_id=A, changes=JobChanges()),
    Update(job_id=A, changes=JobChanges(priority=101)),
    Update(job_id=A, changes=JobChanges(queue="a b")),
    Update(job_id=A, changes=JobChanges(lease_s=0)),
    Update(job_id=A, changes=JobChanges(timeout_s=0)),
    Update(job_id=A, changes=JobChanges(max_attempts=0)),
    Update(job_id=A, changes=JobChanges(max_expiries=0)),
    Update(job_id=A, changes=JobChanges(key_limit=0)),
    Update(job_id=A, changes=JobChanges(not_before=Timestamp("soon"))),
    Update(job_id=A, changes=JobChanges(expires_at=Timestamp("later"))),
    Update(job_id=A, changes=JobChanges(backoff=Backoff(factor=0))),
    Update(job_id=A, changes=JobChanges(limit_key="")),
    Update(job_id=A, changes=JobChanges(tags={"": ""})),
    Retry(job_id=A, new_job_id=JobId(LONE)),
    Retry(job_id=A, new_job_id=B, priority=101),
    PauseQueue(queue=""),
    PauseQueue(queue="x", namespace=LONE),
    Normalize(queue=LONE),
    SetQueue(queue=LONE, changes=QueueChanges(max_running=1)),
    SetQueue(queue="x", changes=QueueChanges()),
    SetQueue(queue="x", changes=QueueChanges(max_running=0)),
    SetQueue(queue="x", changes=QueueChanges(max_running=1 << 70)),
    SetQueue(queue="x", changes=QueueChanges(rate_count=1)),
    SetQueue(queue="x", changes=QueueChanges(rate_count=1, rate_period_s=float("inf"))),
    SetQueue(queue="x", changes=QueueChanges(rate_scope="task")),  # type: ignore[arg-type]  # as untyped callers do
    SetQueue(queue="x", changes=QueueChanges(aging_s=0)),
    Expire(limit=0),
    Expire(limit=10_001),
]
#: Commands that name a job, by the id they name.
NAMING: dict[str, Callable[[JobId], Command]] = {
    "extend": lambda job_id: Extend(job_id=job_id, token=Token(1)),
    "complete": lambda job_id: Complete(job_id=job_id, token=Token(1)),
    "fail": lambda job_id: Fail(job_id=job_id, token=Token(1), error="x"),
    "snooze": lambda job_id: Snooze(job_id=job_id, token=Token(1), delay_s=1),
    "give up": lambda job_id: GiveUp(job_id=job_id, token=Token(1)),
    "release": lambda job_id: Release(job_id=job_id, token=Token(1), begun=True),
    "cancel": lambda job_id: Cancel(job_id=job_id, cmd="x"),
    "bury": lambda job_id: Bury(job_id=job_id),
    "update": lambda job_id: Update(job_id=job_id, changes=JobChanges(priority=1)),
    "move": lambda job_id: Move(job_id=job_id, to="first"),
    "move before": lambda job_id: Move(job_id=JobId("waiting"), before=job_id),
    "retry": lambda job_id: Retry(job_id=job_id, new_job_id=B),
}


def _settle(harness: Harness) -> Token:
    """Have one job running, one waiting and one that is over."""
    harness.enqueue("over")
    harness.ask(Cancel(job_id=JobId("over")))
    harness.enqueue_many(new_job("a"), new_job("waiting"))
    return harness.take().token


def _one_word(value: object) -> str:
    return ascii(value)[:40]


class BadInput(Topic):
    """Typed error, state and feed unchanged."""

    @pytest.mark.parametrize("payload", NO_PAYLOADS)
    def test_a_payload_that_is_not_plain_json_is_refused(self, harness: Harness, payload: str) -> None:
        token = _settle(harness)
        for bearing in PAYLOAD_FIELDS.values():
            harness.refused(InvalidValue, bearing(msgspec.Raw(NO_PAYLOADS[payload]), token))

    def test_a_payload_beyond_the_limit_is_refused(self, harness: Harness) -> None:
        token = _settle(harness)
        huge = msgspec.Raw(bytes(MAX_BYTES + 1))
        for bearing in PAYLOAD_FIELDS.values():
            harness.refused(PayloadTooLarge, bearing(huge, token))

    def test_params_must_be_an_object(self, harness: Harness) -> None:
        for payload in NO_PARAMS_AT_ALL:
            new = NewJob(job_id=A, job_type="work", params=msgspec.Raw(payload))
            harness.refused(InvalidValue, Enqueue(jobs=(new,)), field="params")

    def test_the_largest_payload_that_fits_a_record_is_kept_to_the_byte(self, harness: Harness) -> None:
        text = "x" * (MAX_INLINE - len('{"a":""}'))
        harness.enqueue("a", params={"a": text})
        assert bytes(harness.job("a").params) == b'{"a":"' + text.encode() + b'"}'

    def test_a_malformed_id_is_refused_for_a_new_job(self, harness: Harness) -> None:
        for text in NO_IDS:
            harness.refused(InvalidValue, Enqueue(jobs=(new_job(text),)), field="job_id")

    @pytest.mark.parametrize("verb", NAMING)
    def test_a_malformed_id_is_refused_wherever_a_job_is_named(self, harness: Harness, verb: str) -> None:
        _settle(harness)
        for text in NO_IDS:
            harness.refused(InvalidValue, NAMING[verb](JobId(text)))

    @pytest.mark.parametrize("verb", NAMING)
    def test_an_unknown_job_is_not_found(self, harness: Harness, verb: str) -> None:
        _settle(harness)
        harness.refused(JobNotFound, NAMING[verb](JobId("unknown")), job_id="unknown")

    @pytest.mark.parametrize("field", ["job_type", "queue"])
    def test_a_malformed_name_is_refused(self, harness: Harness, field: str) -> None:
        for text in NO_NAMES:
            harness.refused(InvalidValue, Enqueue(jobs=(new_job("a", **{field: text}),)), field=field)

    def test_an_option_out_of_range_is_refused(self, harness: Harness) -> None:
        for option, value in BAD_OPTIONS:
            harness.refused(InvalidValue, Enqueue(jobs=(new_job("fine"), new_job("a", **{option: value}))))

    def test_a_command_with_a_bad_value_is_refused(self, harness: Harness) -> None:
        _settle(harness)
        for command in BAD_COMMANDS:
            harness.refused(InvalidValue, command)

    def test_a_foreign_token_is_unknown(self, harness: Harness) -> None:
        token = _settle(harness)
        harness.refused(UnknownLease, Complete(job_id=JobId("waiting"), token=token), job_id="waiting")
        harness.refused(UnknownLease, Complete(job_id=A, token=Token(token + 1)), job_id="a")

    @pytest.mark.parametrize("other", [{"params": {"n": 2}}, {"job_type": "rest"}, {"namespace": "x"}])
    def test_the_id_of_another_job_is_refused(self, harness: Harness, other: dict[str, Any]) -> None:
        harness.enqueue("a", params={"n": 1})
        same = {"params": {"n": 1}, **other}
        harness.refused(IdReused, Enqueue(jobs=(new_job("a", **same),)), job_id="a")

    def test_the_same_id_twice_in_one_command_with_other_content_is_refused(self, harness: Harness) -> None:
        twice = Enqueue(jobs=(new_job("a", params={"n": 1}), new_job("a", params={"n": 2})))
        harness.refused(IdReused, twice, job_id="a")

    def test_blanks_and_order_within_a_payload_do_not_make_another_job(self, harness: Harness) -> None:
        harness.enqueue("a", params={"n": 1, "m": [1, 2]})
        spaced = NewJob(job_id=A, job_type="work", params=msgspec.Raw(b' {"n" : 1,\n "m": [1,2]} '))
        with harness.unchanged():
            (submitted,) = harness.enqueue_many(spaced)
        assert submitted.created is False

    @pytest.mark.parametrize(
        "command",
        [
            Cancel(job_id=A, reason=LONE),
            Bury(job_id=A, reason=LONE),
            GiveUp(job_id=A, token=Token(1), reason=LONE),
            PauseQueue(queue="default", reason=LONE),
            PauseDispatch(reason=LONE),
            Cancel(job_id=A, reason="x" * 20_000_000),
            Bury(job_id=A, reason="x" * 20_000_000),
            PauseQueue(queue="default", reason="x" * 20_000_000),
            PauseDispatch(reason="x" * 20_000_000),
        ],
        ids=_one_word,
    )
    def test_a_reason_of_any_text_is_kept_readable_and_short(self, harness: Harness, command: Command) -> None:
        harness.enqueue("a")
        harness.take()
        seq = harness.seq
        harness.ask(command)
        lengths = [len(bytes(entry.event)) for entry in harness.store.feed(seq)]
        assert lengths
        assert max(lengths) < 100_000

    def test_one_bad_command_of_a_batch_does_not_fail_its_neighbours(self, harness: Harness) -> None:
        bad: list[Command] = [*BAD_COMMANDS, *(verb(JobId(LONE)) for verb in NAMING.values())]
        for number, command in enumerate(bad):
            before, outcome, after = harness.engine.submit_many(
                [Enqueue(jobs=(new_job(f"before{number}"),)), command, Enqueue(jobs=(new_job(f"after{number}"),))]
            )
            assert isinstance(outcome, Refusal)
            assert not isinstance(before, Refusal)
            assert not isinstance(after, Refusal)

    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"": ""},
            {"\u0000": "\u0000"},
            {"a": "\u2028\u2029\ufeff\uffff\U0010ffff"},
            {"n": (1 << 63) - 1, "m": -(1 << 63)},
            {"f": 0.1, "g": 1e-300, "h": -0.0, "i": 1.7976931348623157e308},
            {"deep": [[[[[[[[[[{}]]]]]]]]]]},
            {"wide": list(range(10_000))},
            {"sql": "'; DROP TABLE jobs; --", "path": "../../etc/passwd", "html": "<script>"},
        ],
        ids=_one_word,
    )
    def test_what_is_good_comes_back_as_it_was(self, harness: Harness, params: dict[str, Any]) -> None:
        harness.enqueue("a", params=params)
        grant = harness.take()
        assert msgspec.json.decode(grant.job.params) == params
        harness.complete(grant, params)
        harness.restart()
        job, (run,) = harness.job("a"), harness.runs("a")
        assert job.status is JobStatus.COMPLETED
        for kept in (job.params, job.result, run.params_snapshot):
            assert msgspec.json.decode(kept) == params

    @pytest.mark.parametrize("text", ["x" * 200, "ü", "a b", "../x", "/etc/passwd", ".", "'", '"', "%00", "\U0001f600"])
    def test_an_odd_id_is_an_id_like_any_other(self, harness: Harness, text: str) -> None:
        harness.enqueue(text)
        grant = harness.take(cmd=text)
        assert grant.job.job_id == text
        harness.complete(grant)
        harness.restart()
        assert harness.status(text) is JobStatus.COMPLETED

    def test_every_refusal_names_its_exception(self, harness: Harness) -> None:
        for command in BAD_COMMANDS:
            outcome = harness.engine.submit(command)
            assert isinstance(outcome, Refusal)
            error = outcome.error()
            assert isinstance(error, HoldfastError)
            assert error.code == outcome.code
            assert NO_PARAMS not in error.facts.values()

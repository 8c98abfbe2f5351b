"""Edits: changing, moving and spacing what waits. Only what is QUEUED, and only in its own band."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.errors import InvalidOperation, InvalidValue, JobNotFound
from holdfast.model.commands import Cancel, Move, Normalize, Update
from holdfast.model.events import JobChanges, JobCreated
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job
from holdfast.model.outcomes import Changed, Done
from holdfast.testing.conformance.commands import A, B, C
from holdfast.testing.conformance.harness import BEGINNING, NO_PARAMS, Harness, Topic, new_job
from holdfast.testing.conformance.marks import counts_writes


def _update(harness: Harness, job_id: str = "a", **changes: Any) -> Changed:
    outcome = harness.ask(Update(job_id=JobId(job_id), changes=JobChanges(**changes)))
    assert isinstance(outcome, Changed)
    return outcome


def _three(harness: Harness) -> None:
    harness.enqueue_many(new_job("a"), new_job("b"), new_job("c"))


#: Field → another value than the default.
FIELDS: dict[str, Callable[[Harness], Any]] = {
    "params": lambda _: msgspec.Raw(b'{"n":2}'),
    "not_before": lambda harness: harness.after(60),
    "expires_at": lambda harness: harness.after(60),
    "timeout_s": lambda _: 2.5,
    "lease_s": lambda _: 90,
    "max_attempts": lambda _: 9,
    "max_expiries": lambda _: 9,
    "backoff": lambda _: Backoff(base_s=1.5, factor=3, cap_s=100, jitter=0),
    "limit_key": lambda _: "tenant 7",
    "key_limit": lambda _: 3,
    "tags": lambda _: {"colour": "red"},
}


class Edits(Topic):
    """Update, move, normalise."""

    @pytest.mark.parametrize("field", FIELDS)
    @counts_writes
    def test_a_field_of_a_queued_job_can_be_changed_and_stays_changed(self, harness: Harness, field: str) -> None:
        harness.enqueue("a")
        before, value = harness.job("a"), FIELDS[field](harness)
        assert _update(harness, **{field: value}) == Changed(job_id=A, position=100)
        expected = msgspec.structs.replace(before, **{field: value}, seq=harness.seq)
        assert harness.job("a") == expected
        harness.restart()
        assert harness.job("a") == expected

    def test_a_delay_and_a_latest_start_can_be_taken_away(self, harness: Harness) -> None:
        harness.enqueue("a", delay_s=60, ttl_s=120, timeout_s=5, tags={"x": "y"})
        _update(harness, not_before=None, expires_at=None, timeout_s=None, tags=None)
        job = harness.job("a")
        assert (job.not_before, job.expires_at, job.timeout_s, job.tags) == (None, None, None, None)
        harness.advance(200)
        harness.tick()
        assert harness.order() == ["a"]

    def test_another_priority_puts_the_job_at_the_back_of_its_new_band(self, harness: Harness) -> None:
        _three(harness)
        harness.enqueue("z", priority=5)
        assert _update(harness, priority=5) == Changed(job_id=A, position=200)
        assert harness.waiting() == ["z", "a", "b", "c"]

    def test_another_queue_puts_the_job_at_the_back_there(self, harness: Harness) -> None:
        _three(harness)
        harness.enqueue("z", queue="other")
        assert _update(harness, queue="other") == Changed(job_id=A, position=200)
        assert (harness.waiting(), harness.waiting("other")) == (["b", "c"], ["z", "a"])

    def test_the_answer_names_position_zero_when_it_is_zero(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", queue="other"), new_job("b"), new_job("c"))
        harness.ask(Move(job_id=C, to="first"))
        harness.ask(Move(job_id=B, to="first"))
        harness.ask(Cancel(job_id=C))
        assert harness.job("b").position == -100
        assert _update(harness, queue="default") == Changed(job_id=A, position=0)

    def test_the_same_priority_again_keeps_the_place(self, harness: Harness) -> None:
        _three(harness)
        _update(harness, priority=0, queue="default")
        assert harness.waiting() == ["a", "b", "c"]

    def test_params_are_frozen_once_the_job_was_leased(self, harness: Harness) -> None:
        harness.enqueue("a", backoff=Backoff(base_s=0, jitter=0))
        harness.fail(harness.take())
        frozen = Update(job_id=A, changes=JobChanges(params=msgspec.Raw(b'{"n":2}')))
        harness.refused(InvalidOperation, frozen, job_id="a")
        _update(harness, priority=3)

    def test_what_runs_is_not_edited(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.take()
        harness.refused(InvalidOperation, Update(job_id=A, changes=JobChanges(priority=1)), status="RUNNING")
        harness.refused(InvalidOperation, Move(job_id=A, to="last"), status="RUNNING")
        harness.refused(InvalidOperation, Move(job_id=B, before=A), status="RUNNING")

    def test_what_does_not_exist_is_not_edited(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.refused(JobNotFound, Update(job_id=JobId("z"), changes=JobChanges(priority=1)), job_id="z")
        harness.refused(JobNotFound, Move(job_id=JobId("z"), to="last"), job_id="z")
        harness.refused(JobNotFound, Move(job_id=A, after=JobId("z")), job_id="z")

    # --- move -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("move", "order", "position"),
        [
            (Move(job_id=C, before=A), ["c", "a", "b"], 0),
            (Move(job_id=C, before=B), ["a", "c", "b"], 150),
            (Move(job_id=A, after=B), ["b", "a", "c"], 250),
            (Move(job_id=A, after=C), ["b", "c", "a"], 400),
            (Move(job_id=C, to="first"), ["c", "a", "b"], 0),
            (Move(job_id=A, to="last"), ["b", "c", "a"], 400),
        ],
    )
    def test_a_job_is_moved(self, harness: Harness, move: Move, order: list[str], position: int) -> None:
        _three(harness)
        assert harness.ask(move) == Changed(job_id=move.job_id, position=position)
        assert harness.waiting() == order
        harness.restart()
        assert harness.order() == order

    @pytest.mark.parametrize(
        "move",
        [
            Move(job_id=B, before=C),
            Move(job_id=B, after=A),
            Move(job_id=B, before=B),
            Move(job_id=A, to="first"),
            Move(job_id=C, to="last"),
        ],
    )
    @counts_writes
    def test_a_move_to_where_it_stands_writes_nothing(self, harness: Harness, move: Move) -> None:
        _three(harness)
        with harness.unchanged():
            harness.ask(move)

    def test_delayed_jobs_are_neighbours_too(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", delay_s=60), new_job("b", delay_s=60), new_job("c"))
        harness.ask(Move(job_id=C, before=B))
        assert harness.waiting() == ["a", "c", "b"]
        harness.ask(Move(job_id=C, to="first"))
        assert harness.waiting() == ["c", "a", "b"]

    def test_when_no_gap_is_left_the_band_is_spaced_and_the_move_done_in_one_commit(self, harness: Harness) -> None:
        _three(harness)
        others = [new_job(f"n{number}") for number in range(8)]
        harness.enqueue_many(*others)
        seq = harness.seq
        for other in others:
            harness.ask(Move(job_id=other.job_id, after=A))
        assert harness.waiting() == ["a", *(other.job_id for other in reversed(others)), "b", "c"]
        assert "queue:normalized" in harness.kinds(seq)
        at = harness.kinds(seq).index("queue:normalized")
        assert harness.kinds(seq)[at + 1] == "job:moved"

    def test_positions_that_went_too_far_are_spaced_again(self, harness: Harness) -> None:
        far = (1 << 53) - 50
        with harness.authority.store.write() as batch:
            for number, name in enumerate("ab"):
                job = Job(
                    job_id=JobId(name), job_type="work", params=NO_PARAMS, created_at=BEGINNING, position=far - number
                )
                batch.add([JobCreated(job=job)], harness.now)
        assert harness.waiting() == ["b", "a"]
        assert harness.ask(Move(job_id=B, to="last")) == Changed(job_id=B, position=300)
        assert harness.waiting() == ["a", "b"]

    def test_a_move_across_bands_or_queues_is_refused(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", priority=1), new_job("c", queue="other"))
        harness.refused(InvalidOperation, Move(job_id=A, before=B), job_id="b")
        harness.refused(InvalidOperation, Move(job_id=A, after=C), job_id="c")

    def test_a_move_names_exactly_one_goal(self, harness: Harness) -> None:
        _three(harness)
        harness.refused(InvalidValue, Move(job_id=A))
        harness.refused(InvalidValue, Move(job_id=A, before=B, to="last"))

    # --- normalise --------------------------------------------------------------------------------------------------

    @counts_writes
    def test_normalising_spaces_every_band_and_keeps_the_order(self, harness: Harness) -> None:
        _three(harness)
        harness.enqueue_many(new_job("x", priority=1), new_job("y", priority=1, delay_s=60), new_job("z", queue="q"))
        harness.ask(Move(job_id=C, before=B))
        harness.ask(Move(job_id=JobId("y"), to="first"))
        order, seq = harness.waiting(), harness.seq
        assert harness.ask(Normalize(queue="default")) == Done()
        assert harness.waiting() == order == ["y", "x", "a", "c", "b"]
        assert [harness.job(name).position for name in order] == [100, 200, 100, 200, 300]
        assert harness.kinds(seq) == ["queue:normalized", "queue:normalized"]
        harness.restart()
        assert harness.waiting() == order

    @counts_writes
    def test_normalising_an_empty_queue_writes_nothing(self, harness: Harness) -> None:
        with harness.unchanged():
            assert harness.ask(Normalize(queue="nowhere")) == Done()

"""Unique keys: who holds one, for how long, and what the next who asks for it gets."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import DuplicateKey, InvalidOperation
from holdfast.model.commands import Cancel, Enqueue, Release, Retention, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, JobStatus
from holdfast.model.outcomes import Submitted
from holdfast.model.records import HeldKey
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job
from holdfast.testing.conformance.marks import counts_writes

NEW, HELD_BY_A = Submitted(JobId("b"), created=True), Submitted(A, created=False)


def _held(harness: Harness) -> list[tuple[str, str]]:
    with harness.engine.read() as view:
        return [(held.unique_key, held.job_id) for held in view.all(HeldKey)]


class Keys(Topic):
    """Scope, hold and conflict."""

    @pytest.mark.parametrize(
        ("scope", "other", "answer"),
        [
            ("task", {"job_type": "work", "queue": "other"}, HELD_BY_A),
            ("task", {"job_type": "rest"}, NEW),
            ("queue", {"job_type": "rest"}, HELD_BY_A),
            ("queue", {"queue": "other"}, NEW),
            ("namespace", {"job_type": "rest", "queue": "other"}, HELD_BY_A),
            ("namespace", {"namespace": "elsewhere"}, NEW),
        ],
    )
    def test_a_key_is_unique_within_its_scope(
        self, harness: Harness, scope: str, other: dict[str, str], answer: Submitted
    ) -> None:
        harness.enqueue("a", key="k", key_scope=scope)
        assert harness.enqueue("b", key="k", key_scope=scope, **other) == answer

    def test_scopes_do_not_meet(self, harness: Harness) -> None:
        names = [harness.enqueue(scope, key="k", key_scope=scope) for scope in ("task", "queue", "namespace")]
        assert all(name.created for name in names)

    def test_a_key_with_blanks_and_odd_letters_is_only_equal_to_itself(self, harness: Harness) -> None:
        keys = ["a b", "a", "a  b", "A b", "é", "e\u0301", "100%", "a_b", "'", '"', "a\u2028b"]
        for number, key in enumerate(keys):
            assert harness.enqueue(f"j{number}", key=key).created
        for number, key in enumerate(keys):
            assert harness.enqueue("again", key=key) == Submitted(JobId(f"j{number}"), created=False)

    # --- how long ---------------------------------------------------------------------------------------------------

    def test_an_active_key_is_held_until_the_job_ends(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        assert harness.enqueue("b", key="k") == HELD_BY_A
        grant = harness.take()
        assert harness.enqueue("b", key="k") == HELD_BY_A
        harness.complete(grant)
        assert harness.enqueue("b", key="k") == NEW

    @pytest.mark.parametrize("ending", ["cancel", "fail", "ttl", "lost"])
    def test_every_ending_frees_an_active_key(self, harness: Harness, ending: str) -> None:
        harness.enqueue("a", key="k", ttl_s=10, max_attempts=1, max_expiries=1)
        match ending:
            case "cancel":
                harness.ask(Cancel(job_id=A))
            case "fail":
                harness.fail(harness.take())
            case "ttl":
                harness.advance(10)
                harness.tick()
            case _:
                harness.take()
                harness.advance(30)
                harness.tick()
        assert _held(harness) == []
        assert harness.enqueue("b", key="k") == NEW

    def test_an_active_key_is_held_while_a_retry_waits(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        harness.fail(harness.take())
        assert harness.enqueue("b", key="k") == HELD_BY_A

    def test_a_queued_key_is_free_when_the_job_is_leased(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", key_hold="queued")
        assert harness.enqueue("b", key="k", key_hold="queued") == HELD_BY_A
        harness.take()
        assert harness.enqueue("b", key="k", key_hold="queued") == NEW

    def test_a_queued_key_is_taken_again_if_it_is_free(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", key_hold="queued")
        harness.report(Release(job_id=A, token=harness.take().token, begun=True))
        assert harness.enqueue("b", key="k", key_hold="queued") == HELD_BY_A

    def test_a_queued_key_is_not_taken_from_another(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", key_hold="queued")
        grant = harness.take()
        harness.enqueue("b", key="k", key_hold="queued")
        harness.report(Release(job_id=A, token=grant.token, begun=True))
        assert _held(harness) == [("task work k", "b")]
        harness.ask(Cancel(job_id=A))
        assert _held(harness) == [("task work k", "b")]

    def test_a_window_key_is_held_for_its_time_whatever_happens(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", key_hold="window", key_window_s=60)
        harness.complete(harness.take())
        harness.advance(60 - 0.000001)
        assert harness.enqueue("b", key="k", key_hold="window", key_window_s=60) == HELD_BY_A
        harness.advance(0.000001)
        assert harness.enqueue("b", key="k", key_hold="window", key_window_s=60) == NEW
        assert _held(harness) == [("task work k", "b")]

    def test_a_lapsed_window_is_swept_away(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", key_hold="window", key_window_s=60)
        harness.advance(59)
        harness.tick()
        assert _held(harness) == [("task work k", "a")]
        harness.advance(1)
        harness.tick()
        assert _held(harness) == []

    def test_a_key_held_forever_survives_retention(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", key_hold="forever")
        harness.complete(harness.take())
        harness.advance(10)
        assert harness.tick(Retention(done_s=1)).pruned == 1
        assert harness.enqueue("b", key="k", key_hold="forever") == HELD_BY_A
        harness.refused(DuplicateKey, Enqueue(jobs=(new_job("b", key="k", on_conflict="reject"),)), job_id="a", key="k")

    def test_holds_survive_a_restart(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        harness.restart()
        assert harness.enqueue("b", key="k") == HELD_BY_A

    # --- conflicts --------------------------------------------------------------------------------------------------

    @counts_writes
    def test_returning_the_holder_writes_nothing(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        with harness.unchanged():
            assert harness.enqueue("b", key="k", params={"n": 2}) == HELD_BY_A

    def test_rejecting_names_the_holder_and_keeps_all_of_the_command_out(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        jobs = (new_job("x"), new_job("b", key="k", on_conflict="reject"))
        harness.refused(DuplicateKey, Enqueue(jobs=jobs), job_id="a", key="k")

    def test_replacing_gives_a_queued_holder_new_params_priority_and_delay(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", params={"n": 1})
        harness.enqueue("z", priority=5)
        replaced = harness.enqueue("b", key="k", params={"n": 2}, priority=5, delay_s=10, on_conflict="replace")
        job = harness.job("a")
        assert replaced == HELD_BY_A
        assert (bytes(job.params), job.priority, job.rank, job.position) == (b'{"n":2}', 5, -5, 200)
        assert job.not_before == harness.after(10)

    def test_replacing_again_and_again_waits_for_quiet(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", delay_s=10, on_conflict="replace")
        for _ in range(3):
            harness.advance(9)
            assert harness.order() == []
            harness.enqueue("b", key="k", delay_s=10, on_conflict="replace")
        harness.advance(10)
        assert harness.order() == ["a"]

    @counts_writes
    def test_replacing_returns_a_running_holder_unchanged(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", params={"n": 1})
        harness.take()
        with harness.unchanged():
            assert harness.enqueue("b", key="k", params={"n": 2}, on_conflict="replace") == HELD_BY_A

    def test_jobs_of_one_command_see_each_others_keys(self, harness: Harness) -> None:
        first, second, third = harness.enqueue_many(
            new_job("a", key="k"), new_job("b", key="k"), new_job("c", key="other")
        )
        assert (first.created, second, third.created) == (True, HELD_BY_A, True)

    def test_replacing_twice_in_one_command_ends_with_the_last(self, harness: Harness) -> None:
        harness.enqueue_many(
            new_job("a", key="k", params={"n": 1}),
            new_job("b", key="k", params={"n": 2}, priority=5, on_conflict="replace"),
            new_job("c", key="k", params={"n": 3}, on_conflict="replace"),
        )
        job = harness.job("a")
        assert (bytes(job.params), job.priority, job.rank) == (b'{"n":3}', 0, 0)

    def test_replacing_a_stored_holder_twice_in_one_command_ends_with_the_last(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        harness.enqueue_many(
            new_job("b", key="k", priority=5, on_conflict="replace"), new_job("c", key="k", on_conflict="replace")
        )
        job = harness.job("a")
        assert (job.priority, job.rank) == (0, 0)

    # --- keys and retries -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("hold", ["active", "queued", "window", "forever"])
    def test_the_key_moves_along_a_chain(self, harness: Harness, hold: str) -> None:
        window: dict[str, Any] = {"key_window_s": 3600} if hold == "window" else {}
        harness.enqueue("a", key="k", key_hold=hold, retry_mode="chain", backoff=Backoff(base_s=0), **window)
        harness.fail(harness.take())
        (heir,) = harness.heirs("a")
        assert _held(harness) == [("task work k", heir.job_id)]
        assert harness.enqueue("b", key="k") == Submitted(heir.job_id, created=False)

    def test_a_manual_retry_takes_a_free_key_and_not_a_held_one(self, harness: Harness) -> None:
        harness.enqueue("a", key="k")
        harness.ask(Cancel(job_id=A))
        harness.enqueue("b", key="k")
        harness.refused(DuplicateKey, Retry(job_id=A, new_job_id=JobId("c")), job_id="b")
        harness.ask(Cancel(job_id=JobId("b")))
        harness.ask(Retry(job_id=A, new_job_id=JobId("c")))
        assert _held(harness) == [("task work k", "c")]

    def test_a_job_that_holds_a_key_of_its_queue_cannot_leave_it(self, harness: Harness) -> None:
        harness.enqueue("a", key="k", key_scope="queue")
        harness.refused(InvalidOperation, Update(job_id=A, changes=JobChanges(queue="other")), job_id="a")
        assert harness.status("a") is JobStatus.QUEUED

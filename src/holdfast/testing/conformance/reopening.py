"""Reopening: everything acknowledged is there again, and nothing else."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreClosed
from holdfast.model.commands import Cancel, Enqueue, Move, PauseDispatch, PauseQueue
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, JobStatus
from holdfast.model.records import TABLES
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.state import Lane
from holdfast.stores.memory.batch import BatchTables
from holdfast.testing.conformance.commands import SAMPLES, A
from holdfast.testing.conformance.harness import Harness, Topic, new_job, tables_of, told


def _story(harness: Harness) -> None:
    """Bring jobs into every status, with runs, keys, delays, a paused queue and remembered commands."""
    harness.enqueue_many(
        new_job("done", params={"text": "ü\u2028\U0001f600", "n": 1.5, "none": None}, tags={"a": "b"}),
        new_job("failing", backoff=Backoff(base_s=100, jitter=0), key="k"),
        new_job("chained", retry_mode="chain", key="c", key_hold="window", key_window_s=500),
        new_job("lost", lease_s=5, traceparent="00-1-2-03", limit_key="l", key_limit=2),
        new_job("running", timeout_s=99.5, lease_s=300),
        new_job("dropped"),
        new_job("late", ttl_s=3),
        new_job("waiting", delay_s=1000, priority=-7, expires_at=harness.after(5000)),
        new_job("first", priority=100, queue="other", namespace="x"),
    )
    done, failing, chained, _, _ = harness.lease(5, session_id="s", cmd="lease")
    harness.advance(1)
    harness.complete(done, {"answer": [1, 2.25, "x"]})
    harness.fail(failing, "boom \u2028")
    harness.fail(chained, error_kind="timeout")
    harness.ask(Cancel(cmd="cancel", job_id=JobId("dropped"), reason="no"))
    harness.advance(4)
    harness.tick()
    harness.ask(Move(cmd="move", job_id=JobId("lost"), to="last"))
    harness.ask(PauseQueue(queue="other", namespace="x", reason="why not"))
    harness.ask(PauseDispatch(reason="all"))


class Reopening(Topic):
    """What a store shows before and after."""

    def test_every_table_every_event_and_every_order_is_the_same_after_reopening(self, harness: Harness) -> None:
        _story(harness)
        before, order = harness.dump(), harness.waiting()
        with harness.engine.read() as view:
            lanes = {lane: list(view.due(lane, harness.after(10_000))) for lane in Lane}
            counts = list(view.counts())
        for _ in range(3):
            harness.reopen()
            assert harness.dump() == before
            assert harness.waiting() == order
            with harness.engine.read() as view:
                assert {lane: list(view.due(lane, harness.after(10_000))) for lane in Lane} == lanes
                assert list(view.counts()) == counts

    def test_a_snapshot_changes_nothing_that_can_be_seen(self, harness: Harness) -> None:
        _story(harness)
        with harness.engine.read() as view:
            before = tables_of(view)
        last = list(harness.store.feed(harness.seq - 1))
        harness.authority.store.snapshot()
        with harness.engine.read() as view:
            assert tables_of(view) == before
        assert list(harness.store.feed(last[0].seq - 1)) == last
        harness.reopen()
        with harness.engine.read() as view:
            assert tables_of(view) == before

    def test_work_goes_on_after_snapshots_and_reopenings(self, harness: Harness) -> None:
        for turn in range(4):
            harness.enqueue_many(new_job(f"{turn}-a"), new_job(f"{turn}-b"))
            harness.complete(harness.take(), turn)
            if turn % 2:
                harness.authority.store.snapshot()
            harness.reopen()
        with harness.engine.read() as view:
            assert [(count.status, count.count) for count in view.counts()] == [
                (JobStatus.COMPLETED, 4),
                (JobStatus.QUEUED, 4),
            ]
        assert harness.order() == ["2-a", "2-b", "3-a", "3-b"]

    @pytest.mark.parametrize("sample", SAMPLES)
    def test_the_effect_of_every_command_is_there_after_reopening(self, harness: Harness, sample: str) -> None:
        command = SAMPLES[sample](harness)
        first = harness.ask(command)
        before = harness.dump()
        harness.reopen()
        assert harness.dump() == before
        again = harness.ask(command)
        assert type(again) is type(first)
        assert harness.dump() == before, "sent again after a restart it must add nothing"

    def test_the_feed_folds_to_what_the_store_shows(self, harness: Harness) -> None:
        _story(harness)
        tables = BatchTables()
        for entry in told(harness.store):
            assert entry.event is not None
            tables.replay(entry.event, Stamp(entry.seq, entry.ts))
        with harness.engine.read() as view:
            assert tables_of(tables) == tables_of(view)

    def test_a_lease_survives_reopening_and_can_be_reported(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take("remote")
        harness.reopen()
        harness.recover()
        assert harness.complete(grant, 1).job_status is JobStatus.COMPLETED

    def test_reopening_many_times_adds_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        before = harness.dump()
        for _ in range(10):
            harness.reopen()
            harness.recover()
        assert harness.dump() == before

    def test_a_store_reopened_before_anything_happened_is_empty(self, harness: Harness) -> None:
        harness.reopen()
        with harness.engine.read() as view:
            assert tables_of(view) == {name: [] for name in TABLES}
        assert harness.kinds() == []
        assert harness.enqueue("a").created

    def test_a_closed_store_takes_nothing_and_says_so(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.engine.close()
        with pytest.raises(StoreClosed):
            harness.engine.submit(Enqueue(jobs=(new_job("b"),)))
        with pytest.raises(StoreClosed):
            harness.job("a")

    def test_closing_twice_does_nothing(self, harness: Harness) -> None:
        harness.engine.close()
        harness.engine.close()
        harness.store.close()

    def test_the_same_submission_after_reopening_gives_one_record(self, harness: Harness) -> None:
        harness.enqueue("a", params={"n": 1})
        harness.reopen()
        with harness.unchanged():
            assert harness.enqueue("a", params={"n": 1}).created is False
        assert harness.job("a").job_id == A

"""Feed and wait: every event in order, once, and a wake-up when there is more."""

from __future__ import annotations

import threading

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.errors import InvalidValue
from holdfast.model.commands import Enqueue
from holdfast.model.events import JobCreated
from holdfast.model.times import later
from holdfast.testing.conformance.harness import Harness, Topic, new_job, tables_of, told

#: Longest a wait may take before the check gives up; no check is meant to use it up.
PATIENCE_S = 60.0


def _waiter(engine: Engine, after: int) -> tuple[threading.Thread, list[bool]]:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(engine.store.wait(after, PATIENCE_S)))
    thread.start()
    return thread, answers


class Feed(Topic):
    """What was committed, for those who follow."""

    def test_the_feed_gives_every_event_in_order_without_gaps(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.advance(1)
        harness.complete(harness.take(cmd="x"))
        entries = told(harness.store)
        assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]
        assert harness.kinds() == ["job:created", "job:created", "lease:granted", "command:done", "job:completed"]
        assert [entry.ts for entry in entries] == [harness.after(0)] * 2 + [harness.after(1)] * 3

    def test_an_event_names_its_command_and_who_sent_it(self, harness: Harness) -> None:
        harness.ask(Enqueue(cmd="x", actor="ann", jobs=(new_job("a"),)))
        (entry,) = told(harness.store)
        assert isinstance(entry.event, JobCreated)
        assert (entry.event.cmd, entry.event.actor, entry.event.job.job_id) == ("x", "ann", "a")

    def test_the_feed_resumes_after_a_number(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(name) for name in "abcd"))
        assert [entry.seq for entry in harness.store.feed(2)] == [3, 4]
        assert list(harness.store.feed(4)) == []

    def test_a_record_carries_the_number_of_the_event_that_changed_it_last(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        assert [harness.job(name).seq for name in "ab"] == [1, 2]
        harness.take()
        assert [harness.job(name).seq for name in "ab"] == [3, 2]

    def test_numbers_go_on_after_a_restart(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.restart()
        harness.enqueue("b")
        first, second = told(harness.store)
        assert first.seq < second.seq == harness.job("b").seq == harness.seq

    def test_the_feed_of_one_moment_stays_that_of_this_moment(self, harness: Harness) -> None:
        harness.enqueue("a")
        entries = harness.store.feed(0)
        first = next(entries)
        harness.enqueue("b")
        assert first.seq == 1
        assert [entry.seq for entry in entries] in ([], [2])

    def test_events_are_kept_as_json_text(self, harness: Harness) -> None:
        harness.enqueue("a", params={"text": 'ü\u2028\n"\\ \U0001f600'})
        (entry,) = harness.store.feed(0)
        event = msgspec.json.decode(entry.event)
        assert event["type"] == "job:created"
        assert event["job"]["params"] == {"text": 'ü\u2028\n"\\ \U0001f600'}

    def test_trimming_forgets_only_what_is_older(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.advance(100)
        harness.enqueue("b")
        assert harness.authority.store.trim(harness.after(0), 100) == 0
        with harness.engine.read() as view:
            before = (view.seq, tables_of(view))
        harness.authority.store.trim(later(harness.now, -10), 100)
        with harness.engine.read() as view:
            assert (view.seq, tables_of(view)) == before
        assert [entry.seq for entry in told(harness.store, 1)] == [2]

    def test_asking_for_trimmed_events_is_refused_not_answered_with_less(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(f"j{number}") for number in range(10)))
        harness.authority.store.snapshot()
        harness.advance(100)
        harness.enqueue("last")
        harness.authority.store.snapshot()
        if not harness.authority.store.trim(later(harness.now, -10), 4):
            pytest.skip(f"{harness.authority.store.promises.name}: keeps these events for its own recovery")
        with pytest.raises(InvalidValue):
            list(harness.store.feed(0))
        assert [entry.seq for entry in harness.store.feed(10)] == [11]


class Wait(Topic):
    """Wake-up without polling the tables."""

    def test_what_is_there_already_is_not_waited_for(self, harness: Harness) -> None:
        harness.enqueue("a")
        assert harness.store.wait(0, PATIENCE_S) is True

    def test_waiting_for_nothing_ends_with_its_time(self, harness: Harness) -> None:
        harness.enqueue("a")
        assert harness.store.wait(1, 0) is False
        assert harness.store.wait(1, 0.01) is False

    def test_a_waiter_is_woken_by_a_commit(self, harness: Harness) -> None:
        thread, answers = _waiter(harness.engine, harness.seq)
        harness.enqueue("a")
        thread.join(PATIENCE_S)
        assert answers == [True]

    def test_a_waiter_is_woken_by_another_process(self, harness: Harness) -> None:
        other = harness.second()
        thread, answers = _waiter(other, harness.seq)
        harness.enqueue("a")
        thread.join(PATIENCE_S)
        assert answers == [True]

    def test_a_follower_who_has_seen_everything_waits_after_a_restart_too(self, harness: Harness) -> None:
        harness.enqueue("a")
        (last,) = harness.store.feed(0)
        for _ in range(3):
            harness.restart()
            assert harness.store.wait(last.seq, 0) is False
            assert list(harness.store.feed(last.seq)) == []
        harness.enqueue("b")
        assert harness.store.wait(last.seq, 0) is True
        assert len(list(harness.store.feed(last.seq))) == 1

    def test_many_waiters_are_all_woken(self, harness: Harness) -> None:
        waiters = [_waiter(harness.engine, harness.seq) for _ in range(8)]
        harness.enqueue("a")
        for thread, answers in waiters:
            thread.join(PATIENCE_S)
            assert answers == [True]

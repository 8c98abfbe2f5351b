"""Beside the records: lines of runs, the roster of workers, sessions. Soft, but as good as it says."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.engine.maintenance import SWEEP_EVERY_S, end_dead_sessions
from holdfast.model.ids import RunId
from holdfast.model.jobs import JobStatus
from holdfast.model.logs import LogLine, NumberedLine
from holdfast.model.times import FOREVER, Timestamp
from holdfast.model.workers import LiveRun, Progress, Wish, WorkerInfo, WorkerState
from holdfast.rules.jobs.retention import LOGS_S
from holdfast.stores.sidecar.worker_liveness import LOST_S, SHOWN_S
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic

ONE, TWO = RunId("0198a1b2-0000-7000-8000-000000000001"), RunId("../no file \u2028 name")


class Lines(Topic):
    """What runs say. They are told to the authority, which alone takes lines of runs that nobody has made."""

    def test_lines_come_back_in_order_numbered_from_one(self, harness: Harness) -> None:
        logs = harness.store.logs
        first = [LogLine(harness.now, "log", "INFO", f"line {number} \u2028 ü") for number in range(3)]
        printed = LogLine(harness.now, "stdout", "", 'with "quotes"\tand\nbreaks')
        harness.authority.store.logs.add([(ONE, first[0]), (TWO, printed), (ONE, first[1])])
        harness.authority.store.logs.add([(ONE, first[2])])
        assert logs.read(ONE) == [NumberedLine(number, line) for number, line in enumerate(first, start=1)]
        assert logs.read(TWO) == [NumberedLine(1, printed)]
        assert logs.read(RunId("nobody")) == []

    def test_lines_are_read_page_by_page(self, harness: Harness) -> None:
        logs = harness.store.logs
        harness.authority.store.logs.add([(ONE, self._line(harness, str(number))) for number in range(1, 11)])
        assert [line.line_no for line in logs.read(ONE, after=3, limit=4)] == [4, 5, 6, 7]
        assert [line.line.text for line in logs.read(ONE, after=8)] == ["9", "10"]
        assert logs.read(ONE, after=10) == []

    def test_half_a_character_is_escaped_and_nothing_is_lost(self, harness: Harness) -> None:
        half = LogLine(harness.now, "stderr", "", "a\ud800b")
        harness.authority.store.logs.add([(ONE, half), (ONE, self._line(harness, "c"))])
        assert [line.line.text for line in harness.store.logs.read(ONE)] == ["a\\ud800b", "c"]

    def test_lines_are_there_after_reopening_and_go_on(self, harness: Harness) -> None:
        harness.authority.store.logs.add([(ONE, self._line(harness, "before"))])
        harness.reopen()
        harness.authority.store.logs.add([(ONE, self._line(harness, "after"))])
        assert [line.line.text for line in harness.store.logs.read(ONE)] == ["before", "after"]

    def test_old_lines_are_forgotten_by_the_tick(self, harness: Harness) -> None:
        logs = harness.store.logs
        harness.authority.store.logs.add([(ONE, self._line(harness, "old"))])
        harness.advance(LOGS_S)
        harness.authority.store.logs.add([(TWO, self._line(harness, "young"))])
        harness.tick()
        assert (len(logs.read(ONE)), len(logs.read(TWO))) == (1, 1)
        harness.advance(SWEEP_EVERY_S)
        assert harness.tick().swept == 1
        assert (len(logs.read(ONE)), len(logs.read(TWO))) == (0, 1)

    def test_a_sweep_of_lines_takes_no_more_than_it_may(self, harness: Harness) -> None:
        harness.authority.store.logs.add([(RunId(f"run {number}"), self._line(harness, "x")) for number in range(5)])
        assert [harness.authority.store.logs.sweep(FOREVER, 2) for _ in range(4)] == [2, 2, 1, 0]

    def _line(self, harness: Harness, text: str) -> LogLine:
        return LogLine(harness.now, "log", "INFO", text)


class Workers(Topic):
    """Which workers there are."""

    def _worker(self, harness: Harness, worker_id: str, **options: object) -> WorkerInfo:
        worker = WorkerInfo(
            worker_id=worker_id,
            name="mail",
            host="host",
            pid=7,
            version="1",
            namespace="n",
            queues=("a", "b"),
            job_types=("send",),
            slots=3,
            started_at=harness.now,
            last_seen=harness.now,
            runs=(LiveRun(A, ONE, "send", harness.now, Progress(0.5, 1, 2, "half", msgspec.Raw(b'{"a":1}'))),),
        )
        return msgspec.structs.replace(worker, **options)

    def test_workers_are_listed_by_id_as_they_said_they_are(self, harness: Harness) -> None:
        roster = harness.store.workers
        ours = [self._worker(harness, "w/1"), self._worker(harness, "w2", runs=(), state=WorkerState.DRAINING)]
        for worker in reversed(ours):
            roster.note(worker)
        assert roster.all() == ours
        changed = msgspec.structs.replace(ours[0], slots=4, last_seen=harness.now, runs=())
        roster.note(changed)
        assert roster.all() == [changed, ours[1]]
        roster.drop("w2")
        roster.drop("nobody")
        assert roster.all() == [changed]

    def test_a_wish_is_kept_until_it_changes(self, harness: Harness) -> None:
        roster = harness.store.workers
        assert not roster.ask("w1", Wish.STOP)
        assert roster.wish("w1") is None
        roster.note(self._worker(harness, "w1"))
        assert roster.wish("w1") is None
        assert roster.ask("w1", Wish.QUIET)
        roster.note(self._worker(harness, "w1", slots=9))
        assert roster.wish("w1") is Wish.QUIET
        assert [(worker.slots, worker.wish) for worker in roster.all()] == [(9, Wish.QUIET)]
        assert roster.ask("w1", Wish.STOP)
        assert roster.wish("w1") is Wish.STOP
        roster.drop("w1")
        roster.note(self._worker(harness, "w1"))
        assert roster.wish("w1") is None

    def test_a_silent_worker_is_lost_and_forgotten_after_a_day(self, harness: Harness) -> None:
        roster = harness.store.workers
        roster.note(self._worker(harness, "w1"))
        harness.advance(LOST_S)
        roster.note(self._worker(harness, "w2"))
        assert [worker.state for worker in roster.all()] == [WorkerState.READY, WorkerState.READY]
        harness.advance(1)
        assert [worker.state for worker in roster.all()] == [WorkerState.LOST, WorkerState.READY]
        harness.advance(SHOWN_S - LOST_S)
        assert [worker.worker_id for worker in roster.all()] == ["w2"]
        roster.note(self._worker(harness, "w3"))
        assert [worker.worker_id for worker in roster.all()] == ["w2", "w3"]

    def test_worker_seen_before_the_clock_was_set_back_is_lost_until_it_is_seen_again(self, harness: Harness) -> None:
        roster = harness.store.workers
        roster.note(self._worker(harness, "w1"))
        harness.clock.set_wall(harness.clock.now() - timedelta(hours=2))
        assert [worker.state for worker in roster.all()] == [WorkerState.LOST]
        roster.note(self._worker(harness, "w1"))
        assert [worker.state for worker in roster.all()] == [WorkerState.READY]

    def test_another_opening_sees_the_same_workers_and_can_ask_them(self, harness: Harness) -> None:
        other = harness.second()
        harness.store.workers.note(self._worker(harness, "w1"))
        assert [worker.worker_id for worker in other.store.workers.all()] == ["w1"]
        assert other.store.workers.ask("w1", Wish.QUIET)
        assert harness.store.workers.wish("w1") is Wish.QUIET


class DeadProcesses(Topic):
    """Openings that are gone, and what they held."""

    def test_an_opening_that_lives_is_not_gone_and_one_unknown_is_not_either(self, harness: Harness) -> None:
        own = harness.authority.session_id
        assert own is not None
        assert harness.authority.store.sessions.gone({own, "nobody", ""}) == set()
        assert harness.authority.store.sessions.gone(()) == set()

    def test_an_opening_that_was_closed_is_gone(self, harness: Harness) -> None:
        other = harness.neighbour()
        sessions, gone, own = harness.authority.store.sessions, other.session_id, harness.authority.session_id
        assert gone is not None
        assert own is not None
        assert sessions.gone({gone}) == set()
        other.close()
        assert sessions.gone({gone, own}) == {gone}

    def test_the_leases_of_an_opening_that_is_gone_end_at_once_and_no_others(self, harness: Harness) -> None:
        other, third = harness.neighbour(), harness.neighbour()
        for job_id in ("dead", "mine", "other", "remote"):
            harness.enqueue(job_id)
        for session_id in (other.session_id, harness.authority.session_id, third.session_id, None):
            harness.take(session_id=session_id)
        assert end_dead_sessions(harness.authority) == 0
        other.close()
        with harness.store.read() as view:
            before = view.seq
        assert end_dead_sessions(harness.authority) == 1
        assert harness.kinds(before) == ["lease:expired"]
        (run,) = harness.runs("dead")
        assert (harness.status("dead"), run.status, run.reason) == (JobStatus.QUEUED, "LOST", "restart")
        assert {harness.status(job_id) for job_id in ("mine", "other", "remote")} == {JobStatus.RUNNING}
        with harness.unchanged():
            assert end_dead_sessions(harness.authority) == 0

    def test_a_worker_whose_opening_is_gone_is_lost_at_once(self, harness: Harness) -> None:
        other = harness.neighbour()
        at: Timestamp = harness.now
        for worker_id, session_id in (("w1", other.session_id), ("w2", harness.authority.session_id), ("w3", None)):
            harness.authority.store.workers.note(
                WorkerInfo(
                    worker_id=worker_id,
                    name="n",
                    host="h",
                    pid=1,
                    version="1",
                    started_at=at,
                    last_seen=at,
                    session_id=session_id,
                )
            )
        other.close()
        states = [worker.state for worker in harness.authority.store.workers.all()]
        assert states == [WorkerState.LOST, WorkerState.READY, WorkerState.READY]

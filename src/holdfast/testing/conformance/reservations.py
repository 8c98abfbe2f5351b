"""Reservations and direct execution: one holder of a queue, whatever races for it; a job that runs now, and once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import end_dead_sessions, next_wake
from holdfast.engine.reasons import reason_of
from holdfast.errors import (
    DuplicateKey,
    IdReused,
    InvalidOperation,
    InvalidValue,
    ReservationConflict,
    ReservationNotFound,
)
from holdfast.model.commands import (
    Cancel,
    Complete,
    EndSession,
    Fail,
    Lease,
    PauseDispatch,
    PauseQueue,
    Release,
    ReleaseReservation,
    RenewReservation,
    Reserve,
    Retention,
    Retry,
    SetQueue,
    Snooze,
    StartDirect,
)
from holdfast.model.events import QueueChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, RunStatus
from holdfast.model.outcomes import Grant, Leased, Outcome, Refusal, Reserved
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.testing.conformance.concurrency import THREADS, at_once
from holdfast.testing.conformance.harness import Harness, Topic, new_job

#: Races for one queue.
ROUNDS = 100
HOUR = 3600.0


def reserve(reservation_id: str = "r", queue: str = "default", **options: Any) -> Reserve:
    """Build a Reserve."""
    return Reserve(**{"reservation_id": reservation_id, "queue": queue, "reserved_by": "me", **options})


def release(reservation_id: str = "r") -> ReleaseReservation:
    """Build a ReleaseReservation."""
    return ReleaseReservation(reservation_id=reservation_id)


def direct(job_id: str = "d", reservation_id: str = "r", session_id: str | None = None, **options: Any) -> StartDirect:
    """Build a StartDirect."""
    job = new_job(job_id, **options)
    return StartDirect(reservation_id=reservation_id, job=job, worker_id="here", session_id=session_id)


def start(h: Harness, job_id: str = "d", **options: Any) -> Grant:
    """Start a direct job."""
    outcome = h.ask(direct(job_id, **options))
    assert isinstance(outcome, Leased)
    (grant,) = outcome.grants
    return grant


def held(h: Harness, reservation_id: str = "r") -> Reservation:
    """Give a reservation as it is kept."""
    with h.engine.read() as view:
        found = view.get(Reservation, reservation_id)
    assert found is not None
    return found


def active(engine: Engine) -> list[str]:
    """Name the ACTIVE reservations."""
    with engine.read() as view:
        return [one.reservation_id for one in view.all(Reservation) if one.status is ReservationStatus.ACTIVE]


class Reservations(Topic):
    """Who may keep a queue to himself, and until when."""

    # --- one holder ---------------------------------------------------------------------------------------------------

    def test_of_many_who_reserve_one_wins_and_the_others_are_told_by_whom(self, harness: Harness) -> None:
        _race([harness.engine] * THREADS)

    def test_of_many_openings_that_reserve_one_wins_and_the_others_are_told_by_whom(self, harness: Harness) -> None:
        _race([harness.engine, *(harness.second() for _ in range(3))])

    def test_the_loser_learns_holder_id_and_expiry(self, harness: Harness) -> None:
        harness.ask(reserve("r1", reserved_by="anna"))
        until = harness.after(60)
        harness.refused(
            ReservationConflict,
            reserve("r2"),
            reservation_id="r1",
            reserved_by="anna",
            expires_at=until,
            queue="default",
        )

    def test_a_queue_is_held_alone_others_are_not(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", queue="other"), new_job("c", namespace="x"))
        harness.ask(reserve())
        assert harness.order(queues=("default", "other")) == ["b"]
        assert harness.order(namespace="x") == ["c"]
        harness.ask(reserve("r2", "other"))
        harness.ask(reserve("r3", namespace="x"))

    def test_the_same_reserve_again_is_told_the_same(self, harness: Harness) -> None:
        first = harness.ask(reserve())
        with harness.unchanged():
            assert harness.ask(reserve()) == first
        harness.refused(IdReused, reserve(queue="other"), reservation_id="r")

    @pytest.mark.parametrize("ttl_s", [0, 0.999, 86_400.5, float("nan")])
    def test_a_ttl_out_of_bounds_is_refused(self, harness: Harness, ttl_s: float) -> None:
        harness.refused(InvalidValue, reserve(ttl_s=ttl_s), field="ttl_s")
        harness.ask(reserve(ttl_s=1))
        harness.refused(InvalidValue, RenewReservation(reservation_id="r", ttl_s=ttl_s), field="ttl_s")

    # --- its queue meanwhile ------------------------------------------------------------------------------------------

    def test_dispatch_gives_nothing_and_goes_on_with_the_same_head(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(name, priority=priority) for name, priority in (("a", 0), ("b", 5), ("c", 5))))
        before = harness.waiting()
        harness.ask(reserve())
        assert harness.order() == []
        harness.enqueue("d", priority=9)
        harness.ask(Cancel(job_id=JobId("d")))
        assert harness.waiting() == before
        harness.ask(release())
        assert harness.order() == ["b", "c", "a"]

    def test_nothing_that_runs_is_interrupted(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.ask(reserve())
        assert harness.status("a") is JobStatus.RUNNING
        assert harness.complete(grant).job_status is JobStatus.COMPLETED

    def test_a_pause_and_a_reservation_do_not_know_each_other(self, harness: Harness) -> None:
        harness.ask(PauseQueue(queue="default"))
        harness.ask(reserve())
        harness.ask(release())
        assert harness.order() == []

    def test_explain_names_the_reservation_and_its_end(self, harness: Harness) -> None:
        harness.enqueue("a", delay_s=600)
        harness.ask(reserve(reserved_by="anna"))
        reason = reason_of(harness.engine, harness.job("a"))
        until = harness.after(60)
        assert (reason.code, reason.holder, reason.until) == ("reserved", "r", until)
        assert reason.sentence == f"queue default is reserved by anna until {until}"
        harness.advance(60)
        assert reason_of(harness.engine, harness.job("a")).code == "delayed"

    # --- its end ------------------------------------------------------------------------------------------------------

    def test_one_that_expired_an_hour_ago_stops_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(reserve())
        harness.advance(60 + HOUR)
        assert harness.order() == ["a"]
        assert (held(harness).status, held(harness).ended_at) == (ReservationStatus.EXPIRED, harness.now)

    def test_it_holds_until_its_last_microsecond(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(reserve())
        harness.advance(59.999999)
        assert harness.order() == []
        harness.refused(ReservationConflict, reserve("r2"))
        harness.advance(0.000001)
        assert harness.order() == ["a"]

    def test_an_expired_holder_makes_room_in_the_commit_of_the_next(self, harness: Harness) -> None:
        harness.ask(reserve())
        harness.advance(60)
        seq = harness.seq
        harness.ask(reserve("r2"))
        assert harness.kinds(seq) == ["reservation:expired", "reservation:acquired"]
        assert active(harness.engine) == ["r2"]

    def test_the_tick_ends_what_is_over_and_knows_when(self, harness: Harness) -> None:
        harness.ask(reserve(ttl_s=10))
        assert next_wake(harness.engine) == harness.after(10)
        harness.advance(10)
        assert harness.tick().expired == 1
        assert held(harness).status is ReservationStatus.EXPIRED
        with harness.unchanged():
            harness.tick()

    def test_a_holder_that_renews_keeps_it(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(reserve())
        for _ in range(9):
            harness.advance(20)
            outcome = harness.ask(RenewReservation(reservation_id="r", ttl_s=60))
            assert isinstance(outcome, Reserved)
            assert outcome.left_s == 60
            assert harness.order() == []
        harness.advance(60)
        assert harness.order() == ["a"]

    def test_what_is_over_is_neither_renewed_nor_released_again(self, harness: Harness) -> None:
        harness.ask(reserve())
        harness.ask(release())
        harness.refused(InvalidOperation, RenewReservation(reservation_id="r"), reservation_id="r", status="RELEASED")
        with harness.unchanged():
            outcome = harness.ask(release())
        assert isinstance(outcome, Reserved)
        assert (outcome.status, outcome.left_s) == (ReservationStatus.RELEASED, 0)
        for command in (RenewReservation(reservation_id="x"), release("x")):
            harness.refused(ReservationNotFound, command, reservation_id="x")

    def test_it_is_still_there_after_reopening_and_ends_in_time(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(reserve())
        harness.reopen()
        harness.recover()
        assert harness.order() == []
        assert active(harness.engine) == ["r"]
        harness.advance(60)
        assert harness.recover().expired == 1
        assert harness.order() == ["a"]

    def test_those_of_an_earlier_opening_end_where_one_process_has_the_store(self, harness: Harness) -> None:
        harness.ask(reserve("local", "a", session_id=harness.authority.session_id))
        harness.ask(reserve("remote", "b"))
        harness.restart()
        found = harness.recover()
        if harness.authority.store.promises.many_processes:
            assert (found.ended_sessions, active(harness.engine)) == (0, ["local", "remote"])
            # The opening was closed in order, which others can see.
            assert end_dead_sessions(harness.authority) == 1
        else:
            assert found.ended_sessions == 1
        assert active(harness.engine) == ["remote"]
        assert held(harness, "local").status is ReservationStatus.EXPIRED

    def test_those_of_a_dead_opening_end_at_once(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(reserve(session_id="dead"))
        harness.ask(EndSession(session_id="dead"))
        assert harness.order() == ["a"]

    def test_those_long_over_are_forgotten(self, harness: Harness) -> None:
        harness.ask(reserve("old"))
        harness.ask(release("old"))
        harness.ask(reserve("live", ttl_s=86_400))
        harness.advance(HOUR)
        assert harness.tick(Retention(reservations_s=HOUR + 1)).pruned == 0
        assert harness.tick(Retention(reservations_s=HOUR)).pruned == 1
        with harness.engine.read() as view:
            assert [one.reservation_id for one in view.all(Reservation)] == ["live"]


class DirectRuns(Topic):
    """A job that runs now, in its caller's process, alone on its queue, and once."""

    def test_it_runs_from_its_first_moment_in_one_commit(self, harness: Harness) -> None:
        harness.ask(reserve())
        seq = harness.seq
        grant = start(harness, params={"n": 1}, timeout_s=5)
        assert harness.kinds(seq) == ["job:created", "lease:granted"]
        job = harness.job("d")
        assert (job.status, job.direct, job.reservation_id) == (JobStatus.RUNNING, True, "r")
        assert (job.max_attempts, job.max_expiries, grant.lease_s) == (1, 1, 15)
        harness.complete(grant, [1])
        (run,) = harness.runs("d")
        assert (run.status, bytes(run.params_snapshot)) == (RunStatus.COMPLETED, b'{"n":1}')
        assert bytes(harness.job("d").result) == b"[1]"

    def test_the_same_start_again_gets_the_same_lease_and_none_after_the_end(self, harness: Harness) -> None:
        harness.ask(reserve())
        grant = start(harness)
        with harness.unchanged():
            assert start(harness) == grant
        harness.complete(grant)
        with harness.unchanged():
            assert harness.ask(direct()) == Leased()
        harness.refused(IdReused, direct(params={"n": 1}), job_id="d")

    def test_order_is_current_direct_queue(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("one"), new_job("two"))
        first = harness.take()
        harness.advance(1)
        harness.ask(reserve())
        harness.refused(ReservationConflict, direct(), job_id="one", queue="default")
        harness.advance(1)
        harness.complete(first)
        assert harness.order() == []
        alone = start(harness)
        harness.advance(1)
        assert harness.order() == []
        harness.complete(alone)
        harness.ask(release())
        harness.complete(harness.take())
        spans = [(run.started_at, run.finished_at) for name in ("one", "d", "two") for run in harness.runs(name)]
        times = [when for span in spans for when in span if when is not None]
        assert times == sorted(times)
        assert [job.job_id for job in sorted(_jobs(harness), key=lambda job: job.started_at or "")] == [
            "one",
            "d",
            "two",
        ]

    def test_only_the_holder_of_this_queue_may_start(self, harness: Harness) -> None:
        harness.refused(ReservationNotFound, direct(), reservation_id="r")
        harness.ask(reserve(session_id="s"))
        harness.refused(ReservationConflict, direct(session_id="t"), reservation_id="r", reserved_by="me")
        harness.refused(ReservationConflict, direct(), reservation_id="r")
        harness.refused(InvalidOperation, direct(session_id="s", queue="other"), reservation_id="r")
        harness.ask(release())
        harness.refused(InvalidOperation, direct(session_id="s"), status="RELEASED")

    def test_a_reservation_that_is_over_starts_nothing(self, harness: Harness) -> None:
        harness.ask(reserve())
        harness.advance(60)
        outcome = harness.engine.submit(direct())
        assert isinstance(outcome, Refusal)
        assert outcome.facts["status"] == "EXPIRED"
        assert held(harness).status is ReservationStatus.EXPIRED
        assert _jobs(harness) == []

    def test_a_lapsed_lease_is_not_in_its_way(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        harness.advance(15)
        harness.ask(reserve())
        harness.refused(ReservationConflict, direct(), job_id="a")
        harness.advance(15)
        assert start(harness).token == 2
        assert harness.status("a") is JobStatus.QUEUED

    @pytest.mark.parametrize("pause", [PauseQueue(queue="default"), PauseDispatch()], ids=["queue", "dispatch"])
    def test_a_pause_does_not_stop_it(self, harness: Harness, pause: PauseQueue | PauseDispatch) -> None:
        harness.ask(pause)
        harness.ask(reserve())
        harness.complete(start(harness))

    def test_a_rate_counts_it_and_does_not_hold_it_back(self, harness: Harness) -> None:
        harness.ask(SetQueue(queue="default", changes=QueueChanges(rate_count=2, rate_period_s=60, max_running=1)))
        harness.ask(reserve())
        for name in ("d1", "d2", "d3"):
            harness.complete(start(harness, name))
        harness.ask(release())
        harness.enqueue("a")
        assert harness.order() == []
        assert reason_of(harness.engine, harness.job("a")).code == "rate_limit"
        harness.advance(60)
        assert harness.order() == ["a"]

    def test_it_takes_its_key_or_is_refused(self, harness: Harness) -> None:
        harness.enqueue("a", queue="other", key="k")
        harness.ask(reserve())
        harness.refused(DuplicateKey, direct(key="k"), job_id="a")
        grant = start(harness, key="mine")
        assert not harness.enqueue("b", queue="other", key="mine").created
        harness.complete(grant)
        assert harness.enqueue("b", queue="other", key="mine").created

    def test_without_its_reservation_it_is_still_alone(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(reserve())
        grant = start(harness)
        harness.ask(release())
        assert harness.order() == []
        reason = reason_of(harness.engine, harness.job("a"))
        assert (reason.code, reason.holder) == ("reserved", "d")
        harness.ask(reserve("r2"))
        harness.refused(ReservationConflict, direct("d2", "r2"), job_id="d")
        harness.complete(grant)
        harness.complete(start(harness, "d2", reservation_id="r2"))

    def test_a_dispatcher_in_a_tight_loop_never_gets_one(self, harness: Harness) -> None:
        over = threading.Event()
        taken: list[str] = []

        def dispatch() -> None:
            while not over.is_set():
                outcome = harness.engine.ask(Lease(worker_id="w", n=9))
                assert isinstance(outcome, Leased)
                for grant in outcome.grants:
                    taken.append(grant.job.job_id)
                    harness.engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))

        with ThreadPoolExecutor(1) as pool:
            loop = pool.submit(dispatch)
            try:
                for turn in range(25):
                    _directly(harness, turn)
            finally:
                over.set()
            loop.result()
        assert all(name.startswith("q") for name in taken)
        assert {run.worker_id for turn in range(25) for run in harness.runs(f"d{turn}")} == {"here"}

    # --- no second try ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["fails", "asks again", "snoozes", "is released", "is lost", "dies"])
    def test_it_is_not_tried_again_now_or_after_a_restart(self, harness: Harness, how: str) -> None:
        harness.enqueue("a")
        harness.ask(reserve(session_id="s"))
        grant = start(harness, session_id="s", max_attempts=9, max_expiries=9, retry_mode="chain")
        expected = _end(harness, grant, how)
        assert harness.status("d") is expected
        for _ in range(2):
            harness.restart()
            harness.recover()
            harness.advance(HOUR)
            harness.tick()
        assert harness.order() == ["a"]
        job = harness.job("d")
        assert (job.status, job.direct, job.executions) == (expected, True, 1)
        assert len(harness.runs("d")) == 1
        assert harness.heirs("d") == []
        harness.refused(InvalidOperation, Retry(job_id=JobId("d"), new_job_id=JobId("n")), job_id="d")

    def test_a_killed_caller_blocks_for_no_longer_than_its_lease_and_its_ttl(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(reserve(ttl_s=60))
        start(harness, lease_s=30)
        harness.advance(30)
        harness.tick()
        assert (harness.status("d"), harness.order()) == (JobStatus.DEAD, [])
        assert [run.status for run in harness.runs("d")] == [RunStatus.LOST]
        harness.advance(30)
        assert harness.order() == ["a"]


def _race(engines: list[Engine]) -> None:
    """Let all of these reserve one queue at the same time, again and again."""
    for turn in range(ROUNDS):
        outcomes: dict[str, Outcome] = {}

        def ask(number: int, turn: int = turn, outcomes: dict[str, Outcome] = outcomes) -> None:
            name = f"r{turn}-{number}"
            outcomes[name] = engines[number].submit(reserve(name))

        at_once(len(engines), ask)
        (winner,) = [name for name, outcome in outcomes.items() if isinstance(outcome, Reserved)]
        assert active(engines[0]) == [winner]
        told = Counter(outcome.facts["reservation_id"] for outcome in outcomes.values() if isinstance(outcome, Refusal))
        assert told == {winner: len(engines) - 1}
        engines[0].ask(release(winner))


def _directly(h: Harness, turn: int) -> None:
    """Enqueue a job for the dispatcher, and run another one directly as soon as the queue is empty."""
    h.enqueue(f"q{turn}")
    name = f"r{turn}"
    h.ask(reserve(name))
    while True:
        outcome = h.engine.submit(direct(f"d{turn}", name))
        if isinstance(outcome, Leased):
            break
        assert isinstance(outcome, Refusal)
        assert outcome.facts["job_id"].startswith("q")  # the dispatcher had it before, and is about to complete it
    (grant,) = outcome.grants
    h.complete(grant)
    h.ask(release(name))


def _end(h: Harness, grant: Grant, how: str) -> JobStatus:
    """End a direct job, with its reservation; give the status it must have then."""
    job_id, token = grant.job.job_id, grant.token
    match how:
        case "fails":
            h.fail(grant)
        case "asks again":
            h.fail(grant, retry_after_s=1)
        case "snoozes":
            h.report(Snooze(job_id=job_id, token=token, delay_s=1))
        case "is released":
            h.report(Release(job_id=job_id, token=token, begun=True))
            h.ask(release())
            return JobStatus.CANCELLED
        case "is lost":
            h.advance(60)
            h.tick()
            assert isinstance(h.engine.submit(Fail(job_id=job_id, token=token, error="late")), Refusal)
            return JobStatus.DEAD
        case _:  # dies
            h.ask(EndSession(session_id="s"))
            return JobStatus.DEAD
    h.ask(release())
    return JobStatus.FAILED


def _jobs(h: Harness) -> list[Job]:
    with h.engine.read() as view:
        return list(view.all(Job))

"""Slots, with a runner that does nothing by itself: who runs, who waits, and whose outcome counts."""

from dataclasses import replace

import msgspec
import pytest

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Grant
from holdfast.model.times import Timestamp
from holdfast.workers.handlers.leased_job import SHORTEST_BEAT_S, Assignment, Stop
from holdfast.workers.handlers.outcome import GaveUp, Raised, Released, Returned
from holdfast.workers.slots import Slots
from holdfast.workers.task_registry import TaskSpec

SPEC = TaskSpec(name="t", run=lambda: None, codec=SignatureCodec(lambda: None), isolation="thread")


class Idle:
    """A runner that only notes what it was asked."""

    def __init__(self, desk):
        self.desk = desk
        self.started = []
        self.stopped = []
        self.is_closed = False

    def start(self, assignment):
        self.started.append(assignment)

    def stop(self, assignment):
        self.stopped.append(assignment)

    def close(self):
        self.is_closed = True


def assignment(token, *, lease_s=30.0, timeout_s=None, at=0.0):
    job = Job(JobId(f"j{token}"), "t", msgspec.Raw(b"{}"), Timestamp("2026-01-01T00:00:00.000000Z"))
    job = msgspec.structs.replace(job, timeout_s=timeout_s)
    return Assignment(Grant(job, RunId(f"r{token}"), Token(token), lease_s), SPEC, at)


@pytest.fixture
def slots():
    made = Slots(2, lambda: 7.0, lambda desk: {"thread": Idle(desk)})
    made.runner = made._runners["thread"]
    return made


def test_as_many_run_as_there_are_slots_and_the_rest_waits_in_order(slots):
    given = [assignment(n, at=float(n)) for n in range(1, 5)]
    slots.add(given)
    assert slots.runner.started == given[:2]
    assert [one.started_at for one in given] == [7.0, 7.0, None, None]
    assert (slots.room(), slots.room(ahead=3), slots.waiting_since()) == (0, 1, 3.0)
    slots.end(given[1], Returned())
    assert slots.runner.started == given[:3]
    assert slots.collect() == [(given[1], Returned())]
    assert slots.collect() == []
    assert slots.held() == [given[0], given[2], given[3]]


def test_the_first_outcome_counts_and_the_slot_is_free_only_at_the_end(slots):
    one = assignment(1)
    slots.add([one])
    slots.settle(one, Raised("too slow", "timeout"))
    assert slots.room() == 1
    slots.end(one, Returned())
    assert slots.room() == 2
    assert slots.collect() == [(one, Raised("too slow", "timeout"))]
    assert slots.discarded == 1


def test_what_is_forgotten_ends_in_nothing(slots):
    running, waiting = assignment(1), assignment(3)
    slots.add([running, assignment(2), waiting])
    assert slots.forget(running)
    assert not slots.forget(running)
    assert slots.forget(waiting)
    slots.end(running, Returned())
    assert slots.collect() == []
    assert waiting not in slots.runner.started
    assert slots.discarded == 1


def test_what_waits_can_be_withdrawn_and_what_runs_cannot(slots):
    given = [assignment(n) for n in range(1, 5)]
    slots.add(given)
    assert slots.withdraw() == given[2:]
    assert slots.withdraw() == []
    assert slots.held() == given[:2]
    assert slots.waiting_since() is None


def test_only_what_runs_is_stopped_by_its_runner(slots):
    given = [assignment(n) for n in range(1, 4)]
    slots.add(given)
    for one in given:
        slots.stop(one)
    assert slots.runner.stopped == given[:2]


def test_a_sleeper_is_woken_by_an_outcome_and_by_a_poke_given_before(slots):
    one = assignment(1)
    slots.add([one])
    slots.poke()
    slots.wait(None)
    slots.end(one, Returned())
    slots.wait(None)
    assert not slots.is_quiet()
    slots.collect()
    assert slots.is_quiet()
    slots.wait(0)


def test_a_slot_freed_by_a_late_handler_wakes_the_sleeper(slots):
    one = assignment(1)
    slots.add([one])
    slots.forget(one)
    slots.end(one, Returned())
    slots.wait(None)
    assert slots.room() == 2


def test_closing_closes_the_runners(slots):
    slots.close()
    assert slots.runner.is_closed


# --- assignments ------------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_at_a_third_counted_from_when_it_was_asked_for():
    one = assignment(1, lease_s=30, at=100.0)
    assert (one.renew_at, one.lost_at) == (110.0, 130.0)
    one.renewed(110.0, 30)
    assert (one.renew_at, one.lost_at) == (120.0, 140.0)
    one.renewed(120.0, 0.0)
    assert one.renew_at == 120.0 + SHORTEST_BEAT_S


def test_a_timeout_counts_from_the_start_of_the_handler():
    one = assignment(1, timeout_s=5)
    assert one.times_out_at is None
    one.started_at = 10.0
    assert one.times_out_at == 15.0
    assert assignment(2).times_out_at is None


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (Stop.TIMEOUT, Raised("the handler ran longer than its timeout of 5 s", "timeout")),
        (Stop.CANCEL, GaveUp()),
        (Stop.SHUTDOWN, Released(begun=True)),
        (Stop.LOST, Released(begun=True)),
    ],
)
def test_the_first_reason_to_stop_says_how_it_ended(why, outcome):
    one = assignment(1, timeout_s=5)
    one.started_at = 1.0
    assert one.ask_to_stop(why)
    assert not one.ask_to_stop(Stop.CANCEL)
    assert one.stopped() == outcome
    assert (one.context.cancelled, one.context.cancel_reason) == (True, why)


def test_what_never_began_is_released_as_such():
    one = assignment(1)
    one.ask_to_stop(Stop.SHUTDOWN)
    assert one.stopped() == Released(begun=False)


def test_a_runner_may_take_the_next_assignment_of_its_own_while_others_are_started():
    made = Slots(1, lambda: 7.0, lambda desk: {"thread": Idle(desk), "loop": Idle(desk)})
    first, own, other, last = (assignment(n) for n in range(1, 5))
    other.spec = replace(SPEC, isolation="loop")
    made.add([first, own, other, last])
    assert made.end_for_next(first, Returned()) is own
    assert made._runners["thread"].started == [first], "it is not started twice"
    assert (own.started_at, first.ended_at) == (7.0, 7.0)
    assert made.end_for_next(own, Returned()) is None
    assert made._runners["loop"].started == [other]
    made.end(other, Returned())
    assert made._runners["thread"].started == [first, last]
    assert made.end_for_next(last, Returned()) is None
    assert [one for one, _ in made.collect()] == [first, own, other, last]

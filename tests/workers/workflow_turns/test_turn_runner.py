"""What a thread does with a stint: it advances the turn until that waits, and has done what it wants."""

from types import SimpleNamespace

import pytest
from stintkit import Clockwork, Code, HandCrew, stint

from holdfast.errors import InvalidValue, StoreBusy
from holdfast.model.workflows.commands import AbandonTurn, AckTurn
from holdfast.workers.workflow_turns.abandon import Parting
from holdfast.workers.workflow_turns.fetch_policy import Outlook
from holdfast.workers.workflow_turns.runner import Players
from holdfast.workers.workflow_turns.turn_state import (
    BROKEN_S,
    IDLE_S,
    Came,
    Committed,
    Idled,
    Opened,
    Outcome,
    Ready,
    StepEnded,
)
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.runtime.execution_cache import Residents

ACK = AckTurn(token=1, execution_id=1)


class Play:
    """A turn as a row of outcomes, one for each time that it is advanced; and what it was given each time."""

    def __init__(self):
        self.outcomes = []
        self.delivered = []
        self.refusal = None
        #: What happens while its code runs.
        self.meanwhile = lambda: None

    def deliver(self, _stint, inputs):
        self.delivered.append(list(inputs))
        self.meanwhile()

    def refused(self, _stint, _ready):
        return self.refusal

    def wanted(self, _stint, _now):
        return self.outcomes.pop(0) if self.outcomes else Outcome()


class Cast(Clockwork):
    """Players of one stint, whose threads are the test's."""

    def __init__(self):
        super().__init__()
        self.crew, self.play, self.kept = HandCrew(), Play(), []
        self.outlook = Outlook(4)
        self.stage = SimpleNamespace(now=lambda: self.time)
        self.players = Players(
            self.crew,
            self.ledger,
            self.play,
            archive=SimpleNamespace(keep=lambda resident, _: self.kept.append(resident)),
            parting=Parting(self.ledger, self.crew, Residents()),
            alarm=self.alarm,
            stage=self.stage,
            outlook=self.outlook,
        )
        self.code = Code()
        self.stint = self.begin(stint(execution=self.code))

    def put(self, *inputs):
        for one in inputs:
            with self.lock:
                self.players.put(self.stint, one)

    def abandoned(self):
        """Give how the one instance was given back: why, whether it counts, and for how long."""
        (errand,) = self.ledger.outbox
        assert errand.is_last
        return errand.command.reason, not errand.command.given_back, errand.command.delay_s


@pytest.fixture
def cast():
    return Cast()


def step(number, function=lambda: 7):
    return StepCall(name=f"s{number}", function=function, step_no=number)


def test_one_thread_takes_a_stint_and_all_that_came_by_then_in_order(cast):
    cast.put(Came(()), Idled())
    assert len(cast.crew.work) == 1
    assert cast.ledger.coming == 1
    cast.crew.do()
    assert cast.play.delivered == [[Came(()), Idled()]]
    assert (cast.stint.is_taken, cast.ledger.coming) == (False, 0)


def test_what_comes_while_a_thread_is_inside_is_taken_on_by_that_one(cast):
    cast.play.meanwhile = lambda: len(cast.play.delivered) == 1 and cast.put(Idled())
    cast.put(Came(()))
    cast.crew.do()
    assert cast.play.delivered == [[Came(())], [Idled()]]
    assert cast.crew.work == []


def test_a_commit_alone_lets_the_turn_go_on_without_its_code_being_entered(cast):
    cast.play.outcomes = [Outcome(ack=ACK)]
    cast.put(Committed())
    cast.crew.do()
    assert cast.play.delivered == []
    assert cast.sent == ["ack"]


def test_a_stint_that_is_gone_is_not_advanced_and_its_code_is_let_go_by_the_thread_that_had_it(cast):
    cast.put(Came(()))
    cast.stint.is_gone = cast.stint.is_dropped = True
    cast.put(Idled())
    cast.crew.do()
    assert (cast.play.delivered, cast.code.closed, cast.stint.is_taken) == ([], [False], False)


def test_what_a_turn_wants_after_it_was_given_up_is_not_sent(cast):
    cast.play.outcomes = [Outcome(ack=ACK, steps=[step(1)])]
    cast.play.meanwhile = lambda: setattr(cast.stint, "is_gone", True)
    cast.put(Came(()))
    cast.crew.do()
    assert (cast.sent, cast.stint.steps) == ([], {})


def test_where_no_thread_can_be_had_the_instance_is_given_back_and_that_does_not_count(cast):
    cast.crew.is_full = True
    cast.put(Came(()))
    reason, counts, delay_s = cast.abandoned()
    assert (reason.startswith("the turn could not be started"), counts, delay_s) == (True, False, BROKEN_S)
    assert (cast.stint.is_taken, cast.ledger.coming) == (False, 0)


def fails_with(problem):
    def fail():
        raise problem

    return fail


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (StoreBusy("busy"), (None, False, BROKEN_S)),
        (InvalidValue("too long"), ("too long", True, BROKEN_S)),
        (SystemExit("out"), ("the turn broke: out", True, BROKEN_S)),
    ],
    ids=["unread", "unkept", "broken"],
)
def test_a_turn_that_cannot_go_on_is_given_back_and_counts_unless_it_did_not_begin(cast, problem, expected):
    cast.put(Opened(fails_with(problem)))
    cast.crew.do()
    assert cast.abandoned() == expected
    assert cast.code.closed == [False]


def test_a_turn_that_is_refused_is_not_begun(cast):
    ready = Ready(None, None, ())
    cast.play.refusal = Outcome(abandon=AbandonTurn(token=1), is_last=True)
    cast.put(Opened(lambda: ready))
    cast.crew.do()
    assert (cast.sent, cast.play.delivered) == (["abandon"], [])


def test_what_is_opened_is_delivered_as_it_was_read_before_what_came_behind_it(cast):
    ready = Ready(None, None, ())
    cast.put(Opened(lambda: ready), Came(()))
    cast.crew.do()
    assert cast.play.delivered == [[ready, Came(())]]


def test_messages_that_cannot_be_read_are_set_aside_before_the_commit_and_once(cast):
    cast.stint.unreadable = (3, 4)
    cast.play.outcomes = [Outcome(ack=ACK), Outcome(ack=ACK)]
    cast.put(Came(()))
    cast.crew.do()
    cast.put(Came(()))
    cast.crew.do()
    assert cast.sent == ["park", "ack", "ack"]
    assert cast.ledger.outbox[0].command.messages == (3, 4)


def test_with_the_last_commit_the_code_is_kept_or_let_go(cast):
    cast.play.outcomes = [Outcome(ack=ACK, is_last=True, resident=cast.code), Outcome(ack=ACK, is_last=True)]
    cast.put(Came(()))
    cast.crew.do()
    assert (cast.kept, cast.code.closed) == ([cast.code], [])
    cast.put(Came(()))
    cast.crew.do()
    assert (cast.kept, cast.code.closed) == ([cast.code], [False])


def test_the_first_step_runs_in_the_thread_that_began_it_which_takes_the_outcome_on(cast):
    cast.play.outcomes = [Outcome(steps=[step(1), step(2)])]
    cast.put(Came(()))
    cast.crew.do()
    assert cast.play.delivered == [[Came(())], [StepEnded(1, "7")]]
    assert list(cast.stint.steps) == [2]
    (other,) = cast.crew.work
    cast.crew.work = []
    other()
    assert cast.stint.steps == {}
    cast.crew.do()
    assert cast.play.delivered[2:] == [[StepEnded(2, "7")]]


def test_while_a_step_runs_another_thread_may_take_the_stint_and_then_goes_on_with_it_alone(cast):
    """What others put in meanwhile is taken by the next thread, and the outcome is that one's too."""

    def meanwhile():
        cast.stint.inline, mine = -1, cast.stint.inline  # as another thread sees it
        cast.put(Idled())
        cast.stint.inline = mine
        return 7

    cast.play.outcomes = [Outcome(steps=[step(1, meanwhile)])]
    cast.put(Came(()))
    cast.crew.do()
    assert cast.play.delivered == [[Came(())]]
    assert len(cast.crew.work) == 1
    cast.crew.do()
    assert cast.play.delivered[1:] == [[Idled(), StepEnded(1, "7")]]
    assert cast.stint.is_taken is False


def test_steps_that_are_no_longer_waited_for_are_stopped(cast):
    stopped = []
    cast.stint.steps = {number: SimpleNamespace(stop=lambda number=number: stopped.append(number)) for number in (1, 2)}
    cast.play.outcomes = [Outcome(stopped=[2, 9])]
    cast.put(Came(()))
    cast.crew.do()
    assert (stopped, list(cast.stint.steps)) == ([2], [1])


def test_what_a_turn_has_decided_is_committed_after_a_while_although_a_step_runs(cast):
    cast.sleep()
    cast.stint.turn.has_news = True
    seen = []
    cast.play.outcomes = [Outcome(steps=[step(1, lambda: seen.append((cast.stint.idle_at, cast.pokes)))])]
    cast.put(Came(()))
    cast.crew.do()
    assert seen == [(cast.time + IDLE_S, 1)]
    assert cast.stint.idle_at == float("inf")  # it goes on

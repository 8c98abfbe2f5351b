"""The machine of turns by itself: what is sent and when, what threads are asked to do, what is given back."""

import pytest

from holdfast.errors import InvalidValue, LeaseLost
from holdfast.model.outcomes import Brought, Delivered, Done, Fetched, LockedTurn, refuse
from holdfast.model.payloads import NULL
from holdfast.model.workflows.commands import AckTurn
from holdfast.model.workflows.history import HandledMessage
from holdfast.rules.jobs.suspects import TRIAL_S
from holdfast.workers.workflow_turns import NEVER
from holdfast.workers.workflow_turns.machine import (
    AHEAD,
    IDLE_S,
    LINGER_S,
    LOCK_S,
    LOOK_AGAIN_S,
    MOST,
    PATIENCE_S,
    RENEW_S,
    Came,
    FetchPolicy,
    Idled,
    Opened,
    Phase,
    Played,
    StepEnded,
    TurnMachine,
)

AT = "2026-01-01T00:00:00.000000Z"
NOW = 100.0


class Driven:
    """A machine, its time, and what it asked for."""

    def __init__(self, instances=("i",), messages=(7,), attempts=1):
        self.now = NOW
        self.attempts = attempts
        self.machine = TurnMachine(2, ["flow"])
        self.messages = messages
        self.cycle(fetched=instances)

    def cycle(self, *replies, fetched=(), answer=None):
        """Send what there is to send; answer each command, acks and the like with Done. Return the kinds sent."""
        errands = self.machine.commands(self.now)
        given = list(replies)
        self.machine.answered(errands, [self._reply(one, given, fetched, answer) for one in errands], AT, self.now)
        return [errand.kind for errand in errands]

    def _reply(self, errand, given, fetched, answer):
        if errand.kind == "fetch":
            turns = [self.locked(number, name) for number, name in enumerate(fetched, 1)]
            return Fetched(turn=turns[0], others=tuple(turns[1:])) if turns else Fetched()
        if errand.kind == "more":
            return given.pop(0) if given else Brought()
        return answer if answer is not None and errand.kind != "announce" else Done()

    def locked(self, token, name):
        messages = tuple(Delivered(seq, NULL) for seq in self.messages)
        return LockedTurn(instance_id=name, token=token, messages=messages, attempts=self.attempts)

    @property
    def turn(self):
        return next(iter(self.machine.turns.values()))

    def effects(self):
        found, self.machine.effects = self.machine.effects, []
        return [(effect.kind, effect.turn.instance) for effect in found]

    def play(self, **report):
        """Have a thread play the turn; return its inputs, and whether it goes on."""
        inputs = self.machine.take(self.turn, self.now)
        if report.get("ack"):
            assert self.machine.may_commit(self.turn)
        return inputs, self.machine.played(self.turn, Played(**report), self.now)


def ack(*handled):
    return AckTurn(token=1, execution_id=1, handled=tuple(HandledMessage(message=seq, event_id=1) for seq in handled))


@pytest.fixture
def driven():
    return Driven()


# --- threads ----------------------------------------------------------------------------------------------------------


def test_fetched_turn_is_played_by_one_thread_with_all_that_came_by_then(driven):
    assert driven.effects() == [("play", "i")]
    driven.machine.step_ended(driven.turn, 3, "1")
    assert driven.effects() == []
    assert driven.play()[0] == [Opened(), StepEnded(3, "1")]
    assert driven.turn.phase is Phase.RESTING


def test_input_that_comes_while_a_thread_plays_is_taken_on_by_that_one(driven):
    driven.effects()
    driven.machine.take(driven.turn, NOW)
    driven.machine.step_ended(driven.turn, 1, "1")
    assert driven.machine.played(driven.turn, Played(), NOW)
    assert driven.effects() == []
    assert driven.play()[0] == [StepEnded(1, "1")]


def test_commit_is_not_made_beside_another_nor_beside_what_was_not_delivered(driven):
    driven.machine.take(driven.turn, NOW)
    driven.machine.step_ended(driven.turn, 1, "1")
    assert not driven.machine.may_commit(driven.turn)
    driven.turn.inbox.clear()
    assert driven.machine.may_commit(driven.turn)
    assert not driven.machine.may_commit(driven.turn)


def test_answered_commit_wakes_its_turn_and_takes_only_what_it_handled_from_its_hands():
    driven = Driven(messages=(7, 8))
    driven.play(ack=ack(7), steps=[1])
    driven.effects()
    assert driven.cycle() == ["ack"]
    assert driven.turn.held == {8}
    assert driven.effects() == [("play", "i")]
    assert driven.play()[0] == []


def test_turn_that_was_given_up_is_not_played_and_what_it_wants_is_not_sent(driven):
    turn = driven.turn
    inputs = driven.machine.take(turn, NOW)
    driven.machine.give_back(turn, "why", NOW, counted=True)
    assert inputs
    assert not driven.machine.played(turn, Played(ack=ack(7), is_last=True), NOW)
    assert driven.machine.take(turn, NOW) is None
    assert driven.cycle() == ["abandon"]


# --- instances that were lost with their worker -----------------------------------------------------------------------


def fetch_of(driven):
    """Return the fetch that the machine would send."""
    driven.machine.policy.hope = True
    return next((one.command for one in driven.machine.commands(driven.now) if one.kind == "fetch"), None)


@pytest.mark.parametrize(("attempts", "on_trial"), [(1, False), (2, True)])
def test_fetch_says_that_an_instance_lost_once_has_run_for_a_moment_only(attempts, on_trial):
    driven = Driven(attempts=attempts)
    assert (fetch_of(driven).holds, fetch_of(driven).on_trial) == (1, on_trial)
    driven.play(steps=[1])
    assert fetch_of(driven).on_trial is on_trial
    driven.now += TRIAL_S
    assert not fetch_of(driven).on_trial


def test_nothing_is_fetched_beside_an_instance_that_was_lost_twice():
    driven = Driven(attempts=3)
    assert driven.machine.makes_way(NOW)
    assert fetch_of(driven) is None
    driven.play(ack=ack(7), is_last=True)
    driven.cycle()
    driven.cycle()
    assert not driven.machine.makes_way(NOW)
    assert fetch_of(driven) is not None


# --- commands ---------------------------------------------------------------------------------------------------------


def test_first_command_waits_a_moment_for_turns_that_are_coming_and_is_sent_after_the_last_of_them():
    driven = Driven(instances=("i", "j"))
    other = driven.machine.turns[2]
    driven.machine.take(other, NOW)
    driven.machine.ring_at = NEVER
    driven.play(ack=ack(7), is_last=True)
    assert driven.machine.ring_at == NOW + LINGER_S
    assert driven.machine.commands(NOW) == []
    driven.machine.played(other, Played(), NOW)
    assert driven.machine.ring_at == 0.0
    assert [errand.kind for errand in driven.machine.commands(NOW)] == ["ack"]


def test_command_waits_once_and_never_for_a_turn_that_is_slow():
    driven = Driven(instances=("i", "j"))
    driven.machine.take(driven.machine.turns[2], NOW)
    driven.play(ack=ack(7), is_last=True)
    assert driven.machine.commands(NOW) == []
    assert [errand.kind for errand in driven.machine.commands(NOW)] == ["ack"]
    driven.machine.commands(NOW + 2 * IDLE_S)
    assert not driven.machine.turns[2].is_coming


def test_command_that_was_not_answered_is_sent_again_and_one_that_was_is_not(driven):
    driven.play(ack=ack(7), is_last=True)
    assert [errand.kind for errand in driven.machine.commands(NOW)] == ["ack"]
    assert driven.cycle() == ["ack"]
    assert driven.machine.committed == 1
    assert driven.machine.is_quiet


def test_messages_that_cannot_be_read_are_set_aside_before_the_commit(driven):
    driven.play(ack=ack(), is_last=True, unreadable=(7,))
    assert driven.cycle() == ["park", "ack"]


def test_lock_is_renewed_after_a_third_and_lost_when_it_could_not_be(driven):
    driven.play(steps=[1])
    driven.now += RENEW_S
    assert driven.cycle() == ["renew"]
    driven.machine.tick(NOW + LOCK_S)
    assert driven.machine.turns
    driven.machine.tick(driven.now + LOCK_S)
    assert not driven.machine.turns
    assert driven.machine.lost == 1
    assert driven.effects()[-1] == ("drop", "i")


def test_turn_of_another_worker_is_dropped_and_nothing_more_is_sent(driven):
    driven.play(ack=ack(7))
    driven.effects()
    driven.cycle(answer=refuse(LeaseLost, "Lock expired"))
    assert driven.effects() == [("drop", "i")]
    assert driven.machine.is_quiet


def test_commit_that_cannot_be_kept_is_given_back_and_counts(driven):
    driven.play(ack=ack(7), is_last=True)
    driven.cycle(answer=refuse(InvalidValue, "too large"))
    (errand,) = driven.machine.commands(NOW)
    assert (errand.kind, errand.command.given_back, errand.command.reason) == ("abandon", False, "too large")
    driven.cycle()
    assert driven.machine.is_quiet


def test_more_messages_are_fetched_with_what_is_in_hand_and_delivered_once(driven):
    driven.play(steps=[1])
    driven.effects()
    driven.machine.mail(driven.machine.watched())
    (errand,) = driven.machine.commands(NOW)
    assert errand.command.having == (7,)
    both = Brought(messages=(Delivered(7, NULL), Delivered(9, NULL)))
    driven.machine.answered([errand], [both], AT, NOW)
    assert driven.effects() == [("play", "i")]
    assert driven.play()[0] == [Came([Delivered(9, NULL)])]
    assert driven.turn.held == {7, 9}


def test_fetch_of_more_that_was_not_answered_is_tried_again(driven):
    driven.play(steps=[1])
    driven.machine.mail(driven.machine.watched())
    assert [errand.kind for errand in driven.machine.commands(NOW)] == ["more"]
    assert [errand.kind for errand in driven.machine.commands(NOW)] == ["more"]


def test_decision_of_a_turn_is_committed_after_a_while_although_a_step_runs(driven):
    driven.play(steps=[1], has_news=True)
    driven.effects()
    assert driven.machine.due_at(NOW) == NOW + LINGER_S or driven.turn.idle_at == NOW + IDLE_S
    driven.machine.tick(NOW + IDLE_S)
    assert driven.play()[0] == [Idled()]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_turn_that_waits_for_a_thread_too_long_is_given_back_uncounted(driven):
    driven.now += PATIENCE_S
    driven.machine.tick(driven.now)
    (errand,) = driven.machine.commands(driven.now)
    assert (errand.kind, errand.command.given_back) == ("abandon", True)


def test_worker_that_stops_gives_a_turn_back_after_the_commit_under_way(driven):
    driven.play(ack=ack(7), steps=[1])
    driven.machine.stop(NOW)
    assert driven.cycle() == ["ack", "abandon"]
    assert driven.machine.is_quiet
    assert driven.machine.abandoned == 1


def test_worker_that_stops_has_nothing_to_give_back_after_a_last_commit(driven):
    driven.play(ack=ack(7), is_last=True)
    driven.machine.stop(NOW)
    assert driven.cycle() == ["ack"]
    assert driven.machine.is_quiet


def test_worker_that_drains_plays_what_rests_once_more_and_takes_nothing(driven):
    driven.play()
    driven.effects()
    driven.machine.drain(NOW)
    assert driven.effects() == [("play", "i")]
    assert driven.machine.room() == 0
    assert driven.machine.commands(NOW) == []


def test_turn_that_was_fetched_while_the_worker_was_told_to_end_is_given_back():
    driven = Driven(instances=())
    driven.machine.policy.hope = True
    errands = driven.machine.commands(NOW)
    driven.machine.drain(NOW)
    driven.machine.answered(errands, [Fetched(turn=driven.locked(1, "i"))], AT, NOW)
    assert driven.cycle() == ["abandon"]
    assert driven.machine.is_quiet


# --- what a fetch would bring -----------------------------------------------------------------------------------------


def test_short_turns_are_fetched_ahead_and_long_ones_only_as_many_as_run_at_once():
    policy = FetchPolicy(4)
    assert policy.room(0) == 4 * AHEAD
    assert policy.room(4 * AHEAD - 1) == 1
    assert policy.room(4 * AHEAD + 3) == 0
    policy.took(8 * IDLE_S)
    assert (policy.room(0), policy.room(3), policy.room(5)) == (4, 1, 0)


def test_worker_that_is_tired_recovers_by_short_turns():
    policy = FetchPolicy(2)
    policy.tire()
    assert policy.room(0) == 2
    for _ in range(100):
        policy.took(0.0)
    assert policy.room(0) == 2 * AHEAD


def test_no_more_are_fetched_than_one_cycle_takes_and_none_by_a_worker_that_ends():
    policy = FetchPolicy(MOST)
    assert policy.room(0) == MOST
    policy.is_draining = True
    assert policy.room(0) == 0


@pytest.mark.parametrize(("found", "hope"), [(3, True), (2, False), (0, False)])
def test_there_is_hope_of_more_where_as_many_came_as_were_asked_for(found, hope):
    policy = FetchPolicy(4)
    policy.fetched(found, 3)
    assert policy.hope is hope


def test_instances_that_could_not_be_had_give_no_hope_before_something_happens():
    policy = FetchPolicy(4)
    policy.looked(5, NEVER, NOW)
    policy.fetched(0, 4)
    policy.looked(5, NEVER, NOW)
    policy.hope_again(lambda: True)
    assert not policy.hope
    policy.looked(6, NEVER, NOW)
    policy.hope_again(lambda: True)
    assert policy.hope


@pytest.mark.parametrize(
    ("left_s", "is_there", "hope"), [(NEVER, False, False), (NEVER, True, True), (0, False, True), (1, False, False)]
)
def test_there_is_hope_again_where_something_is_there_or_due(left_s, is_there, hope):
    policy = FetchPolicy(4)
    policy.fetched(1, 4)
    policy.looked(1, left_s, NOW)
    policy.hope_again(lambda: is_there)
    assert policy.hope is hope


@pytest.mark.parametrize(
    ("left_s", "mail_at"), [(NEVER, NEVER), (7, NOW + 7), (0, NOW + LOOK_AGAIN_S), (-3, NOW + LOOK_AGAIN_S)]
)
def test_message_that_is_due_later_is_waited_for_and_behind_one_due_now_the_look_is_repeated(left_s, mail_at):
    policy = FetchPolicy(4)
    policy.looked(1, left_s, NOW)
    assert policy.mail_at == mail_at


def test_mail_that_came_is_told_once_and_gives_hope():
    policy = FetchPolicy(4)
    policy.fetched(0, 4)
    policy.looked(1, 7, NOW)
    assert not policy.mail_came(NOW + 6.9)
    assert policy.mail_came(NOW + 7)
    assert policy.hope
    assert not policy.mail_came(NOW + 8)


def test_message_that_came_for_a_turn_with_a_step_is_fetched_at_once():
    driven = Driven()
    driven.play(steps=[1])
    driven.machine.mail([driven.turn])
    assert driven.machine.due_at(NOW) == NOW
    assert "more" in driven.cycle()
    assert driven.machine.due_at(NOW) > NOW

"""Inline steps of an execution: numbered as they are begun, handed out once, stopped if they had been."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.runtime.inline_steps import InlineSteps


def begun(count):
    steps = InlineSteps()
    calls = [StepCall(name=f"s{number}", function=print) for number in range(count)]
    for call in calls:
        steps.begin(call, "i", 3)
    return steps, calls


def test_a_step_knows_its_number_and_whose_it_is():
    steps, calls = begun(3)
    assert [(call.step_no, call.instance, call.execution_id) for call in calls] == [(n, "i", 3) for n in (1, 2, 3)]
    assert list(steps.values()) == calls


def test_steps_are_handed_out_once_and_looking_at_them_hands_out_nothing():
    steps, calls = begun(2)
    assert steps.unstarted() == steps.unstarted() == calls
    assert not any(call.is_started for call in calls)
    assert steps.take_unstarted() == calls
    assert all(call.is_started for call in calls)
    assert steps.take_unstarted() == []
    assert list(steps.values()) == calls  # they are waited for


def test_a_step_that_ended_in_replay_is_not_handed_out_and_its_number_is_not_given_again():
    steps, calls = begun(2)
    del steps[1]
    assert steps.take_unstarted() == calls[1:]
    another = StepCall(name="s", function=print)
    steps.begin(another, "i", 3)
    assert another.step_no == 3


def test_only_a_step_that_was_handed_out_is_stopped_and_once():
    steps, _ = begun(2)
    steps.drop(1)
    steps.take_unstarted()
    for number in (1, 2, 2, 9):
        steps.drop(number)
    assert steps.take_stopped() == [2]
    assert steps.take_stopped() == []


def test_at_the_end_those_are_stopped_that_were_handed_out_and_are_still_waited_for():
    steps, _ = begun(2)
    steps.take_unstarted()
    del steps[1]
    steps.begin(StepCall(name="s", function=print), "i", 3)
    steps.stop()
    assert steps.take_stopped() == [2]


MOVES = st.lists(st.sampled_from(["begin", "take"]) | st.tuples(st.sampled_from(["drop", "end"]), st.integers(1, 6)))


@given(MOVES)
def test_whatever_the_code_does_each_step_is_handed_out_at_most_once_and_stopped_only_after_that(moves):
    steps, out, over = InlineSteps(), [], set()
    for move in moves:
        match move:
            case "begin":
                steps.begin(StepCall(name="s", function=print), "i", 3)
            case "take":
                ready = [call.step_no for call in steps.take_unstarted()]
                assert not over.intersection(ready)
                out += ready
                assert set(steps) <= set(out)
            case "drop", number:
                runs = number in steps and number in out
                over |= {number} & set(steps)
                steps.drop(number)
                assert steps.take_stopped() == [number] * runs
            case _, number:
                over |= {number} & set(steps)
                steps.pop(number, None)
    assert out == sorted(set(out))

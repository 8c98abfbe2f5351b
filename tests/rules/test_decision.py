"""A decision is what is written, and what is answered once that is durable."""

from holdfast.errors import DuplicateKey
from holdfast.model.events import DispatchResumed
from holdfast.model.outcomes import Done, Refusal
from holdfast.rules.decision import answer, deny


def test_an_answer_carries_its_events_in_order():
    first, second = DispatchResumed(cmd="1"), DispatchResumed(cmd="2")
    assert answer(Done(), first, second) == ((first, second), Done())
    assert answer(Done()) == ((), Done())


def test_a_denial_writes_nothing_and_names_its_error():
    events, outcome = deny(DuplicateKey, "held.", hint="Wait.", job_id="j", count=3)
    assert events == ()
    assert outcome == Refusal(code="duplicate_key", message="held.", hint="Wait.", facts={"job_id": "j", "count": "3"})

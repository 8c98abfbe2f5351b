"""What may be said to instances, and by whom."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.app.workflows.commands import cancel_command, signal_command
from holdfast.model.access import Access, Role
from holdfast.model.commands import CreateGroup, Enqueue
from holdfast.model.workflows.commands import AnswerDecision, NewMessage, TellInstance
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ExternalRaised,
    QueueMessage,
    ResumeInstance,
    SubOrchCompleted,
    TimerFired,
    decode_item,
    encode_item,
)
from holdfast.rules.access.instance_commands import may_say, signed
from holdfast.rules.access.roles import may_send
from holdfast.testing.conformance.harness import new_job


def said(item):
    return TellInstance(message=NewMessage(item=msgspec.Raw(encode_item(item))))


FORGED = (
    ActivityCompleted(instance="i", execution_id=1, id=2, result="1"),
    TimerFired(instance="i", execution_id=1, id=2, fire_at_ms=0),
    SubOrchCompleted(parent_instance="i", parent_execution_id=1, parent_id=2, result="1"),
    ResumeInstance(instance="i", execution_id=1),
    QueueMessage(instance="i", name="@decision/2", data="{}"),
)


@pytest.mark.parametrize("role", list(Role))
def test_signals_are_a_clients_and_requests_to_stop_an_operators(role):
    access = Access(name="x", roles=(role,))
    for judge in (may_say, may_send):
        signals = (signal_command("i", "paid", "1"), said(ExternalRaised(instance="i", name="paid", data="1")))
        assert {judge(access, one) for one in signals} == {role in (Role.CLIENT, Role.ADMIN)}
        assert judge(access, cancel_command("i", "", force=True)) == (role in (Role.OPERATOR, Role.ADMIN))


@pytest.mark.parametrize("item", FORGED, ids=lambda item: type(item).__name__)
def test_nobody_from_outside_speaks_for_an_activity_a_timer_a_child_or_an_answer(item):
    everything_but_admin = Access(name="x", roles=tuple(role for role in Role if role is not Role.ADMIN))
    assert not may_say(everything_but_admin, said(item))
    assert not may_send(everything_but_admin, said(item))


def test_only_admins_make_a_job_that_speaks_for_an_activity():
    owned = new_job("a", owner="i/1/2")
    makes = (
        Enqueue(jobs=(new_job("b"), owned)),
        CreateGroup(group_id="g", members=(owned,)),
        CreateGroup(group_id="g", members=("b",), callback=owned),
    )
    for command in makes:
        assert may_send(Access(name="x", roles=(Role.ADMIN,)), command)
        assert not may_send(Access(name="x", roles=(Role.CLIENT,)), command)
    assert may_send(Access(name="x", roles=(Role.CLIENT,)), Enqueue(jobs=(new_job("b"),)))


def test_only_admins_make_a_job_that_is_older_than_its_command():
    """Where waiting is worth priority it would come before all others."""
    old = new_job("a", created_at="2000-01-01T00:00:00.000000Z")
    client, admin = (Access(name="x", roles=(role,)) for role in (Role.CLIENT, Role.ADMIN))
    for command in (
        Enqueue(jobs=(old,)),
        CreateGroup(group_id="g", members=(old,)),
        CreateGroup(group_id="g", members=(), callback=old),
    ):
        assert not may_send(client, command)
        assert may_send(admin, command)


def test_what_cannot_be_read_is_left_to_who_says_what_is_wrong_with_it():
    nonsense = TellInstance(message=NewMessage(item=msgspec.Raw(b'{"type":"Nonsense"}')))
    assert may_say(Access(name="x", roles=(Role.CLIENT,)), nonsense)
    assert not may_say(Access(name="x", roles=(Role.WORKER,)), nonsense)


def answering(item):
    return AnswerDecision(decision_id="d", message=NewMessage(item=msgspec.Raw(item)), by="me")


@pytest.mark.parametrize("data", ['{"chosen":"yes","by":"me","more":[1]}', '{"chosen":"yes","more":[1]}'])
def test_an_answer_is_of_who_gives_it_and_says_else_what_it_said(data):
    made = signed(answering(encode_item(QueueMessage(instance="i", name="@decision/2", data=data))), "ann")
    item = decode_item(made.message.item)
    assert (made.by, item.instance, item.name) == ("ann", "i", "@decision/2")
    assert msgspec.json.decode(item.data) == {"chosen": "yes", "more": [1], "by": "ann"}


@pytest.mark.parametrize(
    "item",
    [
        b"nothing",
        b"{}",
        encode_item(TimerFired(instance="i", execution_id=1, id=2, fire_at_ms=0)),
        encode_item(QueueMessage(instance="i", name="@decision/2", data="yes")),
        encode_item(QueueMessage(instance="i", name="@decision/2", data="[1]")),
    ],
)
def test_what_is_no_answer_is_left_to_be_refused(item):
    assert signed(answering(item), "ann") == answering(item)

"""Starts and signals from outside: decided together with whether the instance is there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.errors import InvalidValue, WorkflowAlreadyStarted, WorkflowFinished, WorkflowNotFound
from holdfast.model.outcomes import Begun, Done
from holdfast.model.workflows.commands import NewMessage, StartInstance, TellInstance
from holdfast.model.workflows.instances import Instance, Message
from holdfast.model.workflows.work_items import encode_item
from holdfast.stores.protocol import InstanceQuery, StartQuery
from holdfast.testing.conformance.marks import counts_writes
from holdfast.testing.conformance.provider_kit import (
    COMPLETED,
    CONTINUED,
    Desk,
    ProviderTopic,
    data_of,
    patch,
    signal,
    start,
    started,
)
from holdfast.workflows.provider import CancelInstance, ContinueAsNew, QueueMessage, StartOrchestration, WorkItem

#: Seconds that a signal is kept in these checks.
HOLD = 60.0


def message(item: WorkItem) -> NewMessage:
    """Write an item down."""
    return NewMessage(item=msgspec.Raw(encode_item(item)))


def beginning(instance: str = "i", name: str = "flow", given: str = "{}", *signals: WorkItem) -> StartInstance:
    """Build a start."""
    start = StartOrchestration(instance=instance, orchestration=name, input=given)
    return StartInstance(message=message(start), signals=tuple(message(one) for one in signals))


def owned(instance: str) -> StartInstance:
    """Build a start that somebody from outside asks for."""
    return msgspec.structs.replace(beginning(instance), submitted_by="shop")


def whose(desk: Desk, instance: str) -> str | None:
    """Give who asked for an instance, as it tells."""
    with desk.harness.engine.read() as view:
        found = view.get(Instance, instance)
    assert found is not None
    return found.submitted_by


def telling(item: WorkItem, hold_s: float | None = None) -> TellInstance:
    """Build what sends an item."""
    return TellInstance(message=message(item), hold_s=hold_s)


class ProviderStarts(ProviderTopic):
    """One id, one instance."""

    def begin(self, desk: Desk, *signals: WorkItem) -> None:
        """Start an instance and run its first turn."""
        assert desk.harness.ask(beginning("i", "flow", "{}", *signals)) == Begun(instance_id="i")
        item, token, _ = desk.fetch()
        assert item.instance == "i"
        desk.ack(token, started())

    def test_a_start_is_delivered(self, desk: Desk) -> None:
        desk.harness.ask(beginning())
        item, _, attempts = desk.fetch()
        assert (item.instance, len(item.messages), attempts) == ("i", 1, 1)

    def test_signals_of_a_start_come_right_behind_it(self, desk: Desk) -> None:
        desk.harness.ask(beginning("i", "flow", "{}", signal(data="1"), signal(data="2")))
        assert data_of(desk.fetch()[0].messages) == ["1", "2"]

    @counts_writes
    def test_the_same_start_again_gives_the_one_that_waits(self, desk: Desk) -> None:
        desk.harness.ask(beginning("i", "flow", "{}", signal(data="1")))
        with desk.harness.unchanged():
            again = desk.harness.ask(beginning("i", "flow", "{}", signal(data="1")))
        assert again == Begun(instance_id="i", created=False)
        assert data_of(desk.fetch()[0].messages) == ["1"]

    @counts_writes
    def test_the_same_start_again_gives_the_one_that_runs(self, desk: Desk) -> None:
        self.begin(desk)
        with desk.harness.unchanged():
            assert desk.harness.ask(beginning()) == Begun(instance_id="i", created=False)

    @counts_writes
    def test_the_same_start_again_gives_the_one_that_has_ended(self, desk: Desk) -> None:
        self.begin(desk)
        desk.ack(desk.turn(), metadata=COMPLETED)
        with desk.harness.unchanged():
            assert desk.harness.ask(beginning()) == Begun(instance_id="i", created=False)

    def test_the_first_input_counts_after_it_went_on_as_new(self, desk: Desk) -> None:
        self.begin(desk)
        desk.ack(desk.turn(), metadata=CONTINUED)
        desk.ack(desk.turn(), started("i", 2), execution=2)
        assert desk.harness.ask(beginning()) == Begun(instance_id="i", created=False)
        desk.harness.refused(WorkflowAlreadyStarted, beginning(given='{"n":2}'))

    @pytest.mark.parametrize("stage", ["waiting", "running", "ended"])
    @pytest.mark.parametrize("other", ["workflow", "input"])
    def test_another_start_with_the_same_id_is_refused(self, desk: Desk, stage: str, other: str) -> None:
        if stage == "waiting":
            desk.harness.ask(beginning())
        else:
            self.begin(desk)
        if stage == "ended":
            desk.ack(desk.turn(), metadata=COMPLETED)
        wanted = beginning(name="other") if other == "workflow" else beginning(given='{"n":2}')
        desk.harness.refused(WorkflowAlreadyStarted, wanted)

    def test_a_start_by_a_workflow_has_the_id_as_well(self, desk: Desk) -> None:
        desk.begin()
        assert desk.harness.ask(beginning()) == Begun(instance_id="i", created=False)
        desk.harness.refused(WorkflowAlreadyStarted, beginning(name="other"))

    def test_an_id_is_free_again_after_deletion(self, desk: Desk) -> None:
        self.begin(desk)
        desk.provider.delete_instance("i", force=True)
        assert desk.harness.ask(beginning(given='{"n":2}')) == Begun(instance_id="i")
        assert desk.fetch()[0].instance == "i"

    def test_what_was_held_for_it_is_delivered_with_its_start(self, desk: Desk) -> None:
        desk.harness.ask(telling(signal(data="early"), HOLD))
        desk.harness.ask(beginning("i", "flow", "{}", signal(data="late")))
        assert data_of(desk.fetch()[0].messages) == ["early", "late"]

    def test_only_a_start_without_a_parent_begins_an_instance(self, desk: Desk) -> None:
        desk.harness.refused(InvalidValue, StartInstance(message=message(signal())))
        child = StartOrchestration(instance="i", orchestration="flow", input="{}", parent_instance="p", parent_id=2)
        desk.harness.refused(InvalidValue, StartInstance(message=message(child)))

    def test_signals_of_a_start_are_for_its_own_instance(self, desk: Desk) -> None:
        desk.harness.refused(InvalidValue, beginning("i", "flow", "{}", signal("other")))
        desk.harness.refused(InvalidValue, beginning("i", "flow", "{}", CancelInstance(instance="i", reason="")))

    def test_a_start_and_its_instance_tell_who_asked_for_it(self, desk: Desk) -> None:
        desk.harness.ask(owned("i"))
        with desk.harness.engine.read() as view:
            (waiting,) = view.beginnings("i")
        assert waiting.submitted_by == "shop"
        _, token, _ = desk.fetch()
        desk.ack(token, started())
        assert whose(desk, "i") == "shop"
        desk.ack(desk.turn(), patch(2))
        assert whose(desk, "i") == "shop"
        if desk.harness.store.promises.reopens:
            desk.harness.reopen()
            assert whose(desk, "i") == "shop"

    def test_what_it_starts_and_what_goes_on_as_new_is_of_who_asked_for_it(self, desk: Desk) -> None:
        desk.harness.ask(owned("i"))
        _, token, _ = desk.fetch()
        desk.ack(token, started(), orchestrator_items=[start("first", parent_instance="i", parent_id=2)])
        token = desk.fetch()[1]
        desk.ack(
            token, started("first"), orchestrator_items=[start("grandchild", parent_instance="first", parent_id=2)]
        )
        again = ContinueAsNew(instance="i", orchestration="flow", input="{}")
        desk.ack(desk.fetch()[1], started("grandchild"))
        desk.ack(desk.turn(), patch(2), metadata=CONTINUED, orchestrator_items=[again])
        desk.ack(desk.fetch()[1], started("i", 2), execution=2)
        assert [whose(desk, name) for name in ("i", "first", "grandchild")] == ["shop"] * 3
        assert not [message for message in _mail(desk, "i") if message.submitted_by is not None]

    def test_an_instance_of_nobody_from_outside_names_nobody(self, desk: Desk) -> None:
        self.begin(desk)
        desk.ack(desk.turn(), patch(2), orchestrator_items=[start("child", parent_instance="i", parent_id=3)])
        desk.ack(desk.fetch()[1], started("child"))
        assert whose(desk, "i") is whose(desk, "child") is None

    def test_instances_are_listed_by_who_asked_for_them(self, desk: Desk) -> None:
        for name in "abcd":
            desk.harness.ask(owned(name) if name in "ac" else beginning(name))
            desk.ack(desk.fetch()[1], started(name))
        with desk.harness.engine.read() as view:
            found = [one.instance_id for one in view.instances(InstanceQuery(submitted_by="shop"))]
            first = [one.instance_id for one in view.instances(InstanceQuery(submitted_by="shop", limit=1))]
            none = view.instances(InstanceQuery(submitted_by="nobody"))
        assert (found, first, list(none)) == (["c", "a"], ["c"], [])

    def test_what_nobody_has_begun_is_listed_by_its_name_and_by_who_asked_for_it(self, desk: Desk) -> None:
        for name in "dcba":
            desk.harness.ask(owned(name) if name in "ac" else beginning(name))

        def unbegun(**asked: Any) -> str:
            with desk.harness.engine.read() as view:
                return "".join(start.instance_id for start in view.unbegun(StartQuery(**asked)))

        assert unbegun() == "abcd"
        assert (unbegun(limit=2), unbegun(after="b"), unbegun(after="b", limit=1)) == ("ab", "cd", "c")
        assert (unbegun(submitted_by="shop"), unbegun(submitted_by="shop", after="a")) == ("ac", "c")
        assert (unbegun(submitted_by="nobody"), unbegun(orchestration_name="other")) == ("", "")
        # One whose first turn is under way has no record yet, and is not forgotten meanwhile.
        item, token, _ = desk.fetch()
        assert unbegun() == "abcd"
        desk.ack(token, started(item.instance))
        assert unbegun() == "abcd".replace(item.instance, "")

    def test_an_execution_is_found_by_its_history(self, desk: Desk) -> None:
        desk.continued(executions=3)
        with desk.harness.engine.read() as view:
            having = view.executions("i")
            assert [view.execution_of(one.history_id) for one in having] == list(having)
            assert view.execution_of(0) is None
        desk.provider.delete_instance("i", force=True)
        with desk.harness.engine.read() as view:
            assert [view.execution_of(one.history_id) for one in having] == [None] * 3


def _mail(desk: Desk, instance: str) -> list[Message]:
    with desk.harness.engine.read() as view:
        return list(view.mail(instance))


class ProviderTelling(ProviderTopic):
    """Nobody is told what nobody can read."""

    def test_a_signal_reaches_an_instance_that_runs(self, desk: Desk) -> None:
        desk.begin()
        assert desk.harness.ask(telling(signal(data="1"))) == Done()
        assert data_of(desk.fetch()[0].messages) == ["1"]

    def test_a_signal_reaches_an_instance_whose_start_waits(self, desk: Desk) -> None:
        desk.harness.ask(beginning())
        desk.harness.ask(telling(signal(data="1")))
        assert data_of(desk.fetch()[0].messages) == ["1"]

    def test_a_signal_to_nobody_is_refused(self, desk: Desk) -> None:
        desk.harness.refused(WorkflowNotFound, telling(signal("nobody")))

    def test_a_held_signal_waits_for_an_instance_as_long_as_it_was_told(self, desk: Desk) -> None:
        desk.harness.ask(telling(signal(data="1"), HOLD))
        assert desk.provider.get_queue_depths().parked == 1
        desk.advance(HOLD + 1)
        desk.harness.tick()
        assert desk.provider.get_queue_depths().parked == 0

    @pytest.mark.parametrize("hold_s", [None, HOLD])
    def test_a_signal_to_an_ended_instance_is_refused(self, desk: Desk, hold_s: float | None) -> None:
        desk.end()
        desk.harness.refused(WorkflowFinished, telling(signal(), hold_s))
        desk.harness.refused(WorkflowFinished, telling(CancelInstance(instance="i", reason=""), hold_s))

    def test_a_signal_reaches_an_instance_that_goes_on_as_new(self, desk: Desk) -> None:
        desk.continued(executions=2)
        desk.harness.ask(telling(QueueMessage(instance="i", name="s", data="1")))
        assert data_of(desk.fetch()[0].messages) == ["1"]

    def test_a_cancel_reaches_an_instance_whose_start_waits(self, desk: Desk) -> None:
        desk.harness.ask(beginning())
        desk.harness.ask(telling(CancelInstance(instance="i", reason="no")))
        assert [type(one).__name__ for one in desk.fetch()[0].messages] == ["StartOrchestration", "CancelInstance"]

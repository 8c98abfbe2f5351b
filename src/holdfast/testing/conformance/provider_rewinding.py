"""Reset, fork, fail and import: what a person does to an instance as a whole, each one commit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.app.workflows.history import exported
from holdfast.app.workflows.rewind import fail_command, fork_command, reset_command
from holdfast.errors import (
    InvalidOperation,
    VersionConflict,
    WorkflowAlreadyStarted,
    WorkflowFinished,
    WorkflowNotFound,
)
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.commands import FailInstance, ForkInstance, ImportInstance, ResetInstance
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.history import REPAIR_EVENT_ID
from holdfast.model.workflows.instances import Instance, InstanceStatus, owner_of
from holdfast.testing.conformance.provider_kit import (
    COMPLETED,
    CONTINUED,
    Desk,
    ProviderTopic,
    activity,
    data_of,
    event,
    signal,
    started,
)
from holdfast.testing.conformance.provider_starts import owned, whose
from holdfast.testing.corruption import corrupt_history
from holdfast.workflows.provider import (
    Event,
    EventKind,
    ExecutionMetadata,
    ResumeInstance,
    Status,
    SubOrchFailed,
    TimerFired,
)
from holdfast.workflows.replay.import_history import import_command

BLOCKED = blocked_reason("Nondeterminism", "workflow 'flow' 1.0.0, …")


def reset(desk: Desk, name: str = "i", to: int | None = None, cmd: str = "") -> ResetInstance:
    """Build a reset of what the store holds now."""
    with desk.harness.engine.read() as view:
        return reset_command(view, desk.harness.store.blobs, name, to=to, now_ms=desk.now_ms, cmd=cmd, reason="why")


def fork(desk: Desk, name: str = "i", new: str = "copy", to: int | None = None, **more: Any) -> ForkInstance:
    """Build a fork of what the store holds now."""
    given = {"given": None, "seed": 7, "cmd": ""} | more
    with desk.harness.engine.read() as view:
        return fork_command(view, desk.harness.store.blobs, name, fork=new, to=to, now_ms=desk.now_ms, **given)


def fail(desk: Desk, name: str = "i", cmd: str = "") -> FailInstance:
    """Build an end by hand of what the store holds now."""
    with desk.harness.engine.read() as view:
        return fail_command(view, desk.harness.store.blobs, name, reason="enough", now_ms=desk.now_ms, cmd=cmd)


def imported(desk: Desk, name: str = "i", new: str = "copy", cmd: str = "") -> ImportInstance:
    """Build an import, under another id, of what the store holds now."""
    with desk.harness.engine.read() as view:
        file = exported(view, desk.harness.store.blobs, name)
    moved = [
        msgspec.structs.replace(one, events=tuple(msgspec.structs.replace(event, instance=new) for event in one.events))
        for one in file.executions
    ]
    return import_command(msgspec.structs.replace(file, instance=new, executions=tuple(moved)), cmd)


def story(name: str) -> list[Event]:
    """Give a history with everything in it that a copy must take along, and its end."""
    kinds: list[EventKind.AnyKind] = [
        EventKind.ActivityScheduled(name="send", input="{}"),
        EventKind.KeyValueSet(key="k", value='"early"'),
        EventKind.CustomStatusUpdated(status='"early"'),
        EventKind.DecisionRequested(prompt="?", options=("yes",)),
        EventKind.QueueEventDelivered(name="s", data="again"),
        EventKind.KeyValueSet(key="k", value='"late"'),
        EventKind.CustomStatusUpdated(status='"late"'),
    ]
    return [started(name), *(event(number, kind, name) for number, kind in enumerate(kinds, start=2))]


def ended(desk: Desk, name: str = "i") -> None:
    """Make an instance that has come to its end."""
    done = ExecutionMetadata(status=Status.COMPLETED, output='"done"')
    end = event(9, EventKind.OrchestrationCompleted(output='"done"'), name)
    desk.begin_with(name, *story(name), end, metadata=done)


def blocked(desk: Desk, name: str = "i") -> None:
    """Make an instance that its code no longer follows, with an activity and a signal on the way."""
    desk.begin_with(name, *story(name), metadata=ExecutionMetadata(), worker_items=[activity(2, name)])
    desk.provider.abandon_orchestration_item(desk.turn(name), 1000, ignore_attempt=True, reason=BLOCKED)


class ProviderResets(ProviderTopic):
    """An instance goes on from an earlier point, as its next execution."""

    def test_a_reset_goes_on_with_a_part_of_the_history_and_what_came_later(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.ask(reset(desk, to=5))
        item, _, attempts = desk.fetch()
        assert (item.execution_id, attempts) == (2, 1)
        assert [one.event_id for one in item.history] == [1, 2, 3, 4, 5]
        assert item.messages[0] == ResumeInstance(instance="i", execution_id=2)
        assert data_of(item.messages) == ["again"]
        info = desk.provider.get_instance_info("i")
        assert (info.status, info.current_execution_id) == (Status.RUNNING, 2)
        assert desk.provider.get_execution_info("i", 1).status is Status.COMPLETED

    def test_what_it_publishes_is_what_it_published_then(self, desk: Desk) -> None:
        ended(desk)
        assert desk.provider.get_kv_value("i", "k") == '"late"'
        desk.harness.ask(reset(desk, to=5))
        assert desk.provider.get_kv_value("i", "k") == '"early"'
        assert desk.fetch()[0].kv_snapshot == {}
        found = desk.provider.get_custom_status("i", 0)
        assert found is not None
        assert found[0] == '"early"'

    def test_an_open_question_is_asked_again(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.ask(reset(desk, to=5))
        with desk.harness.engine.read() as view:
            open_now = [one for one in view.decisions("i") if one.closed_at is None]
        assert [(one.execution_id, one.event_id) for one in open_now] == [(2, 5)]

    def test_a_blocked_execution_is_given_up_with_its_work(self, desk: Desk) -> None:
        blocked(desk)
        desk.send(TimerFired(instance="i", execution_id=1, id=4, fire_at_ms=desk.now_ms + 1000))
        desk.harness.ask(reset(desk))
        desk.idle()
        with desk.harness.engine.read() as view:
            (job,) = view.activities(owner_of("i", 1, 2))
            assert [one.status for one in view.executions("i")] == [InstanceStatus.CANCELLED, InstanceStatus.RUNNING]
            assert not any(one.kind == "TimerFired" for one in view.mail("i"))
        assert job.status == "CANCELLED"
        item, _, _ = desk.fetch()
        assert data_of(item.messages) == ["1"]
        assert desk.provider.read_with_execution("i", 1)[-1].event_id == REPAIR_EVENT_ID

    def test_it_is_there_after_a_restart(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.ask(reset(desk, to=5))
        before = desk.harness.dump()
        desk.harness.restart()
        assert desk.harness.dump() == before
        assert desk.fetch()[0].execution_id == 2

    def test_it_can_be_reset_again(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.ask(reset(desk, to=5))
        item, token, _ = desk.fetch()
        late = event(6, EventKind.OrchestrationCompleted(output='"twice"'), execution=2)
        desk.ack(token, late, execution=2, metadata=COMPLETED)
        desk.harness.ask(reset(desk, to=2))
        assert [one.execution_id for one in desk.fetch()[0].history] == [1, 1]
        assert item.execution_id == 2

    def test_keys_of_earlier_executions_stay(self, desk: Desk) -> None:
        desk.begin_with("i", started(), event(2, EventKind.KeyValueSet(key="old", value="1")), metadata=CONTINUED)
        token = desk.turn()
        second = [
            started(execution=2),
            event(2, EventKind.KeyValueSet(key="old", value="2"), execution=2),
            event(3, EventKind.OrchestrationCompleted(output="1"), execution=2),
        ]
        desk.ack(token, *second, execution=2, metadata=COMPLETED)
        desk.harness.ask(reset(desk, to=1))
        item, _, _ = desk.fetch()
        assert {key: kept.value for key, kept in item.kv_snapshot.items()} == {"old": "1"}

    def test_what_runs_or_is_not_there_is_refused(self, desk: Desk) -> None:
        desk.begin()
        desk.harness.refused(InvalidOperation, reset(desk))
        command = reset(desk)
        desk.harness.refused(WorkflowNotFound, msgspec.structs.replace(command, instance_id="nobody"))
        desk.turn()
        desk.harness.refused(InvalidOperation, reset(desk))

    def test_a_history_that_went_on_meanwhile_is_not_reset(self, desk: Desk) -> None:
        ended(desk)
        command = reset(desk, to=5)
        desk.harness.ask(command)
        item, token, _ = desk.fetch()
        desk.ack(
            token, event(6, EventKind.OrchestrationCompleted(output="1"), execution=2), execution=2, metadata=COMPLETED
        )
        assert item.execution_id == 2
        desk.harness.refused(VersionConflict, command)


class ProviderForks(ProviderTopic):
    """Another instance begins with a copy of a history."""

    def test_a_fork_is_of_who_asked_for_the_instance(self, desk: Desk) -> None:
        desk.harness.ask(owned("i"))
        desk.ack(desk.fetch()[1], *story("i"))
        desk.harness.ask(fork(desk, to=3))
        assert whose(desk, "copy") == "shop"

    @pytest.mark.parametrize("make", [ended, blocked])
    def test_a_fork_has_a_copy_and_both_name_each_other(self, desk: Desk, make: Any) -> None:
        make(desk)
        with desk.harness.engine.read() as view:
            before = (view.get(Instance, "i"), view.executions("i"), view.mail("i"))
        desk.harness.ask(fork(desk, to=5))
        with desk.harness.engine.read() as view:
            old, new = view.get(Instance, "i"), view.get(Instance, "copy")
            assert (view.executions("i"), view.mail("i")) == before[1:]
            assert [one.instance_id for one in view.all(Decision) if one.closed_at is None].count("copy") == 1
        assert old is not None
        assert new is not None
        assert before[0] is not None
        assert old == msgspec.structs.replace(before[0], forks=("copy",))
        assert (new.forked_from, new.status, new.parent_instance_id) == ("i", InstanceStatus.RUNNING, None)
        item, _, _ = desk.fetch()
        assert (item.instance, item.execution_id) == ("copy", 1)
        assert {(one.instance, one.execution_id) for one in item.history} == {("copy", 1)}
        assert item.messages == (ResumeInstance(instance="copy", execution_id=1),)
        assert desk.provider.get_kv_value("copy", "k") == '"early"'

    def test_a_fork_with_other_input_begins_at_the_start(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.ask(fork(desk, given='{"n":1}'))
        (first,) = desk.fetch()[0].history
        assert isinstance(first.kind, EventKind.OrchestrationStarted)
        assert (first.kind.input, first.kind.seed) == ('{"n":1}', 7)
        assert desk.provider.get_kv_all_values("copy") == {}

    def test_what_was_held_for_it_is_delivered(self, desk: Desk) -> None:
        ended(desk)
        desk.send(signal("copy", "held"))
        desk.harness.ask(fork(desk))
        assert data_of(desk.fetch()[0].messages) == ["held"]

    def test_an_id_that_is_taken_is_refused(self, desk: Desk) -> None:
        ended(desk)
        desk.begin("copy")
        desk.harness.refused(WorkflowAlreadyStarted, fork(desk))
        command = msgspec.structs.replace(fork(desk), instance_id="nobody")
        desk.harness.refused(WorkflowNotFound, command)

    def test_they_are_there_after_a_restart(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.ask(fork(desk))
        before = desk.harness.dump()
        desk.harness.restart()
        assert desk.harness.dump() == before


class ProviderFails(ProviderTopic):
    """An instance that no code can end is ended."""

    def test_a_blocked_instance_ends_and_takes_its_work_and_messages_along(self, desk: Desk) -> None:
        blocked(desk)
        desk.harness.ask(fail(desk))
        desk.nothing()
        desk.idle()
        info = desk.provider.get_instance_info("i")
        assert (info.status, info.output) == (Status.FAILED, "enough")
        last = desk.provider.read("i")[-1]
        assert last.event_id == REPAIR_EVENT_ID
        assert isinstance(last.kind, EventKind.OrchestrationFailed)
        assert '"data":"1"' in (last.kind.details.data or "")
        desk.harness.refused(WorkflowFinished, msgspec.structs.replace(fail(desk), damaged=True))

    def test_a_damaged_instance_ends_and_its_parent_is_told(self, desk: Desk) -> None:
        desk.begin("p")
        asked = EventKind.SubOrchestrationScheduled(name="flow", instance="c", input="{}")
        desk.ack(desk.turn("p"), event(2, asked, "p"))
        first = started("c", parent_instance="p", parent_id=2, parent_execution_id=1)
        desk.begin_with("c", first, metadata=ExecutionMetadata(), parent="p")
        corrupt_history(desk.harness.authority.store, "c")
        desk.harness.ask(fail(desk, "c"))
        (told,) = desk.fetch()[0].messages
        assert isinstance(told, SubOrchFailed)
        assert (told.parent_instance, told.parent_id, told.details.message) == ("p", 2, "enough")
        assert desk.provider.get_instance_info("c").status is Status.FAILED
        desk.provider.delete_instance("p", force=True)

    def test_a_late_worker_finds_its_lock_gone(self, desk: Desk) -> None:
        blocked(desk)
        desk.advance(2000)
        _, token, _ = desk.fetch()
        desk.advance(60)
        desk.harness.ask(fail(desk))
        with desk.refused("Invalid lock token"):
            desk.ack(token)

    def test_what_runs_well_is_not_ended(self, desk: Desk) -> None:
        desk.begin()
        desk.harness.refused(InvalidOperation, fail(desk))
        desk.harness.refused(WorkflowNotFound, msgspec.structs.replace(fail(desk), instance_id="nobody"))


class ProviderImports(ProviderTopic):
    """An instance that ended elsewhere is kept."""

    def test_an_imported_instance_is_over_and_reads_as_it_was(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.ask(imported(desk))
        desk.nothing()
        info = desk.provider.get_instance_info("copy")
        assert (info.status, info.output, info.orchestration_name) == (Status.COMPLETED, '"done"', "flow")
        assert [one.kind for one in desk.provider.read("copy")] == [one.kind for one in desk.provider.read("i")]
        assert desk.provider.get_kv_all_values("copy") == {"k": '"late"'}
        with desk.harness.engine.read() as view:
            assert not view.decisions("copy")

    def test_all_executions_come_along(self, desk: Desk) -> None:
        continued = EventKind.OrchestrationContinuedAsNew(input="{}")
        desk.begin_with("i", started(), event(2, continued), metadata=CONTINUED)
        desk.ack(desk.turn(), started(execution=2), execution=2)
        desk.harness.ask(imported(desk))
        states = [desk.provider.get_execution_info("copy", number).status for number in (1, 2)]
        assert states == [Status.CONTINUED_AS_NEW, Status.CANCELLED]

    def test_an_id_that_is_taken_is_refused(self, desk: Desk) -> None:
        ended(desk)
        desk.harness.refused(WorkflowAlreadyStarted, imported(desk, new="i"))

"""Bad input and odd ids: refused before anything is written, or kept exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import InvalidValue, ProviderError
from holdfast.testing.conformance.provider_kit import (
    Desk,
    ProviderTopic,
    activity,
    completed,
    event,
    patch,
    signal,
    start,
    started,
    timer,
)
from holdfast.workflows.provider import (
    ActivityCompleted,
    ActivityOptions,
    EventKind,
    ExecutionMetadata,
    InstanceFilter,
    PruneOptions,
    QueueMessage,
    ScheduledActivityIdentifier,
    StartOrchestration,
    TagFilter,
)

NAN, INF = float("nan"), float("inf")

#: Every shape of id that is one.
IDS = [
    "a",
    "A",
    "a/b",
    "..",
    "../../etc/passwd",
    " ",
    " a ",
    "a b",
    "%2e",
    "con",
    "a\nb",
    "a\tb",
    "\x01",
    "\x7f",
    "ü",
    "u\u0308",
    "日本語",
    "\U0001f600",
    "\u2028",
    "'; DROP TABLE jobs; --",
    '"quoted"',
    "a,b,1",
    "[1,2]",
    "\\",
    "x" * 512,
    "\U0001f600" * 512,
    "ü" * 512,
]
#: What is none.
NO_IDS = ["", "a\0b", "\0", "x" * 513, "\ud800"]


class ProviderIds(ProviderTopic):
    """Ids of every shape."""

    @pytest.mark.parametrize("name", IDS, ids=range(len(IDS)))
    def test_an_id_is_kept_exactly(self, desk: Desk, name: str) -> None:
        desk.send(signal(name), start(name))
        item, token, _ = desk.fetch()
        assert item.instance == name
        desk.ack(token, started(name), worker_items=[activity(2, name)], orchestrator_items=[timer(3, 0, name)])
        assert desk.provider.list_instances() == [name]
        assert desk.provider.read(name) == [started(name)]
        work, work_token, _ = desk.take()
        assert work == activity(2, name)
        desk.provider.ack_work_item(work_token, completed(2, name))
        assert len(desk.fetch()[0].messages) == 2
        assert desk.provider.delete_instance(name, force=True).instances_deleted == 1

    def test_ids_that_look_alike_differ(self, desk: Desk) -> None:
        alike = ["a", "A", "ü", "u\u0308", "a ", " a", "a/", "a/.", "a,1", '["a"', 'a"']
        for name in alike:
            desk.begin(name, worker_items=[activity(2, name)])
        assert sorted(desk.provider.list_instances()) == sorted(alike)
        for name in alike:
            assert desk.provider.delete_instance(name, force=True).queue_messages_deleted == 1

    @pytest.mark.parametrize("name", NO_IDS, ids=range(len(NO_IDS)))
    def test_what_is_no_id_is_refused(self, desk: Desk, name: str) -> None:
        for call in (
            lambda: desk.provider.enqueue_for_orchestrator(start(name)),
            lambda: desk.provider.append_with_execution(name, 1, [patch(1)]),
            lambda: desk.provider.delete_instance(name),
        ):
            with desk.harness.unchanged(), pytest.raises(ProviderError, match=": invalid ") as caught:
                call()
            assert not caught.value.retryable

    def test_an_id_of_too_many_bytes_is_refused(self, desk: Desk) -> None:
        with pytest.raises(ProviderError, match="invalid instance: must have 1-512 characters"):
            desk.send(start("\U0001f600" * 511 + "xxxxx"))


class ProviderBadInput(ProviderTopic):
    """What is refused, and in which words."""

    @pytest.mark.parametrize("bad", [0, -1, 86_401, NAN, INF, -INF])
    def test_lock_times_are_checked(self, desk: Desk, bad: float) -> None:
        provider = desk.provider
        desk.begin(worker_items=[activity()])
        token, work = desk.turn(), desk.take()[1]
        said = f"must be above 0 and at most 86400 seconds, got {bad!r}"
        for name, call in (
            ("lock_timeout", lambda: provider.fetch_orchestration_item(bad)),
            ("lock_timeout", lambda: provider.fetch_work_item(bad)),
            ("extend_for", lambda: provider.renew_orchestration_item_lock(token, bad)),
            ("extend_for", lambda: provider.renew_work_item_lock(work, bad)),
            ("extend_for", lambda: provider.renew_session_lock(["o"], bad, 1.0)),
        ):
            desk.refuses(f"{name} {said}", call)

    @pytest.mark.parametrize("bad", [-0.1, 3600.1, NAN, INF])
    def test_poll_times_are_checked(self, desk: Desk, bad: float) -> None:
        said = f"poll_timeout must be between 0 and 3600 seconds, got {bad!r}"
        desk.refuses(said, desk.provider.fetch_orchestration_item, 1.0, bad)
        desk.refuses(said, desk.provider.fetch_work_item, 1.0, bad)

    @pytest.mark.parametrize("bad", [-1, NAN, INF])
    def test_delays_are_checked(self, desk: Desk, bad: float) -> None:
        provider = desk.provider
        desk.begin(worker_items=[activity()])
        token, work = desk.turn(), desk.take()[1]
        said = f"must be a finite number of seconds, 0 or more, got {bad!r}"
        desk.refuses(f"delay {said}", provider.enqueue_for_orchestrator, signal(), bad)
        desk.refuses(f"delay {said}", provider.abandon_orchestration_item, token, bad)
        desk.refuses(f"delay {said}", provider.abandon_work_item, work, bad)
        desk.refuses(f"hold {said}", desk.ack, token, hold=bad)

    def test_a_delay_beyond_the_calendar_is_for_ever(self, desk: Desk) -> None:
        desk.send(start(), delay=1e300)
        desk.nothing()

    @pytest.mark.parametrize("bad", ["1", None, True, b"x"])
    def test_a_time_that_is_no_number_is_refused(self, desk: Desk, bad: Any) -> None:
        desk.refuses(
            f"lock_timeout must be a number of seconds, got {bad!r}", desk.provider.fetch_orchestration_item, bad
        )

    def test_items_go_into_their_own_queue(self, desk: Desk) -> None:
        provider = desk.provider
        desk.begin()
        token = desk.turn()
        wrong = "ActivityExecute does not belong in the orchestrator queue"
        desk.refuses(wrong, provider.enqueue_for_orchestrator, activity())
        desk.refuses(wrong, desk.ack, token, orchestrator_items=[activity()])
        wrong = "StartOrchestration does not belong in the worker queue"
        desk.refuses(wrong, provider.enqueue_for_worker, start())
        desk.refuses(wrong, desk.ack, token, patch(2), worker_items=[start()])

    def test_a_completion_must_be_one(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        _, token, _ = desk.take()
        said = "completion must be ActivityCompleted or ActivityFailed"
        desk.refuses(said, desk.provider.ack_work_item, token, start())

    def test_wrong_types_are_refused_by_name(self, desk: Desk) -> None:
        provider = desk.provider
        desk.begin()
        token = desk.turn()
        calls: dict[str, Callable[[], object]] = {
            "item": lambda: provider.enqueue_for_orchestrator("x"),  # type: ignore[arg-type]  # the point of it
            "history_delta": lambda: provider.ack_orchestration_item(token, 1, ["x"]),  # type: ignore[list-item]  # the same
            "worker_items": lambda: provider.ack_orchestration_item(token, 1, (), 5),  # type: ignore[arg-type]  # the same
            "orchestrator_items": lambda: provider.ack_orchestration_item(token, 1, (), (), [None]),  # type: ignore[list-item]  # the same
            "metadata": lambda: provider.ack_orchestration_item(token, 1, metadata={}),  # type: ignore[arg-type]  # the same
            "execution_id": lambda: provider.ack_orchestration_item(token, "1"),  # type: ignore[arg-type]  # the same
            "cancelled_timers": lambda: provider.ack_orchestration_item(token, 1, cancelled_timers=["1"]),  # type: ignore[list-item]  # the same
            "cancelled_activities": lambda: provider.ack_orchestration_item(token, 1, cancelled_activities=[3]),  # type: ignore[list-item]  # the same
            "instance": lambda: provider.read(7),  # type: ignore[arg-type]  # the same
            "ignore_attempt": lambda: provider.abandon_orchestration_item(token, None, 1),  # type: ignore[arg-type]  # the same
            "ids": lambda: provider.delete_instances_atomic("abc"),
            "filter": lambda: provider.delete_instance_bulk({}),  # type: ignore[arg-type]  # the same
            "options": lambda: provider.prune_executions("i", {}),  # type: ignore[arg-type]  # the same
        }
        for field, call in calls.items():
            with desk.harness.unchanged(), pytest.raises(ProviderError, match=f": invalid {field}: ") as caught:
                call()
            assert isinstance(caught.value.__cause__, InvalidValue)

    def test_structs_with_wrong_fields_are_refused(self, desk: Desk) -> None:
        provider = desk.provider
        desk.begin()
        token = desk.turn()
        calls: tuple[Callable[[], object], ...] = (
            lambda: provider.enqueue_for_orchestrator(QueueMessage(instance="i", name="n", data=5)),  # type: ignore[arg-type]  # the point of it
            lambda: provider.enqueue_for_orchestrator(StartOrchestration(instance=1, orchestration="f", input="")),  # type: ignore[arg-type]  # the same
            lambda: desk.ack(token, event(2, EventKind.PatchRecorded(id=5))),  # type: ignore[arg-type]  # the same
            lambda: desk.ack(token, event(2, EventKind.PatchRecorded(id="5"), execution="1")),  # type: ignore[arg-type]  # the same
            lambda: desk.ack(token, orchestrator_items=[timer(2, -1)]),
            lambda: desk.ack(token, patch(2**63)),
            lambda: desk.ack(token, execution=-1),
            lambda: desk.ack(token, execution=2**63),
            lambda: provider.enqueue_for_worker(activity(name="bad name")),
            lambda: provider.enqueue_for_worker(activity(tag="bad tag")),
            lambda: provider.enqueue_for_worker(activity(options=ActivityOptions(priority=101))),
            lambda: provider.enqueue_for_orchestrator(signal(data="\ud800")),
        )
        for call in calls:
            with desk.harness.unchanged(), pytest.raises(ProviderError, match=": invalid ") as caught:
                call()
            assert not caught.value.retryable

    def test_an_unknown_status_is_refused(self, desk: Desk) -> None:
        desk.begin()
        metadata = ExecutionMetadata(status="Happy")  # type: ignore[arg-type]  # the point of it
        desk.refuses("unknown status 'Happy'", desk.ack, desk.turn(), metadata=metadata)

    @pytest.mark.parametrize("tags", [(), ("",), ("a b",), ("default",), tuple(f"t{n}" for n in range(65)), (5,)])
    def test_a_filter_of_bad_tags_is_refused(self, tags: tuple[Any, ...]) -> None:
        with pytest.raises(InvalidValue):
            TagFilter.of(*tags)

    def test_what_is_too_large_is_refused(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        huge = event(2, EventKind.CustomStatusUpdated(status="x" * (256 * 1024 + 1)))
        with desk.harness.unchanged(), pytest.raises(ProviderError, match="invalid status"):
            desk.ack(token, huge)

    def test_limits_and_numbers_are_checked(self, desk: Desk) -> None:
        desk.begin()
        provider = desk.provider
        desk.refuses(
            "invalid keep_last: must be between 0 and 2**63 - 1, is -1",
            provider.prune_executions,
            "i",
            PruneOptions(keep_last=-1),
        )
        desk.refuses("limit must be >= 1", provider.prune_executions_bulk, InstanceFilter(limit=-5), PruneOptions())

    def test_errors_name_their_method_and_their_cause(self, desk: Desk) -> None:
        with pytest.raises(ProviderError) as caught:
            desk.provider.ack_orchestration_item("7", 1)
        assert (caught.value.operation, caught.value.message) == ("ack_orchestration_item", "Invalid lock token")
        assert type(caught.value.__cause__).__name__ == "UnknownLease"

    def test_an_activity_of_a_strange_instance_can_be_named(self, desk: Desk) -> None:
        desk.begin()
        odd = ScheduledActivityIdentifier(instance="\0", execution_id=1, activity_id=1)
        desk.ack(desk.turn(), cancelled_activities=[odd])

    def test_a_closed_store_says_so(self, desk: Desk) -> None:
        provider = desk.provider
        desk.harness.engine.close()
        for call in (
            provider.list_instances,
            lambda: provider.enqueue_for_orchestrator(start()),
            lambda: provider.ack_work_item("1", ActivityCompleted(instance="i", execution_id=1, id=1, result="")),
        ):
            with pytest.raises(ProviderError, match="closed") as caught:
                call()
            assert not caught.value.retryable

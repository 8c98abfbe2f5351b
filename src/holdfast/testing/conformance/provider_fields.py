"""Wrong values in every field of every struct and in every parameter: refused by name, before anything is written.

The cases are made from the annotations, so that a new item, event, field or method is covered as soon as it is there.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from holdfast.errors import ProviderError
from holdfast.testing.conformance.provider_input import NO_IDS
from holdfast.testing.conformance.provider_kit import Desk, ProviderTopic, activity, event, signal, started
from holdfast.workflows.provider import (
    ActivityCompleted,
    ActivityExecute,
    ActivityFailed,
    DispatcherCapabilityFilter,
    Event,
    EventKind,
    ExecutionMetadata,
    InstanceFilter,
    Provider,
    PruneOptions,
    ScheduledActivityIdentifier,
    SessionFetchConfig,
    TagFilter,
    WorkItem,
)

replace = msgspec.structs.replace

NAN, INF = float("nan"), float("inf")
HUGE = 10**400
ITEMS = get_args(WorkItem)
KINDS = get_args(EventKind.AnyKind)
#: What no field takes, whatever its type.
NEVER = (
    b"x",
    bytearray(b"x"),
    memoryview(b"x"),
    object(),
    {"a": 1},
    Decimal(1),
    uuid.UUID(int=1),
    datetime(2026, 1, 1, tzinfo=UTC),
)
#: What fields of one type do not take.
WRONG: dict[Any, tuple[Any, ...]] = {
    str: ("\ud800", 5, 1.5, True, ["x"]),
    int: ("1", 1.0, True, 1 << 63, HUGE, [1]),
    float: ("1", NAN, INF, -INF, HUGE, True),
    bool: (0, 1, "x", 1.0),
}
#: Values that are right although nothing in the annotation says so.
GIVEN = {"instance": "i", "parent_instance": "p", "tag": "mail", "pinned_engine_version": "1.2.3", "cause": None}


def parts_of(hint: Any) -> tuple[Any, ...]:
    """Give the alternatives of an annotation."""
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def filled(kind: type[Any], /, **given: Any) -> Any:
    """Build a struct with a right value in every field, those with a default too."""
    hints = get_type_hints(kind)
    values = {name: _right(name, hints[name]) for name in kind.__struct_fields__}
    return kind(**values | given)


def _right(name: str, hint: Any) -> Any:
    if name in GIVEN:
        return GIVEN[name]
    part = parts_of(hint)[0]
    origin = get_origin(part)
    if origin is tuple:
        inner = get_args(part)
        return tuple(_right("", kind) for kind in inner if kind is not ...)
    if origin is Literal:
        return get_args(part)[0]
    if issubclass(part, Enum):
        return next(iter(part))
    return filled(part) if issubclass(part, msgspec.Struct) else {str: "t", int: 1, float: 1.0, bool: True}[part]


def broken(struct: Any) -> Iterator[tuple[str, Any]]:
    """Walk copies of a struct with one wrong value each, and name the field that has it."""
    hints = get_type_hints(type(struct))
    for name in struct.__struct_fields__:
        for path, value in _broken_value(name, getattr(struct, name), hints[name]):
            yield path, replace(struct, **{name: value})


def _broken_value(path: str, value: Any, hint: Any) -> Iterator[tuple[str, Any]]:
    parts = parts_of(hint)
    for wrong in NEVER:
        yield path, wrong
    if NoneType not in parts:
        yield path, None
    for part in parts:
        for wrong in WRONG.get(part, ()):
            yield path, wrong
        if part is int and not path.endswith("priority"):
            yield path, -1
        if get_origin(part) is Literal or (isinstance(part, type) and issubclass(part, Enum)):
            yield from ((path, wrong) for wrong in ("nonsense", "", 5))
    if isinstance(value, msgspec.Struct):
        yield from ((f"{path}.{inner}", wrong) for inner, wrong in broken(value))
        yield path, "x"
    if isinstance(value, tuple):
        inner = get_args(next(part for part in parts if get_origin(part) is tuple))
        yield path, "abc"
        for at, one in enumerate(value):
            kind = inner[0 if inner[-1] is ... else at]
            for deeper, wrong in _broken_value(f"{path}[{at}]", one, kind):
                yield deeper, (*value[:at], wrong, *value[at + 1 :])


def named(kind: type[Any]) -> str:
    """Name a parameter of a check."""
    return kind.__name__


class ProviderFields(ProviderTopic):
    """Fields of items, events and options."""

    def demand_refusals(
        self, desk: Desk, struct: Any, calls: dict[str, tuple[str, Callable[[Any], object]]], within: str = ""
    ) -> None:
        """Demand that each call refuses the struct with any wrong value, naming the field; the calls by their method.

        With each call stands what comes before the name of a field.
        """
        with desk.harness.unchanged():
            for path, wrong in broken(struct):
                for operation, (before, call) in calls.items():
                    with pytest.raises(ProviderError) as caught:
                        call(wrong)
                    field = f"{before}{within}{path}"
                    said = f"{field} = {wrong!r:.200}: {caught.value}"
                    assert caught.value.operation == operation, said
                    assert not caught.value.retryable, said
                    assert is_about(caught.value.message, field), said

    @pytest.mark.parametrize("kind", ITEMS, ids=named)
    def test_item_with_a_wrong_value_is_refused_by_the_name_of_its_field(self, desk: Desk, kind: type[Any]) -> None:
        desk.begin(worker_items=[activity()])
        token, (_, work, _) = desk.turn(), desk.take()
        provider = desk.provider
        calls: dict[str, tuple[str, Callable[[Any], object]]] = {}
        if kind is ActivityExecute:
            calls["enqueue_for_worker"] = ("", provider.enqueue_for_worker)
            calls["ack_orchestration_item"] = (
                "worker_items[0].",
                lambda item: provider.ack_orchestration_item(token, 1, (), [item]),
            )
        else:
            calls["enqueue_for_orchestrator"] = ("", provider.enqueue_for_orchestrator)
            calls["ack_orchestration_item"] = (
                "orchestrator_items[0].",
                lambda item: provider.ack_orchestration_item(token, 1, (), (), [item]),
            )
        if kind in {ActivityCompleted, ActivityFailed}:
            calls["ack_work_item"] = ("", lambda item: provider.ack_work_item(work, item))
        self.demand_refusals(desk, filled(kind), calls)

    @pytest.mark.parametrize("kind", KINDS, ids=named)
    def test_event_with_a_wrong_value_is_refused_by_the_name_of_its_field(self, desk: Desk, kind: type[Any]) -> None:
        desk.begin()
        token = desk.turn()
        provider = desk.provider

        def written(of_kind: Any) -> Event:
            return event(2, of_kind)

        calls: dict[str, tuple[str, Callable[[Any], object]]] = {
            "ack_orchestration_item": (
                "history_delta[0].",
                lambda of_kind: provider.ack_orchestration_item(token, 1, [written(of_kind)]),
            ),
            "append_with_execution": (
                "events[0].",
                lambda of_kind: provider.append_with_execution("other", 1, [written(of_kind)]),
            ),
        }
        self.demand_refusals(desk, filled(kind), calls, "kind.")

    def test_event_itself_with_a_wrong_value_is_refused_by_the_name_of_its_field(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        provider = desk.provider
        calls: dict[str, tuple[str, Callable[[Any], object]]] = {
            "ack_orchestration_item": (
                "history_delta[0].",
                lambda wrong: provider.ack_orchestration_item(token, 1, [wrong]),
            ),
            "append_with_execution": ("events[0].", lambda wrong: provider.append_with_execution("other", 1, [wrong])),
        }
        self.demand_refusals(desk, filled(Event, kind=EventKind.PatchRecorded(id="p")), calls)

    @pytest.mark.parametrize("kind", ITEMS, ids=named)
    def test_item_with_every_field_set_is_taken_and_comes_back(self, desk: Desk, kind: type[Any]) -> None:
        item = filled(kind)
        if kind is ActivityExecute:
            item = replace(item, options=replace(item.options, not_before_ms=None, max_expiries=1))
            desk.provider.enqueue_for_worker(item)
            assert desk.take(tag_filter=TagFilter.any(), session=SessionFetchConfig("o", 5.0))[0] == item
            return
        name = getattr(item, "instance", None) or item.parent_instance
        desk.begin(name)
        desk.send(item)
        assert desk.fetch()[0].messages == (item,)

    @pytest.mark.parametrize("kind", KINDS, ids=named)
    def test_event_with_every_field_set_is_taken_and_comes_back(self, desk: Desk, kind: type[Any]) -> None:
        desk.begin()
        found = event(2, filled(kind))
        desk.ack(desk.turn(), found)
        assert desk.provider.read("i") == [started(), found]

    def test_metadata_with_a_wrong_value_is_refused_by_the_name_of_its_field(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        call = desk.provider.ack_orchestration_item
        calls: dict[str, tuple[str, Callable[[Any], object]]] = {
            "ack_orchestration_item": ("", lambda metadata: call(token, 1, metadata=metadata))
        }
        self.demand_refusals(desk, filled(ExecutionMetadata), calls)

    def test_cancelled_activity_with_a_wrong_value_is_refused_by_the_name_of_its_field(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        call = desk.provider.ack_orchestration_item
        calls: dict[str, tuple[str, Callable[[Any], object]]] = {
            "ack_orchestration_item": (
                "cancelled_activities[0].",
                lambda wrong: call(token, 1, cancelled_activities=[wrong]),
            )
        }
        self.demand_refusals(desk, filled(ScheduledActivityIdentifier), calls)

    @pytest.mark.parametrize("kind", [InstanceFilter, PruneOptions, TagFilter, SessionFetchConfig], ids=named)
    def test_option_with_a_wrong_value_is_refused_by_the_name_of_its_field(self, desk: Desk, kind: type[Any]) -> None:
        desk.begin()
        provider = desk.provider
        calls: dict[type[Any], dict[str, tuple[str, Callable[[Any], object]]]] = {
            InstanceFilter: {
                "delete_instance_bulk": ("", provider.delete_instance_bulk),
                "prune_executions_bulk": ("", lambda chosen: provider.prune_executions_bulk(chosen, PruneOptions())),
            },
            PruneOptions: {
                "prune_executions": ("", lambda options: provider.prune_executions("i", options)),
                "prune_executions_bulk": (
                    "",
                    lambda options: provider.prune_executions_bulk(InstanceFilter(), options),
                ),
            },
            TagFilter: {
                "fetch_work_item": ("tag_filter.", lambda wrong: provider.fetch_work_item(1.0, tag_filter=wrong))
            },
            SessionFetchConfig: {
                "fetch_work_item": ("session.", lambda wrong: provider.fetch_work_item(1.0, session=wrong))
            },
        }
        self.demand_refusals(desk, filled(kind), calls[kind])

    def test_version_filter_with_a_wrong_value_is_refused_by_the_name_of_its_field(self, desk: Desk) -> None:
        call = desk.provider.fetch_orchestration_item
        calls: dict[str, tuple[str, Callable[[Any], object]]] = {
            "fetch_orchestration_item": ("filter.", lambda wrong: call(1.0, filter=wrong))
        }
        self.demand_refusals(desk, filled(DispatcherCapabilityFilter), calls)


class ProviderParameters(ProviderTopic):
    """Parameters of methods."""

    def test_wrong_argument_is_refused_by_the_name_of_its_parameter(self, desk: Desk) -> None:
        given = right_arguments(desk)
        with desk.harness.unchanged():
            for name, method in methods():
                for parameter in arguments(method):
                    for wrong in (object(), b"x", Decimal(1)):
                        with pytest.raises(ProviderError) as caught:
                            called(desk.provider, name, given, {parameter: wrong})
                        said = f"{name}({parameter}={wrong!r}): {caught.value}"
                        assert caught.value.operation == name, said
                        assert not caught.value.retryable, said
                        # What is no token is one that nobody has.
                        token = "ock token" in caught.value.message and parameter in {"token", "lock_token"}
                        assert token or is_about(caught.value.message, parameter), said

    def test_no_argument_makes_a_method_raise_anything_but_a_provider_error(self, desk: Desk) -> None:
        given = right_arguments(desk)
        odd = ("\ud800", HUGE, -HUGE, NAN, -1, "", True, {"a": 1}, {1: "\ud800"})
        listed: tuple[list[Any], ...] = ([object()], [b"x"], ["\ud800"], [HUGE], [{}])
        for name, method in methods():
            for parameter in arguments(method):
                for wrong in (*odd, *listed):
                    with suppress(ProviderError):  # any other error fails the check
                        called(desk.provider, name, given, {parameter: wrong})

    @pytest.mark.parametrize("name", NO_IDS, ids=range(len(NO_IDS)))
    def test_what_is_no_id_is_refused_by_every_method_that_takes_one(self, desk: Desk, name: str) -> None:
        given = right_arguments(desk)
        listed: dict[str, dict[str, Any]] = {
            "delete_instances_atomic": {"ids": ["i", name]},
            "delete_instance_bulk": {"filter": InstanceFilter(instance_ids=("i", name))},
            "prune_executions_bulk": {"filter": InstanceFilter(instance_ids=("i", name))},
        }
        taking = {found: {"instance": name} for found, method in methods() if "instance" in arguments(method)}
        assert len(taking) == 15
        with desk.harness.unchanged():
            for method, wrong in (taking | listed).items():
                field = "instance_ids" if "filter" in wrong else next(iter(wrong))
                with pytest.raises(ProviderError, match=rf"^{method}: invalid {field}(\[1\])?: ") as caught:
                    called(desk.provider, method, given, wrong)
                assert not caught.value.retryable

    @pytest.mark.parametrize("name", NO_IDS, ids=range(len(NO_IDS)))
    def test_what_is_no_id_is_refused_in_every_item_by_the_name_of_its_field(self, desk: Desk, name: str) -> None:
        desk.begin(worker_items=[activity()])
        token, (_, work, _) = desk.turn(), desk.take()
        ack = desk.provider.ack_orchestration_item
        with desk.harness.unchanged():
            for kind in ITEMS:
                for field in {"instance", "parent_instance"}.intersection(kind.__struct_fields__):
                    item = filled(kind, **{field: name})
                    calls: list[Callable[[], object]] = []
                    if kind is ActivityExecute:
                        item = replace(item, options=None)
                        calls.append(lambda item=item: desk.provider.enqueue_for_worker(item))  # type: ignore[misc]  # bound here
                        calls.append(lambda item=item: ack(token, 1, (), [item]))  # type: ignore[misc]  # the same
                    else:
                        calls.append(lambda item=item: desk.send(item))  # type: ignore[misc]  # the same
                        calls.append(lambda item=item: ack(token, 1, (), (), [item]))  # type: ignore[misc]  # the same
                    if kind in {ActivityCompleted, ActivityFailed}:
                        calls.append(lambda item=item: desk.provider.ack_work_item(work, item))  # type: ignore[misc]  # the same
                    for call in calls:
                        with pytest.raises(ProviderError, match=rf": invalid (\w+\[0\]\.)?{field}: "):
                            call()

    @pytest.mark.parametrize("name", NO_IDS, ids=range(len(NO_IDS)))
    def test_what_is_no_id_is_refused_as_a_parent(self, desk: Desk, name: str) -> None:
        desk.begin()
        token = desk.turn()
        begun = started(parent_instance=name)
        with desk.harness.unchanged():
            calls: tuple[Callable[[], object], ...] = (
                lambda: desk.ack(token, begun),
                lambda: desk.provider.append_with_execution("other", 1, [begun]),
            )
            for call in calls:
                with pytest.raises(ProviderError, match=r": invalid (\w+\[0\]\.kind\.)?parent_instance: "):
                    call()
            with pytest.raises(ProviderError, match=": invalid parent_instance_id: "):
                desk.ack(token, metadata=ExecutionMetadata(parent_instance_id=name))


def is_about(message: str, field: str) -> bool:
    """Tell whether a refusal names a field, at its beginning."""
    inner = field.rpartition(".")[2]
    return (
        message.startswith((f"invalid {field}: ", f"{field} must "))
        or (inner in {"status", "metadata.status"} and message.startswith("unknown status "))
        or (field == "limit" and message.startswith("limit must be >= 1"))
    )


def methods() -> list[tuple[str, Callable[..., object]]]:
    """Give the methods of the provider."""
    return [(name, found) for name, found in inspect.getmembers(Provider, inspect.isfunction) if name[0] != "_"]


def arguments(method: Callable[..., object]) -> list[str]:
    """Name the parameters of a method."""
    return [name for name in inspect.signature(method).parameters if name != "self"]


def right_arguments(desk: Desk) -> dict[str, Any]:
    """Give a right value for each parameter that has no default, by its name."""
    desk.begin()
    return {
        "events": (),
        "execution_id": 1,
        "extend_for": 1.0,
        "filter": InstanceFilter(),
        "handlers": ["flow"],
        "idle_timeout": 1.0,
        "ids": ["i"],
        "instance": "i",
        "item": signal(),
        "key": "k",
        "last_seen_version": 0,
        "lock_timeout": 1.0,
        "lock_token": "1",
        "options": PruneOptions(),
        "owner_ids": ["o"],
        "status": "Running",
        "token": "1",
    }


def called(provider: Provider, name: str, given: dict[str, Any], wrong: dict[str, Any]) -> object:
    """Call a method with right values, but for those that are wrong."""
    signature = inspect.signature(getattr(Provider, name))
    needed = [one for one, found in signature.parameters.items() if found.default is found.empty and one != "self"]
    method: Callable[..., object] = getattr(provider, name)
    return method(**{one: given[one] for one in needed} | wrong)

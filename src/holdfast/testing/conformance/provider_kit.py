"""What every check of the provider stands on: a desk with the provider of the store under test, and short verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.errors import ProviderError
from holdfast.model.times import milliseconds
from holdfast.testing.conformance.harness import Harness, Topic
from holdfast.workflows.provider import (
    ActivityCompleted,
    ActivityExecute,
    Event,
    EventKind,
    ExecutionMetadata,
    OrchestrationItem,
    Provider,
    QueueMessage,
    StartOrchestration,
    Status,
    TimerFired,
    WorkItem,
)

#: How long checks lock, in seconds, unless they say otherwise.
LOCK = 30.0

COMPLETED = ExecutionMetadata(status=Status.COMPLETED, output="done")
FAILED = ExecutionMetadata(status=Status.FAILED, output="broken")
CONTINUED = ExecutionMetadata(status=Status.CONTINUED_AS_NEW, output="next")


def event(event_id: int, kind: EventKind.AnyKind, instance: str = "i", execution: int = 1, **more: Any) -> Event:
    """Build an event of a history."""
    return Event(
        event_id=event_id, instance=instance, execution_id=execution, timestamp_ms=1000 + event_id, kind=kind, **more
    )


def started(instance: str = "i", execution: int = 1, name: str = "flow", **more: Any) -> Event:
    """Build the first event of a history."""
    kind = EventKind.OrchestrationStarted(name=name, version="1.0.0", input="{}", **more)
    return event(1, kind, instance, execution)


def patch(event_id: int, instance: str = "i", execution: int = 1) -> Event:
    """Build an event that means nothing to a store."""
    return event(event_id, EventKind.PatchRecorded(id=f"p{event_id}"), instance, execution)


def signal(instance: str = "i", data: str = "1", name: str = "s") -> QueueMessage:
    """Build a signal."""
    return QueueMessage(instance=instance, name=name, data=data)


def start(instance: str = "i", name: str = "flow", **more: Any) -> StartOrchestration:
    """Build what begins an instance."""
    return StartOrchestration(instance=instance, orchestration=name, input="{}", **more)


def activity(event_id: int = 2, instance: str = "i", execution: int = 1, **more: Any) -> ActivityExecute:
    """Build an activity."""
    given = {"name": "send", "input": "{}"} | more
    return ActivityExecute(instance=instance, execution_id=execution, id=event_id, **given)


def completed(event_id: int = 2, instance: str = "i", result: str = "ok", execution: int = 1) -> ActivityCompleted:
    """Build the completion of an activity."""
    return ActivityCompleted(instance=instance, execution_id=execution, id=event_id, result=result)


class Desk:
    """The provider of the store under test."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    @property
    def provider(self) -> Provider:
        """The provider of the present engine."""
        return Provider(self.harness.engine)

    @property
    def now_ms(self) -> int:
        """The present time in milliseconds since 1970."""
        return milliseconds(self.harness.now)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.harness.advance(seconds)

    # --- turns ------------------------------------------------------------------------------------------------------

    def send(self, *items: WorkItem, delay: float | None = None) -> None:
        """Put items into the orchestrator queue."""
        for item in items:
            self.provider.enqueue_for_orchestrator(item, delay)

    def fetch(self, lock: float = LOCK) -> tuple[OrchestrationItem, str, int]:
        """Fetch an item; there must be one."""
        found = self.provider.fetch_orchestration_item(lock)
        assert found is not None, "nothing could be fetched"
        return found

    def nothing(self) -> None:
        """Demand that nothing can be fetched."""
        found = self.provider.fetch_orchestration_item(LOCK)
        assert found is None, f"{found} was fetched"

    def ack(self, token: str, *delta: Event, execution: int = 1, **more: Any) -> None:
        """Commit a turn."""
        self.provider.ack_orchestration_item(token, execution, delta, **more)

    def begin(self, instance: str = "i", **more: Any) -> None:
        """Make an instance that has had its first turn."""
        self.send(start(instance))
        item, token, _ = self.fetch()
        assert item.instance == instance
        self.ack(token, started(instance), **more)

    def end(self, instance: str = "i", metadata: ExecutionMetadata = COMPLETED, parent: str | None = None) -> None:
        """Make an instance that is over."""
        self.send(start(instance, parent_instance=parent))
        item, token, _ = self.fetch()
        assert item.instance == instance
        self.ack(token, started(instance), metadata=metadata)

    def begin_with(
        self,
        instance: str,
        *events: Event,
        metadata: ExecutionMetadata = COMPLETED,
        parent: str | None = None,
        **more: Any,
    ) -> None:
        """Make an instance whose first turn wrote this history."""
        self.send(start(instance, parent_instance=parent))
        item, token, _ = self.fetch()
        assert item.instance == instance
        self.ack(token, *events, metadata=metadata, **more)

    def turn(self, instance: str = "i") -> str:
        """Send a signal and fetch the turn it causes; give the token."""
        self.send(signal(instance))
        item, token, _ = self.fetch()
        assert item.instance == instance
        return token

    def continued(self, instance: str = "i", executions: int = 3) -> None:
        """Make an instance of several executions, the last of which runs."""
        self.begin(instance)
        for number in range(2, executions + 1):
            token = self.turn(instance)
            self.advance(10)
            self.ack(token, patch(2, instance, number - 1), execution=number - 1, metadata=CONTINUED)
            token = self.turn(instance)
            self.ack(token, started(instance, number), execution=number)

    # --- activities -------------------------------------------------------------------------------------------------

    def take(self, lock: float = LOCK, **more: Any) -> tuple[WorkItem, str, int]:
        """Fetch an activity; there must be one."""
        found = self.provider.fetch_work_item(lock, **more)
        assert found is not None, "no activity could be fetched"
        return found

    def idle(self, **more: Any) -> None:
        """Demand that no activity can be fetched."""
        found = self.provider.fetch_work_item(LOCK, **more)
        assert found is None, f"{found} was fetched"

    # --- demands ----------------------------------------------------------------------------------------------------

    @contextmanager
    def refused(self, message: str) -> Iterator[None]:
        """Demand a permanent error with this message, and that nothing was written."""
        with self.harness.unchanged(), pytest.raises(ProviderError) as caught:
            yield
        assert caught.value.message == message
        assert not caught.value.retryable
        assert str(caught.value) == f"{caught.value.operation}: {message}"

    def refuses(self, message: str, call: Callable[..., object], *args: Any, **more: Any) -> None:
        """Demand that a call is refused with this message, and that nothing was written."""
        with self.refused(message):
            call(*args, **more)

    def feed(self, after: int) -> list[str]:
        """Name the events above `after`."""
        return self.harness.kinds(after)


def data_of(items: Sequence[WorkItem]) -> list[str]:
    """Give what signals carry."""
    return [item.data for item in items if isinstance(item, QueueMessage)]


def timer(event_id: int, fire_at_ms: int, instance: str = "i", execution: int = 1) -> TimerFired:
    """Build a timer."""
    return TimerFired(instance=instance, execution_id=execution, id=event_id, fire_at_ms=fire_at_ms)


class ProviderTopic(Topic):
    """One topic of the provider's suite."""

    @pytest.fixture
    def desk(self, harness: Harness) -> Desk:
        """Give the provider of the store under test."""
        return Desk(harness)

"""What a turn has decided and not yet committed. Taking it out empties it; nothing is ever put back.

It can return to a mark: what code did that turns out to be wrong is forgotten.
"""

from __future__ import annotations

from typing import Any

from holdfast.model.workflows.history import (
    Event,
    ExecutionMetadata,
    HandledMessage,
    ScheduledActivityIdentifier,
    TurnCommit,
)
from holdfast.model.workflows.work_items import ActivityExecute, TimerFired, WorkItem

#: How far an outbox was filled at a moment: lengths, and its timers.
Mark = tuple[tuple[int, ...], dict[int, TimerFired]]


class Outbox:
    """One execution's next commit."""

    def __init__(self, instance: str, execution_id: int) -> None:
        self._instance = instance
        self._execution_id = execution_id
        self.events: list[Event] = []
        self._activities: list[ActivityExecute] = []
        self._messages: list[WorkItem] = []
        #: Timers apart, by event id: one that is cancelled in the turn that made it is never queued.
        self._timers: dict[int, TimerFired] = {}
        #: With the execution that asked: a copied event names the one whose job it is.
        self._revoked: list[tuple[int, int]] = []
        self._stopped: list[int] = []

    def execute(self, activity: ActivityExecute) -> None:
        """Ask for an activity."""
        self._activities.append(activity)

    def send(self, message: WorkItem) -> None:
        """Send a message to this or another instance."""
        self._messages.append(message)

    def wake(self, event_id: int, fire_at_ms: int) -> None:
        """Ask for a TimerFired."""
        self._timers[event_id] = TimerFired(
            instance=self._instance, execution_id=self._execution_id, id=event_id, fire_at_ms=fire_at_ms
        )

    def revoke(self, execution_id: int, event_id: int) -> None:
        """Cancel an activity."""
        self._revoked.append((execution_id, event_id))

    def let_sleep(self, event_id: int) -> None:
        """Take a TimerFired back."""
        if self._timers.pop(event_id, None) is None:
            self._stopped.append(event_id)

    @property
    def is_empty(self) -> bool:
        """Nothing was put in since it was emptied."""
        return not (self.events or self._activities or self._messages or self._timers or self._revoked or self._stopped)

    def mark(self) -> Mark:
        """Note how far it is filled."""
        lengths = len(self.events), len(self._activities), len(self._messages), len(self._revoked), len(self._stopped)
        return lengths, self._timers.copy()

    def return_to(self, mark: Mark) -> None:
        """Take out all that was put in since. Only until it is emptied."""
        lengths, timers = mark
        for entries, length in zip(self._lists(), lengths, strict=True):
            del entries[length:]
        self._timers = dict(timers)

    def _lists(self) -> tuple[list[Any], ...]:
        """Give what only ever grows between two commits."""
        return self.events, self._activities, self._messages, self._revoked, self._stopped

    def take(self, metadata: ExecutionMetadata, handled: tuple[HandledMessage, ...] | None = None) -> TurnCommit:
        """Return all of it as one commit, with the messages it takes out of the queue, and begin anew."""
        commit = TurnCommit(
            execution_id=self._execution_id,
            history_delta=tuple(self.events),
            worker_items=tuple(self._activities),
            orchestrator_items=(*self._messages, *self._timers.values()),
            metadata=metadata,
            cancelled_activities=tuple(
                ScheduledActivityIdentifier(instance=self._instance, execution_id=execution_id, activity_id=activity_id)
                for execution_id, activity_id in self._revoked
            ),
            cancelled_timers=tuple(self._stopped),
            handled=handled,
        )
        self.__init__(self._instance, self._execution_id)  # type: ignore[misc]  # empty again, as it began
        return commit

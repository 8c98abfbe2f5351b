"""What the rules may look up about workflow instances. Part of `rules.state`; stores implement it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from holdfast.model.ids import Token
from holdfast.model.jobs import Job
from holdfast.model.times import Timestamp
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import (
    Affinity,
    Execution,
    HistoryRow,
    Instance,
    InstanceStatus,
    KeyValue,
    Message,
    Turn,
)


class InstanceQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which instances to list, newest first."""

    #: None for any.
    statuses: tuple[InstanceStatus, ...] | None = None
    orchestration_name: str | None = None
    parent: str | None = None
    #: The access token that started them.
    submitted_by: str | None = None
    #: Only instances made before the one with this number (`Instance.seq`), the last one of the page before.
    before: int | None = None
    #: None for all.
    limit: int | None = None


class FlowState(Protocol):
    """The look-ups about instances."""

    def turn_by_token(self, token: Token) -> Turn | None:
        """Give the turn with that token, held or taken by time, or None."""
        ...

    def local_turns(self) -> Iterator[Turn]:
        """Walk the turns that are held by an opening of the store (`session_id` set)."""
        ...

    def stuck_turns(self) -> Iterator[Turn]:
        """Walk the turns whose last holder gave a reason and that nobody holds, by instance."""
        ...

    def candidates(self, now: Timestamp) -> Iterator[str]:
        """Walk the instances that something came in for and that nobody holds, by their first message. Lazy.

        - Counted are messages that nothing holds back at `now`; the place of each is (`due_at`, `seq`).
        - Those a clock that was set back would hold back again may be among them.
        - An instance without a record needs one among them that begins an execution.
        """
        ...

    def visible(self, instance_id: str, now: Timestamp) -> Iterator[Message]:
        """Walk the messages of an instance that nothing holds back at `now` and that are not parked, in order. Lazy.

        - Those a clock that was set back would hold back again may be among them.
        """
        ...

    def mail(self, instance_id: str) -> Sequence[Message]:
        """Give all messages of an instance, parked and delayed ones too, by number."""
        ...

    def beginnings(self, instance_id: str) -> Sequence[Message]:
        """Give the messages of an instance that begin an execution, parked and delayed ones too, by number."""
        ...

    def timers(self, instance_id: str, execution_id: int, event_id: int) -> Sequence[Message]:
        """Give the queued timers that this event asked for: one, unless it was sent twice."""
        ...

    def instances(self, query: InstanceQuery) -> Sequence[Instance]:
        """Give the matching instances, newest first."""
        ...

    def executions(self, instance_id: str) -> Sequence[Execution]:
        """Give the executions of an instance, ascending."""
        ...

    def execution_of(self, history_id: int) -> Execution | None:
        """Give the execution that has a history, or None."""
        ...

    def children(self, instance_id: str) -> Sequence[str]:
        """Give the instances whose parent this one is, oldest first."""
        ...

    def begun_by(self, schedule_id: str) -> Sequence[str]:
        """Give the instances of a schedule that are not over, and those whose start waits to be delivered, by id."""
        ...

    def starts_under(self, instance_id: str) -> Sequence[Message]:
        """Give the starts that an instance asked for as a parent and that wait to be taken, oldest first."""
        ...

    def held_by(self, schedule_id: str) -> Sequence[Message]:
        """Give the starts of a schedule that wait for another of its instances to end, oldest first."""
        ...

    def history(self, history_id: int, after: int = 0, limit: int | None = None) -> Sequence[HistoryRow]:
        """Give the events of a history with ids above `after`, by id, as they were encoded; all, or the first ones."""
        ...

    def keys(self, instance_id: str) -> Sequence[KeyValue]:
        """Give the keys of an instance, by name, those that are only cleared ones too."""
        ...

    def decisions(self, instance_id: str) -> Sequence[Decision]:
        """Give the questions of an instance, by id."""
        ...

    def leased(self, token: Token) -> Job | None:
        """Give the RUNNING job whose lease has that token, or None."""
        ...

    def activities(self, owner: str) -> Sequence[Job]:
        """Give the jobs of an activity, oldest first; more than one where retries make a chain."""
        ...

    def activities_of(self, instance_id: str) -> Sequence[Job]:
        """Give the jobs of all activities of an instance, by id."""
        ...

    def owned_queues(self) -> Sequence[str]:
        """Give the queues in which activities wait, by name."""
        ...

    def affinities(self, owner_ids: Sequence[str]) -> Sequence[Affinity]:
        """Give the sessions of these owners, by name."""
        ...

    def is_spoken_of(self, session: str) -> bool:
        """Tell whether a QUEUED or RUNNING job belongs to that session of a worker."""
        ...

"""The provider's orchestrator side: turns and histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.errors import HoldfastError
from holdfast.model.ids import Token
from holdfast.model.outcomes import Brought, Delivered, Done, Fetched, LockedTurn, Swept
from holdfast.model.workflows.commands import (
    AbandonTurn,
    AnnounceHandlers,
    AppendHistory,
    FetchMore,
    FetchTurn,
    ParkMessages,
    RenewTurn,
    SendMessage,
    VersionRange,
)
from holdfast.model.workflows.history import (
    Event,
    ExecutionMetadata,
    OrchestrationItem,
    ScheduledActivityIdentifier,
    TurnCommit,
)
from holdfast.model.workflows.instances import Execution, HistoryRow, Instance, execution_key
from holdfast.model.workflows.work_items import WorkItem
from holdfast.rules.state import Lane
from holdfast.rules.workflows.turns import version_of
from holdfast.workflows.provider.calls import (
    Asking,
    each,
    instance_id,
    maybe_seconds,
    message_of,
    refuse,
    seconds,
    struct_of,
    text,
    token_of,
    told,
    typed,
    whole,
)
from holdfast.workflows.provider.filters import DispatcherCapabilityFilter
from holdfast.workflows.provider.payloads import events_of
from holdfast.workflows.provider.translation import (
    ack_command,
    checked,
    checked_events,
    delta_of,
    orchestration_item,
    readable,
)


class Orchestrating(Asking):
    """Fetch, commit and give back turns; read and write histories."""

    @told
    def fetch_orchestration_item(
        self,
        lock_timeout: float,
        poll_timeout: float = 0.0,
        *,
        filter: DispatcherCapabilityFilter | None = None,  # noqa: A002 - the name is the contract's
        resident: Mapping[str, tuple[int, int]] | None = None,
    ) -> tuple[OrchestrationItem, str, int] | None:
        """Lock the first instance that something came in for; give it, the token, and how often it was delivered.

        `resident` names instances the caller has in memory, with execution and last event id: of these the history
        holds newer events only, if it is still that execution.
        """
        operation = "fetch_orchestration_item"
        known = _resident(operation, resident)
        command = FetchTurn(
            lock_s=seconds(operation, "lock_timeout", lock_timeout),
            session_id=self.engine.session_id,
            versions=None if filter is None else _ranges(operation, filter),
        )
        for _ in self._polls(operation, poll_timeout, (Lane.MAIL, Lane.TURN)):
            # What cannot be read is set aside, and the next one is looked for at once.
            while (turn := self._ask(operation, command, Fetched).turn) is not None:
                messages = self._readable(operation, turn.token, turn.messages)
                if messages:
                    try:
                        return self._item(turn, messages, known), str(turn.token), turn.attempts
                    except HoldfastError:
                        # An error means that nothing is held; for as long as the lock, others come first.
                        self._ask(operation, AbandonTurn(token=turn.token, delay_s=lock_timeout), Done)
                        raise
                self._ask(operation, AbandonTurn(token=turn.token, given_back=True), Done)
        return None

    def _readable(self, operation: str, token: Token, messages: Sequence[Delivered]) -> list[WorkItem]:
        """Give the items that can be read; the others are set aside, where no ack deletes them."""
        items, unreadable = readable(self._blobs, messages)
        if unreadable:
            self._ask(operation, ParkMessages(token=token, messages=unreadable), Done)
        return items

    def _item(
        self, turn: LockedTurn, messages: Sequence[WorkItem], resident: Mapping[str, tuple[int, int]]
    ) -> OrchestrationItem:
        rows: Sequence[HistoryRow] = ()
        if turn.history_id is not None:
            known = resident.get(turn.instance_id, (0, 0))
            after = known[1] if known[0] == turn.execution_id else 0
            with self._view() as view:
                rows = view.history(turn.history_id, after)
        return orchestration_item(self._blobs, turn, messages, rows)

    @told
    def ack_orchestration_item(  # noqa: PLR0917 - the order is the contract's
        self,
        lock_token: str,
        execution_id: int,
        history_delta: Sequence[Event] = (),
        worker_items: Sequence[WorkItem] = (),
        orchestrator_items: Sequence[WorkItem] = (),
        metadata: ExecutionMetadata | None = None,
        cancelled_activities: Sequence[ScheduledActivityIdentifier] = (),
        *,
        cancelled_timers: Sequence[int] = (),
        hold: float | None = None,
    ) -> None:
        """Make a turn's results durable in one commit, and let the instance go; with `hold`, keep it so long."""
        operation = "ack_orchestration_item"
        commit = TurnCommit(
            execution_id=execution_id,
            history_delta=history_delta,  # type: ignore[arg-type]  # what is none of these is refused by what follows
            worker_items=worker_items,  # type: ignore[arg-type]  # the same
            orchestrator_items=orchestrator_items,  # type: ignore[arg-type]  # the same
            metadata=ExecutionMetadata() if metadata is None else metadata,
            cancelled_activities=cancelled_activities,  # type: ignore[arg-type]  # the same
            cancelled_timers=cancelled_timers,  # type: ignore[arg-type]  # the same
        )
        hold = maybe_seconds(operation, "hold", hold)
        commit = checked(operation, commit)
        self._ask(operation, ack_command(operation, token_of(lock_token), commit, self.engine.new_id, hold), Done)

    @told
    def abandon_orchestration_item(
        self,
        lock_token: str,
        delay: float | None = None,
        ignore_attempt: bool = False,  # noqa: FBT001, FBT002 - the order is the contract's
        *,
        reason: str | None = None,
    ) -> None:
        """Give an instance back with its messages, to be delivered again now or after `delay`."""
        operation = "abandon_orchestration_item"
        command = AbandonTurn(
            token=token_of(lock_token),
            delay_s=maybe_seconds(operation, "delay", delay),
            given_back=typed(operation, "ignore_attempt", ignore_attempt, bool),
            reason=None if reason is None else text(operation, "reason", reason),
        )
        self._ask(operation, command, Done)

    @told
    def renew_orchestration_item_lock(self, lock_token: str, extend_for: float) -> None:
        """Keep the lock for `extend_for` seconds from now."""
        operation = "renew_orchestration_item_lock"
        command = RenewTurn(token=token_of(lock_token), lock_s=seconds(operation, "extend_for", extend_for))
        self._ask(operation, command, Done)

    @told
    def fetch_more_messages(self, lock_token: str) -> list[WorkItem]:
        """Take what came in for the instance since it was locked."""
        operation = "fetch_more_messages"
        token = token_of(lock_token)
        return self._readable(operation, token, self._ask(operation, FetchMore(token=token), Brought).messages)

    @told
    def enqueue_for_orchestrator(
        self, item: WorkItem, delay: float | None = None, *, hold: float | None = None
    ) -> None:
        """Put an item into the orchestrator queue; with `hold` it waits only so long for an instance not there yet."""
        operation = "enqueue_for_orchestrator"
        command = SendMessage(
            message=message_of(operation, "item", item),
            delay_s=maybe_seconds(operation, "delay", delay),
            hold_s=maybe_seconds(operation, "hold", hold),
        )
        self._ask(operation, command, Done)

    @told
    def read(self, instance: str) -> list[Event]:
        """Give the history of the current execution; of an unknown instance, nothing."""
        operation = "read"
        instance_id(operation, "instance", instance)
        with self._view() as view:
            found = view.get(Instance, instance)
            number = 0 if found is None else found.current_execution_id
        return [] if found is None else self._read(instance, number)

    @told
    def read_with_execution(self, instance: str, execution_id: int) -> list[Event]:
        """Give the history of an execution; of an unknown one, nothing."""
        operation = "read_with_execution"
        instance_id(operation, "instance", instance)
        return self._read(instance, whole(operation, "execution_id", execution_id))

    def _read(self, instance: str, execution_id: int) -> list[Event]:
        with self._view() as view:
            execution = view.get(Execution, execution_key(instance, execution_id))
            rows = [] if execution is None else view.history(execution.history_id)
        return events_of(self._blobs, rows, execution_id)

    @told
    def append_with_execution(self, instance: str, execution_id: int, events: Sequence[Event]) -> None:
        """Write events into a history by hand; for tests, import and repair. Refused while the instance is locked."""
        operation = "append_with_execution"
        command = AppendHistory(
            instance_id=instance_id(operation, "instance", instance),
            execution_id=whole(operation, "execution_id", execution_id),
            delta=delta_of(operation, checked_events(operation, "events", events), "events"),
        )
        self._ask(operation, command, Done)

    @told
    def announce_handlers(self, handlers: Sequence[str]) -> int:
        """Say which workflows there is code for (`name`, or `name version`); give how many instances waited for it."""
        operation = "announce_handlers"
        named = tuple(text(operation, "handlers", name) for name in each(operation, "handlers", handlers))
        return self._ask(operation, AnnounceHandlers(handlers=named), Swept).count


def _resident(operation: str, resident: Mapping[str, tuple[int, int]] | None) -> Mapping[str, tuple[int, int]]:
    if resident is None:
        return {}
    for name, known in typed(operation, "resident", resident, Mapping).items():
        if not isinstance(known, tuple | list) or len(known) != 2:
            refuse(operation, f"invalid resident: {name!r:.80} must have an execution and an event")
        for number in known:
            whole(operation, "resident", number)
    return resident


def _ranges(operation: str, wanted: DispatcherCapabilityFilter) -> tuple[VersionRange, ...]:
    struct_of(operation, "filter", wanted, DispatcherCapabilityFilter, "filter.")
    ranges = []
    for one in wanted.supported_engine_versions:
        low, high = version_of(one.min), version_of(one.max)
        if low is None or high is None:
            refuse(operation, f"invalid filter: {one.min!r:.40} to {one.max!r:.40} are not versions such as 1.2.3")
        ranges.append(VersionRange(low=low, high=high))
    return tuple(ranges)

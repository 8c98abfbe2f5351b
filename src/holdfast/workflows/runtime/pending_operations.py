"""What the code of an execution waits for and others do: sent off again after a reset or fork, withdrawn one by one.

Says what is to be sent; sends nothing and records nothing itself. What becomes of all of it at the end is
`completion`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.work_items import CancelInstance
from holdfast.workflows.determinism.history_match import UNAWAITED
from holdfast.workflows.runtime.outbox import Outbox

if TYPE_CHECKING:
    from holdfast.workflows.runtime.execution import Execution

#: Sends work off, given the event that asked for it.
Dispatch = Callable[[Event], None]


class Open(msgspec.Struct):
    """Something the code waits for that ends by an event."""

    #: What asked for it. One that was copied keeps the execution it was written in: its job is known by that.
    event: Event
    future: asyncio.Future[AnyKind]
    #: Sends its work off; after a reset or fork this must be done again.
    dispatch: Dispatch
    #: A child that stays when its parent ends.
    leave: bool = False

    @property
    def kind(self) -> AnyKind:
        """What was asked for."""
        return self.event.kind

    def withdrawal(self, reason: str, outbox: Outbox) -> tuple[AnyKind, Dispatch]:
        """Give the command that withdraws it, and what that puts into the outbox."""
        asked, event_id = self.event, self.event.event_id
        match asked.kind:
            case event_kinds.ActivityScheduled():
                cancel = event_kinds.ActivityCancelRequested(reason=reason)
                return cancel, lambda _: outbox.revoke(asked.execution_id, event_id)
            case event_kinds.SubOrchestrationScheduled(instance=child):
                stop = CancelInstance(instance=child, reason=reason)
                return event_kinds.SubOrchestrationCancelRequested(reason=reason), lambda _: outbox.send(stop)
            case _:
                return event_kinds.DecisionResolved(by=UNAWAITED), lambda _: outbox.let_sleep(event_id)


def dispatch_again(execution: Execution, until: int) -> None:
    """Send off what events up to `until` asked for and is open: they are a copy, and nobody has done so yet."""
    outbox = execution.outbox
    for event_id, opened in execution.open.items():
        if event_id <= until:
            opened.dispatch(opened.event)
    for event_id, timer in execution.timers.items():
        if event_id <= until:
            outbox.wake(event_id, timer.fire_at_ms)
    own = execution.own_timeout
    if own is not None and own.event_id <= until and isinstance(own.kind, event_kinds.TimerCreated):
        outbox.wake(own.event_id, own.kind.fire_at_ms)
    cancel = execution.cancel_event
    if cancel is not None and cancel.event_id <= until:
        assert isinstance(cancel.kind, event_kinds.OrchestrationCancelRequested)
        if cancel.kind.deadline_ms is not None:
            outbox.wake(cancel.event_id, cancel.kind.deadline_ms)

"""Mail: where an item for an instance goes when it is sent. Decides place, delay and parking.

An item for an instance that is not there is parked: an enqueue was acknowledged, so it is not thrown away, and it is
in nobody's way. It joins the queue with the first item that begins the instance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from holdfast.model.command_base import Order
from holdfast.model.events import Event, MessageDropped, MessageStored, MessageUnparked
from holdfast.model.ids import JobId
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.commands import NewMessage
from holdfast.model.workflows.instances import OVERLAP, Instance, Message
from holdfast.model.workflows.work_items import CancelInstance
from holdfast.rules.state import Lane, State

#: How long a message waits for an instance that is not there, in seconds.
ORPHAN_S = 7 * 86_400
#: Why a message is parked.
ORPHAN = "orphan"
UNREADABLE = "unreadable"


class Post:
    """The messages one command sends: they know of each other, although nothing is committed yet."""

    def __init__(self, state: State, order: Order, now: Timestamp, known: Collection[str] = ()) -> None:
        """Send on behalf of a command; the instances `known` are there when it is committed."""
        self.events: list[Event] = []
        self._state = state
        self._order = order
        self._now = now
        self._known = set(known)

    def send(
        self,
        new: NewMessage,
        *,
        at: Timestamp | None = None,
        hold_s: float | None = None,
        tells_of: JobId | None = None,
        schedule_id: str | None = None,
        submitted_by: str | None = None,
        waits: bool = False,
    ) -> None:
        """Send one item, to be delivered at its time `at`, or at once; a start may wait for others of its schedule."""
        parked = drop_at = None
        if new.orchestration is not None:
            self.begin(new.instance_id)  # what waits for its turn is expected, too
            parked = OVERLAP if waits else None
        elif not self._is_there(new.instance_id):
            parked = ORPHAN
            drop_at = later(self._now, ORPHAN_S if hold_s is None else hold_s)
        self.events.append(
            MessageStored(
                instance_id=new.instance_id,
                kind=new.kind,
                item=new.item,
                due_at=at,
                visible_at=at if at is not None and at > self._now else None,
                parked=parked,
                drop_at=drop_at,
                orchestration=new.orchestration,
                version=new.version,
                parent_instance_id=new.parent_instance_id,
                execution_id=new.execution_id,
                event_id=new.event_id,
                digest=new.digest,
                schedule_id=schedule_id,
                submitted_by=None if new.orchestration is None else submitted_by,
                tells_of=tells_of,
                woken=self._woken_by(new),
                cmd=self._order.cmd,
                actor=self._order.actor,
            )
        )

    def _is_there(self, instance_id: str) -> bool:
        if instance_id not in self._known and not is_expected(self._state, instance_id):
            return False
        self._known.add(instance_id)
        return True

    def _woken_by(self, new: NewMessage) -> tuple[int, ...]:
        """Name what was given back for want of code, and goes with a cancel: nothing is read without a start."""
        if new.kind != CancelInstance.__name__ or self._state.get(Instance, new.instance_id) is not None:
            return ()
        return tuple(held_back(self._state.mail(new.instance_id)))

    def begin(self, instance_id: str) -> None:
        """Take out of the parking place what waited for this instance; for one that is there nothing does."""
        if instance_id in self._known:
            return
        self._known.add(instance_id)
        for message in self._state.mail(instance_id):
            if message.parked == ORPHAN:
                self.events.append(MessageUnparked(message=message.seq, cmd=self._order.cmd))


def is_expected(state: State, instance_id: str) -> bool:
    """Tell whether an instance is there, or will be: something that begins it waits."""
    if state.get(Instance, instance_id) is not None:
        return True
    return any(message.is_to_begin for message in state.beginnings(instance_id))


def held_back(mail: Sequence[Message]) -> Iterator[int]:
    """Name the messages that were given back: they wait longer than their own time; a timer not due yet does not."""
    for message in mail:
        if message.parked is None and message.visible_at is not None and message.due_at < message.visible_at:
            yield message.seq


def orphans(state: State, now: Timestamp, cmd: str) -> Iterator[MessageDropped]:
    """Give up on parked messages that have waited long enough."""
    for message in state.due(Lane.PARKED, now):
        assert isinstance(message, Message)
        yield MessageDropped(message=message.seq, reason=ORPHAN, cmd=cmd)

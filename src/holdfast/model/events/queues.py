"""What happens to queues, and to dispatch as a whole."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.model.events.base import Fact
from holdfast.model.retention import Retention


class QueuePaused(Fact, frozen=True, kw_only=True, tag="queue:paused"):
    """Nothing of the queue is leased until it is resumed."""

    namespace: str
    queue: str
    reason: str = ""


class QueueResumed(Fact, frozen=True, kw_only=True, tag="queue:resumed"):
    """The queue is dispatched again."""

    namespace: str
    queue: str


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """New values for the settings of a queue. What is unset stays; None takes a limit away."""

    #: RUNNING jobs at a time, in all processes.
    max_running: int | msgspec.UnsetType | None = msgspec.UNSET
    #: Starts within any `rate_period_s` seconds; the two are set, or taken away, together.
    rate_count: int | msgspec.UnsetType | None = msgspec.UNSET
    rate_period_s: float | msgspec.UnsetType | None = msgspec.UNSET
    #: Whether all starts of the queue are counted together, or those of each limit key.
    rate_scope: Literal["queue", "key"] | msgspec.UnsetType = msgspec.UNSET
    #: Seconds of waiting that are worth one step of priority.
    aging_s: float | msgspec.UnsetType | None = msgspec.UNSET
    #: How its ended jobs are kept.
    retention: Retention | msgspec.UnsetType | None = msgspec.UNSET

    def given(self) -> dict[str, object]:
        """Give the settings that are set, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


class QueueSet(Fact, frozen=True, kw_only=True, tag="queue:set"):
    """A queue has other limits, or keeps its ended jobs otherwise.

    With another aging, its waiting and running jobs stand in new bands, in order.
    """

    namespace: str
    queue: str
    changes: QueueChanges


class QueueNormalized(Fact, frozen=True, kw_only=True, tag="queue:normalized"):
    """The positions of one band are 100, 200, 300, … in the order it had."""

    namespace: str
    queue: str
    rank: int


class DispatchPaused(Fact, frozen=True, kw_only=True, tag="dispatch:paused"):
    """Nothing at all is leased until dispatch is resumed."""

    reason: str = ""


class DispatchResumed(Fact, frozen=True, kw_only=True, tag="dispatch:resumed"):
    """Dispatch goes on."""


QueueEvent = QueuePaused | QueueResumed | QueueSet | QueueNormalized | DispatchPaused | DispatchResumed

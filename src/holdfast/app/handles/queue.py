"""Handles on queues, and on leasing as a whole."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from holdfast.app.tasks.options import Seconds
from holdfast.errors import InvalidArguments, InvalidValue
from holdfast.model.commands import Normalize, PauseDispatch, PauseQueue, ResumeDispatch, ResumeQueue, SetQueue
from holdfast.model.events import QueueChanges
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.model.jobs import JobStatus
from holdfast.model.records import Queue as Settings
from holdfast.model.records import pair
from holdfast.model.retention import Retention

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.queues import AioDispatch, AioQueue
    from holdfast.app.application import Holdfast


class Limits(TypedDict, total=False):
    """What `hf.queue(…).set(…)` takes; None takes a limit away, what is not named stays."""

    #: Jobs that may run at a time, in all processes.
    max_running: int | None
    #: How many may start, in which time.
    rate: tuple[int, Seconds] | None
    #: Whether all starts of the queue are counted together, or those of each limit key.
    rate_scope: Literal["queue", "key"]
    #: Waiting that is worth one step of priority.
    aging: Seconds | None
    #: How its ended jobs are kept; None as the store keeps them.
    retention: Retention | None


class Queue:
    """A handle on one queue."""

    def __init__(self, app: Holdfast, name: str) -> None:
        """Hold the queue of that name, which need not have been used yet. Raises InvalidValue if it is no name."""
        if not is_name(name):
            raise InvalidValue(f"queue: {name!r} is not a name.", hint=NAME_HINT, field="queue")
        self._app = app
        self.name = name

    def __repr__(self) -> str:
        """Show the name."""
        return f"<Queue {self.name}>"

    def settings(self) -> Settings:
        """Read its settings as they are now: whether it is paused and why, its limits."""
        with self._app.engine.read() as view:
            found = view.get(Settings, pair(self._app.namespace, self.name))
        return found or Settings(self._app.namespace, self.name)

    def set(self, **limits: Unpack[Limits]) -> None:
        """Change its limits, and how its ended jobs are kept. What runs goes on, even beyond a new limit.

        Raises InvalidValue, InvalidArguments.

        >>> hf.queue("mail").set(max_running=4, rate=(100, 60), aging=300)  # doctest: +SKIP
        >>> hf.queue("mail").set(retention=Retention(done_s=3600, failed_max=1000))  # doctest: +SKIP
        """
        self._app.engine.ask(SetQueue(queue=self.name, namespace=self._app.namespace, changes=_changes(limits)))

    def counts(self) -> dict[JobStatus, int]:
        """Count its jobs by status; a status no job has is left out."""
        mine = (self._app.namespace, self.name)
        with self._app.engine.read() as view:
            return {found.status: found.count for found in view.counts() if (found.namespace, found.queue) == mine}

    def pause(self, reason: str = "") -> None:
        """Stop leasing from it; what runs goes on."""
        self._app.engine.ask(PauseQueue(queue=self.name, namespace=self._app.namespace, reason=reason))

    def resume(self) -> None:
        """Lease from it again."""
        self._app.engine.ask(ResumeQueue(queue=self.name, namespace=self._app.namespace))

    def normalize(self) -> None:
        """Give its jobs evenly spaced places again, in their present order."""
        self._app.engine.ask(Normalize(queue=self.name, namespace=self._app.namespace))

    @property
    def aio(self) -> AioQueue:
        """The same calls, to be awaited."""
        from holdfast.app.aio.queues import AioQueue  # noqa: PLC0415 - only programs that await pay for it

        return AioQueue(self)


def _changes(limits: Limits) -> QueueChanges:
    known = Limits.__annotations__
    for name in limits:
        if name not in known:
            raise InvalidArguments(f"a queue has no limit {name!r}.", hint=f"There are: {', '.join(sorted(known))}.")
    fields: dict[str, Any] = dict(limits)
    if "rate" in fields:
        fields["rate_count"], fields["rate_period_s"] = _rate(fields.pop("rate"))
    if "aging" in fields:
        fields["aging_s"] = _seconds(fields.pop("aging"))
    return QueueChanges(**fields)


def _rate(rate: Any) -> tuple[Any, Any]:
    if rate is None:
        return None, None
    try:
        count, period = rate
    except (TypeError, ValueError):
        message = f"rate: {rate!r:.80} is not a number of starts and a period. Nothing was changed."
        raise InvalidValue(message, hint="A hundred a minute is rate=(100, 60).", field="rate") from None
    return count, _seconds(period)


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


class Dispatch:
    """Leasing as a whole."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    def pause(self, reason: str = "") -> None:
        """Stop leasing altogether; what runs goes on."""
        self._app.engine.ask(PauseDispatch(reason=reason))

    def resume(self) -> None:
        """Lease again."""
        self._app.engine.ask(ResumeDispatch())

    @property
    def aio(self) -> AioDispatch:
        """The same calls, to be awaited."""
        from holdfast.app.aio.queues import AioDispatch  # noqa: PLC0415 - only programs that await pay for it

        return AioDispatch(self)

"""Handles on queues, and on leasing as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import InvalidValue
from holdfast.model.commands import Normalize, PauseDispatch, PauseQueue, ResumeDispatch, ResumeQueue
from holdfast.model.ids import is_name
from holdfast.model.jobs import JobStatus
from holdfast.model.records import Queue as Settings
from holdfast.model.records import pair

if TYPE_CHECKING:
    from holdfast.app.aio import AioDispatch, AioQueue
    from holdfast.app.holdfast import Holdfast


class Queue:
    """A handle on one queue."""

    def __init__(self, app: Holdfast, name: str) -> None:
        """Hold the queue of that name, which need not have been used yet. Raises InvalidValue if it is no name."""
        if not is_name(name):
            raise InvalidValue(f"queue: {name!r} is not a name.", field="queue")
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
        from holdfast.app.aio import AioQueue  # noqa: PLC0415 - only programs that await pay for it

        return AioQueue(self)


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
        from holdfast.app.aio import AioDispatch  # noqa: PLC0415 - only programs that await pay for it

        return AioDispatch(self)

"""The inline steps of one execution: those that are waited for, to be handed out, or no longer waited for.

Numbers them in the order the code begins them, which is the same on every replay. Knows neither how a step is run nor
what its outcome is.
"""

from __future__ import annotations

from holdfast.workflows.api.steps import StepCall


class InlineSteps(dict[int, StepCall]):
    """Number → step that the code waits for."""

    __slots__ = ("_count", "_waiting", "stopped")

    def __init__(self) -> None:
        self._count = 0
        #: Steps that were not handed out yet; some may be over all the same.
        self._waiting: list[StepCall] = []
        #: Steps that were handed out and are no longer waited for.
        self.stopped: list[int] = []

    def begin(self, call: StepCall, instance: str, execution_id: int) -> None:
        """Give a step its number and whose it is; it is handed out when replay is over, unless it ended there."""
        self._count += 1
        call.step_no = self._count
        call.instance, call.execution_id = instance, execution_id
        self[call.step_no] = call
        self._waiting.append(call)

    def unstarted(self) -> list[StepCall]:
        """Give the steps that are to be handed out."""
        self._waiting = [call for call in self._waiting if call.step_no in self]
        return self._waiting

    def take_unstarted(self) -> list[StepCall]:
        """Give the steps that are to be handed out, once."""
        ready, self._waiting = self.unstarted(), []
        for call in ready:
            call.is_started = True
        return ready

    def drop(self, step_no: int) -> None:
        """No longer wait for a step."""
        call = self.pop(step_no, None)
        if call is not None and call.is_started:
            self.stopped.append(step_no)

    def stop(self) -> None:
        """Wait for none any more that was handed out: the execution has ended."""
        self.stopped.extend(call.step_no for call in self.values() if call.is_started)

    def take_stopped(self) -> list[int]:
        """Give those that were handed out and are no longer waited for, once."""
        stopped, self.stopped = self.stopped, []
        return stopped

"""Who may still ask for something: the code of an execution, while it runs; nobody after its end.

Knows no command and no history. The order that matters: code that is left for good leaves by `Halt`, which nothing
should catch; code that catches even that is refused, then left again, then made to wait for ever.
"""

from __future__ import annotations

from holdfast.errors import WorkflowNotAllowed
from holdfast.workflows.determinism.garbage import is_collecting
from holdfast.workflows.runtime.event_loop import Loop

#: Commands that are refused after the end before code that tries again and again is left by force.
MANY_REFUSALS = 100


class Halt(BaseException):
    """Leaves the user's code for good: it continues as new, or differs from its history. Nothing should catch it."""


class Gate:
    """The gate of one execution."""

    __slots__ = ("_instance", "_refused", "is_over")

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._refused = 0
        #: The execution has ended, or leaves this process: nothing that is asked for is done.
        self.is_over = False

    def demand_open(self, loop: Loop) -> None:
        """Let only code ask that runs in its loop. Raises Halt or WorkflowNotAllowed."""
        if loop.halted and not self.is_over:
            raise Halt
        if self.is_over or not loop.is_running() or is_collecting():
            self._refused += 1
            if self._refused > MANY_REFUSALS:
                raise Halt
            raise WorkflowNotAllowed(
                f"instance {self._instance!r}: what is asked for after the workflow's end, or by a finaliser, is not "
                "done.",
                hint="Await it before the workflow returns.",
                instance=self._instance,
            )

    def demand_alive(self) -> None:
        """Let only code wait for ever that will be closed; what is being closed must come to its end. Raises Halt.

        Code that catches even that and tries again would do so for ever: it waits, and is left where it stands.
        """
        if self.is_over and self._refused <= 2 * MANY_REFUSALS:
            raise Halt

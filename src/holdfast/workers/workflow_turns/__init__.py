"""Turns of workflows in a worker: the pump asks for commands here, and brings the answers.

    scheduler         what the pump sees: room, commands, answers, times
    fetch_policy      whether there is room for more turns, and a hope of some
    turn_state        one turn under way, from its fetch to its last commit
    pending_commands  all of them, and what is to be sent; under one lock
    wakeup            when the pump wakes
    runner            what a thread does with a stint: it advances it, and carries out what it wants
    turn_io           what that thread has to do with the store: it reads histories, and admits commits
    abandon           stints that end before their time: given back, lost, dropped
    thread_pool       the threads that run turns and their steps
    step_run          one inline step: attempts, timeout, the thread or loop it runs on
    step_executors    those threads, that loop, and the pump's time
    turn_timeout      a turn that does not give its thread back

A worker without workflows has `NoTurns`, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from holdfast.model.commands import Command
from holdfast.model.outcomes import Outcome as Reply
from holdfast.model.times import Timestamp
from holdfast.stores.protocol import View

if TYPE_CHECKING:
    from holdfast.workers.workflow_turns.turn_state import Stint

NEVER = float("inf")


Kind = Literal["ack", "abandon", "park", "renew", "more", "fetch", "announce"]


@dataclass(eq=False)
class Errand:
    """A command that the pump is to send, and whose it is."""

    kind: Kind
    command: Command
    stint: Stint | None = None
    #: The stint ends with it.
    is_last: bool = False
    #: The lock gets a new end with it.
    extends: bool = False


class Turns(Protocol):
    """What a pump asks of the turns of its worker. Times are monotonic."""

    def errands(self, now: float) -> Sequence[Errand]:
        """Give what is to be sent now; asked again, what is not answered is given again."""
        ...

    def answered(self, errands: Sequence[Errand], replies: Sequence[Reply], now: float) -> None:
        """Take the answers to errands, in their order."""
        ...

    def look(self, view: View, at: Timestamp, now: float) -> None:
        """See whether something came in for instances, here or anywhere."""
        ...

    def enforce(self, now: float) -> None:
        """Do what time asks for."""
        ...

    def due_at(self) -> float:
        """Give when `enforce` or `errands` has something to do. Whoever makes that earlier pokes the pump."""
        ...

    @property
    def wants_look(self) -> bool:
        """Tell whether more turns could be run than there are."""
        ...

    @property
    def has_hope(self) -> bool:
        """Tell whether a fetch is worth a try, and there is room."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Tell whether no turn is under way, and nothing is to be sent."""
        ...

    def drain(self) -> None:
        """Fetch no more; give back what has not begun."""
        ...

    def stop(self) -> None:
        """Give everything back, uncounted, without waiting for any step."""
        ...

    def close(self) -> None:
        """Let go of all threads and residents."""
        ...


class NoTurns:
    """The turns of a worker that has no workflows."""

    wants_look = has_hope = False
    is_quiet = True

    def errands(self, now: float) -> Sequence[Errand]:
        """Send nothing."""
        del now
        return ()

    def answered(self, errands: Sequence[Errand], replies: Sequence[Reply], now: float) -> None:
        """Hear nothing."""

    def look(self, view: View, at: Timestamp, now: float) -> None:
        """Look at nothing."""

    def enforce(self, now: float) -> None:
        """Enforce nothing."""

    def due_at(self) -> float:
        """Wait for nothing."""
        return NEVER

    def drain(self) -> None:
        """Have nothing to give back."""

    def stop(self) -> None:
        """Have nothing to stop."""

    def close(self) -> None:
        """Have nothing to let go."""

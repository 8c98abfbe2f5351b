"""Turns of workflows in a worker: the main loop asks for commands here, and brings the answers.

    machine    decides: which turn is advanced, what is sent, what is given back; pure
    scheduler  carries its inputs and outputs between the main loop, the threads and the steps
    player     what a thread does with one turn: reads its history, runs its code, says what it wants
    steps      one inline step: attempts, timeout, the thread or loop it runs on
    threads    the threads that play turns and run sync steps

A worker without workflows has `NoTurns`, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from holdfast.model.commands import Command
from holdfast.model.outcomes import Outcome as Reply
from holdfast.model.times import Timestamp
from holdfast.stores.protocol import View

if TYPE_CHECKING:
    from holdfast.workers.workflow_turns.machine import ActiveTurn

NEVER = float("inf")


Kind = Literal["ack", "abandon", "park", "renew", "more", "fetch", "announce"]


class Errand(msgspec.Struct, eq=False):
    """A command that the pump is to send, and whose it is."""

    kind: Kind
    command: Command
    turn: ActiveTurn | None = None
    #: The turn ends with it.
    is_last: bool = False
    #: The lock gets a new end with it.
    extends: bool = False


class Turns(Protocol):
    """What a pump asks of the turns of its worker. Times are monotonic."""

    def errands(self, now: float, jobs: int = 0) -> Sequence[Errand]:
        """Return what is to be sent now; asked again, what is not answered is returned again.

        `jobs` is how many jobs the worker holds beside its turns.
        """
        ...

    def makes_way(self, now: float) -> bool:
        """Whether nothing may be begun beside the turns: one must run alone, or waits for that."""
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

    def errands(self, now: float, jobs: int = 0) -> Sequence[Errand]:
        """Send nothing."""
        del now, jobs
        return ()

    def makes_way(self, now: float) -> bool:
        """Make way for nothing."""
        del now
        return False

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

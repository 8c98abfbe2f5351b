"""Runners: each knows one way to run a function. None knows a store.

A runner is given an assignment only while a slot is free, and says when the assignment has ended.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.workers.handlers.leased_job import Assignment
from holdfast.workers.handlers.outcome import Outcome


class Desk(Protocol):
    """Where runners hand in what they did. Any thread may call it."""

    def settle(self, assignment: Assignment, outcome: Outcome) -> None:
        """Take the outcome; the first one counts. The slot stays taken."""
        ...

    def end(self, assignment: Assignment, outcome: Outcome) -> None:
        """Take the outcome, unless there is one, and the slot."""
        ...

    def end_for_next(self, assignment: Assignment, outcome: Outcome) -> Assignment | None:
        """Do as `end`, and give the next assignment of the same runner, which has its slot already, or None."""
        ...


class Runner(Protocol):
    """One way to run handlers."""

    def start(self, assignment: Assignment) -> None:
        """Begin to run the handler; return at once. Raises OSError or RuntimeError if the system has no room for it."""
        ...

    def stop(self, assignment: Assignment) -> None:
        """Make the handler end, as far as that can be done; `assignment.stop` says why. Return at once."""
        ...

    def close(self) -> None:
        """Take no more, and end what can be ended."""
        ...

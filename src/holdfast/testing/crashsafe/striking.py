"""When the process of a run dies: at the commits that a plan numbers, or once at every commit there is.

At every commit means just before it or just after it, by turns. A commit is known by what it says, not by its number:
struck before it is durable, it is made again by the next process, and must then go through. Of what recovery ends only
the amount tells commits apart, since any process may leave any of it behind.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import msgspec

from holdfast.model.events import Event
from holdfast.model.events.jobs import LeaseExpired
from holdfast.model.events.workflows import TurnExpired
from holdfast.testing.crashsafe.faults import Plan, What
from holdfast.testing.simfs import SimCrash

When = Literal["before", "after"]

_NUMBERED: dict[What, When] = {What.CRASH_BEFORE: "before", What.CRASH_AFTER: "after"}
#: What tells a fact from others of its kind. Tokens, sessions and times do not: they are each process's own.
_SUBJECT = ("job_id", "instance_id", "event_id", "messages", "kind", "item")


class Strikes:
    """The deaths of one run."""

    def __init__(self, plan: Plan) -> None:
        """Read them from a plan."""
        self._numbered = {(fault.at, _NUMBERED[fault.what]) for fault in plan if fault.what in _NUMBERED}
        #: Odd: the first commit of all is struck after it. None: only those with numbers are struck.
        self._first = next((fault.at for fault in plan if fault.what is What.CRASH_AT_EVERY), None)
        #: At which side each commit was struck, by what it says; numbered ones are not counted here.
        self.struck: dict[Hashable, When] = {}
        #: How many commits were made.
        self.commits = 0

    def at(self, when: When, facts: Sequence[Event]) -> None:
        """Pass one side of the commit of these facts. Raises SimCrash if the process dies there."""
        number = self.commits
        self.commits += when == "after"
        if (number, when) in self._numbered:
            self._numbered.remove((number, when))
            raise SimCrash
        if self._first is not None:
            self._strike_once(when, tuple(_said(fact) for fact in facts), self._first + len(self.struck))

    def _strike_once(self, when: When, commit: Hashable, turn: int) -> None:
        if commit in self.struck or (when == "before" and turn % 2):
            return
        self.struck[commit] = when
        raise SimCrash


def _said(fact: Event) -> Hashable:
    if isinstance(fact, LeaseExpired | TurnExpired):
        return type(fact)
    found = (getattr(fact, name, None) for name in _SUBJECT)
    return type(fact), *(bytes(part) if isinstance(part, msgspec.Raw) else part for part in found)

"""A decision: the events a command causes, and the answer to it. Built by the rules, committed by the engine."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model.events import Event
from holdfast.model.outcomes import Outcome, refuse


class Decision(NamedTuple):
    """What is to be written, and what is answered once that is durable."""

    events: tuple[Event, ...]
    outcome: Outcome


def answer(outcome: Outcome, *events: Event) -> Decision:
    """Answer once these events are durable."""
    return Decision(events, outcome)


def deny(kind: type[HoldfastError], message: str, *, hint: str = "", **facts: object) -> Decision:
    """Refuse; nothing is written."""
    return Decision((), refuse(kind, message, hint=hint, **facts))

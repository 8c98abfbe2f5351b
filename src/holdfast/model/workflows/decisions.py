"""Questions that workflows ask people. A record only."""

from __future__ import annotations

import msgspec

from holdfast.model.ids import uuid5
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp, at_milliseconds

#: Names of signals begin so that are no signals of users; and those of answers.
OURS = "@"
ANSWERS = f"{OURS}decision/"


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of the signal that answers a question."""

    chosen: str | None = None
    message: str | None = None
    by: str | None = None


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One question, open until `closed_at`."""

    decision_id: str
    instance_id: str
    execution_id: int
    #: Of the DecisionRequested.
    event_id: int
    #: The question as it was recorded: prompt, options, assignee, …; as JSON.
    question: msgspec.Raw
    created_at: Timestamp
    #: Labels of the answers there are; None for any text.
    options: tuple[str, ...] | None = None
    #: Answered already, and by whom; the workflow has not taken note yet.
    answered_by: str | None = None
    closed_at: Timestamp | None = None
    #: How it was closed: chosen, message, by; as JSON.
    answer: msgspec.Raw = NULL

    @property
    def is_open(self) -> bool:
        """Nobody has answered it, and the workflow waits."""
        return self.closed_at is None and self.answered_by is None


class _Limited(msgspec.Struct, frozen=True):
    expires_at_ms: int | None = None


_limited = msgspec.json.Decoder(_Limited)


def expiry_of(decision: Decision) -> Timestamp | None:
    """Give when a question is answered by time alone; None if never, or if it is too long to be kept at hand."""
    found = _limited.decode(decision.question).expires_at_ms
    return None if found is None else at_milliseconds(found)


def decision_id(instance_id: str, execution_id: int, event_id: int) -> str:
    """Give the id of a question: the same for the same event, whoever works it out."""
    return uuid5("decision", instance_id, str(execution_id), str(event_id))

"""Questions that workflows asked people: look at them, answer them. A handle keeps an id and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import DecisionNotFound, InvalidValue
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp, at_milliseconds
from holdfast.model.workflows.commands import AnswerDecision, NewMessage
from holdfast.model.workflows.decisions import ANSWERS, Answer
from holdfast.model.workflows.decisions import Decision as Record
from holdfast.model.workflows.event_kinds import DecisionRequested, DecisionResolved
from holdfast.model.workflows.work_items import QueueMessage, encode_item
from holdfast.workflows.api.workflow import demand_outside

if TYPE_CHECKING:
    from holdfast.app.aio.workflows import AioDecision
    from holdfast.app.application import Holdfast

_asked = msgspec.json.Decoder(DecisionRequested).decode
_told = msgspec.json.Decoder(DecisionResolved).decode


class DecisionState(msgspec.Struct, frozen=True, kw_only=True):
    """A question as it is now."""

    id: str
    #: The instance that asked.
    instance: str
    prompt: str
    #: What stands behind the question.
    detail: str | None
    #: The answers there are; None for any text.
    options: tuple[str, ...] | None
    assignee: str | None
    created_at: Timestamp
    #: When it is answered with `default`, or given up.
    expires_at: Timestamp | None
    default: str | None
    #: Nobody has answered it, and the workflow waits.
    is_open: bool
    closed_at: Timestamp | None
    #: What the workflow was told, once it has taken note.
    chosen: str | None
    message: str | None
    #: Who answered; `expiry`, `cancelled` or `ended` if nobody did.
    by: str | None


class Decision:
    """A handle on one question."""

    def __init__(self, app: Holdfast, decision_id: str) -> None:
        """Hold the question of that id."""
        self._app = app
        #: The question's id.
        self.id = decision_id

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Decision {self.id}>"

    def record(self) -> DecisionState:
        """Read it as it is now. Raises DecisionNotFound."""
        return state_of(self._read())

    def _read(self) -> Record:
        demand_outside("decision.record")
        with self._app.engine.read() as view:
            found = view.get(Record, self.id)
        if found is None:
            raise DecisionNotFound(f"there is no decision {self.id}.", decision=self.id)
        return found

    def resolve(self, chosen: str | None = None, *, message: str | None = None, by: str = "") -> None:
        """Answer it: with one of its options, or with any text if it has none. The first answer wins.

        Of who has an access token `by` is its name, whatever is said.
        Raises DecisionClosed if it was answered, has expired or is no longer asked; InvalidValue for an answer that is
        not among its options; DecisionNotFound.
        """
        engine = self._app.engine
        engine.ask(answer_command(self._read(), chosen, message, by=by, cmd=engine.new_id()))

    @property
    def aio(self) -> AioDecision:
        """The same calls, to be awaited."""
        from holdfast.app.aio.workflows import AioDecision  # noqa: PLC0415 - only programs that await pay for it

        return AioDecision(self)


def answer_command(record: Record, chosen: str | None, message: str | None, *, by: str, cmd: str) -> AnswerDecision:
    """Answer a question that was read. Raises InvalidValue for an answer that says nothing."""
    if chosen is None and message is None:
        raise InvalidValue("an answer needs a choice or a message. Nothing was changed.", field="chosen")
    text = msgspec.json.encode(Answer(chosen=chosen, message=message, by=by or None)).decode()
    item = QueueMessage(instance=record.instance_id, name=f"{ANSWERS}{record.event_id}", data=text)
    return AnswerDecision(
        cmd=cmd,
        decision_id=record.decision_id,
        message=NewMessage(item=msgspec.Raw(encode_item(item))),
        chosen=chosen,
        by=by,
    )


def listed(app: Holdfast, *, is_open: bool | None, instance: str | None, limit: int) -> list[Decision]:
    """List questions, oldest first."""
    demand_outside("hf.decisions")
    if limit < 1:
        raise InvalidValue(f"limit: {limit} is below 1.", field="limit")
    with app.engine.read() as view:
        having = view.all(Record) if instance is None else view.decisions(instance)
        found = [one for one in having if is_open is None or one.is_open is is_open]
    found.sort(key=lambda one: (one.created_at, one.decision_id))
    return [Decision(app, one.decision_id) for one in found[:limit]]


def state_of(record: Record) -> DecisionState:
    """Give a question as it is now."""
    asked = _asked(record.question)
    told = None if record.answer == NULL else _told(record.answer)
    return DecisionState(
        id=record.decision_id,
        instance=record.instance_id,
        prompt=asked.prompt,
        detail=asked.detail,
        options=record.options,
        assignee=asked.assignee,
        created_at=record.created_at,
        expires_at=None if asked.expires_at_ms is None else at_milliseconds(asked.expires_at_ms),
        default=asked.on_expire,
        is_open=record.is_open,
        closed_at=record.closed_at,
        chosen=None if told is None else told.chosen,
        message=None if told is None else told.message,
        by=record.answered_by if told is None else told.by,
    )

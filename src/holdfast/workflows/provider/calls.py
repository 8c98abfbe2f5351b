"""How the provider asks: one command for a call, every trouble told as a ProviderError, waiting by the store's wait.

Values are judged by the rules. Here only what a caller may hand over at all is looked at: types, and texts that can be
written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import msgspec

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import next_of
from holdfast.errors import HoldfastError, InvalidValue, ProviderError, StoreBusy
from holdfast.model.commands import Command
from holdfast.model.ids import Token
from holdfast.model.outcomes import Outcome, Refusal
from holdfast.model.times import seconds_between
from holdfast.model.workflows.commands import NewMessage
from holdfast.model.workflows.work_items import WorkItem
from holdfast.rules.field_checks import shown
from holdfast.rules.state import Lane
from holdfast.stores.protocol import View
from holdfast.stores.sidecar.protocol import Blobs

A = TypeVar("A")

#: The longest a call waits for something to come in, in seconds.
MAX_POLL_S = 3600
#: Seconds after which a call that waits looks again where it cannot be told when.
LOOK_AGAIN_S = 0.1
#: A token nobody has: they begin at 1.
NOBODY = Token(0)

_encode = msgspec.json.Encoder().encode


class Asking:
    """What all sides of the provider stand on: the engine, and how it is spoken to."""

    def __init__(self, engine: Engine | Callable[[], Engine]) -> None:
        """Speak to this engine, or to the one that is given when it is first needed."""
        self._given = engine
        self._made: Engine | None = engine if isinstance(engine, Engine) else None

    @property
    def engine(self) -> Engine:
        """The engine that decides."""
        if self._made is None:
            assert not isinstance(self._given, Engine)
            self._made = self._given()
        return self._made

    @property
    def _blobs(self) -> Blobs:
        return self.engine.store.blobs

    def _ask(self, operation: str, command: Command, kind: type[A]) -> A:
        """Have one command decided; give its answer once it is durable."""
        with told_as(operation):
            outcome = self.engine.submit(command)
        return _answer(operation, outcome, kind)

    def _ask_all(self, operation: str, commands: Sequence[Command], kind: type[A]) -> list[A]:
        """Have several commands decided, each atomic alone."""
        with told_as(operation):
            outcomes = self.engine.submit_many(commands) if commands else []
        return [_answer(operation, outcome, kind) for outcome in outcomes]

    @contextmanager
    def _view(self, operation: str) -> Iterator[View]:
        with told_as(operation), self.engine.read() as view:
            yield view

    def _polls(self, operation: str, poll_timeout: float, lanes: Iterable[Lane]) -> Iterator[None]:
        """Go round once, and again whenever something has happened or its time has come, until the time is up."""
        if not _is_number(poll_timeout) or not 0 <= poll_timeout <= MAX_POLL_S:
            refuse(operation, f"poll_timeout must be between 0 and {MAX_POLL_S} seconds, got {_shown(poll_timeout)}")
        engine = self.engine
        deadline = engine.look().monotonic + poll_timeout
        while True:
            with self._view(operation) as view:
                seq = view.seq
            yield
            reading = engine.look()
            left = deadline - reading.monotonic
            if left <= 0:
                return
            with self._view(operation) as view:
                wake = next_of(view, lanes)
            due = left if wake is None else seconds_between(reading.now, wake)
            # What is due already was just looked for in vain: somebody has it, and something later may hide behind it.
            due = due + 0.001 if due > 0 else LOOK_AGAIN_S
            with told_as(operation):
                woken = engine.store.wait(seq, min(left, due))
            if not woken and due >= left:
                return


def _answer(operation: str, outcome: Outcome, kind: type[A]) -> A:
    if isinstance(outcome, Refusal):
        error = outcome.error()
        raise ProviderError.permanent(operation, outcome.message, **outcome.facts) from error
    assert isinstance(outcome, kind)
    return outcome


@contextmanager
def told_as(operation: str) -> Iterator[None]:
    """Tell every trouble of the store or the rules as a ProviderError of this method."""
    try:
        yield
    except ProviderError:
        raise
    except HoldfastError as error:
        make = ProviderError.transient if isinstance(error, StoreBusy) else ProviderError.permanent
        raise make(operation, error.message) from error


def refuse(operation: str, message: str) -> NoReturn:
    """Refuse bad input."""
    raise ProviderError.permanent(operation, message) from InvalidValue(message)


# --- what a caller may hand over --------------------------------------------------------------------------------------


def token_of(text: object) -> Token:
    """Read a token. What is none is just one that nobody has."""
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 1 << 63:
        return Token(int(text))
    return NOBODY


def seconds(operation: str, name: str, value: float) -> float:
    """Take a number of seconds."""
    if not _is_number(value):
        refuse(operation, f"{name} must be a number of seconds, got {_shown(value)}")
    return value


def maybe_seconds(operation: str, name: str, value: float | None) -> float | None:
    """Take a number of seconds, or none."""
    return None if value is None else seconds(operation, name, value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return shown(value) if isinstance(value, int) else f"{value!r:.80}"


def typed(operation: str, field: str, value: Any, kind: Any) -> Any:
    """Take a value of one type; True is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        refuse(operation, f"invalid {field}: a {type(value).__name__} is not what it takes")
    return value


def text(operation: str, field: str, value: str) -> str:
    """Take a text that can be written down."""
    typed(operation, field, value, str)
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(operation, f"invalid {field}: a lone surrogate cannot be stored")
    return value


def encoded(operation: str, field: str, struct: Any, kind: Any) -> msgspec.Raw:
    """Write down an item or an event, if it is one."""
    return written(operation, field, typed(operation, field, struct, kind))


def written(operation: str, field: str, struct: Any) -> msgspec.Raw:
    """Write down an item, an event or a text."""
    try:
        return msgspec.Raw(_encode(struct))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        refuse(operation, f"invalid {field}: {problem}")


def message_of(operation: str, field: str, item: WorkItem) -> NewMessage:
    """Write down an item for the orchestrator queue."""
    return NewMessage(item=encoded(operation, field, item, WorkItem))


def each(operation: str, field: str, values: Any) -> tuple[Any, ...]:
    """Take several of something."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        refuse(operation, f"invalid {field}: a {type(values).__name__} is not several")
    return tuple(values)

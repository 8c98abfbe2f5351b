"""How the provider asks: one command for a call, every trouble told as a ProviderError, waiting by the store's wait.

Values are judged by the rules. Here only what a caller may hand over at all is looked at: types, and texts that can be
written down.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import msgspec

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import next_of
from holdfast.errors import HoldfastError, InvalidValue, ProviderError, StoreBusy, StoreClosed
from holdfast.failpoints import reach
from holdfast.model.commands import Command
from holdfast.model.ids import Token
from holdfast.model.outcomes import Outcome, Refusal
from holdfast.model.times import seconds_between
from holdfast.model.workflows.commands import NewMessage
from holdfast.model.workflows.work_items import WorkItem
from holdfast.rules.field_checks import shown
from holdfast.rules.state import Lane
from holdfast.rules.workflows.validation import instance_problems
from holdfast.stores.protocol import View
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workflows.provider.field_types import MAX_INT, SURROGATE, find_field_error, is_writable

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

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
        """Use this engine, or the one that the function returns: it is called once, by the first call that needs it."""
        self._given = engine
        self._made: Engine | None = engine if isinstance(engine, Engine) else None
        self._making = threading.Lock()
        self._pid = os.getpid()

    @property
    def engine(self) -> Engine:
        """The engine that decides. Threads that need it first wait until one of them has made and recovered it."""
        made = self._made
        return self._made_once() if made is None else made

    def _made_once(self) -> Engine:
        """Make the engine under a lock: a second one on the store would end the locks that the first has granted."""
        given = self._given
        assert not isinstance(given, Engine)
        if os.getpid() != self._pid:  # before the lock, which a thread of the parent may hold
            raise StoreClosed(
                "the store was opened before the process forked and belongs to the parent. Nothing was done.",
                hint="Open the store again in the child.",
            )
        reach("provider.engine")
        with self._making:
            if self._made is None:
                self._made = given()
            return self._made

    @property
    def _blobs(self) -> Blobs:
        return self.engine.store.blobs

    def _ask(self, operation: str, command: Command, kind: type[A]) -> A:
        """Have one command decided; give its answer once it is durable."""
        return _answer(operation, self.engine.submit(command), kind)

    def _ask_all(self, operation: str, commands: Sequence[Command], kind: type[A]) -> list[A]:
        """Have several commands decided, each atomic alone."""
        outcomes = self.engine.submit_many(commands) if commands else []
        return [_answer(operation, outcome, kind) for outcome in outcomes]

    def _view(self) -> AbstractContextManager[View]:
        return self.engine.read()

    def _polls(self, operation: str, poll_timeout: float, lanes: Iterable[Lane]) -> Iterator[None]:
        """Go round once, and again whenever something has happened or its time has come, until the time is up."""
        if not _is_number(poll_timeout) or not 0 <= poll_timeout <= MAX_POLL_S:
            refuse(operation, f"poll_timeout must be between 0 and {MAX_POLL_S} seconds, got {_shown(poll_timeout)}")
        engine = self.engine
        deadline = engine.look().monotonic + poll_timeout
        while True:
            with self._view() as view:
                seq = view.seq
            yield
            reading = engine.look()
            left = deadline - reading.monotonic
            if left <= 0:
                return
            with self._view() as view:
                wake = next_of(view, lanes)
            due = left if wake is None else seconds_between(reading.now, wake)
            # What is due already was just looked for in vain: somebody has it, and something later may hide behind it.
            due = due + 0.001 if due > 0 else LOOK_AGAIN_S
            woken = engine.store.wait(seq, min(left, due))
            if not woken and due >= left:
                return


def _answer(operation: str, outcome: Outcome, kind: type[A]) -> A:
    if isinstance(outcome, Refusal):
        error = outcome.error()
        raise ProviderError.permanent(operation, outcome.message, **outcome.facts) from error
    assert isinstance(outcome, kind)
    return outcome


def told(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Tell every trouble of the store or the rules as a ProviderError of this method."""
    operation = method.__name__

    @wraps(method)
    def called(self: S, /, *args: P.args, **options: P.kwargs) -> R:
        try:
            return method(self, *args, **options)
        except ProviderError:
            raise
        except HoldfastError as error:
            make = ProviderError.transient if isinstance(error, StoreBusy) else ProviderError.permanent
            raise make(operation, error.message) from error

    return called


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


def struct_of(operation: str, field: str, struct: Any, kind: Any, path: str = "") -> Any:
    """Take a struct whose fields, at any depth, are of their types. `path` is put before the name of a field."""
    typed(operation, field, struct, kind)
    try:
        wrong = find_field_error(struct, path)
    except RecursionError:
        refuse(operation, f"invalid {field}: nested too deep to be stored")
    if wrong is not None:
        refuse(operation, f"invalid {wrong.path}: {wrong.complaint}")
    return struct


def text(operation: str, field: str, value: str) -> str:
    """Take a text that can be written down."""
    typed(operation, field, value, str)
    if not is_writable(value):
        refuse(operation, f"invalid {field}: {SURROGATE}")
    return str.__str__(value)  # of a subclass only the text


def instance_id(operation: str, field: str, value: str) -> str:
    """Take the id of an instance."""
    name = text(operation, field, value)
    for problem in instance_problems(field, name):
        refuse(operation, problem)
    return name


def whole(operation: str, field: str, value: int) -> int:
    """Take a whole number that a store can keep."""
    number: int = typed(operation, field, value, int)
    if not 0 <= number < MAX_INT:
        refuse(operation, f"invalid {field}: must be between 0 and 2**63 - 1, is {shown(number)}")
    return number


def encoded(operation: str, field: str, struct: Any, kind: Any) -> msgspec.Raw:
    """Write down an item or an event, if it is one."""
    return written(operation, field, struct_of(operation, field, struct, kind))


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

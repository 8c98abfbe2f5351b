"""Exceptions as data, and data as exceptions.

What crosses from one process to another is ErrorDetails; a workflow meets it again as one of our classes and, where the
original class is known and can be rebuilt, as that class too. Live code and replay get the same object.

An exception is the user's code, too: its text, its arguments, its class may raise when they are asked for. Whatever it
refuses to say is left out; that it was raised is kept.
"""

from __future__ import annotations

import builtins
import functools
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from holdfast.errors import WorkFailed, class_name
from holdfast.model.error_details import ENCODING, ERROR, Category, ErrorDetails
from holdfast.model.payloads import pack

F = TypeVar("F", bound=WorkFailed)
T = TypeVar("T")

#: Bytes kept of a message and of a traceback.
MAX_MESSAGE = 16 << 10
MAX_TRACEBACK = 64 << 10
#: Bytes kept of the traceback of a member of a group, whose own shows it too.
MAX_MEMBER_TRACEBACK = 4 << 10
#: Causes of causes that are kept; and members of groups, of groups within groups all together.
MAX_DEPTH = 8
MAX_MEMBERS = 100

#: In a coroutine these mean something else than a failure.
_NEVER = (StopIteration, StopAsyncIteration)
_BUILTIN = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _NEVER)
}


# --- exception → details ----------------------------------------------------------------------------------------------


def details_of(problem: BaseException, *, kind: str = ERROR, category: Category = Category.APPLICATION) -> ErrorDetails:
    """Give all that can be kept of an exception, with its causes. Never raises."""
    found = _tried(lambda: _details_of(problem, 0, _Room(), kind=kind, category=category))
    return found or ErrorDetails(
        category=category, kind=kind, message=text_of(problem), type_name=_name_of(type(problem))
    )


def text_of(problem: BaseException) -> str:
    """Give an exception's own text, as far as it is kept. Never raises."""
    text = _tried(lambda: str(problem))
    return _cut(f"<{_name_of(type(problem))} whose text cannot be made>" if text is None else text, MAX_MESSAGE)


def named(problem: BaseException) -> str:
    """Give an exception's class and text, as the last line of a traceback does. Never raises."""
    return f"{_name_of(type(problem))}: {text_of(problem)}"


def traceback_of(problem: BaseException, *, chain: bool = True) -> str:
    """Give the traceback as Python prints it; where that cannot be made, the frames and the class. Never raises."""
    text = _tried(lambda: "".join(traceback.format_exception(problem, chain=chain)))
    if text is None:
        frames = _tried(lambda: "".join(traceback.format_tb(_kept(problem, "__traceback__"))))
        text = f"Traceback (most recent call last):\n{frames or ''}{named(problem)}\n"
    return text


def tell(
    log: logging.Logger, event: str, problem: BaseException | None, facts: Mapping[str, object] | None = None
) -> None:
    """Log an exception with its traceback; where handlers cannot show that, its class. Never raises."""
    try:
        log.error(event, exc_info=problem, extra=facts)
    except BaseException:  # noqa: BLE001 - handlers are the application's, and print what the user's exception says
        with suppress(BaseException):
            named = {**(facts or {}), "problem": _name_of(type(problem))}
            log.error(event, extra=named)  # noqa: TRY400 - with the exception it has just failed


def _tried(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except BaseException:  # noqa: BLE001 - the user's code; what it cannot say must not hide the failure itself
        return None


def _kept(problem: BaseException, name: str) -> Any:
    """Give what the interpreter keeps of an exception, whatever its class has under that name."""
    return vars(BaseException)[name].__get__(problem)


class _Room:
    """How many members of groups may still be kept, and how deep in groups this is."""

    def __init__(self) -> None:
        self.left = MAX_MEMBERS
        self.level = 0


def _details_of(
    problem: BaseException, depth: int, room: _Room, *, kind: str = ERROR, category: Category = Category.APPLICATION
) -> ErrorDetails:
    is_hidden = _kept(problem, "__suppress_context__")
    cause = _kept(problem, "__cause__") or (None if is_hidden else _kept(problem, "__context__"))
    recorded = _tried(lambda: problem.details if isinstance(problem, WorkFailed) else None)
    origin = recorded if isinstance(recorded, ErrorDetails) and cause is None else None
    return ErrorDetails(
        category=category,
        kind=kind,
        message=text_of(problem),
        type_name=_name_of(_plain_class(problem)),
        type_bases=tuple(
            _name_of(base) for base in _classes(problem)[1:-1] if base not in (_plain_class(problem), _Rebuilt)
        ),
        args=_tried(lambda: _arguments(problem)),
        traceback=_trace(problem, room.level),
        data=_tried(lambda: _members(problem, depth, room)),
        cause=origin if cause is None or depth >= MAX_DEPTH else _details_of(cause, depth + 1, room),
    )


def encoding_details(what: str, problem: Exception) -> ErrorDetails:
    """Say that a result cannot be written as JSON."""
    return ErrorDetails(
        category=Category.APPLICATION,
        kind=ENCODING,
        message=_cut(f"{what} cannot be kept: {text_of(problem)}", MAX_MESSAGE),
        type_name=_name_of(type(problem)),
    )


def _classes(problem: BaseException) -> tuple[type[Any], ...]:
    """Give its class and those above it, nearest first, whatever the class itself says."""
    return tuple(vars(type)["__mro__"].__get__(type(problem)))


def _plain_class(problem: BaseException) -> type[BaseException]:
    """Give the class to name: of a rebuilt object ours, which `except` clauses know."""
    classes = _classes(problem)
    return classes[1] if issubclass(classes[0], _Rebuilt) else classes[0]


def _name_of(kind: type) -> str:
    return _tried(lambda: _cut(class_name(kind), MAX_MESSAGE)) or _cut(
        vars(type)["__name__"].__get__(kind), MAX_MESSAGE
    )


def _arguments(problem: BaseException) -> str | None:
    if isinstance(problem, BaseExceptionGroup):
        return None
    return bytes(pack(list(problem.args), "args", MAX_MESSAGE)).decode()


def _trace(problem: BaseException, level: int) -> str | None:
    """Give the traceback; within groups only of their first members: the group's own has the others, as far as told.

    Members are text within text, quoted at each level anew: what is long must not be deep.
    """
    if level and (level > 1 or issubclass(type(problem), BaseExceptionGroup)):
        return None
    return _cut(traceback_of(problem, chain=False), MAX_MEMBER_TRACEBACK if level else MAX_TRACEBACK)


def _members(problem: BaseException, depth: int, room: _Room) -> str | None:
    if not issubclass(type(problem), BaseExceptionGroup) or depth >= MAX_DEPTH:
        return None
    members = []
    room.level += 1
    for member in vars(BaseExceptionGroup)["exceptions"].__get__(problem):
        if not room.left:
            break
        room.left -= 1
        members.append(_details_of(member, depth + 1, room))
    room.level -= 1
    return msgspec.json.encode({"members": members}).decode()


def _cut(text: str, limit: int) -> str:
    raw = str.encode(text, "utf-8", "backslashreplace")  # not the method of a class of the user's
    if len(raw) <= limit:
        return raw.decode()
    head, tail = raw[: limit // 2 - 32].decode(errors="ignore"), raw[-(limit // 2 - 32) :].decode(errors="ignore")
    return f"{head}\n… {len(raw) - limit + 64} bytes cut …\n{tail}"


# --- details → exception ----------------------------------------------------------------------------------------------


class _Rebuilt:
    """Marks classes made here, of ours and the original's."""


def rebuild(
    kind: type[F], what: str, details: ErrorDetails, known: Iterable[type[BaseException]] = (), **facts: Any
) -> F:
    """Give the exception a workflow gets: of class `kind`, and of the original class if that can be made again."""
    original = _find(details, known)
    if original is not None and details.args is not None and not issubclass(original, BaseExceptionGroup):
        problem = _both(kind, original, msgspec.json.decode(details.args))
        with suppress(Exception):  # the user's class; it may have such names of its own, which cannot be set
            if problem is not None:
                return _filled(problem, what, details, facts)
    return _filled(kind(details.message), what, details, facts)


def _filled(problem: F, what: str, details: ErrorDetails, facts: dict[str, Any]) -> F:
    """Give it what is known of the failure."""
    cause = f"{details.type_name}: " if details.type_name else ""
    problem.message = f"{what} failed: {cause}{details.message}"
    problem.hint = ""
    problem.facts = facts
    problem.type_name = details.type_name or ""
    problem.type_bases = details.type_bases
    problem.traceback_text = details.traceback or ""
    problem.attempts = details.attempt_count
    problem.details = details
    return problem


def _find(details: ErrorDetails, known: Iterable[type[BaseException]]) -> type[Exception] | None:
    name = details.type_name
    if name is None:
        return None
    for candidate in known:
        if class_name(candidate) == name and issubclass(candidate, Exception) and not issubclass(candidate, _NEVER):
            return candidate
    return _BUILTIN.get(name)


def _both(kind: type[F], original: type[Exception], arguments: list[Any]) -> F | None:
    """Make an object of both classes from the original's arguments; None if that cannot be done."""
    try:
        made = _both_class(kind, original)  # type: ignore[arg-type]  # classes are hashable; typeshed doubts it
        problem: F = made.__new__(made, *arguments)
        original.__init__(problem, *arguments)
        problem.args = tuple(arguments)
    except Exception:  # noqa: BLE001 - whatever the user's class does, the failure must reach the workflow
        return None
    return problem


@functools.lru_cache(maxsize=1024)
def _both_class(kind: type[Any], original: type[Exception]) -> type[Any]:
    if issubclass(kind, original):
        return kind
    return type(kind.__name__, (kind, original, _Rebuilt), {"__module__": kind.__module__})

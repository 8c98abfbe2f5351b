"""Exceptions as data, and data as exceptions.

What crosses from one process to another is ErrorDetails; a workflow meets it again as one of our classes and, where the
original class is known and can be rebuilt, as that class too. Live code and replay get the same object.
"""

from __future__ import annotations

import builtins
import functools
import traceback
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from holdfast.errors import HoldfastError, WorkFailed, class_name
from holdfast.model.details import ENCODING, ERROR, Category, ErrorDetails
from holdfast.model.payloads import pack

F = TypeVar("F", bound=WorkFailed)

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
    """Give all that can be kept of an exception, with its causes."""
    return _details_of(problem, 0, _Room(), kind=kind, category=category)


class _Room:
    """How many members of groups may still be kept, and how deep in groups this is."""

    def __init__(self) -> None:
        self.left = MAX_MEMBERS
        self.level = 0


def _details_of(
    problem: BaseException, depth: int, room: _Room, *, kind: str = ERROR, category: Category = Category.APPLICATION
) -> ErrorDetails:
    cause = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
    recorded = problem.details if isinstance(problem, WorkFailed) else None
    origin = recorded if isinstance(recorded, ErrorDetails) and cause is None else None
    return ErrorDetails(
        category=category,
        kind=kind,
        message=_cut(_text(problem), MAX_MESSAGE),
        type_name=class_name(_plain_class(problem)),
        type_bases=tuple(
            class_name(base) for base in type(problem).__mro__[1:-1] if base not in (_plain_class(problem), _Rebuilt)
        ),
        args=_arguments(problem),
        traceback=_trace(problem, room.level),
        data=_members(problem, depth, room),
        cause=origin if cause is None or depth >= MAX_DEPTH else _details_of(cause, depth + 1, room),
    )


def encoding_details(what: str, problem: Exception) -> ErrorDetails:
    """Say that a result cannot be written as JSON."""
    return ErrorDetails(
        category=Category.APPLICATION,
        kind=ENCODING,
        message=_cut(f"{what} cannot be kept: {_text(problem)}", MAX_MESSAGE),
        type_name=class_name(type(problem)),
    )


def _plain_class(problem: BaseException) -> type[BaseException]:
    """Give the class to name: of a rebuilt object ours, which `except` clauses know."""
    return type(problem).__mro__[1] if isinstance(problem, _Rebuilt) else type(problem)


def _text(problem: BaseException) -> str:
    try:
        return str(problem)
    except BaseException:  # noqa: BLE001 - a broken __str__ of the user must not hide the failure itself
        return f"<{type(problem).__name__} whose text cannot be made>"


def _arguments(problem: BaseException) -> str | None:
    if isinstance(problem, BaseExceptionGroup):
        return None
    try:
        return bytes(pack(list(problem.args), "args", MAX_MESSAGE)).decode()
    except HoldfastError:
        return None


def _trace(problem: BaseException, level: int) -> str | None:
    """Give the traceback; within groups only of their first members: the group's own has the others, as far as told.

    Members are text within text, quoted at each level anew: what is long must not be deep.
    """
    if level and (level > 1 or isinstance(problem, BaseExceptionGroup)):
        return None
    text = "".join(traceback.format_exception(problem, chain=False))
    return _cut(text, MAX_MEMBER_TRACEBACK if level else MAX_TRACEBACK)


def _members(problem: BaseException, depth: int, room: _Room) -> str | None:
    if not isinstance(problem, BaseExceptionGroup) or depth >= MAX_DEPTH:
        return None
    members = []
    room.level += 1
    for member in problem.exceptions:
        if not room.left:
            break
        room.left -= 1
        members.append(_details_of(member, depth + 1, room))
    room.level -= 1
    return msgspec.json.encode({"members": members}).decode()


def _cut(text: str, limit: int) -> str:
    raw = text.encode("utf-8", "backslashreplace")
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
    problem: F | None = None
    if original is not None and details.args is not None and not issubclass(original, BaseExceptionGroup):
        problem = _both(kind, original, msgspec.json.decode(details.args))
    if problem is None:
        problem = kind(details.message)
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

"""Exceptions as data, and data as exceptions.

What crosses from one process to another is ErrorDetails; a workflow meets it again as one of our classes and, where the
original class is known and can be rebuilt, as that class too. Live code and replay get the same object.

An exception is the user's code, too: its text, its arguments, its class may raise when they are asked for. Whatever it
refuses to say is left out; that it was raised is kept.
"""

from __future__ import annotations

import asyncio
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
#: Arguments of an exception that are kept; and bytes of the repr of one that is not JSON, or is too long.
MAX_ARGS = 16
MAX_REPR = 1 << 10

#: What the user's own code may raise where a value is encoded (properties, `__iter__`, `model_dump`) or an exception is
#: made again (`__new__`, `__init__`). An interrupt of the process is none of it.
USER_CODE_RAISES = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
#: In a coroutine these mean something else than a failure.
_NEVER = (StopIteration, StopAsyncIteration)
_BUILTIN = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception | BaseExceptionGroup) and not issubclass(kind, _NEVER)
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
    args, is_exact = _arguments(problem)
    return ErrorDetails(
        category=category,
        kind=kind,
        message=text_of(problem),
        type_name=_name_of(_plain_class(problem)),
        type_bases=tuple(
            _name_of(base) for base in _classes(problem)[1:-1] if base not in (_plain_class(problem), _Rebuilt)
        ),
        args=args,
        repr=None if is_exact else _repr_of(problem, 2 * MAX_REPR),
        traceback=_trace(problem, room.level),
        data=_tried(lambda: _members(problem, depth, room)),
        cause=origin if cause is None or depth >= MAX_DEPTH else _details_of(cause, depth + 1, room),
    )


def encoding_details(what: str, problem: BaseException) -> ErrorDetails:
    """Say that a result cannot be written as JSON."""
    return ErrorDetails(
        category=Category.APPLICATION,
        kind=ENCODING,
        message=_cut(f"{what} cannot be kept: {text_of(problem)}", MAX_MESSAGE),
        type_name=_name_of(type(problem)),
    )


def _classes(problem: BaseException) -> tuple[type[Any], ...]:
    """Give its class and those above it, nearest first, whatever the class itself says."""
    return _mro(type(problem))


def _plain_class(problem: BaseException) -> type[BaseException]:
    """Give the class to name: of a rebuilt object ours, which `except` clauses know."""
    classes = _classes(problem)
    return classes[2] if classes[1] is _Rebuilt else classes[0]


def _name_of(kind: type) -> str:
    return _tried(lambda: _cut(class_name(kind), MAX_MESSAGE)) or _cut(
        vars(type)["__name__"].__get__(kind), MAX_MESSAGE
    )


def _arguments(problem: BaseException) -> tuple[str, bool]:
    """Give the arguments as a JSON list, and whether it has all of them as they are; those that are not JSON by repr.

    Of a group only its message: the members are kept apart.
    """
    given = tuple.__getitem__(_kept(problem, "args"), slice(None))
    if issubclass(type(problem), BaseExceptionGroup):
        given = (vars(BaseExceptionGroup)["message"].__get__(problem),)
    kept: list[msgspec.Raw] = []
    left, is_exact = MAX_MESSAGE, len(given) <= MAX_ARGS
    for value in given[:MAX_ARGS]:
        packed = _packed(value, left)
        is_exact = is_exact and packed is not None
        kept.append(packed or msgspec.Raw(msgspec.json.encode(_repr_of(value, MAX_REPR))))
        left = max(0, left - len(bytes(kept[-1])))
    return msgspec.json.encode(kept).decode(), is_exact


def _packed(value: Any, limit: int) -> msgspec.Raw | None:
    return _tried(lambda: pack(value, "args", limit, around=-1))  # the list of arguments is one level more


def _repr_of(value: object, limit: int) -> str:
    return _cut(_tried(lambda: repr(value)) or f"<{_name_of(type(value))} whose repr cannot be made>", limit)


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
    """Marks classes made here, of ours and the original's. The first base, so that it is asked first."""

    # What is set on every object, here as plain attributes: a class of the user's may have properties by these names.
    message = hint = type_name = traceback_text = repr_text = ""
    facts: Any = None
    type_bases: tuple[str, ...] = ()
    attempts: int | None = None
    details: object = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Do nothing: no such class is found by its code, and the user's need not know of it."""


def rebuild(
    kind: type[F], what: str, details: ErrorDetails, known: Iterable[type[BaseException]] = (), **facts: Any
) -> F:
    """Give the exception a workflow gets: of class `kind`, and of the original class.

    Where the original class is neither builtin nor among `known`, it is of those of its bases that are. Where its
    arguments do not make an object, its `__init__` is not called, and it has the arguments as they are known.
    """
    known = tuple(known)
    found = _known_classes(kind, details, known)
    values = _values(details)
    problem: Any = None
    while found and problem is None:
        made = _both_class(kind, tuple(found))  # type: ignore[arg-type]  # classes are hashable; typeshed doubts it
        if made is not None:
            is_whole = details.repr is None and class_name(found[0]) == details.type_name
            members = _rebuilt_members(details, known) if _is_group(made) else None
            if is_whole and members is None:
                problem = _made_again(made, found[0], values)
            problem = _bare(made, found[0], values, members) if problem is None else problem
        found.pop()
    return _filled(kind(details.message) if problem is None else problem, what, details, facts)


def _filled(problem: F, what: str, details: ErrorDetails, facts: dict[str, Any]) -> F:
    """Give it what is known of the failure."""
    cause = f"{details.type_name}: " if details.type_name else ""
    shown = (details.type_name or "").rpartition(".")[2]
    known = {
        "message": f"{what} failed: {cause}{details.message}",
        "hint": "",
        "facts": facts,
        "type_name": details.type_name or "",
        "type_bases": details.type_bases,
        "traceback_text": details.traceback or "",
        "repr_text": details.repr or (f"{shown}({', '.join(map(repr, _values(details)))})" if shown else ""),
        "attempts": details.attempt_count,
        "details": details,
    }
    for name, value in known.items():
        object.__setattr__(problem, name, value)  # not as the user's class would do it
    return problem


def _values(details: ErrorDetails) -> tuple[Any, ...]:
    """Give the arguments as they are known; of a failure whose arguments were not kept, its message."""
    return (details.message,) if details.args is None else tuple(msgspec.json.decode(details.args))


def _mro(kind: type) -> tuple[type[Any], ...]:
    return tuple(vars(type)["__mro__"].__get__(kind))


def _is_group(kind: type) -> bool:
    return BaseExceptionGroup in _mro(kind)


def _known_classes(
    kind: type[WorkFailed], details: ErrorDetails, known: Iterable[type[BaseException]]
) -> list[type[BaseException]]:
    """Give the original class, or else those of its bases that can be named, without what they or `kind` imply."""
    named = {
        _name_of(one): one
        for one in reversed(tuple(known))
        if {Exception, BaseExceptionGroup}.intersection(_mro(one)) and not set(_NEVER).intersection(_mro(one))
    }
    found: list[type[BaseException]] = []
    for name in (details.type_name or "", *details.type_bases):
        candidate = named.get(name) or _BUILTIN.get(name)
        if candidate is not None and not any(candidate in _mro(one) for one in (kind, *found)):
            found.append(candidate)
    return found


def _made_again(made: type[F], original: type[BaseException], values: tuple[Any, ...]) -> F | None:
    """Make an object as the original was made; None if its class does not take its own arguments."""
    try:
        problem: F = made.__new__(made, *values)
        original.__init__(problem, *values)
        _keep_args(problem, values)
    except USER_CODE_RAISES:
        return None
    return problem


def _bare(
    made: type[F], original: type[BaseException], values: tuple[Any, ...], members: list[WorkFailed] | None
) -> F | None:
    """Make an object without the user's `__new__` and `__init__`: only as its builtin class does."""
    given = values if members is None else (str(values[0]) if values else "", members)
    problem: F | None = None
    for builtin in (one for one in _mro(made) if one.__module__ == "builtins"):
        with suppress(TypeError):  # Python tells which of them may make it
            problem = builtin.__new__(made, *given)
            break
    if problem is None or members is not None:
        return problem
    builtin = next(one for one in _mro(original) if one.__module__ == "builtins")
    with suppress(TypeError, ValueError):  # what it would know from other arguments it does not know then
        builtin.__init__(problem, *_fitting(builtin, values))
    _keep_args(problem, values)
    return problem


def _fitting(builtin: type[BaseException], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give arguments that a builtin class takes: of an error in decoding, the repr of the bytes in their place."""
    if issubclass(builtin, UnicodeDecodeError) and len(values) == 5 and isinstance(values[1], str):
        return (values[0], values[1].encode(), *values[2:])
    return values


def _keep_args(problem: BaseException, values: tuple[Any, ...]) -> None:
    vars(BaseException)["args"].__set__(problem, values)


def _rebuilt_members(details: ErrorDetails, known: tuple[type[BaseException], ...]) -> list[WorkFailed]:
    """Give the members of a group; where none was kept, one that says so: no group is empty."""
    text = details.data or '{"members": []}'
    members = []
    for kept in _members_decoder.decode(text)["members"]:
        members.append(member := rebuild(WorkFailed, "", kept, known))
        object.__setattr__(member, "message", kept.message)
    return members or [WorkFailed("the members of this group were not kept")]


_members_decoder = msgspec.json.Decoder(dict[str, list[ErrorDetails]])


@functools.lru_cache(maxsize=1024)
def _both_class(kind: type[Any], originals: tuple[type[BaseException], ...]) -> type[Any] | None:
    """Make the class of objects of all these classes; None if there can be none."""
    ours = () if any(kind in _mro(one) for one in originals) else (kind,)
    bases = (_Rebuilt, *ours, *originals)
    namespace = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    makers: tuple[Callable[..., type[Any]], ...] = (type, functools.partial(type.__new__, type(originals[0])))
    for maker in makers:  # the second passes by a metaclass of the user's that allows no further class
        with suppress(*USER_CODE_RAISES):
            return maker(kind.__name__, bases, namespace)
    return None

"""What a workflow is: a function, its version, and how its turns are run. Registries belong to their application.

Knows no store: `start` is the application's. Versions are explicit, `major.minor.patch`; nothing is derived from source
except the code hash, which is information only.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from holdfast.errors import InvalidArguments, InvalidValue
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.model.retention import FOR_EVER_S
from holdfast.workflows.determinism.guard import Guard

#: Executions of an instance that are kept if nobody says otherwise.
EXECUTIONS = 10
#: Seconds: the longest grace of a cancellation.
MAX_GRACE = 86_400.0
_SEMVER = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})", re.ASCII)


class Codec(Protocol):
    """How a function's arguments and result become JSON and come back."""

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        """Give the arguments as JSON. Raises InvalidArguments, or InvalidValue if they cannot be kept."""
        ...

    def unpack(self, params: msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments for the function. Raises InvalidArguments."""
        ...

    def pack_result(self, value: Any) -> msgspec.Raw:
        """Give a result as JSON. Raises InvalidValue."""
        ...

    def unpack_result(self, result: msgspec.Raw) -> Any:
        """Give a result as the annotation says. Raises InvalidValue."""
        ...


def packed_call(codec: Codec, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Give the arguments of a call of a workflow or an activity as JSON text.

    Raises InvalidArguments if they do not fit or cannot be kept, naming the path inside them; PayloadTooLarge.
    """
    try:
        return bytes(codec.pack(args, kwargs)).decode()
    except InvalidValue as problem:
        where = str(problem.facts.get("path") or problem.facts.get("field"))
        text = problem.message.removeprefix(f"{where}: ").removesuffix(" Nothing was stored.")
        path = where.removeprefix("params.")
        raise InvalidArguments(
            f"{name}: {path:.200}: {text} Nothing was stored.", hint=problem.hint, path=path
        ) from None


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One version of a workflow."""

    name: str
    function: Callable[..., Any]
    codec: Codec
    version: str = "1.0.0"
    #: Seconds from a cancel request to the end without asking; 0: none.
    cancel_grace_s: float = 60.0
    #: Seconds from the start to a cancel request of our own.
    timeout_s: float | None = None
    #: Classes that failures of its activities and children are rebuilt as.
    raises: tuple[type[BaseException], ...] = ()
    #: Seconds without a running step; 0: no limit.
    turn_timeout_s: float = 60.0
    #: Counted deliveries until it is poison.
    max_turn_attempts: int = 10
    compare_inputs: bool = True
    on_nondeterminism: Literal["block", "fail"] = "block"
    #: What an error in the code itself does to a run (`code_errors`).
    on_error: Literal["block", "fail"] = "block"
    #: Types of its signals, by name, where they are declared.
    signals: Mapping[str, Any] = field(default_factory=dict)
    #: Seconds that ended instances are kept; None: for ever; unset: as the store says.
    retention_s: float | msgspec.UnsetType | None = msgspec.UNSET

    def __post_init__(self) -> None:
        """Refuse what cannot be run. Raises InvalidValue."""
        if not is_name(self.name):
            raise InvalidValue(f"workflow {self.name!r:.150}: no name.", hint=NAME_HINT)
        version_key(self.version)
        if "id" in inspect.signature(self.function).parameters:
            raise InvalidValue(
                f"workflow {self.name!r}: a parameter named id cannot be told from the option of `start`.",
                hint="Give it another name.",
            )
        if not 0 <= self.cancel_grace_s <= MAX_GRACE:
            raise InvalidValue(f"workflow {self.name!r}: cancel_grace must be 0-{MAX_GRACE:.0f} seconds.")
        if self.timeout_s is not None and not 0 < self.timeout_s <= 100 * 366 * 86_400:
            raise InvalidValue(f"workflow {self.name!r}: timeout must be more than 0 and at most 100 years.")
        if not 0 <= self.turn_timeout_s <= MAX_GRACE:
            raise InvalidValue(f"workflow {self.name!r}: turn_timeout must be 0-{MAX_GRACE:.0f} seconds.")
        if self.max_turn_attempts < 1:
            raise InvalidValue(f"workflow {self.name!r}: max_turn_attempts must be at least 1.")
        if isinstance(self.retention_s, int | float) and not 0 <= self.retention_s <= FOR_EVER_S:
            raise InvalidValue(f"workflow {self.name!r}: retention must be 0 to 100 years, or None for ever.")
        if self.on_nondeterminism not in {"block", "fail"}:
            raise InvalidValue(f"workflow {self.name!r}: on_nondeterminism is 'block' or 'fail'.")
        if self.on_error not in {"block", "fail"}:
            raise InvalidValue(f"workflow {self.name!r}: on_error is 'block' or 'fail'.")

    @functools.cached_property
    def is_blocking(self) -> bool:
        """It is a plain `def`: its calls block instead of being awaited."""
        return not inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def code_hash(self) -> str:
        """Tell whether the code is the same text; never compared by the runtime."""
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError):
            return ""
        return hashlib.sha256(source.encode()).hexdigest()[:16]


@functools.lru_cache(1024)  # every start asks for the newest
def version_key(version: str) -> tuple[int, int, int]:
    """Give what versions are ordered by. Raises InvalidValue for what is none."""
    found = _SEMVER.fullmatch(version)
    if found is None:
        raise InvalidValue(f"version {version!r:.80}: is not of the form 1.0.0.")
    return int(found[1]), int(found[2]), int(found[3])


class Definitions:
    """The workflows of one application, by name and version."""

    def __init__(self, codec_of: Callable[[Callable[..., Any]], Codec]) -> None:
        """Type the results of inline steps by `codec_of`, from their annotations."""
        self._codec_of = codec_of
        #: Executions of an instance that are kept when it goes on as new, the newest.
        self.executions_max = EXECUTIONS
        #: In force while workflow code runs; None, as in a worker by default: only its event loop refuses anything.
        self.guard: Guard | None = None
        self._found: dict[str, dict[str, Definition]] = {}
        self._step_codecs: dict[Callable[..., Any], Codec] = {}

    @contextmanager
    def guarded_by(self, guard: Guard) -> Iterator[None]:
        """Guard the executions that begin, or are loaded, inside the block."""
        before, self.guard = self.guard, guard
        try:
            yield
        finally:
            self.guard = before

    def add(self, definition: Definition) -> None:
        """Register one version. Raises InvalidValue if it is there already."""
        versions = self._found.setdefault(definition.name, {})
        if definition.version in versions:
            raise InvalidValue(
                f"workflow {definition.name!r} {definition.version} is registered already.",
                hint="Give it another name or version.",
            )
        versions[definition.version] = definition

    def get(self, name: str, version: str | None = None) -> Definition | None:
        """Give a version, the newest unless told; None if there is no such."""
        versions = self._found.get(name, {})
        if version is None:
            return versions[max(versions, key=version_key)] if versions else None
        return versions.get(version)

    def all(self) -> list[Definition]:
        """Give all of them, by name, oldest version first."""
        return [
            versions[version]
            for _, versions in sorted(self._found.items())
            for version in sorted(versions, key=version_key)
        ]

    def step_codec(self, function: Callable[..., Any]) -> Codec | None:
        """Give how a step's result is typed; None if its signature cannot be read, as of some builtins."""
        target = getattr(function, "__func__", function)  # of a method: one codec for all objects
        try:
            found = self._step_codecs.get(target)
        except TypeError:  # unhashable, such as a partial of a list's method
            return self._new_codec(function)
        if found is None:
            found = self._new_codec(function)
            # Only what lives as long as its module is kept; a lambda of every call would pile up.
            if found is not None and "<locals>" not in getattr(target, "__qualname__", "<locals>"):
                self._step_codecs[target] = found
        return found

    def _new_codec(self, function: Callable[..., Any]) -> Codec | None:
        try:
            return self._codec_of(function)
        except (InvalidValue, ValueError, TypeError):
            return None

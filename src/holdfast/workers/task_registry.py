"""The tasks a worker knows. A task is a function with the way its arguments come in and its result goes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import msgspec

from holdfast.errors import InvalidValue
from holdfast.workers.handlers.handler_wrapper import Surrounding, surrounded

Isolation = Literal["loop", "thread", "process", "shell"]
#: How a child process finds the application: import a module, or run again the module or file that is `__main__`.
Origin = tuple[Literal["import", "module", "file"], str]
#: What `__main__` is called when it is run again, as multiprocessing calls it.
MAIN_AGAIN = "__mp_main__"


class Codec(Protocol):
    """How arguments and results become JSON and come back."""

    def unpack(self, params: msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments for the function. Raises InvalidArguments if they no longer fit it."""
        ...

    def pack_result(self, value: Any) -> msgspec.Raw:
        """Give a result as JSON. Raises InvalidValue if it cannot be kept."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A function the user registered."""

    name: str
    run: Callable[..., Any]
    codec: Codec
    #: Where it runs: on the event loop, in a thread, in a process of its own; or as the command it returns.
    isolation: Isolation
    #: Exceptions that end the job FAILED at once.
    no_retry: tuple[type[BaseException], ...] = ()
    #: Bytes of memory a process of its own may use.
    memory_limit: int | None = None
    #: Where a child process finds it.
    origin: Origin | None = None


class Registry:
    """Tasks by name."""

    def __init__(self) -> None:
        self._specs: dict[str, TaskSpec] = {}
        self._surroundings: list[Surrounding] = []

    def add(self, spec: TaskSpec) -> None:
        """Register a task. Raises InvalidValue if its name is taken."""
        if spec.name in self._specs:
            raise InvalidValue(
                f"the task name {spec.name!r} is taken by another function.",
                hint="Give one of them a name=.",
                field="name",
            )
        for surrounding in self._surroundings:
            spec = replace(spec, run=surrounded(spec.run, surrounding))
        self._specs[spec.name] = spec

    def surround(self, surrounding: Surrounding) -> None:
        """Call every handler within this context, of tasks there are and of those to come; the last is outermost."""
        self._surroundings.append(surrounding)
        for name, spec in self._specs.items():
            self._specs[name] = replace(spec, run=surrounded(spec.run, surrounding))

    def get(self, name: str) -> TaskSpec | None:
        """Give the task of that name, or None."""
        return self._specs.get(name)

    def names(self) -> tuple[str, ...]:
        """List the names, in the order of registration."""
        return tuple(self._specs)

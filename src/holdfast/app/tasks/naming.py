"""What a task is called, and which functions can be one. By its name a worker in another process finds the function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import InvalidValue
from holdfast.model.ids import is_name
from holdfast.workers.task_registry import MAIN_AGAIN, Origin


def demand_function(function: Callable[..., Any]) -> None:
    """Refuse what no worker could call, or what gives no single result. Raises InvalidValue."""
    title = getattr(function, "__qualname__", repr(function))
    if not inspect.isroutine(function) or not hasattr(function, "__module__"):
        raise InvalidValue(f"{title} is no function.", hint="Put @hf.task on a function.", field="function")
    first = next(iter(inspect.signature(function).parameters), "")
    if first in ("self", "cls") or inspect.ismethod(function):
        raise InvalidValue(
            f"{title} is a method; a worker has no object to call it on.",
            hint="Make it a function that is given what it needs, such as an id.",
            field="function",
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(f"{title} yields; a task gives one result.", hint="Return a list instead.", field="function")


def task_name(function: Callable[..., Any], chosen: str | None) -> str:
    """Name a task: as chosen, or `module.function`. Raises InvalidValue for what is no name."""
    title = chosen or f"{_home(function)}.{function.__qualname__}".replace("<locals>.", "")
    if not is_name(title):
        raise InvalidValue(f"{title!r} cannot name a task.", hint="Give it a name=.", field="name")
    return title


def origin_of(function: Callable[..., Any]) -> Origin | None:
    """Say how a child process can import the module that defines a function; None if it cannot."""
    if not _is_main(function):
        return ("import", function.__module__)
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m
        return ("module", main.__spec__.name)
    file = getattr(main, "__file__", None)
    return None if file is None else ("file", str(Path(file).absolute()))


def _is_main(function: Callable[..., Any]) -> bool:
    return function.__module__ in ("__main__", MAIN_AGAIN)


def _home(function: Callable[..., Any]) -> str:
    """Name the module a function is defined in, as others import it: a worker finds what a script enqueued."""
    if not _is_main(function):
        return function.__module__
    space = getattr(function, "__globals__", {})
    spec, file = space.get("__spec__"), space.get("__file__")
    name = Path(file).stem if spec is None and file else getattr(spec, "name", "").removesuffix(".__main__")
    return name if is_name(name) else "__main__"

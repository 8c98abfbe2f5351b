"""What every handler runs within: a framework's context, say. Entered anew for each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Surrounding = Callable[[], AbstractContextManager[object]]


def surrounded(run: Callable[..., Any], surrounding: Surrounding) -> Callable[..., Any]:
    """Give the function as one that is called within the context; a coroutine function stays one."""
    if inspect.iscoroutinefunction(run):

        @functools.wraps(run)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with surrounding():
                return await run(*args, **kwargs)

        return awaited

    @functools.wraps(run)
    def called(*args: Any, **kwargs: Any) -> Any:
        with surrounding():
            return run(*args, **kwargs)

    return called

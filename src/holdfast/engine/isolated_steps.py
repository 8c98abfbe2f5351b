"""Steps that stand alone: what one of them raises is told, and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StoreError

T = TypeVar("T")

log = logging.getLogger(__name__)


class Steps:
    """The steps of one round of maintenance."""

    def __init__(self) -> None:
        self._problems: dict[str, Exception] = {}

    def do(self, name: str, step: Callable[[], T], nothing: T) -> T:
        """Give what the step gives, or `nothing` if it failed."""
        try:
            return step()
        except Exception as problem:
            log.exception("maintenance.failed", extra={"step": name, "error": str(problem) or repr(problem)})
            self._problems[name] = problem
            return nothing

    def end(self) -> tuple[str, ...]:
        """Name the steps that failed. Raises what the store itself raised: who uses it must know."""
        for problem in self._problems.values():
            if isinstance(problem, StoreError):
                raise problem
        return tuple(self._problems)

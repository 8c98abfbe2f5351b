"""What a check demands of how it is run, said at the check itself.

For harnesses that do more than the check asks for, such as giving ids to commands, or sending them twice. Whoever only
does what the check says need not look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=Callable[..., Any])


def counts_writes(check: C) -> C:
    """Mark a check that counts what is written, or demands that nothing is: under an id what was done is remembered."""
    _mark(check, counts_writes)
    return check


def sends_once(check: C) -> C:
    """Mark a check that waits for one commit, and cannot do with another of the same."""
    _mark(check, sends_once)
    return check


def is_marked(check: object, mark: Callable[..., Any]) -> bool:
    """Tell whether a check has a mark."""
    return mark in getattr(check, "marks", ())


def _mark(check: object, mark: Callable[..., Any]) -> None:
    vars(check)["marks"] = (*getattr(check, "marks", ()), mark)

"""Looking after a store from outside: check and repair by URL, also where it cannot be opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.errors import StoreDamaged, StoreError
from holdfast.stores.opening import open_store
from holdfast.stores.protocol import Finding


@dataclass(frozen=True)
class RepairPlan:
    """What a repair would do, told before it is done."""

    #: For people: what is damaged, what would be lost, what is kept.
    lines: list[str]
    #: False if there is nothing to repair.
    is_needed: bool
    _apply: Callable[[], list[str]] = field(default=list)

    def apply(self) -> list[str]:
        """Do it; give the lines that tell what was done."""
        return self._apply()


def check(url: str) -> list[Finding]:
    """Read everything and list what is wrong; a store that refuses to open is a finding, too."""
    try:
        store = open_store(url, readonly=True)
    except StoreDamaged as damage:
        return [_finding(damage)]
    try:
        return store.check()
    finally:
        store.close()


def _finding(error: StoreError) -> Finding:
    def number(name: str) -> int | None:
        fact = error.facts.get(name)
        return fact if isinstance(fact, int) else None

    file = error.facts.get("file")
    return Finding(
        code=error.code,
        message=error.message,
        remedy=error.hint,
        file=None if file is None else str(file),
        line=number("line"),
        offset=number("offset"),
        seq=number("seq"),
    )

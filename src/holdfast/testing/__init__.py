"""What users and we test with: a clock that is set by hand, a file system and a SQLite that crash on request.

Names are loaded when first asked for, so that importing one tool does not pay for the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.simfs import SimCrash, SimFS
    from holdfast.testing.simvfs import SimVfs

__all__ = ["ManualClock", "SimCrash", "SimFS", "SimVfs"]

_HOMES = {
    "ManualClock": "holdfast.testing.clock",
    "SimCrash": "holdfast.testing.simfs",
    "SimFS": "holdfast.testing.simfs",
    "SimVfs": "holdfast.testing.simvfs",
}


def __getattr__(name: str) -> object:
    """Load the module that holds `name`."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home), name)

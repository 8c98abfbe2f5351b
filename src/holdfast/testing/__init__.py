"""What users test with: jobs run by hand or at once, a clock that is set by hand, crashes on request.

Names are loaded when first asked for, so that importing one tool does not pay for the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.corruption import corrupt_history
    from holdfast.testing.crashsafe.proving import assert_crash_safe
    from holdfast.testing.histories import workflow_histories
    from holdfast.testing.jobs import assert_enqueued, drain, enqueued, inline, use
    from holdfast.testing.killing import killed_at
    from holdfast.testing.replaying import replay
    from holdfast.testing.simfs import SimCrash, SimFS
    from holdfast.testing.worlds import virtual

__all__ = [
    "ManualClock",
    "SimCrash",
    "SimFS",
    "assert_crash_safe",
    "assert_enqueued",
    "corrupt_history",
    "drain",
    "enqueued",
    "inline",
    "killed_at",
    "replay",
    "use",
    "virtual",
    "workflow_histories",
]

_HOMES = {
    "ManualClock": "holdfast.testing.clock",
    "SimCrash": "holdfast.testing.simfs",
    "SimFS": "holdfast.testing.simfs",
    "assert_crash_safe": "holdfast.testing.crashsafe.proving",
    "assert_enqueued": "holdfast.testing.jobs",
    "corrupt_history": "holdfast.testing.corruption",
    "drain": "holdfast.testing.jobs",
    "enqueued": "holdfast.testing.jobs",
    "inline": "holdfast.testing.jobs",
    "killed_at": "holdfast.testing.killing",
    "replay": "holdfast.testing.replaying",
    "use": "holdfast.testing.jobs",
    "virtual": "holdfast.testing.worlds",
    "workflow_histories": "holdfast.testing.histories",
}


def __getattr__(name: str) -> object:
    """Load the module that holds `name`."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home), name)

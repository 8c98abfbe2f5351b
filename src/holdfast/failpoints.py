"""Named points: places in the code that tests can wait at, fail at or die at. A leaf: it imports no room.

`reach("lease.granted")` costs one look-up in an empty dict until a test listens. A listener may block (to order two
threads), raise (to inject a failure) or end the process (to crash there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: dict[str, Callable[[], None]] = {}


def reach(point: str) -> None:
    """Tell a listener, if there is one, that the code has come to `point`."""
    if _listeners:
        listener = _listeners.get(point)
        if listener is not None:
            listener()


@contextmanager
def listening(point: str, listener: Callable[[], None]) -> Iterator[None]:
    """Call `listener` whenever `point` is reached inside the block."""
    before = _listeners.get(point)
    _listeners[point] = listener
    try:
        yield
    finally:
        if before is None:
            _listeners.pop(point, None)
        else:
            _listeners[point] = before

"""Whether the garbage collector runs in a thread of a turn: no replay runs finalisers at the same place.

One function is in `gc.callbacks` while at least one turn runs, and is taken out with the last. It is the only way to
tell a finaliser that the collector calls from one that the code itself causes.
"""

from __future__ import annotations

import gc
import threading


class _Thread(threading.local):
    is_watched = False
    is_collecting = False


_thread = _Thread()
#: A finaliser may close another execution while this is held.
_mutex = threading.RLock()
_watched = 0


def watch(*, on: bool) -> None:
    """Begin or stop watching collections in this thread."""
    global _watched  # noqa: PLW0603 - the interpreter has one collector
    if _thread.is_watched is on:
        return
    with _mutex:
        _thread.is_watched = on
        _thread.is_collecting = False
        _watched += 1 if on else -1
        if on and _watched == 1:
            gc.callbacks.append(_on_collection)
        elif not _watched:
            gc.callbacks.remove(_on_collection)


def is_watched() -> bool:
    """Tell whether collections in this thread are watched."""
    return _thread.is_watched


def is_collecting() -> bool:
    """Tell whether the code that runs now was called by the garbage collector."""
    return _thread.is_collecting


def _on_collection(phase: str, _facts: dict[str, int]) -> None:
    _thread.is_collecting = phase == "start"

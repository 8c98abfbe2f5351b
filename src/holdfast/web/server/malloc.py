"""A heap that gives back what it no longer needs, so that the memory of a coordinator has a plateau.

The C library of most Linux systems is made for programs whose threads run at once, and for large pieces of memory that
are soon wanted again. It gives threads heaps of their own, up to eight for each core, and what is free in one serves no
other: each keeps room for the largest snapshot, answer or blob its threads ever made, and a process that is asked the
same things all day grows for as long as another heap meets one of these. And it moves the bound above which a piece is
taken from the system, and given back to it, up to the largest piece it has seen; below that bound, free pieces lie
between others and cannot go back. Python's threads hardly run at once: they share one heap here, and the bound stays.
"""

from __future__ import annotations

import ctypes
import os
from types import MappingProxyType

#: Numbers of glibc's malloc.h → values: `M_ARENA_MAX`, heaps; `M_MMAP_THRESHOLD`, bytes, the one it begins with.
_SETTINGS = MappingProxyType({-8: 1, -3: 128 << 10})


def keep_small() -> bool:
    """Set the C library so, before there are threads; tell whether it was done.

    Nothing is done where an operator has set it by its own variables, or where it is another one.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc." in os.environ.get(
        "GLIBC_TUNABLES", ""
    ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return all(mallopt(number, value) for number, value in _SETTINGS.items())

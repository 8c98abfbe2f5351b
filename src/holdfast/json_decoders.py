"""What reads JSON as a class, made by one thread at a time.

msgspec notes a class before it has looked at all of it: another thread that asks for the same class meanwhile reads
through what is not there, and the process ends. Classes of ours that are known beforehand are looked at by imports,
which are one thread's affair; whatever is named at run time, users' own classes above all, comes through here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

_making = threading.Lock()


def reader_of(kind: Any, dec_hook: Callable[[type, Any], Any] | None = None) -> msgspec.json.Decoder[Any]:
    """Give what reads a type. Raises TypeError if JSON cannot tell what it is."""
    with _making:
        return msgspec.json.Decoder(kind, dec_hook=dec_hook)


def schema_of(kind: Any) -> dict[str, Any]:
    """Give the JSON schema of a type. Raises TypeError if it has none, as of a class that msgspec does not know."""
    with _making:
        return msgspec.json.schema(kind)

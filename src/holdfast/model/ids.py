"""Ids and names: which texts may be one, and how a time-ordered id is written.

Ids are made by callers, so that a command whose answer was lost can be sent again. UUIDv7 begins with its time, which
keeps neighbours in time neighbours in every index. Randomness comes in as a value.
"""

from __future__ import annotations

import hashlib
import re
from typing import NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)

#: Fencing token: store-wide, strictly increasing. It orders; it protects nothing.
Token = NewType("Token", int)

_ID = re.compile(
    r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff](?:[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,198}[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff])?"
)
#: What a name is, for whoever gave none.
NAME_HINT = "A name is made of 1-128 ASCII letters, digits and . _ - : /"
_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)


def is_id(text: str) -> bool:
    """Tell whether `text` may be an id: 1-200 characters, no control characters, no outer blanks."""
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Tell whether `text` may name a task or queue: 1-128 of letters, digits and `. _ - : /`."""
    return _NAME.fullmatch(text) is not None


def uuid7(unix_ms: int, order: int, chance: int) -> str:
    """Write a UUIDv7: `order` (12 bits) ranks ids of one millisecond, `chance` (62 bits) tells strangers apart."""
    number = (unix_ms & 0xFFFFFFFFFFFF) << 80 | 7 << 76 | (order & 0xFFF) << 64 | 2 << 62 | (chance & (1 << 62) - 1)
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


#: What ids derived from names are derived in: a UUID of our own, as RFC 9562 asks for.
_OURS = bytes.fromhex("6a8c2f0e5d1b4c379e40a7d2c85f1b96")


def uuid5(*parts: str) -> str:
    """Write a UUIDv5: the same parts always give the same id."""
    # Parts of ids and times contain no such character, so that no two lists give one text.
    made = bytearray(hashlib.sha1(_OURS + "\0".join(parts).encode(), usedforsecurity=False).digest()[:16])
    made[6], made[8] = made[6] & 0x0F | 0x50, made[8] & 0x3F | 0x80
    digits = made.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

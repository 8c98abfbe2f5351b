"""`http(s)://`: a coordinator elsewhere. Commands are posted and decided there; look-ups are asked one by one.

Knows no rule. What it sends and reads is `wire` and `lookups`, which the coordinator's `web` room shares. Every command
gets its id before it is sent first, so that a lost answer is repaired by sending the same bytes again (`channel`).
"""

from holdfast.stores.http.store import HttpStore

__all__ = ["HttpStore"]

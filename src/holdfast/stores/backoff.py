"""Pauses before the same is sent again to a store that did not answer: 0.2 s · 2ⁿ, at most 5 s, with jitter."""

from __future__ import annotations

import random

#: The first pause, and the longest, in seconds.
FIRST_S, LONGEST_S = 0.2, 5.0


def jittered(pause_s: float) -> float:
    """Give a pause that differs from that of others who began to wait at the same time."""
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads callers, it protects nothing

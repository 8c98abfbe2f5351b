"""What the store stops knowing, or remembers for a while: keys and the outcomes of commands."""

from __future__ import annotations

import msgspec

from holdfast.model.events.base import Fact
from holdfast.model.times import Timestamp


class KeyDropped(Fact, frozen=True, kw_only=True, tag="key:dropped"):
    """A key whose hold has lapsed is free."""

    namespace: str
    unique_key: str


class CommandDone(Fact, frozen=True, kw_only=True, tag="command:done"):
    """The outcome of `cmd` is remembered, so that a repeat gets the same answer."""

    digest: str
    outcome: msgspec.Raw
    #: From when on its time counts, if not from now on: what was granted is remembered for less long.
    since: Timestamp | None = None


class CommandForgotten(Fact, frozen=True, kw_only=True, tag="command:forgotten"):
    """The outcome of a command is no longer remembered."""

    forgotten: str


MemoryEvent = KeyDropped | CommandDone | CommandForgotten

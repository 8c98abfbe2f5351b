"""What all events have in common: which command caused them, and who sent it."""

from __future__ import annotations

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """What all events have in common."""

    #: Id of the command that caused it.
    cmd: str = ""
    #: Who sent the command; empty for the embedding program itself.
    actor: str = ""

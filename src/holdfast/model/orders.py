"""What all commands have in common."""

from __future__ import annotations

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="command"):
    """What all commands have in common."""

    #: Caller-made id; the same id sent again gives the first outcome.
    cmd: str = ""
    #: Who asks; empty for the embedding program itself.
    actor: str = ""

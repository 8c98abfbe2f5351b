"""What all commands have in common."""

from __future__ import annotations

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="command", gc=False):
    """What all commands have in common."""

    #: Caller-made id; the same id sent again gives the first outcome.
    cmd: str = ""
    #: Who asks; empty for the embedding program itself.
    actor: str = ""


class FlowOrder(Order, frozen=True, kw_only=True):
    """What all commands about instances have in common: one look tells them from those about jobs."""

"""What all commands have in common."""

from __future__ import annotations

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="command", gc=False):
    """What all commands have in common."""

    #: Caller-made id; the same id sent again gives the first outcome.
    cmd: str = ""
    #: Who asks; empty for the embedding program itself.
    actor: str = ""


class KeyedOrder(Order, frozen=True, kw_only=True):
    """What all commands have in common that are made, of what is there, for requests under keys of their callers."""

    #: Digest of what was asked for under a key; empty where no key was given. It tells a repeat from another request.
    request: str = ""


class FlowOrder(Order, frozen=True, kw_only=True):
    """What all commands about instances have in common: one look tells them from those about jobs."""

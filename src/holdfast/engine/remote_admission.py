"""Commands for an authority elsewhere: judged here as far as no state is needed, by the same rules, before they travel.

So a bad one is refused in its place and takes no other with it, large payloads go ahead as blobs, and texts that the
rules would shorten anyway fit into a request. The authority judges all of it again: it trusts nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from holdfast.engine.admission import admitted
from holdfast.model.commands import Command
from holdfast.model.outcomes import Outcome, Refusal
from holdfast.model.payloads import shorten_error
from holdfast.model.workflows.commands import FlowCommand
from holdfast.rules.decide import refusal_of
from holdfast.stores.protocol import Elsewhere
from holdfast.stores.sidecar.protocol import Blobs

#: Texts people and programs write, of any length and with half characters in them.
_TEXTS = ("error", "reason")


def decided_elsewhere(
    authority: Elsewhere, commands: Sequence[Command], blobs: Blobs, attempt_s: float | None
) -> list[Outcome]:
    """Have commands decided there, in order; what no authority would take is refused without asking."""
    judged = [_judged(command, blobs) for command in commands]
    sent = [one for one in judged if not isinstance(one, Refusal)]
    outcomes = iter(authority.decide(sent, attempt_s=attempt_s) if sent else ())
    return [one if isinstance(one, Refusal) else next(outcomes) for one in judged]


def _judged(command: Command, blobs: Blobs) -> Command | Refusal:
    # What the rules must know of items and events is worked out where they are decided: those travel as they are.
    is_flow = isinstance(command, FlowCommand)
    checked = admitted(command, Unkept(blobs) if is_flow else blobs)
    if isinstance(checked, Refusal):
        return checked
    return refusal_of(checked) or _shortened(command if is_flow else checked)


class Unkept:
    """The blobs of a store, to which nothing is added: for judging alone."""

    def __init__(self, blobs: Blobs) -> None:
        self.has, self.get, self.sweep = blobs.has, blobs.get, blobs.sweep

    def put(self, content: bytes) -> str:
        """Give the hash it would have."""
        return sha256(content).hexdigest()


def _shortened(command: Command) -> Command:
    given = {name: text for name in _TEXTS if isinstance(text := getattr(command, name, None), str)}
    kept = {name: shorten_error(text) for name, text in given.items()}
    return command if kept == given else msgspec.structs.replace(command, **kept)

"""Commands sent again: those that leave no id of their own are remembered for an hour, with their first outcome."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from holdfast.errors import IdReused
from holdfast.model.commands import Command
from holdfast.model.events import CommandDone
from holdfast.model.outcomes import Outcome, decode_outcome, encode_outcome, refuse
from holdfast.model.payloads import NULL
from holdfast.model.records import DoneCommand
from holdfast.rules.state import State

#: How long an outcome is remembered, in seconds.
REMEMBER_S = 3600

_encode = msgspec.json.Encoder().encode


class Repeat(NamedTuple):
    """The command was done before; `outcome` is None where the answer is looked up instead of remembered."""

    outcome: Outcome | None


def seen_before(state: State, command: Command) -> Repeat | None:
    """Give what a repeat of `command` is answered, or None if its id is new."""
    done = state.get(DoneCommand, command.cmd)
    if done is None:
        return None
    if done.digest != _digest(command):
        message = f"the command id {command.cmd} was used before, for something else. Nothing was changed."
        return Repeat(refuse(IdReused, message, cmd=command.cmd))
    return Repeat(None if done.outcome == NULL else decode_outcome(done.outcome))


def remember(command: Command, outcome: Outcome | None) -> CommandDone:
    """Give the event that makes a repeat of `command` find its first outcome."""
    kept = NULL if outcome is None else msgspec.Raw(encode_outcome(outcome))
    return CommandDone(cmd=command.cmd, actor=command.actor, digest=_digest(command), outcome=kept)


def _digest(command: Command) -> str:
    reason: str | None = getattr(command, "reason", None)  # who gives a turn back need not say why
    if reason is not None and not reason.isascii():
        # The one free text of an edit: it may hold lone surrogates, which cannot be encoded as they are.
        command = msgspec.structs.replace(command, reason=reason.encode("utf-8", "backslashreplace").decode())
    return hashlib.sha256(_encode(command)).hexdigest()[:32]

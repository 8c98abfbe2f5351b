"""Commands sent again: those that leave no id of their own are remembered for an hour, with their first outcome.

Those that ask for work are remembered for less long: there are as many of them as there is work, and who asks again
after what was granted is over may as well be granted something new.

What was asked for under a key of the caller's own is told by the request: the command is made anew each time, of what
is there then.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, TypeGuard

import msgspec

from holdfast.errors import IdReused
from holdfast.model.command_base import KeyedOrder
from holdfast.model.commands import Command
from holdfast.model.events import CommandDone
from holdfast.model.outcomes import Outcome, Refusal, decode_outcome, encode_outcome, refuse
from holdfast.model.payloads import NULL
from holdfast.model.records import DoneCommand
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.commands import StartInstance, TellInstance
from holdfast.rules.decision import Decision, answer
from holdfast.rules.state import State

#: How long an outcome is remembered, in seconds.
REMEMBER_S = 3600.0
#: The same of what granted something, or as long as that lasts without being extended.
REMEMBER_GRANTS_S = 120.0

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
        # Of a key the caller knows nothing but the key: the id was made from it.
        what = "the key of this request" if _is_keyed(command) else f"the command id {command.cmd}"
        message = f"{what} was used before, for something else. Nothing was changed."
        return Repeat(refuse(IdReused, message, cmd=command.cmd))
    return Repeat(None if done.outcome == NULL else decode_outcome(done.outcome))


def remember(command: Command, outcome: Outcome) -> CommandDone:
    """Give the event that makes a repeat of `command` find its first outcome."""
    kept = msgspec.Raw(encode_outcome(outcome))
    return CommandDone(cmd=command.cmd, actor=command.actor, digest=_digest(command), outcome=kept)


def remember_grants(command: Command, now: Timestamp, longest_s: float) -> CommandDone:
    """Give the event that makes a repeat of `command` find what it was granted, at most for `longest_s` seconds."""
    kept_s = min(REMEMBER_S, max(REMEMBER_GRANTS_S, longest_s))
    since = later(now, kept_s - REMEMBER_S)
    return CommandDone(cmd=command.cmd, actor=command.actor, digest=_digest(command), outcome=NULL, since=since)


def under_key(state: State, command: Command, decision: Decision) -> Decision:
    """Keep the key under which something was made, so that another request under it is refused.

    The same one is answered by what it made, which is found by its id.
    """
    repeat = seen_before(state, command)
    if repeat is not None:
        return decision if repeat.outcome is None else answer(repeat.outcome)
    if isinstance(decision.outcome, Refusal) or any(isinstance(event, CommandDone) for event in decision.events):
        return decision
    kept = CommandDone(cmd=command.cmd, actor=command.actor, digest=_digest(command), outcome=NULL)
    return Decision((*decision.events, kept), decision.outcome)


def _is_keyed(command: Command) -> TypeGuard[KeyedOrder]:
    return isinstance(command, KeyedOrder) and bool(command.request)


def _digest(command: Command) -> str:
    if _is_keyed(command):
        return hashlib.sha256(f"{command.actor}\n{command.request}".encode("utf-8", "backslashreplace")).hexdigest()[
            :32
        ]
    if isinstance(command, StartInstance | TellInstance) and command.signal_mismatches:
        command = msgspec.structs.replace(
            command, signal_mismatches=()
        )  # workers come and go between a command and its repeat
    reason: str | None = getattr(command, "reason", None)  # who gives a turn back need not say why
    if reason is not None and not reason.isascii():
        # The one free text of an edit: it may hold lone surrogates, which cannot be encoded as they are.
        command = msgspec.structs.replace(command, reason=reason.encode("utf-8", "backslashreplace").decode())
    return hashlib.sha256(_encode(command)).hexdigest()[:32]

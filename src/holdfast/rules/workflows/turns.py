"""Turns: who may work on an instance, with which messages, and what a commit of their work is.

A lock is live while `locked_until > now`. It ends by an ack, by being given back, or by an explicit event; from then on
its token is refused. A fetch is a commit: that a message was handed out is durable before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from holdfast.errors import InvalidOperation, InvalidValue, LeaseLost, UnknownLease
from holdfast.model.commands import ClockJump
from holdfast.model.events import Event, MessageParked, TurnAbandoned, TurnExpired, TurnExtended, TurnLocked, TurnTagged
from holdfast.model.ids import Token
from holdfast.model.outcomes import Brought, Delivered, Done, Fetched, Kept, LockedTurn, Refusal, refuse
from holdfast.model.payloads import NULL, shorten_error
from holdfast.model.records import AUTHORITY, Authority
from holdfast.model.times import FOREVER, Timestamp, later, seconds_between
from holdfast.model.workflows.block_reasons import blockage_of
from holdfast.model.workflows.commands import (
    AbandonTurn,
    FetchMore,
    FetchTurn,
    ParkMessages,
    RenewTurn,
    SendMessage,
    VersionRange,
)
from holdfast.model.workflows.instances import Execution, Instance, Message, Turn, execution_key, message_key
from holdfast.rules.decision import Decision, answer
from holdfast.rules.idempotency import remember_grants, seen_before
from holdfast.rules.jobs.leases import UNCOUNTED
from holdfast.rules.jobs.suspects import Company, Verdict
from holdfast.rules.state import Lane, State
from holdfast.rules.workflows.messages import UNREADABLE, Post

#: Messages handed out at a time.
BATCH = 1000


def decide_send(state: State, command: SendMessage, now: Timestamp) -> Decision:
    """Put an item into the queue. It creates no instance."""
    post = Post(state, command, now)
    at = None if command.delay_s is None else later(now, command.delay_s)
    post.send(command.message, at=at, hold_s=command.hold_s)
    return answer(Done(), *post.events)


# --- fetch ------------------------------------------------------------------------------------------------------------


def decide_fetch(state: State, command: FetchTurn, now: Timestamp) -> Decision:
    """Lock the first instances that something came in for, each with what came in."""
    if command.cmd and (repeat := seen_before(state, command)) is not None:
        return answer(repeat.outcome if repeat.outcome is not None else _fetched_before(state, command, now))
    last = (state.get(Authority, AUTHORITY) or Authority()).last_token
    events: list[Event] = []
    turns: list[LockedTurn] = []
    company = Company(command.holds, on_trial=command.on_trial)
    alone_next: str | None = None
    for instance_id in state.candidates(now):
        instance = state.get(Instance, instance_id)
        if command.versions is not None and not _suits(_current(state, instance), command.versions):
            continue
        messages = _batch(state, instance_id, now, begins=instance is None)
        if not messages:
            continue
        lost = max([message.attempts for message in messages])
        verdict = company.judge(lost, _waited_since(state, instance_id, messages, now) if lost else 0.0)
        if verdict is Verdict.STOP:
            alone_next = instance_id
            break
        if verdict is Verdict.SKIP:
            continue
        token = Token(last + len(turns) + 1)
        locked = TurnLocked(
            instance_id=instance_id,
            token=token,
            locked_until=later(now, command.lock_s),
            messages=tuple([message.seq for message in messages]),
            session_id=command.session_id,
            cmd=command.cmd,
            actor=command.actor,
        )
        events.append(locked)
        turns.append(_handed_out(state, instance_id, instance, token, messages))
        if len(turns) == command.n or company.is_closed:
            break
    if command.cmd and turns:
        events.append(remember_grants(command, now, command.lock_s))
    return answer(_fetched(turns, held_back=company.has_skipped, alone_next=alone_next), *events)


def _fetched(turns: Sequence[LockedTurn], *, held_back: bool = False, alone_next: str | None = None) -> Fetched:
    first = turns[0] if turns else None
    return Fetched(turn=first, others=tuple(turns[1:]), held_back=held_back, alone_next=alone_next)


def _waited_since(state: State, instance_id: str, messages: Sequence[Message], now: Timestamp) -> float:
    """Return the seconds since an instance was last tried, or since its newest message was due if that is not known."""
    turn = state.get(Turn, instance_id)
    tried_at = None if turn is None else turn.locked_at or turn.reason_at
    return seconds_between(tried_at or max(message.due_at for message in messages), now)


def _fetched_before(state: State, command: FetchTurn, now: Timestamp) -> Fetched:
    """Give the turns that this very command was answered with, as far as they are still held."""
    turns: list[LockedTurn] = []
    for turn in state.due(Lane.TURN, FOREVER):
        assert isinstance(turn, Turn)
        if turn.cmd == command.cmd and is_live(turn, now) and turn.token is not None:
            found = (state.get(Message, message_key(seq)) for seq in turn.messages)
            messages = [message for message in found if message is not None]
            instance = state.get(Instance, turn.instance_id)
            turns.append(_handed_out(state, turn.instance_id, instance, turn.token, messages))
    return _fetched(turns)


def _current(state: State, instance: Instance | None) -> Execution | None:
    if instance is None:
        return None
    return state.get(Execution, execution_key(instance.instance_id, instance.current_execution_id))


def _batch(state: State, instance_id: str, now: Timestamp, *, begins: bool) -> list[Message]:
    """Give the messages to hand out, in order: of a new instance never without one that begins it."""
    # A clock that was set back makes a message wait again that could be delivered before.
    found = state.visible(instance_id, now)
    waiting: Iterator[Message] = (one for one in found if not one.visible_at or one.visible_at <= now)
    turn = state.get(Turn, instance_id)
    if turn is not None and blockage_of(turn.reason) is not None:
        waiting = _in_order(state, instance_id, now)
    messages = list(islice(waiting, BATCH))
    if not begins or any(message.is_start for message in messages):
        return messages
    start = next((message for message in waiting if message.is_start), None)
    return [] if start is None else [*messages[: BATCH - 1], start]


def _in_order(state: State, instance_id: str, now: Timestamp) -> Iterator[Message]:
    """Walk the messages of a blocked instance whose time it is: those given back wait, but none overtakes them."""
    mail = [message for message in state.mail(instance_id) if message.parked is None]
    due = [one for one in mail if not one.visible_at or one.visible_at <= now or one.due_at < one.visible_at]
    return iter(sorted(due, key=lambda message: (message.due_at, message.seq)))


def _handed_out(
    state: State, instance_id: str, instance: Instance | None, token: Token, messages: Sequence[Message]
) -> LockedTurn:
    execution = _current(state, instance)
    keys = () if instance is None else state.keys(instance_id)
    return LockedTurn(
        instance_id=instance_id,
        token=token,
        messages=tuple([Delivered(message.seq, message.item) for message in messages]),
        attempts=max([message.attempts for message in messages], default=0) + 1,
        orchestration_name=None if instance is None else instance.orchestration_name,
        orchestration_version=None if instance is None else instance.orchestration_version,
        execution_id=1 if instance is None else instance.current_execution_id,
        history_id=None if execution is None else execution.history_id,
        last_event_id=0 if execution is None else execution.last_event_id,
        since=min([message.stored_at for message in messages], default=None),
        keys=tuple([Kept(kv.key, kv.value, kv.at_ms) for kv in keys if kv.value != NULL]),
        digest=None if instance is None else instance.digest,
    )


def _suits(execution: Execution | None, versions: Sequence[VersionRange]) -> bool:
    """Tell whether a runtime of these versions may work on an execution. What is pinned to none suits all of them."""
    if not versions:
        return False
    if execution is None or execution.pinned_engine_version is None:
        return True
    pinned = version_of(execution.pinned_engine_version)
    return pinned is not None and any(wanted.low <= pinned <= wanted.high for wanted in versions)


@lru_cache(64)
def version_of(text: str) -> tuple[int, ...] | None:
    """Read a version of three numbers; None if it is none. What follows a `-` or `+` does not count."""
    parts = text.partition("+")[0].partition("-")[0].split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return None
    return tuple(int(part) for part in parts)


def decide_more(state: State, command: FetchMore, now: Timestamp) -> Decision:
    """Hand out what came in since the lock was taken."""
    turn = live(state, command.token, now)
    if isinstance(turn, Refusal):
        return answer(turn)
    having = set(turn.messages if command.having is None else command.having)
    wanted = (
        message
        for message in state.visible(turn.instance_id, now)
        if message.seq not in having and (message.visible_at is None or message.visible_at <= now)
    )
    messages = list(islice(wanted, BATCH))
    brought = Brought(messages=tuple(Delivered(message.seq, message.item) for message in messages))
    fresh = tuple(message.seq for message in messages if message.seq not in turn.messages)
    if not fresh:
        return answer(brought)
    tagged = TurnTagged(
        instance_id=turn.instance_id, token=command.token, messages=fresh, cmd=command.cmd, actor=command.actor
    )
    return answer(brought, tagged)


# --- who holds it -----------------------------------------------------------------------------------------------------


def is_live(turn: Turn, now: Timestamp) -> bool:
    """Tell whether a turn is held at `now`."""
    return turn.locked_until is not None and now < turn.locked_until


def live(state: State, token: Token, now: Timestamp) -> Turn | Refusal:
    """Give the turn that this token holds, or say why it holds none."""
    turn = state.turn_by_token(token)
    if turn is None:
        return unknown(token)
    if not is_live(turn, now):
        return refuse(LeaseLost, "Lock expired", token=token, instance=turn.instance_id)
    return turn


def unknown(token: Token) -> Refusal:
    """Say that a token is not, or no longer, anybody's."""
    return refuse(UnknownLease, "Invalid lock token", token=token)


def decide_renew(state: State, command: RenewTurn, now: Timestamp) -> Decision:
    """Move the end of the lock to now + lock_s; a gain under a sixth of it is not worth a write."""
    turn = live(state, command.token, now)
    if isinstance(turn, Refusal):
        return answer(turn)
    assert turn.locked_until is not None
    until = later(now, command.lock_s)
    if seconds_between(turn.locked_until, until) < command.lock_s / 6:
        return answer(Done())
    extended = TurnExtended(
        instance_id=turn.instance_id,
        token=command.token,
        locked_until=until,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Done(), extended)


def decide_abandon(state: State, command: AbandonTurn, now: Timestamp) -> Decision:
    """Give the instance back: always safe, so it is taken even after expiry."""
    turn = state.turn_by_token(command.token)
    if turn is None:
        return answer(unknown(command.token))
    abandoned = TurnAbandoned(
        instance_id=turn.instance_id,
        token=command.token,
        visible_at=later(now, command.delay_s) if command.delay_s else None,
        counted=not command.given_back,
        reason=None if command.reason is None else shorten_error(command.reason),
        woken=_wakers(state, turn),
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Done(), abandoned)


def decide_park(state: State, command: ParkMessages, now: Timestamp) -> Decision:
    """Set aside what the holder of a turn cannot read: no ack deletes it, and the others are delivered."""
    turn = live(state, command.token, now)
    if isinstance(turn, Refusal):
        return answer(turn)
    strangers = set(command.messages) - set(turn.messages)
    if strangers:
        return answer(refuse(InvalidValue, f"messages: {min(strangers)} is not of this turn.", field="messages"))
    return answer(Done(), *(MessageParked(message=seq, reason=UNREADABLE, cmd=command.cmd) for seq in command.messages))


def demand_free(state: State, instance_id: str, now: Timestamp) -> Refusal | None:
    """Refuse what must not happen while somebody works on an instance."""
    turn = state.get(Turn, instance_id)
    if turn is None or not is_live(turn, now):
        return None
    return refuse(InvalidOperation, f"instance {instance_id!r} is locked", instance=instance_id)


# --- expiry -----------------------------------------------------------------------------------------------------------


def lapsed_turns(state: State, now: Timestamp, jump: ClockJump | None, cmd: str) -> Iterator[Event]:
    """Revoke what time has ended; what lapsed while the clock jumped is not held against the messages."""
    for turn in state.due(Lane.TURN, now):
        assert isinstance(turn, Turn)
        assert turn.locked_until is not None
        jumped = jump is not None and jump.since < turn.locked_until <= jump.until
        yield turn_expiry(state, turn, "clock_jump" if jumped else "timeout", cmd)


def turn_expiry(state: State, turn: Turn, reason: str, cmd: str) -> TurnExpired:
    """Revoke one lock."""
    assert turn.token is not None
    return TurnExpired(
        instance_id=turn.instance_id,
        token=turn.token,
        reason=reason,
        counted=reason not in UNCOUNTED,
        woken=_wakers(state, turn),
        cmd=cmd,
    )


def _wakers(state: State, turn: Turn) -> tuple[int, ...]:
    """Name the timers that were to wake an instance when its lock ends, for want of any message to deliver again.

    They are asked for by no event: their event id is 0.
    """
    instance = None if turn.messages else state.get(Instance, turn.instance_id)
    if instance is None:
        return ()
    return tuple(timer.seq for timer in state.timers(turn.instance_id, instance.current_execution_id, 0))

"""Decide about workflow instances: the list of their verbs, and what time does to them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import assert_never

from holdfast.model.commands import ClockJump, EndSession, EndSessions, Expire, Prune
from holdfast.model.events import Event, TurnExpired
from holdfast.model.outcomes import Refusal, Swept
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import (
    AbandonActivity,
    AbandonTurn,
    AckActivity,
    AckTurn,
    AnnounceHandlers,
    AnswerDecision,
    AppendHistory,
    CleanSessions,
    DeleteEnded,
    DeleteInstances,
    FailInstance,
    FetchActivity,
    FetchMore,
    FetchTurn,
    FlowCommand,
    ForkInstance,
    ImportInstance,
    ParkMessages,
    PruneExecutions,
    RenewActivity,
    RenewSessions,
    RenewTurn,
    ResetInstance,
    SendMessage,
    StartActivity,
    StartInstance,
    TellInstance,
)
from holdfast.model.workflows.instances import Instance
from holdfast.rules.decision import Decision, answer
from holdfast.rules.idempotency import remember, seen_before
from holdfast.rules.jobs.retention import LOOKED_AT, Limits
from holdfast.rules.random_source import Draws
from holdfast.rules.state import Lane, State
from holdfast.rules.workflows import activities, commit, instances, terminate, turns
from holdfast.rules.workflows import messages as mail
from holdfast.rules.workflows import rewind as rewinding
from holdfast.rules.workflows import sessions as affinity
from holdfast.rules.workflows import start as starts


def decide_flow(state: State, command: FlowCommand, now: Timestamp, draws: Draws, jump: ClockJump | None) -> Decision:
    """Decide a command about instances, or answer its repeat as the first time."""
    if not command.cmd or isinstance(command, FetchTurn | FetchActivity):  # a repeated fetch gives what is still held
        return _decide(state, command, now, draws, jump)
    if (repeat := seen_before(state, command)) is not None and repeat.outcome is not None:
        return answer(repeat.outcome)
    decision = _decide(state, command, now, draws, jump)
    if isinstance(decision.outcome, Refusal):
        return decision
    return Decision((*decision.events, remember(command, decision.outcome)), decision.outcome)


def _decide(
    state: State,
    command: FlowCommand,
    now: Timestamp,
    draws: Draws,
    jump: ClockJump | None,
) -> Decision:
    match command:
        case SendMessage():
            return turns.decide_send(state, command, now)
        case FetchTurn():
            return turns.decide_fetch(state, command, now)
        case FetchMore():
            return turns.decide_more(state, command, now)
        case AckTurn():
            return commit.decide_ack(state, command, now)
        case AbandonTurn():
            return turns.decide_abandon(state, command, now)
        case RenewTurn():
            return turns.decide_renew(state, command, now)
        case ParkMessages():
            return turns.decide_park(state, command, now)
        case AppendHistory():
            return commit.decide_append(state, command, now)
        case StartActivity():
            return activities.decide_start(state, command, now)
        case FetchActivity():
            return activities.decide_fetch_activity(state, command, now, draws)
        case AckActivity():
            return activities.decide_ack_activity(state, command, now, draws, jump)
        case AbandonActivity():
            return activities.decide_abandon_activity(state, command, now, draws)
        case RenewActivity():
            return activities.decide_renew_activity(state, command, now, draws, jump)
        case RenewSessions():
            return affinity.decide_renew_sessions(state, command, now)
        case CleanSessions():
            return affinity.decide_clean_sessions(state, command, now)
        case DeleteInstances():
            return instances.decide_delete(state, command)
        case DeleteEnded():
            return instances.decide_delete_ended(state, command)
        case PruneExecutions():
            return instances.decide_prune_executions(state, command)
        case AnnounceHandlers():
            return instances.decide_announce(state, command)
        case AnswerDecision():
            return instances.decide_answer(state, command, now)
        case StartInstance():
            return starts.decide_start(state, command, now)
        case TellInstance():
            return starts.decide_tell(state, command, now)
        case ResetInstance():
            return rewinding.decide_reset(state, command, now)
        case ForkInstance():
            return rewinding.decide_fork(state, command, now)
        case FailInstance():
            return terminate.decide_fail(state, command, now)
        case ImportInstance():
            return terminate.decide_import(state, command)
        case _:
            assert_never(command)


# --- what time does ---------------------------------------------------------------------------------------------------


def with_lapsed_turns(decision: Decision, state: State, command: Expire, now: Timestamp) -> Decision:
    """Add to a sweep the locks that time has ended, up to its limit."""
    return _with(decision, _lapsed(state, command, now), command.limit)


def _lapsed(state: State, command: Expire, now: Timestamp) -> Iterator[Event]:
    """Revoke the locks whose seconds have passed by a monotonic clock, then those that the wall clock has ended."""
    late: set[str] = set()
    for token in command.overdue_turns:
        turn = state.turn_by_token(token)
        if turn is not None and turn.locked_until is not None and turn.instance_id not in late:
            late.add(turn.instance_id)
            yield turns.turn_expiry(state, turn, "timeout", command.cmd)
    for event in turns.lapsed_turns(state, now, command.jump, command.cmd):
        if not isinstance(event, TurnExpired) or event.instance_id not in late:
            yield event
    yield from affinity.overdue_sessions(state, command.overdue_sessions, now, command.cmd)


def with_turns_of_the_dead(decision: Decision, state: State, command: EndSessions | EndSession) -> Decision:
    """Add to a sweep the locks of openings whose processes are provably gone."""
    others = isinstance(command, EndSessions)
    gone = (turn for turn in state.local_turns() if (turn.session_id == command.session_id) is not others)
    unbegun = frozenset(command.unbegun)
    ended = (
        turns.turn_expiry(state, turn, "not_begun" if turn.token in unbegun else "restart", command.cmd)
        for turn in gone
    )
    return _with(decision, ended, command.limit)


def with_old_flows(decision: Decision, state: State, command: Prune, now: Timestamp) -> Decision:
    """Add to a sweep the parked messages that nobody will come for, and the trees that have been over for long."""
    decision = _with(decision, mail.orphans(state, now, command.cmd), command.limit)
    swept = decision.outcome
    if not isinstance(swept, Swept) or swept.more:
        return decision
    lanes = Limits(state, command.retention, now).lanes
    events: list[Event] = []
    for lane in (Lane.LEAVING, Lane.AGING):
        old = (found for found in islice(state.due(lane, lanes[lane]), LOOKED_AT) if isinstance(found, Instance))
        for tree in instances.trees_at_rest(state, old):
            if swept.count + len(events) >= command.limit:
                return answer(Swept(count=swept.count + len(events), more=True), *decision.events, *events)
            events += instances.deletion(state, tree, command.cmd).events
    return answer(Swept(count=swept.count + len(events)), *decision.events, *events)


def _with(decision: Decision, found: Iterator[Event], limit: int) -> Decision:
    swept = decision.outcome
    if not isinstance(swept, Swept) or swept.more:
        return decision
    added = list(islice(found, limit - swept.count + 1))
    more = len(added) > limit - swept.count
    kept = added[: limit - swept.count]
    return answer(Swept(count=swept.count + len(kept), more=more), *decision.events, *kept)

"""Decide: one command, one look at the state, one answer. The list of verbs.

Values are checked first, then repeats of commands that leave no id of their own, then the verb's own rule.
"""

from __future__ import annotations

from typing import assert_never

from holdfast.model.commands import (
    Bury,
    Cancel,
    ClockJump,
    Command,
    Complete,
    EndSession,
    EndSessions,
    Enqueue,
    Expire,
    Extend,
    Fail,
    GiveUp,
    Lease,
    Move,
    Normalize,
    PauseDispatch,
    PauseQueue,
    Prune,
    Release,
    ResumeDispatch,
    ResumeQueue,
    Retry,
    SetQueue,
    Snooze,
    Update,
)
from holdfast.model.outcomes import Refusal
from holdfast.model.times import Timestamp
from holdfast.rules import edits
from holdfast.rules.decision import Decision, answer
from holdfast.rules.draws import Draws
from holdfast.rules.enqueue import decide_enqueue
from holdfast.rules.leases import decide_end_sessions, decide_expire, decide_extend, decide_lease, decide_release
from holdfast.rules.limits import decide_set_queue
from holdfast.rules.repeats import remember, seen_before
from holdfast.rules.retention import decide_prune
from holdfast.rules.retry import decide_retry
from holdfast.rules.settle import decide_report
from holdfast.rules.state import State
from holdfast.rules.values import problem_with

#: Commands whose effect cannot be found again by an id they make.
Edit = Bury | Cancel | Move | Normalize | PauseDispatch | PauseQueue | ResumeDispatch | ResumeQueue | SetQueue | Update


def decide(state: State, command: Command, now: Timestamp, draws: Draws, jump: ClockJump | None = None) -> Decision:
    """Give the events `command` causes at `now`, and its answer. `jump` is the last step of the clock forward."""
    refusal = problem_with(command)
    if refusal is not None:
        return answer(refusal)
    match command:
        case Enqueue():
            return decide_enqueue(state, command, now)
        case Lease():
            return decide_lease(state, command, now, draws)
        case Extend():
            return decide_extend(state, command, now, draws, jump)
        case Complete() | Fail() | Snooze() | GiveUp():
            return decide_report(state, command, now, draws, jump)
        case Release():
            return decide_release(state, command, now, draws)
        case Retry():
            return decide_retry(state, command, now)
        case Expire():
            return decide_expire(state, command, now, draws)
        case EndSessions() | EndSession():
            return decide_end_sessions(state, command, now, draws)
        case Prune():
            return decide_prune(state, command, now)
        case _:
            return _once(state, command)


def _once(state: State, command: Edit) -> Decision:
    """Decide an edit, or answer its repeat as the first time."""
    if command.cmd and (repeat := seen_before(state, command)) is not None and repeat.outcome is not None:
        return answer(repeat.outcome)
    decision = _edit(state, command)
    if not command.cmd or isinstance(decision.outcome, Refusal):
        return decision
    return Decision((*decision.events, remember(command, decision.outcome)), decision.outcome)


def _edit(state: State, command: Edit) -> Decision:
    match command:
        case Cancel():
            return edits.decide_cancel(state, command)
        case Bury():
            return edits.decide_bury(state, command)
        case Update():
            return edits.decide_update(state, command)
        case Move():
            return edits.decide_move(state, command)
        case Normalize():
            return edits.decide_normalize(state, command)
        case PauseQueue() | ResumeQueue():
            return edits.decide_pause(state, command)
        case SetQueue():
            return decide_set_queue(state, command)
        case PauseDispatch() | ResumeDispatch():
            return edits.decide_dispatch(state, command)
        case _:
            assert_never(command)

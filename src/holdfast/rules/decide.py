"""Decide: one command, one look at the state, one answer. The list of verbs.

Values are checked first, then repeats of commands that leave no id of their own, then the verb's own rule.
"""

from __future__ import annotations

from typing import assert_never

from holdfast.model.command_base import FlowOrder
from holdfast.model.commands import (
    ArchiveTemplate,
    Backfill,
    Bury,
    Cancel,
    CancelGroup,
    ClaimDeliveries,
    ClockJump,
    Command,
    Complete,
    CreateGroup,
    DeleteSchedule,
    DeleteTemplate,
    DeleteWebhook,
    DropRuns,
    EndDelivery,
    EndSession,
    EndSessions,
    Enqueue,
    Expire,
    Extend,
    Fail,
    Fire,
    GiveUp,
    Lease,
    Mend,
    MendGroups,
    Move,
    Normalize,
    PauseDispatch,
    PauseQueue,
    PauseSchedule,
    ProbeWebhook,
    Prune,
    PutSchedule,
    PutTemplate,
    PutWebhook,
    Redeliver,
    Release,
    ReleaseReservation,
    RenewReservation,
    Replan,
    Reserve,
    ResetSchedule,
    ResumeDispatch,
    ResumeQueue,
    ResumeSchedule,
    Retry,
    RotateSecret,
    SetQueue,
    Snooze,
    StartDirect,
    Trigger,
    Update,
    UpdateSchedule,
    UpdateWebhook,
    UseTemplate,
)
from holdfast.model.outcomes import Refusal
from holdfast.model.times import Timestamp
from holdfast.rules.consequences import follow
from holdfast.rules.decision import Decision, answer
from holdfast.rules.groups.commands import decide_cancel_group, decide_create_group
from holdfast.rules.groups.effects import decide_mend
from holdfast.rules.idempotency import remember, seen_before, under_key
from holdfast.rules.jobs import edits, recovery
from holdfast.rules.jobs.complete import decide_report
from holdfast.rules.jobs.enqueue import decide_enqueue
from holdfast.rules.jobs.leases import decide_end_sessions, decide_expire, decide_extend, decide_lease, decide_release
from holdfast.rules.jobs.limits import decide_set_queue
from holdfast.rules.jobs.retention import decide_prune
from holdfast.rules.jobs.retry import decide_retry
from holdfast.rules.random_source import Draws
from holdfast.rules.reservations.commands import decide_release_reservation, decide_renew, decide_reserve
from holdfast.rules.reservations.direct import decide_start_direct
from holdfast.rules.schedules import commands as schedules
from holdfast.rules.schedules import templates
from holdfast.rules.schedules.fire import decide_backfill, decide_fire, decide_trigger
from holdfast.rules.state import State
from holdfast.rules.validation import problem_with
from holdfast.rules.webhooks import commands as webhooks
from holdfast.rules.webhooks import deliveries
from holdfast.rules.workflows.decide import decide_flow, with_lapsed_turns, with_old_flows, with_turns_of_the_dead
from holdfast.rules.workflows.validation import flow_problem_with

#: Commands whose effect is found again by the ids they make, and that are remembered only under a caller's key: there
#: are as many of them as there is work.
Making = Enqueue | Retry | UseTemplate | Trigger | Backfill
#: Commands whose effect cannot be found again by an id they make: of jobs and queues, of templates and schedules, of
#: webhooks.
Edit = (
    Bury
    | Cancel
    | CancelGroup
    | Move
    | Normalize
    | PauseDispatch
    | PauseQueue
    | ResumeDispatch
    | ResumeQueue
    | SetQueue
    | Update
)
Plan = (
    PutTemplate
    | ArchiveTemplate
    | DeleteTemplate
    | PutSchedule
    | UpdateSchedule
    | PauseSchedule
    | ResumeSchedule
    | ResetSchedule
    | DeleteSchedule
)
Telling = PutWebhook | UpdateWebhook | RotateSecret | DeleteWebhook | EndDelivery | Redeliver


def refusal_of(command: Command) -> Refusal | None:
    """Give the refusal of a command with a value that no state makes right, or None."""
    return flow_problem_with(command) if isinstance(command, FlowOrder) else problem_with(command)


def decide(state: State, command: Command, now: Timestamp, draws: Draws, jump: ClockJump | None = None) -> Decision:
    """Give the events `command` causes at `now`, and its answer. `jump` is the last step of the clock forward."""
    refusal = refusal_of(command)
    if refusal is not None:
        return answer(refusal)
    if isinstance(command, FlowOrder):
        decision = decide_flow(state, command, now, draws, jump)
    else:
        decision = _decide(state, command, now, draws, jump)
        if isinstance(command, Making) and command.request and command.cmd:
            decision = under_key(state, command, decision)
    return follow(state, decision, now, draws) if decision.events else decision


def _decide(state: State, command: Command, now: Timestamp, draws: Draws, jump: ClockJump | None) -> Decision:
    match command:
        case Enqueue():
            return decide_enqueue(state, command, now)
        case CreateGroup():
            return decide_create_group(state, command, now)
        case Mend():
            return recovery.decide_mend(state, command, now, draws)
        case DropRuns():
            return recovery.decide_drop_runs(state, command)
        case MendGroups():
            return decide_mend(state, command, now, draws)
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
        case Reserve():
            return decide_reserve(state, command, now)
        case RenewReservation():
            return decide_renew(state, command, now)
        case ReleaseReservation():
            return decide_release_reservation(state, command, now)
        case StartDirect():
            return decide_start_direct(state, command, now, draws)
        case Expire():
            return with_lapsed_turns(decide_expire(state, command, now, draws), state, command, now)
        case EndSessions() | EndSession():
            return with_turns_of_the_dead(decide_end_sessions(state, command, now, draws), state, command)
        case Prune():
            return with_old_flows(decide_prune(state, command, now), state, command, now)
        case Fire():
            return decide_fire(state, command, now, draws)
        case Trigger():
            return decide_trigger(state, command, now)
        case Backfill():
            return decide_backfill(state, command, now)
        case UseTemplate():
            return templates.decide_use(state, command, now)
        case Replan():
            return schedules.decide_replan(state, command, now, draws)
        case ProbeWebhook():
            return deliveries.decide_probe(state, command, now)
        case ClaimDeliveries():
            return deliveries.decide_claim(state, command, now)
        case _:
            assert not isinstance(command, FlowOrder)
            return _once(state, command, now, draws)


def _once(state: State, command: Edit | Plan | Telling, now: Timestamp, draws: Draws) -> Decision:
    """Decide an edit, or answer its repeat as the first time."""
    if command.cmd and (repeat := seen_before(state, command)) is not None and repeat.outcome is not None:
        return answer(repeat.outcome)
    if isinstance(command, Plan):
        decision = _plan(state, command, now, draws)
    elif isinstance(command, Telling):
        decision = _tell(state, command, now)
    else:
        decision = _edit(state, command)
    if not command.cmd or isinstance(decision.outcome, Refusal):
        return decision
    return Decision((*decision.events, remember(command, decision.outcome)), decision.outcome)


def _edit(state: State, command: Edit) -> Decision:
    match command:
        case Cancel():
            return edits.decide_cancel(state, command)
        case CancelGroup():
            return decide_cancel_group(state, command)
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


def _plan(state: State, command: Plan, now: Timestamp, draws: Draws) -> Decision:
    match command:
        case PutTemplate():
            return templates.decide_put_template(state, command, now)
        case ArchiveTemplate():
            return templates.decide_archive(state, command)
        case DeleteTemplate():
            return templates.decide_delete_template(state, command)
        case PutSchedule():
            return schedules.decide_put_schedule(state, command, now, draws)
        case UpdateSchedule():
            return schedules.decide_update_schedule(state, command, now, draws)
        case PauseSchedule():
            return schedules.decide_pause_schedule(state, command)
        case ResumeSchedule():
            return schedules.decide_resume_schedule(state, command, now, draws)
        case ResetSchedule():
            return schedules.decide_reset(state, command, now, draws)
        case DeleteSchedule():
            return schedules.decide_delete_schedule(state, command)
        case _:
            assert_never(command)


def _tell(state: State, command: Telling, now: Timestamp) -> Decision:
    match command:
        case PutWebhook():
            return webhooks.decide_put_webhook(state, command, now)
        case UpdateWebhook():
            return webhooks.decide_update_webhook(state, command)
        case RotateSecret():
            return webhooks.decide_rotate(state, command)
        case DeleteWebhook():
            return webhooks.decide_delete_webhook(state, command)
        case EndDelivery():
            return deliveries.decide_end_delivery(state, command, now)
        case Redeliver():
            return deliveries.decide_redeliver(state, command, now)
        case _:
            assert_never(command)

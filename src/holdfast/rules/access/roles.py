"""What a role may do: which commands it may send. Whatever is not allowed here is forbidden.

Knows no HTTP, no token and no file. Commands that time itself gives are the authority's own: no role has them. What a
role may see is said by `visibility`, what of all there is a command may be about by `command_scope`.
"""

from __future__ import annotations

from holdfast.model.access import Access, Role
from holdfast.model.commands import (
    Bury,
    Cancel,
    CancelGroup,
    ClaimDeliveries,
    Command,
    Complete,
    CreateGroup,
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
    Redeliver,
    Release,
    ReleaseReservation,
    Replan,
    ResumeDispatch,
    ResumeQueue,
    ResumeSchedule,
    Retry,
    SetQueue,
    Snooze,
    Trigger,
    Update,
)
from holdfast.model.groups import Group
from holdfast.model.jobs import Job
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.model.workflows.commands import (
    AbandonActivity,
    AbandonTurn,
    AckActivity,
    AckTurn,
    AnnounceHandlers,
    AnswerDecision,
    FetchActivity,
    FetchMore,
    FetchTurn,
    ParkMessages,
    RenewActivity,
    RenewSessions,
    RenewTurn,
    StartInstance,
    TellInstance,
)
from holdfast.rules.access.instance_commands import claims_too_much, may_say

_OWN = (
    Expire, EndSession, EndSessions, Mend, MendGroups, DropRuns, Fire, Replan, ClaimDeliveries, EndDelivery,
)  # fmt: skip
_SENDS: dict[Role, tuple[type, ...]] = {
    Role.READER: (),
    Role.CLIENT: (Enqueue, CreateGroup, StartInstance, TellInstance),
    Role.WORKER: (
        Lease, Extend, Complete, Fail, Snooze, GiveUp, Release,
        FetchTurn, FetchMore, AckTurn, AbandonTurn, RenewTurn, ParkMessages,
        FetchActivity, AckActivity, AbandonActivity, RenewActivity, RenewSessions, AnnounceHandlers,
    ),
    Role.OPERATOR: (
        Retry, Cancel, CancelGroup, Move, Normalize, Update, Bury, PauseQueue, ResumeQueue, SetQueue,
        PauseDispatch, ResumeDispatch, PauseSchedule, ResumeSchedule, Trigger, AnswerDecision, Redeliver,
        ReleaseReservation, TellInstance,
    ),
}  # fmt: skip
_READS = frozenset({Role.READER, Role.OPERATOR, Role.ADMIN})
#: The namespace all workflows belong to.
FLOWS = ""


def may_send(access: Access, command: Command) -> bool:
    """Tell whether a role of theirs has this kind of command."""
    if isinstance(command, _OWN):
        return False
    if isinstance(command, TellInstance):
        return may_say(access, command)
    if Role.ADMIN not in access.roles and claims_too_much(command):
        return False
    return Role.ADMIN in access.roles or any(isinstance(command, _SENDS.get(role, ())) for role in access.roles)


#: Fields of commands that name something, and what that is.
KINDS: tuple[tuple[str, type[Job | Group | Template | Schedule | Reservation | Webhook | Delivery]], ...] = (
    ("job_id", Job),
    ("group_id", Group),
    ("template_id", Template),
    ("schedule_id", Schedule),
    ("reservation_id", Reservation),
    ("webhook_id", Webhook),
    ("delivery_id", Delivery),
)


def may_read(access: Access) -> bool:
    """Tell whether they may read everything, within their namespaces."""
    return bool(_READS & set(access.roles))


def may_read_all(access: Access) -> bool:
    """Tell whether they may read what knows no namespace: the feed, the roster, lines of runs."""
    return access.namespaces is None and may_read(access)


def may_work(access: Access) -> bool:
    """Tell whether they may speak as a worker: sign in, say lines, put blobs."""
    return bool({Role.WORKER, Role.ADMIN} & set(access.roles))


def may_fetch_content(access: Access) -> bool:
    """Tell whether they may get blobs, which are found only by who knows their hash."""
    return bool(access.roles)


def may_keep_content(access: Access) -> bool:
    """Tell whether they may put blobs: who sends something that may have to lie there."""
    return bool({Role.CLIENT, Role.WORKER, Role.OPERATOR, Role.ADMIN} & set(access.roles))


def may_direct(access: Access) -> bool:
    """Tell whether they may ask workers, who work for any namespace, to be quiet or to stop."""
    return access.namespaces is None and bool({Role.OPERATOR, Role.ADMIN} & set(access.roles))


def roles_for(kind: type | None) -> list[Role]:
    """Give the roles that may send this kind of command; None: that may read."""
    if kind is None:
        return [role for role in Role if role in _READS]
    return [role for role in Role if role is Role.ADMIN or kind in _SENDS.get(role, ())]


def what_it_takes(access: Access, kind: type | None) -> str:
    """Say what somebody lacks who may not send this kind of command; None: who may not read."""
    roles = roles_for(kind)
    if kind in _OWN or set(roles) & set(access.roles):  # then the role is not what is missing
        return "It may do so in its own namespaces only." if access.namespaces is not None else ""
    return f"That takes an access token with the role {' or '.join(roles)}."

"""What a role may do: which commands it may send, and what of. Whatever is not allowed here is forbidden.

Knows no HTTP, no token and no file. Commands that time itself gives are the authority's own: no role has them. What a
role may see is said by `seeing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    NewJob,
    Normalize,
    PauseDispatch,
    PauseQueue,
    PauseSchedule,
    PutSchedule,
    PutTemplate,
    PutWebhook,
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
    StartDirect,
    Trigger,
    Update,
    UpdateSchedule,
)
from holdfast.model.flowcommands import (
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
from holdfast.model.groups import Group
from holdfast.model.jobs import Job
from holdfast.model.orders import FlowOrder
from holdfast.model.records import HeldKey
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import NewSchedule, Schedule
from holdfast.model.templates import NewTemplate, Template
from holdfast.model.webhooks import Delivery, NewWebhook, Webhook
from holdfast.rules.keys import key_of
from holdfast.rules.saying import has_activity, may_say
from holdfast.rules.state import State

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
    if Role.ADMIN not in access.roles and has_activity(command):
        return False
    return Role.ADMIN in access.roles or any(isinstance(command, _SENDS.get(role, ())) for role in access.roles)


def reaches_all(access: Access, commands: Iterable[Command]) -> bool:
    """Tell whether they reach whatever these concern, so that nothing has to be looked up to know it."""
    return access.namespaces is None and (
        Role.ADMIN in access.roles or not any(_is_taking(command) for command in commands)
    )


def may_reach(access: Access, command: Command, state: State) -> bool:
    """Tell whether all that the command concerns lies in their namespaces, and is not taken from somebody else."""
    if Role.ADMIN not in access.roles and _is_taking(command):
        found = (state.get(Job, job_id) for job_id in _taken(command, state))
        if any(job is not None and job.submitted_by != access.name for job in found):
            return False
    if access.namespaces is None:
        return True
    concerned = _namespaces(command, state)
    return concerned is not None and all(name in access.namespaces for name in concerned)


def _is_taking(command: Command) -> bool:
    """Tell whether a command of somebody who submits may take jobs that are there already."""
    if isinstance(command, Enqueue):
        return any(_is_replacing(job) for job in command.jobs)
    return isinstance(command, CreateGroup) and any(
        isinstance(member, str) or _is_replacing(member) for member in command.members
    )


def _taken(command: Command, state: State) -> Iterator[str]:
    """Walk the ids of jobs that it takes: into a group, where they wait for each other, or to put new ones there."""
    made = command.jobs if isinstance(command, Enqueue) else command.members if isinstance(command, CreateGroup) else ()
    for one in made:
        if isinstance(one, str):
            yield one
        elif _is_replacing(one) and (held := state.get(HeldKey, key_of(one))) is not None:
            yield held.job_id


def _is_replacing(job: NewJob) -> bool:
    return job.key is not None and job.on_conflict == "replace"


def _namespaces(command: Command, state: State) -> Iterable[str] | None:
    """Give the namespaces a command concerns; None if nobody can tell, for then it is forbidden.

    What it names and is not there concerns none: it is not found, by the rules themselves, or made where it says.
    """
    if isinstance(command, Enqueue):
        return [job.namespace for job in command.jobs]
    if isinstance(command, FlowOrder):
        return [FLOWS]
    said = [new.namespace for new in _made_by(command)]
    named = getattr(command, "namespace", None)
    if isinstance(named, str):
        said.append(named)
    keys = [(kind, key) for field, kind in KINDS if isinstance(key := getattr(command, field, None), str)]
    if isinstance(command, CreateGroup):
        keys += [(Job, member) for member in command.members if isinstance(member, str)]
    if isinstance(command, PutSchedule | UpdateSchedule):
        template = (command.schedule if isinstance(command, PutSchedule) else command.changes).template_id
        keys += [(Template, template)] if isinstance(template, str) else []
    if not said and not keys:
        return None
    found = [state.get(kind, key) for kind, key in keys]
    return [*said, *(record.namespace for record in found if record is not None)]


def _made_by(command: Command) -> Iterator[NewJob | NewTemplate | NewSchedule | NewWebhook]:
    """Walk what a command asks to be made, all that says where it belongs."""
    match command:
        case CreateGroup(members=members, callback=callback):
            yield from (one for one in (*members, callback) if isinstance(one, NewJob))
        case StartDirect(job=new):
            yield new
        case PutTemplate(template=template):
            yield template
        case PutSchedule(schedule=schedule):
            yield schedule
        case PutWebhook(webhook=webhook):
            yield webhook
        case _:
            return


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


def may_keep_content(access: Access) -> bool:
    """Tell whether they may put and get blobs, which are found only by who knows their hash."""
    return bool({Role.CLIENT, Role.WORKER, Role.OPERATOR, Role.ADMIN, Role.READER} & set(access.roles))


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

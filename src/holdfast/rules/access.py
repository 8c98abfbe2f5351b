"""What a role may do: which commands it may send, and what it may see. Whatever is not allowed here is forbidden.

Knows no HTTP, no token and no file. Commands that time itself gives are the authority's own: no role has them.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from holdfast.model.jobs import Job
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
        ReleaseReservation,
    ),
}  # fmt: skip
#: What a worker must see to do its work: when something is due, whether its jobs are still its own, and histories.
_WORKER_SEES = frozenset(
    {
        "ready", "next_due", "get", "starts", "reservation", "direct", "running", "running_with", "running_of",
        "candidates", "history", "keys", "executions", "visible", "turn_by_token", "owned_queues", "stuck_turns",
    }
)  # fmt: skip
#: What concerns no namespace: times, and nothing of what they belong to.
_TIMES = frozenset({"next_due"})


def may_send(access: Access, command: Command) -> bool:
    """Tell whether a role of theirs has this kind of command."""
    if isinstance(command, _OWN):
        return False
    return Role.ADMIN in access.roles or any(isinstance(command, _SENDS.get(role, ())) for role in access.roles)


def may_reach(access: Access, command: Command, state: State) -> bool:
    """Tell whether all that the command concerns lies in their namespaces."""
    if access.namespaces is None:
        return True
    concerned = _namespaces(command, state)
    return concerned is not None and all(name in access.namespaces for name in concerned)


def _namespaces(command: Command, state: State) -> Iterable[str] | None:
    """Give the namespaces a command concerns; None if nobody can tell, for then it is forbidden."""
    if isinstance(command, Enqueue):
        return [job.namespace for job in command.jobs]
    if isinstance(command, CreateGroup):
        new = [job for job in (*command.members, command.callback) if isinstance(job, NewJob)]
        old = [state.get(Job, member) for member in command.members if isinstance(member, str)]
        return [command.namespace, *(job.namespace for job in (*new, *old) if job is not None)]
    named = getattr(command, "namespace", None)
    if isinstance(named, str):
        return [named]
    job_id = getattr(command, "job_id", None)
    if isinstance(job_id, str):
        job = state.get(Job, job_id)
        return [] if job is None else [job.namespace]  # what is not there is not found, by the rules themselves
    return None


def may_look(access: Access, look: str, given: dict[str, object]) -> bool:
    """Tell whether they may ask this, before anything is looked up; what is found is judged by `may_see`."""
    if access.namespaces is not None and look not in _TIMES and look != "get":
        namespace = given.get("namespace", getattr(given.get("query"), "namespace", None))
        if namespace not in access.namespaces:
            return False
    if {Role.READER, Role.OPERATOR, Role.ADMIN} & set(access.roles):
        return True
    if Role.WORKER in access.roles and look in _WORKER_SEES:
        return True
    return Role.CLIENT in access.roles and look == "get" and given.get("kind") is Job


def may_see(access: Access, record: object) -> bool:
    """Tell whether they may see one record that was asked for by its key."""
    if access.namespaces is not None and getattr(record, "namespace", None) not in access.namespaces:
        return False
    if set(access.roles) == {Role.CLIENT}:
        return isinstance(record, Job) and record.submitted_by == access.name
    return True


def may_read_all(access: Access) -> bool:
    """Tell whether they may read what knows no namespace: the feed, the roster, lines of runs."""
    return access.namespaces is None and bool({Role.READER, Role.OPERATOR, Role.ADMIN} & set(access.roles))


def may_work(access: Access) -> bool:
    """Tell whether they may speak as a worker: sign in, say lines, put blobs."""
    return bool({Role.WORKER, Role.ADMIN} & set(access.roles))


def may_keep_content(access: Access) -> bool:
    """Tell whether they may put and get blobs, which are found only by who knows their hash."""
    return bool({Role.CLIENT, Role.WORKER, Role.OPERATOR, Role.ADMIN, Role.READER} & set(access.roles))


def may_direct(access: Access) -> bool:
    """Tell whether they may ask workers to be quiet or to stop."""
    return bool({Role.OPERATOR, Role.ADMIN} & set(access.roles))


_READS = frozenset({Role.READER, Role.OPERATOR, Role.ADMIN})


def may_list(access: Access, namespace: str | None) -> bool:
    """Tell whether they may list what belongs to a namespace; None for what belongs to none."""
    return bool(_READS & set(access.roles)) and (access.namespaces is None or namespace in access.namespaces)


def may_show(access: Access, record: object) -> bool:
    """Tell whether they may be shown one thing: whoever reads what is there, and whoever submitted the job."""
    if may_list(access, getattr(record, "namespace", None)):
        return True
    is_own = isinstance(record, Job) and record.submitted_by == access.name
    return Role.CLIENT in access.roles and is_own and may_see(access, record)


def roles_for(kind: type | None) -> list[Role]:
    """Give the roles that may send this kind of command; None: that may read."""
    if kind is None:
        return [role for role in Role if role in _READS]
    return [role for role in Role if role is Role.ADMIN or kind in _SENDS.get(role, ())]

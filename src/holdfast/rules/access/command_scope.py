"""What of all there is a command may be about, for who sends it. What they may not see is not there, as for who reads.

A command that says which namespace it is for, and names one that is not theirs, is forbidden whatever is there, as is
one that their role does not have (`roles`). One that names a thing they may not see is answered as the rules answer
when there is no such thing: the rules themselves are asked, about a state without it. Only what they see and may not
touch is forbidden. Ids are the store's, not a namespace's: who would make something under one that is taken is told so.
Judged at the command's turn, by the state it is decided in. Knows no HTTP and no token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import Forbidden
from holdfast.model.access import Access, Role
from holdfast.model.command_base import FlowOrder
from holdfast.model.commands import (
    Command,
    CreateGroup,
    Enqueue,
    Move,
    NewJob,
    PutSchedule,
    PutTemplate,
    PutWebhook,
    Retry,
    StartDirect,
    UpdateSchedule,
)
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.records import HeldKey, Key, Record
from holdfast.model.schedules import NewSchedule
from holdfast.model.templates import NewTemplate, Template
from holdfast.model.webhooks import NewWebhook
from holdfast.rules.access.roles import FLOWS, KINDS, may_send, what_it_takes
from holdfast.rules.access.visibility import home_of, is_within, may_see
from holdfast.rules.decision import Decision
from holdfast.rules.jobs.unique_keys import key_of
from holdfast.rules.state import State

#: A thing by its kind and its key.
Name = tuple[type[Record], Key]


# --- whatever is there ------------------------------------------------------------------------------------------------


def may_ask(access: Access, command: Command) -> bool:
    """Tell whether a role of theirs has this kind of command, for the namespaces that it says itself."""
    return may_send(access, command) and _says_theirs(access, command)


def reaches_all(access: Access, command: Command) -> bool:
    """Tell whether they reach whatever it names, so that nothing has to be looked up to know it."""
    return access.namespaces is None and (Role.ADMIN in access.roles or not _is_taking(command))


def forbidden(access: Access, command: Command) -> Refusal:
    """Refuse what they may not do, whatever is there or although they see it."""
    return refuse(
        Forbidden,
        f"{access.name or 'nobody from outside'} may not send {command.__struct_config__.tag} there. "
        "Nothing was changed.",
        hint=what_it_takes(access, type(command)),
    )


def _says_theirs(access: Access, command: Command) -> bool:
    if access.namespaces is None:
        return True
    said = [FLOWS] if isinstance(command, FlowOrder) else [new.namespace for new in _made_by(command)]
    named = getattr(command, "namespace", None)
    said += [named] if isinstance(named, str) else []
    if not said and not isinstance(command, Enqueue) and next(_names(command), None) is None:
        return False  # nobody can tell where it belongs: it is about everything
    return all(name in access.namespaces for name in said)


def _made_by(command: Command) -> Iterator[NewJob | NewTemplate | NewSchedule | NewWebhook]:
    """Walk what a command asks to be made, all that says where it belongs."""
    match command:
        case Enqueue(jobs=jobs):
            yield from jobs
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


# --- what is there ----------------------------------------------------------------------------------------------------


def out_of_reach(access: Access, command: Command, state: State, decide: Callable[[State], Decision]) -> Refusal | None:
    """Give what they are answered who do not reach what a command names; None: it is theirs to have decided.

    `decide` tells what the rules make of the command in some state. For who may ask for it (`may_ask`).
    """
    hidden: set[Name] = set()
    for kind, key in _names(command):
        thing = state.get(kind, key)
        if thing is None or _may_touch(access, command, thing):
            continue
        if may_see(access, thing, state):
            return forbidden(access, command)
        hidden.add((kind, key))
    if Role.ADMIN not in access.roles and any(job.submitted_by != access.name for job in _replaced(command, state)):
        return forbidden(access, command)
    if not hidden:
        return None
    # As if it were not there. If the command would then be done, it makes something of that id, which is taken.
    for seen in (cast("State", Without(state, hidden)), state):  # it has all that a state has
        outcome = decide(seen).outcome
        if isinstance(outcome, Refusal):
            return outcome
    return forbidden(access, command)


class Without:
    """A state in which some things are not there, for who asks for them by name."""

    def __init__(self, state: State, hidden: Collection[Name]) -> None:
        self._state = state
        self._hidden = hidden

    def get(self, kind: type[Record], key: Key) -> Record | None:
        """Give the record of that key, or None."""
        return None if (kind, key) in self._hidden else self._state.get(kind, key)

    if not TYPE_CHECKING:  # else it would seem to have whatever is misspelt

        def __getattr__(self, look: str) -> Any:
            """Look up whatever else there is."""
            return getattr(self._state, look)


def _names(command: Command) -> Iterator[Name]:
    """Walk what a command names, be it there already or to be made."""
    for field, kind in KINDS:
        if isinstance(key := getattr(command, field, None), str):
            yield kind, key
    match command:
        case Move(before=before, after=after):
            yield from ((Job, goal) for goal in (before, after) if goal is not None)
        case Retry(new_job_id=new_job_id):
            yield Job, new_job_id
        case CreateGroup(members=members):
            yield from ((Job, member) for member in members if isinstance(member, str))
        case PutSchedule(schedule=new) if new.template_id is not None:
            yield Template, new.template_id
        case UpdateSchedule(changes=changes) if isinstance(changes.template_id, str):
            yield Template, changes.template_id


def _may_touch(access: Access, command: Command, thing: Record) -> bool:
    """Tell whether a thing lies in their namespaces, and is not taken into a group from somebody else."""
    if not is_within(access, home_of(thing)):
        return False
    if not isinstance(command, CreateGroup) or not isinstance(thing, Job) or Role.ADMIN in access.roles:
        return True
    return thing.submitted_by == access.name


def _replaced(command: Command, state: State) -> Iterable[Job]:
    """Walk the jobs in whose place a command puts new ones, under their keys."""
    for new in _made_by(command):
        if isinstance(new, NewJob) and _is_replacing(new) and (held := state.get(HeldKey, key_of(new))) is not None:
            job = state.get(Job, held.job_id)
            if job is not None:
                yield job


def _is_taking(command: Command) -> bool:
    """Tell whether a command of somebody who submits may take jobs that are there already."""
    members = command.members if isinstance(command, CreateGroup) else ()
    return any(isinstance(one, str) for one in members) or any(
        isinstance(new, NewJob) and _is_replacing(new) for new in _made_by(command)
    )


def _is_replacing(job: NewJob) -> bool:
    return job.key is not None and job.on_conflict == "replace"

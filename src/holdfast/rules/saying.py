"""Who may say what to an instance: what is said decides, not how it is sent.

Signals are a client's, requests to stop an operator's. What activities, timers and instances tell each other, and
answers to questions, is not for saying: each has a command of its own, which proves the right to it. Nor is a job to be
made whose end would be told to an instance: only its own turn asks for activities.
"""

from __future__ import annotations

import msgspec

from holdfast.model.access import Access, Role
from holdfast.model.commands import Command, CreateGroup, Enqueue, NewJob, StartDirect
from holdfast.model.flowcommands import TellInstance
from holdfast.model.workitems import CancelInstance, ExternalRaised, QueueMessage, decode_item

#: Names of signals begin so that are no signals of users.
_OURS = "@"


def may_say(access: Access, command: TellInstance) -> bool:
    """Tell whether a role of theirs may say this to an instance."""
    if Role.ADMIN in access.roles:
        return True
    try:
        item = decode_item(command.message.item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # It says nothing to anybody: whoever sends it learns, at admission, what is wrong with it.
        return bool({Role.CLIENT, Role.OPERATOR} & set(access.roles))
    match item:
        case QueueMessage(name=name):
            return Role.CLIENT in access.roles and not name.startswith(_OURS)
        case ExternalRaised():
            return Role.CLIENT in access.roles
        case CancelInstance():
            return Role.OPERATOR in access.roles
        case _:
            return False


def has_activity(command: Command) -> bool:
    """Tell whether a command makes a job that an instance would take for an activity of its own."""
    match command:
        case Enqueue(jobs=jobs):
            made: tuple[object, ...] = jobs
        case CreateGroup(members=members, callback=callback):
            made = (*members, callback)
        case StartDirect(job=job):
            made = (job,)
        case _:
            return False
    return any(isinstance(one, NewJob) and one.owner is not None for one in made)

"""Who may say what to an instance: what is said decides, not how it is sent.

Signals are a client's, requests to stop an operator's. What activities, timers and instances tell each other, and
answers to questions, is not for saying: each has a command of its own, which proves the right to it. Nor is a job to be
made whose end would be told to an instance: only its own turn asks for activities.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.model.access import Access, Role
from holdfast.model.commands import Command, CreateGroup, Enqueue, NewJob, StartDirect
from holdfast.model.workflows.commands import AnswerDecision, NewMessage, TellInstance
from holdfast.model.workflows.decisions import OURS
from holdfast.model.workflows.work_items import CancelInstance, ExternalRaised, QueueMessage, decode_item, encode_item

#: An answer, whatever it says.
_said: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
            return Role.CLIENT in access.roles and not name.startswith(OURS)
        case ExternalRaised():
            return Role.CLIENT in access.roles
        case CancelInstance():
            return Role.OPERATOR in access.roles
        case _:
            return False


def signed(command: AnswerDecision, name: str) -> AnswerDecision:
    """Give an answer as that of somebody, whoever it claims to be of: a workflow may go by who has answered it.

    What cannot be read stays as it is, to be refused at admission.
    """
    try:
        item = decode_item(command.message.item)
        if not isinstance(item, QueueMessage):
            return command
        said = _said.decode(item.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return command
    data = msgspec.json.encode({**said, "by": name}).decode()
    message = NewMessage(item=msgspec.Raw(encode_item(msgspec.structs.replace(item, data=data))))
    return msgspec.structs.replace(command, message=message, by=name)


def claims_too_much(command: Command) -> bool:
    """Tell whether a command makes a job that says of itself what only the authority says of jobs.

    That it is an instance's activity, which would be told its end; or that it is older, and so before others.
    """
    return any(job.owner is not None or job.created_at is not None for job in _made(command))


def _made(command: Command) -> Iterator[NewJob]:
    """Give the jobs that a command makes."""
    match command:
        case Enqueue(jobs=jobs):
            yield from jobs
        case CreateGroup(members=members, callback=callback):
            yield from (one for one in (*members, callback) if isinstance(one, NewJob))
        case StartDirect(job=NewJob() as job):
            yield job
        case _:
            return

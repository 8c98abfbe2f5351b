"""Starts, and what is sent to instances from outside: decided together with whether the instance is there.

An id stands for one instance. Asking for the same again gives the one there is, ended or not, also while it has not
had its first turn; asking for something else is refused. Whoever sends on behalf of a workflow does not come this way:
its messages are never refused (`mail`).
"""

from __future__ import annotations

from holdfast.errors import WorkflowAlreadyStarted, WorkflowFinished, WorkflowNotFound
from holdfast.model.outcomes import Begun, Done, Refusal, refuse
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import NewMessage, SignalMismatch, StartInstance, TellInstance
from holdfast.model.workflows.instances import OVER, Instance, InstanceStatus
from holdfast.model.workflows.work_items import QueueMessage
from holdfast.rules.decision import Decision, answer
from holdfast.rules.state import State
from holdfast.rules.workflows.messages import Post, is_expected
from holdfast.rules.workflows.signal_types import refused


def decide_start(state: State, command: StartInstance, now: Timestamp) -> Decision:
    """Begin an instance with its first signals, or give the one that was asked for before."""
    new = command.message
    having = taken(state, new.instance_id)
    if having is not None:
        if having[1] == new.digest:
            return answer(Begun(instance_id=new.instance_id, created=False))
        return answer(_already(new, having[0]))
    mismatch = _mismatch_for(command, new.orchestration, new.version)
    if mismatch is not None:
        return answer(refused(mismatch, new.instance_id, "Nothing was started."))
    post = Post(state, command, now)
    for message in (new, *command.signals):
        post.send(message, submitted_by=command.submitted_by)
    return answer(Begun(instance_id=new.instance_id), *post.events)


def taken(state: State, instance_id: str) -> tuple[str, str | None] | None:
    """Give the workflow that has an id, and the digest of its start; None: the id is free."""
    instance = state.get(Instance, instance_id)
    if instance is not None:
        return instance.orchestration_name, instance.digest
    for message in state.beginnings(instance_id):
        if message.is_to_begin and message.orchestration is not None:
            return message.orchestration, message.digest
    return None


def _already(new: NewMessage, orchestration: str) -> Refusal:
    differs = "with other input" if orchestration == new.orchestration else f"of workflow {orchestration!r}"
    return refuse(
        WorkflowAlreadyStarted,
        f"there is an instance {new.instance_id!r} already, {differs}. Nothing was started.",
        hint="Use another id, or hf.instance(id) for the one that is there.",
        instance=new.instance_id,
    )


def decide_tell(state: State, command: TellInstance, now: Timestamp) -> Decision:
    """Send an item to an instance that can still read it, or keep it for one that is to come."""
    new = command.message
    instance = state.get(Instance, new.instance_id)
    if instance is not None and instance.status in OVER:
        message = f"instance {new.instance_id!r} is {instance.status} since {instance.completed_at}. Nothing was sent."
        return answer(refuse(WorkflowFinished, message, instance=new.instance_id))
    if command.hold_s is None and not is_expected(state, new.instance_id):
        is_signal = new.kind == QueueMessage.__name__
        return answer(
            refuse(
                WorkflowNotFound,
                f"there is no instance {new.instance_id!r}. Nothing was sent.",
                hint="A signal may wait for an instance that starts later: hold=seconds." if is_signal else "",
                instance=new.instance_id,
            )
        )
    mismatch = (
        _mismatch_for(command, *_code_of(state, instance, new.instance_id)) if command.signal_mismatches else None
    )
    if mismatch is not None:
        return answer(refused(mismatch, new.instance_id))
    post = Post(state, command, now)
    post.send(new, hold_s=command.hold_s)
    return answer(Done(), *post.events)


def _mismatch_for(
    command: StartInstance | TellInstance, workflow: str | None, version: str | None
) -> SignalMismatch | None:
    found = (one for one in command.signal_mismatches if one.workflow == workflow and one.version == version)
    return next(found, None)


def _code_of(state: State, instance: Instance | None, instance_id: str) -> tuple[str | None, str | None]:
    """Give the workflow and version that will read what is sent to an instance; None where that is not known."""
    if instance is not None:
        # One that goes on as new may do so with another version.
        is_certain = instance.status is InstanceStatus.RUNNING
        return (instance.orchestration_name, instance.orchestration_version) if is_certain else (None, None)
    start = next((one for one in state.beginnings(instance_id) if one.is_to_begin), None)
    return (None, None) if start is None else (start.orchestration, start.version)

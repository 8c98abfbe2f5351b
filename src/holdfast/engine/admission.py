"""Admission: types and payloads are checked once, before any store sees them. All behind this door may trust them.

The one place where large payloads become blobs, so that every caller gets it alike. The content is put before the
command joins its batch: a crash in between leaves a blob that nobody names, and a sweep takes it after a day.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.engine.workflow_admission import Workers, admitted_ack, admitted_flow, own_delta
from holdfast.errors import InvalidValue, PayloadTooLarge, UsageError
from holdfast.model.command_base import FlowOrder
from holdfast.model.commands import (
    Command,
    Complete,
    CreateGroup,
    Enqueue,
    Fail,
    GiveUp,
    NewJob,
    PutSchedule,
    PutTemplate,
    Release,
    Report,
    Retry,
    Snooze,
    StartDirect,
    Trigger,
    Update,
    UpdateSchedule,
    UseTemplate,
)
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.payloads import (
    MAX_INLINE,
    MAX_LAID_OVER,
    MAX_LISTED,
    MAX_STANDING,
    NULL,
    admit,
    admit_object,
    blob_ref,
    names_in,
    ref_in,
)
from holdfast.model.type_check import misfit
from holdfast.model.workflows.commands import AckTurn
from holdfast.model.workflows.history import Event
from holdfast.stores.sidecar.protocol import Blobs

replace = msgspec.structs.replace

#: What is read in lists, and therefore never becomes a blob.
LISTED = ("artifacts", "progress")
#: Bytes of all payloads of one command together, blobs not counted: it is kept as one piece, in memory and in the log.
MAX_COMMAND = 64 << 20


class AdmittedAck(AckTurn, frozen=True, kw_only=True, tag="ack_turn"):
    """The commit of a turn that ran in this process, and that has passed this door in the thread that ran it.

    Only made here: what comes from another process is read as AckTurn.
    """


def admit_own(command: AckTurn, events: Sequence[Event], blobs: Blobs) -> AdmittedAck:
    """Admit what the runtime made of its own structs, whose types need no look: a commit, and the events it lacks.

    Raises UsageError for what cannot be kept, StoreError if a large payload could not be.
    """
    ack = admitted_ack(command, blobs)
    return AdmittedAck(
        token=ack.token,
        execution_id=ack.execution_id,
        delta=own_delta(events, blobs),
        activities=ack.activities,
        messages=ack.messages,
        metadata=ack.metadata,
        cancelled=ack.cancelled,
        cancelled_timers=ack.cancelled_timers,
        handled=ack.handled,
        hold_s=ack.hold_s,
        keep=ack.keep,
        cmd=ack.cmd,
        actor=ack.actor,
    )


def admitted(command: Command, blobs: Blobs, workers: Workers | None = None) -> Command | Refusal:
    """Give the command with its payloads in compact form, large ones as references, or the refusal of a bad one.

    Without `workers` signals are not compared with the types that live workers publish: the authority does that.
    Raises StoreError if a large payload could not be kept.
    """
    if isinstance(command, AdmittedAck):
        return command
    field = misfit(command)
    if field is not None:
        return refuse(InvalidValue, f"{field}: is not of the type this field takes. Nothing was changed.", field=field)
    try:
        if isinstance(command, FlowOrder):
            return admitted_flow(command, blobs, workers)
        match command:
            case Enqueue(jobs=jobs):
                checked = tuple(
                    job if (params := _kept_params(job.params, blobs)) == job.params else replace(job, params=params)
                    for job in jobs
                )
                _refuse_bulk(checked)
                return command if checked == jobs else replace(command, jobs=checked)
            case StartDirect(job=job):
                return replace(command, job=replace(job, params=_kept_params(job.params, blobs)))
            case CreateGroup():
                return _admitted_group(command, blobs)
            case Complete() | Fail() | Snooze() | GiveUp() | Release():
                return _admitted_report(command, blobs)
            case Update(changes=changes) if changes.params != NULL:
                return replace(command, changes=replace(changes, params=_kept_params(changes.params, blobs)))
            case Retry(params=params) if params != NULL:
                return replace(command, params=_kept_params(params, blobs))
            case PutTemplate(template=template):
                kept = _standing(template.default_params, "default_params", MAX_STANDING)
                return replace(command, template=replace(template, default_params=kept))
            case PutSchedule(schedule=schedule):
                kept = _standing(schedule.param_overrides, "param_overrides", MAX_STANDING)
                return replace(command, schedule=replace(schedule, param_overrides=kept))
            case UpdateSchedule(changes=changed):
                kept = _standing(changed.param_overrides, "param_overrides", MAX_STANDING)
                return replace(command, changes=replace(changed, param_overrides=kept))
            case Trigger(params=params) | UseTemplate(params=params):
                return replace(command, params=_standing(params, "params", MAX_LAID_OVER))
            case _:
                return command
    except UsageError as problem:
        return refuse(type(problem), problem.message, hint=problem.hint, **problem.facts)


def _admitted_group(command: CreateGroup, blobs: Blobs) -> CreateGroup:
    members = tuple(
        replace(member, params=_kept_params(member.params, blobs)) if isinstance(member, NewJob) else member
        for member in command.members
    )
    _refuse_bulk(tuple(member for member in members if isinstance(member, NewJob)))
    callback = command.callback
    if callback is not None:
        # Inside the group's own record until the group ends, and therefore never a blob.
        callback = replace(callback, params=_standing(callback.params, "callback", MAX_INLINE))
    return replace(command, members=members, callback=callback)


def _admitted_report(report: Report | Release, blobs: Blobs) -> Report | Release:
    given = {name: getattr(report, name, NULL) for name in ("result", "details", "artifacts", "progress")}
    kept = {
        name: admit(payload, name, MAX_LISTED) if name in LISTED else _kept(payload, name, blobs)
        for name, payload in given.items()
        if payload is not NULL
    }
    changed = {name: payload for name, payload in kept.items() if payload != given[name]}
    return replace(report, **changed) if changed else report


def _standing(params: msgspec.Raw, field: str, limit: int) -> msgspec.Raw:
    """Give parameters that are joined with others: an object, small enough to be joined inside a record."""
    if params == NULL:
        return params
    checked = admit_object(params, field)
    size = memoryview(checked).nbytes
    if size > limit:
        raise PayloadTooLarge(
            f"{field}: {size:,} bytes are more than the {limit:,} that are kept here. Nothing was stored.",
            hint="Keep large content in a file or database and pass a reference.",
            field=field,
        )
    if "$blob" in names_in(checked):
        raise InvalidValue(f"{field}: $blob names no parameter here. Nothing was stored.", field=field)
    return checked


def _kept_params(params: msgspec.Raw, blobs: Blobs) -> msgspec.Raw:
    return _kept(params, "params", blobs, admit_object)


def _kept(
    payload: msgspec.Raw, field: str, blobs: Blobs, check: Callable[[bytes | msgspec.Raw, str], msgspec.Raw] = admit
) -> msgspec.Raw:
    """Give what the record keeps of a payload: itself, or a reference to the blob it became."""
    ref = ref_in(payload)
    if ref is not None:
        if not blobs.has(ref.digest):
            raise InvalidValue(
                f"{field}: names the blob {ref.digest}, which is not in this store. Nothing was stored.",
                hint="Put the content first, or send it instead of the reference.",
                field=field,
            )
        # Checked like any other, and put again, so that it is as young as new until the commit names it.
        payload = msgspec.Raw(blobs.get(ref.digest))
    checked = check(payload, field)
    size = memoryview(checked).nbytes
    return checked if size <= MAX_INLINE else blob_ref(blobs.put(bytes(checked)), size)


def _refuse_bulk(jobs: tuple[NewJob, ...]) -> None:
    if len(jobs) * MAX_INLINE <= MAX_COMMAND:
        return
    size = sum(memoryview(job.params).nbytes for job in jobs)
    if size > MAX_COMMAND:
        raise PayloadTooLarge(
            f"jobs: {size:,} bytes of parameters are more than the {MAX_COMMAND:,} of one command. Nothing was stored.",
            hint="Enqueue them in several commands.",
            field="jobs",
        )

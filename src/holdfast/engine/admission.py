"""Admission: types and payloads are checked once, before any store sees them. All behind this door may trust them."""

from __future__ import annotations

import msgspec

from holdfast.errors import HoldfastError, InvalidValue, PayloadTooLarge
from holdfast.model.commands import (
    Command,
    Complete,
    Enqueue,
    Fail,
    GiveUp,
    NewJob,
    Release,
    Retry,
    Snooze,
    Update,
)
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.payloads import MAX_BYTES, NULL, admit, admit_object
from holdfast.model.shapes import misfit

replace = msgspec.structs.replace
Report = Complete | Fail | Snooze | GiveUp | Release

#: Bytes of all payloads of one command together: it is kept as one piece, in memory and in the log.
MAX_COMMAND = 64 << 20


def admitted(command: Command) -> Command | Refusal:
    """Give the command with its payloads in compact form, or the refusal of what cannot be kept."""
    field = misfit(command)
    if field is not None:
        return refuse(InvalidValue, f"{field}: is not of the type this field takes. Nothing was changed.", field=field)
    try:
        match command:
            case Enqueue(jobs=jobs):
                checked = tuple(
                    job if (params := admit_object(job.params)) == job.params else replace(job, params=params)
                    for job in jobs
                )
                _refuse_bulk(checked)
                return command if checked == jobs else replace(command, jobs=checked)
            case Complete() | Fail() | Snooze() | GiveUp() | Release():
                return _admitted_report(command)
            case Update(changes=changes) if changes.params != NULL:
                return replace(command, changes=replace(changes, params=admit_object(changes.params)))
            case Retry(params=params) if params != NULL:
                return replace(command, params=admit_object(params))
            case _:
                return command
    except HoldfastError as problem:
        return refuse(type(problem), problem.message, hint=problem.hint, **problem.facts)


def _admitted_report(report: Report) -> Report:
    given = {name: getattr(report, name, NULL) for name in ("result", "details", "artifacts", "progress")}
    kept = {name: admit(payload, name) for name, payload in given.items() if payload is not NULL}
    changed = {name: payload for name, payload in kept.items() if payload != given[name]}
    return replace(report, **changed) if changed else report


def _refuse_bulk(jobs: tuple[NewJob, ...]) -> None:
    if len(jobs) * MAX_BYTES <= MAX_COMMAND:
        return
    size = sum(memoryview(job.params).nbytes for job in jobs)
    if size > MAX_COMMAND:
        raise PayloadTooLarge(
            f"jobs: {size:,} bytes of parameters are more than the {MAX_COMMAND:,} of one command. Nothing was stored.",
            hint="Enqueue them in several commands.",
            field="jobs",
        )

"""How one execution ended: a closed set, one mapping to commands."""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec

from holdfast.model.commands import Complete, Fail, GiveUp, Release, Report
from holdfast.model.commands import Snooze as SnoozeJob
from holdfast.model.outcomes import Grant
from holdfast.model.payloads import NULL, shorten_error
from holdfast.workers.handlers.control_exceptions import Cancel, Fatal, Retry, Snooze
from holdfast.workers.handlers.run_reporter import RunNotes
from holdfast.workflows.api.error_conversion import details_of, text_of, traceback_of

ErrorKind = Literal["exception", "timeout", "exit", "fatal", "bad_params", "bad_result"]


class Returned(msgspec.Struct, frozen=True, tag=True):
    """The handler returned; its result is JSON."""

    result: msgspec.Raw = NULL
    exit_code: int | None = None


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The handler failed."""

    error: str
    error_kind: ErrorKind = "exception"
    fatal: bool = False
    retry_after_s: float | None = None
    exit_code: int | None = None
    #: All that can be kept of the exception, for the workflow that waits for the job; NULL for any other job.
    details: msgspec.Raw = NULL


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to be called later."""

    delay_s: float


class GaveUp(msgspec.Struct, frozen=True, tag=True):
    """The handler cancelled its own job, or stopped because it was asked to."""

    reason: str = ""


class Released(msgspec.Struct, frozen=True, tag=True):
    """The worker stops before the handler has ended; the job may run elsewhere."""

    #: Whether the handler had started.
    begun: bool


Outcome = Returned | Raised | Snoozed | GaveUp | Released


def outcome_of(
    error: BaseException, no_retry: tuple[type[BaseException], ...] = (), *, detailed: bool = False
) -> Outcome:
    """Say how an execution ended that raised; `detailed` for a workflow, which meets the exception again.

    Never raises, whatever the exception does when it is asked: a job whose end nobody can tell would stay leased.
    """
    try:
        outcome = _outcome_of(error, no_retry)
    except BaseException:  # noqa: BLE001 - the user's class, perhaps of one of our signals; the run has failed anyway
        outcome = Raised(shorten_error(traceback_of(error)))
    if detailed and isinstance(outcome, Raised):
        details = msgspec.structs.replace(details_of(error), retryable=not outcome.fatal)
        return msgspec.structs.replace(outcome, details=msgspec.Raw(msgspec.json.encode(details)))
    return outcome


def _outcome_of(error: BaseException, no_retry: tuple[type[BaseException], ...]) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Cancel():
            return GaveUp(error.reason)
        case Retry():
            return Raised(text_of(error), retry_after_s=error.after)
        case Fatal():
            return Raised(text_of(error) or "fatal", "fatal", fatal=True)
        case _:
            return Raised(shorten_error(traceback_of(error)), fatal=isinstance(error, no_retry))


def command_of(grant: Grant, outcome: Outcome, notes: RunNotes | None = None) -> Report | Release:
    """Turn an outcome into the command that settles the job, with what the execution left behind."""
    job_id, token = grant.job.job_id, grant.token
    artifacts, progress = (NULL, NULL) if notes is None else notes.reported()
    match outcome:
        case Returned():
            return Complete(
                job_id=job_id,
                token=token,
                result=outcome.result,
                artifacts=artifacts,
                progress=progress,
                exit_code=outcome.exit_code,
            )
        case Raised():
            return Fail(
                job_id=job_id,
                token=token,
                error=outcome.error,
                error_kind=outcome.error_kind,
                fatal=outcome.fatal,
                retry_after_s=outcome.retry_after_s,
                exit_code=outcome.exit_code,
                artifacts=artifacts,
                progress=progress,
                details=outcome.details,
            )
        case Snoozed():
            return SnoozeJob(
                job_id=job_id, token=token, delay_s=outcome.delay_s, artifacts=artifacts, progress=progress
            )
        case GaveUp():
            return GiveUp(job_id=job_id, token=token, reason=outcome.reason, artifacts=artifacts, progress=progress)
        case Released():
            return Release(job_id=job_id, token=token, begun=outcome.begun, artifacts=artifacts, progress=progress)
        case _:
            assert_never(outcome)

"""How an instance ended, as an exception for whoever waits for its result: the details, rebuilt and chained."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import errors
from holdfast.app.workflows.state import InstanceState
from holdfast.errors import WorkFailed, WorkflowCancelled, WorkflowFailed, class_name
from holdfast.model.error_details import ErrorDetails
from holdfast.workflows.api.error_conversion import rebuild

_OURS = {
    class_name(kind): kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WorkFailed)
}


def failed(state: InstanceState, details: ErrorDetails | None, known: Iterable[type[BaseException]]) -> WorkflowFailed:
    """Give the error of an instance that FAILED; it is of the original class, too, where that can be made again."""
    what = f"instance {state.id!r} of workflow {state.workflow!r}"
    if details is None:
        return WorkflowFailed(f"{what} failed, and its history does not say why.", instance=state.id)
    problem = rebuild(WorkflowFailed, what, details, known, instance=state.id)
    _chain(problem, details, known)
    return problem


def cancelled(state: InstanceState, details: ErrorDetails | None) -> WorkflowCancelled:
    """Give the error of an instance that is CANCELLED."""
    reason = "" if details is None or not details.message else f": {details.message}"
    problem = WorkflowCancelled(
        f"instance {state.id!r} of workflow {state.workflow!r} was cancelled{reason}", instance=state.id
    )
    problem.details = details
    return problem


def _chain(problem: WorkFailed, details: ErrorDetails, known: Iterable[type[BaseException]]) -> None:
    """Give an error its causes and its place in the code, as a traceback shows them."""
    if details.traceback:
        problem.add_note(details.traceback.rstrip())
    if details.cause is None:
        return
    kind = _OURS.get(details.cause.type_name or "", WorkFailed)
    cause = rebuild(kind, "", details.cause, known)
    cause.message = details.cause.message
    _chain(cause, details.cause, known)
    problem.__cause__ = cause

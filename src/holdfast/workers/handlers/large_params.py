"""Large parameters: a job names them, a handler needs them. Fetched before the handler is given to a runner."""

from __future__ import annotations

from holdfast.engine.blob_content import fetch
from holdfast.errors import BlobMissing, HoldfastError, StoreBusy, StoreDamaged
from holdfast.stores.protocol import Store
from holdfast.workers.handlers.leased_job import Assignment
from holdfast.workers.handlers.outcome import Raised


def complete(held: Assignment, store: Store) -> Raised | None:
    """Give the handler all its parameters; give the outcome of a job whose parameters are gone.

    Raises StoreBusy if they cannot be had now.
    """
    params = held.grant.job.params
    try:
        whole = fetch(store, params)
    except StoreBusy:
        raise
    except HoldfastError as problem:
        gone = isinstance(problem, BlobMissing | StoreDamaged)
        return Raised(str(problem), "bad_params" if gone else "exception")
    if whole is not params:
        held.replace_params(whole)
    return None

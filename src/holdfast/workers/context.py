"""What a handler can know and say about its own execution, through `hf.current`.

Soft: progress is the last value that wins, cancellation is a flag a thread may look at. Knows no store.
"""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property

from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Grant
from holdfast.model.times import moment

#: Longest message of a progress, in characters.
MAX_MESSAGE = 200


class Context:
    """One execution, as its handler sees it."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._cancelled = threading.Event()
        #: Last progress: fraction 0 … 1 if known, and a message.
        self.fraction: float | None = None
        self.message = ""
        #: Why it was asked to stop.
        self.cancel_reason = ""

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job and the run."""
        facts = {"job": self._grant.job.job_id, "run": self._grant.run_id}
        return logging.LoggerAdapter(logging.getLogger("holdfast.task"), facts)

    @property
    def job(self) -> Job:
        """The job as it was leased."""
        return self._grant.job

    @property
    def job_id(self) -> JobId:
        """Id of the job."""
        return self._grant.job.job_id

    @property
    def run_id(self) -> RunId:
        """Id of this run."""
        return self._grant.run_id

    @property
    def run_no(self) -> int:
        """Count the runs of the job: 1 for the first."""
        return self._grant.job.executions

    @property
    def token(self) -> Token:
        """Rises with every lease of the store; hand it to outside systems to fence off late writers."""
        return self._grant.token

    @property
    def deadline(self) -> datetime | None:
        """When this execution will be ended at the latest, if its task has a timeout."""
        at = self._grant.job.deadline_at
        return None if at is None else moment(at)

    @property
    def cancelled(self) -> bool:
        """Someone asked for this execution to stop, or its lease is lost."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds to be asked to stop; a pause that ends early."""
        return self._cancelled.wait(timeout)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the work is: a fraction, or `done` of `total`."""
        share = done / total if total else done
        self.fraction, self.message = min(1.0, max(0.0, share)), message[:MAX_MESSAGE]

    def cancel(self, reason: str) -> None:
        """Ask the handler to stop."""
        self.cancel_reason = reason
        self._cancelled.set()


#: Whether this process is the child of a worker, and so must not become a worker itself.
is_child = False
#: The execution the present code belongs to.
current: ContextVar[Context] = ContextVar("holdfast.current")

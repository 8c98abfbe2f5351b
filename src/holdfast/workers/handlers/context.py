"""What a handler can know and say about its own execution, through `hf.current`.

Soft: progress is the last value that wins, cancellation is a flag a thread may look at. Knows no store.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model.artifacts import Artifact
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Grant
from holdfast.model.payloads import NULL, pack
from holdfast.model.times import moment
from holdfast.model.workers import Progress
from holdfast.workers.handlers.run_reporter import Notes, RunNotes

#: Longest message of a progress, in characters.
MAX_MESSAGE = 200
#: Bytes of the data of a progress.
MAX_DATA = 4 * 1024
#: Whose lines go to the run, whatever else listens.
TASK_LOG = logging.getLogger("holdfast.task")


class Context:
    """One execution, as its handler sees it."""

    def __init__(self, grant: Grant, notes: Notes | None = None) -> None:
        """Show the execution of a grant; what it says goes to `notes`."""
        self._grant = grant
        self._cancelled = threading.Event()
        #: Where what it says goes.
        self.notes: Notes = notes or RunNotes(grant.run_id)
        #: Why it was asked to stop.
        self.cancel_reason = ""

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
    def attempt(self) -> int:
        """Count the executions that report, this one included: of `job.max_attempts`. A run that was lost is none."""
        return self._grant.job.attempts + 1

    @property
    def token(self) -> Token:
        """Rises with every lease of the store; hand it to outside systems to fence off late writers."""
        return self._grant.token

    @property
    def deadline(self) -> datetime | None:
        """When this execution is asked to stop, if its task has a timeout. UTC, by the store's clock."""
        job = self._grant.job
        if job.timeout_s is None or job.lease_expires_at is None:
            return None
        return moment(job.lease_expires_at) + timedelta(seconds=job.timeout_s - self._grant.lease_s)

    @property
    def cancelled(self) -> bool:
        """Someone asked for this execution to stop, or its lease is lost."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds to be asked to stop; a pause that ends early."""
        return self._cancelled.wait(timeout)

    def cancel(self, reason: str) -> None:
        """Ask the handler to stop."""
        self.cancel_reason = reason
        self._cancelled.set()

    # --- what it says -------------------------------------------------------------------------------------------------

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines go to the run, from INFO on, and carry the job and the run for whoever else listens."""
        facts = {"job": self._grant.job.job_id, "run": self._grant.run_id}
        return logging.LoggerAdapter(TASK_LOG, facts)

    def progress(self, done: float, total: float | None = None, message: str = "", data: Any = None) -> None:
        """Say how far the work is: a fraction 0 … 1, or `done` of `total`. The last one said counts; none is durable.

        `data` is anything of up to 4 KiB as JSON; more than that, or what is no JSON, is left out, and the log says so.
        """
        share = done / total if total else done
        self.notes.advance(
            Progress(
                fraction=min(1.0, max(0.0, share)) if math.isfinite(share) else None,
                done=float(done) if total is not None and math.isfinite(done) else None,
                total=float(total) if total is not None and math.isfinite(total) else None,
                message=message.encode("utf-8", "backslashreplace").decode()[:MAX_MESSAGE],
                data=NULL if data is None else self._data(data),
            )
        )

    def _data(self, data: Any) -> Any:
        try:
            packed = pack(data, "data", around=-1)  # one level down, as it will be kept
        except HoldfastError as problem:
            self.log.warning("progress: %s", problem)
            return NULL
        if memoryview(packed).nbytes > MAX_DATA:
            self.log.warning("progress: data of more than %s bytes is left out", MAX_DATA)
            return NULL
        return packed

    def artifact(
        self, path: str | os.PathLike[str], name: str | None = None, media_type: str | None = None
    ) -> Artifact:
        """Keep a file with the run: its name, size, SHA-256 and media type, recorded when the run ends.

        Up to 16 MiB are copied into the store now; a larger file stays where it is, and its path is recorded. Raises
        InvalidValue if there is no such file, StoreError if it cannot be kept.
        """
        return self.notes.keep(str(Path(path).absolute()), name, media_type)


#: Whether this process is the child of a worker, and so must not become a worker itself.
is_child = False
#: The execution the present code belongs to.
current: ContextVar[Context] = ContextVar("holdfast.current")

"""A handle on one job: look at it, wait for it, change its fate. It keeps an id and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import msgspec

from holdfast.app.completion_waiter import ended_or_late, job_look, until, within
from holdfast.app.handles.artifact import Artifact, artifacts_of
from holdfast.app.tasks.options import Changes, chosen_fields
from holdfast.engine.blob_content import fetch
from holdfast.engine.log_reader import pages, run_of, source_of
from holdfast.engine.reasons import reason_of
from holdfast.errors import JobCancelled, JobDead, JobFailed, WorkFailed
from holdfast.model.commands import Bury, Cancel, Move, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job as Record
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.logs import LogLine
from holdfast.model.payloads import NULL
from holdfast.model.workers import Progress
from holdfast.rules.explain import Reason

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.jobs import AioJob
    from holdfast.app.application import Holdfast
    from holdfast.app.tasks.signature_codec import SignatureCodec

R = TypeVar("R")

_FAILURES: dict[JobStatus, type[WorkFailed]] = {
    JobStatus.FAILED: JobFailed,
    JobStatus.DEAD: JobDead,
    JobStatus.CANCELLED: JobCancelled,
}
_progress = msgspec.json.Decoder(Progress).decode


class Job(Generic[R]):
    """One request to run a task."""

    def __init__(
        self, app: Holdfast, job_id: str, codec: SignatureCodec | None = None, *, created: bool = True
    ) -> None:
        """Hold the job of that id; nothing is read before it is asked for."""
        #: The application it belongs to.
        self.app = app
        self._codec = codec
        #: The job's id.
        self.id = JobId(job_id)
        #: False if the call met a job that was there before: the same id, or the holder of its key.
        self.created = created

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Job {self.id}>"

    # --- looking ----------------------------------------------------------------------------------------------------

    def refresh(self) -> Record:
        """Read the job as it is now. Raises JobNotFound."""
        return self.app.engine.job(self.id)

    @property
    def status(self) -> JobStatus:
        """Where the job is in its life, now."""
        return self.refresh().status

    def explain(self) -> Reason:
        """Give the one reason why the job is where it is, with what holds it and until when. Raises JobNotFound."""
        return reason_of(self.app.engine, self.refresh())

    def runs(self) -> Sequence[Run]:
        """List the job's runs, oldest first."""
        return self.app.engine.runs(self.id)

    @property
    def progress(self) -> Progress | None:
        """How far the newest run is: what its worker said last, or what it ended with; None if nothing was said."""
        runs = self.runs()
        if not runs:
            return None
        last = runs[-1]
        if last.status is not None:
            return None if last.progress == NULL else _progress(last.progress)
        live = (run for worker in self.app.engine.store.workers.all() for run in worker.runs)
        return next((run.progress for run in live if run.run_id == last.run_id), None)

    def log(self, run_no: int | None = None, *, follow: bool = False) -> Iterator[LogLine]:
        """Walk the lines of a run, by default the newest; with `follow` wait for more of them until the job has ended.

        Raises RunNotFound.
        """
        found = pages(source_of(self.app.engine), self.id, run_no, follow=follow)
        return (numbered.line for _, page in found for numbered in page)

    def artifacts(self, run_no: int | None = None) -> list[Artifact]:
        """List what a run left behind, by default the newest. Raises RunNotFound."""
        engine = self.app.engine
        run = run_of(engine.runs(self.id), self.id, run_no)
        return [] if run is None else artifacts_of(engine.store, run)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Record:
        """Wait until the job has ended, and its automatic retries with it; give the last of them.

        Raises TimeoutError after `timeout` seconds, saying what the job waits for, or StoreBusy if a coordinator gave
        no answer by then; that changes nothing.
        """
        with within(self.app, timeout) as ends_at:
            engine = self.app.engine
            return until(engine, job_look(self.id), ends_at) or ended_or_late(engine, self.id, timeout)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job's result, or that of the last of its automatic retries.

        Raises JobFailed, JobDead or JobCancelled if it has none, and what `wait` raises.
        """
        with within(self.app, timeout):
            return self.outcome(self.wait(timeout))

    def outcome(self, job: Record) -> R:
        """Give the result of an ended job, or raise what it ended in; `result` without the waiting."""
        failure = _FAILURES.get(job.status)
        if failure is not None:
            said = job.cancel_reason if job.status is JobStatus.CANCELLED else job.error
            raise failure(
                f"job {job.job_id} ({job.job_type}) is {job.status}: {said or 'no reason given'}", job_id=job.job_id
            )
        codec = self._codec or self.app.codec_of(job.job_type)
        value: R = codec.unpack_result(fetch(self.app.engine.store, job.result))
        return value

    # --- changing its fate ------------------------------------------------------------------------------------------

    def cancel(self, reason: str = "", *, force: bool = False) -> Literal["cancelled", "requested"]:
        """End the job if it waits; ask it to stop if it runs, or with `force` revoke its lease at once."""
        outcome = self.app.engine.ask(Cancel(job_id=self.id, reason=reason, force=force))
        answer: Literal["cancelled", "requested"] = outcome.outcome  # type: ignore[union-attr]  # a Cancel is answered so
        return answer

    def retry(self) -> Job[R]:
        """Run an ended job again, as a new job with a full budget."""
        new_id = JobId(self.app.engine.new_id())
        self.app.engine.ask(Retry(job_id=self.id, new_job_id=new_id))
        return Job(self.app, new_id, self._codec)

    def bury(self, reason: str = "") -> None:
        """Declare the job DEAD."""
        self.app.engine.ask(Bury(job_id=self.id, reason=reason))

    def move(
        self, *, before: str | None = None, after: str | None = None, to: Literal["first", "last"] | None = None
    ) -> None:
        """Give a waiting job another place in its band."""
        self.app.engine.ask(
            Move(
                job_id=self.id,
                before=None if before is None else JobId(before),
                after=None if after is None else JobId(after),
                to=to,
            )
        )

    def update(self, **changes: Unpack[Changes]) -> None:
        """Change a job that waits: its queue, priority, timeout, lease, max_attempts and so on."""
        self.app.engine.ask(Update(job_id=self.id, changes=JobChanges(**chosen_fields(changes, Changes))))

    @property
    def aio(self) -> AioJob[R]:
        """The same calls, to be awaited."""
        from holdfast.app.aio.jobs import AioJob  # noqa: PLC0415 - only programs that await pay for it

        return AioJob(self)

"""A handle on one job: look at it, wait for it, change its fate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from holdfast.app.options import Chosen, Options
from holdfast.errors import JobCancelled, JobDead, JobFailed, WorkFailed
from holdfast.model.commands import Bury, Cancel, Move, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job as Record
from holdfast.model.jobs import JobStatus, Run
from holdfast.rules.retry import automatic_heir

if TYPE_CHECKING:
    from holdfast.app.aio import AioJob
    from holdfast.app.codec import SignatureCodec
    from holdfast.app.holdfast import Holdfast

R = TypeVar("R")

_FAILURES: dict[JobStatus, type[WorkFailed]] = {
    JobStatus.FAILED: JobFailed,
    JobStatus.DEAD: JobDead,
    JobStatus.CANCELLED: JobCancelled,
}


class Job(Generic[R]):
    """One request to run a task."""

    def __init__(
        self, app: Holdfast, job_id: str, codec: SignatureCodec | None = None, *, created: bool = True
    ) -> None:
        """Hold the job of that id; nothing is read before it is asked for."""
        self._app = app
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
        return self._app.engine.job(self.id)

    @property
    def status(self) -> JobStatus:
        """Where the job is in its life, now."""
        return self.refresh().status

    def runs(self) -> Sequence[Run]:
        """List the job's runs, oldest first."""
        return self._app.engine.runs(self.id)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Record:
        """Wait until the job has ended, and its automatic retries with it; give the last of them.

        Raises TimeoutError after `timeout` seconds, which changes nothing.
        """
        engine = self._app.engine
        deadline = None if timeout is None else engine.look().monotonic + timeout
        job_id = self.id
        while True:
            with engine.read() as view:
                seen, job = view.seq, view.get(Record, job_id)
                heir = None if job is None or not job.has_ended else automatic_heir(view, job)
            if job is None:
                return engine.job(job_id)
            if heir is not None:
                job_id = heir
                continue
            if job.has_ended:
                return job
            left = None if deadline is None else deadline - engine.look().monotonic
            if left is not None and left <= 0:
                raise TimeoutError(f"job {job_id} is {job.status} after {timeout} s; it goes on.")
            engine.store.wait(seen, left)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job's result.

        Raises JobFailed, JobDead or JobCancelled if it has none, TimeoutError after `timeout` seconds.
        """
        job = self.wait(timeout)
        failure = _FAILURES.get(job.status)
        if failure is not None:
            said = job.cancel_reason if job.status is JobStatus.CANCELLED else job.error
            raise failure(
                f"job {job.job_id} ({job.job_type}) is {job.status}: {said or 'no reason given'}", job_id=job.job_id
            )
        value: R = self._unpack(job)
        return value

    def _unpack(self, job: Record) -> Any:
        codec = self._codec or self._app.codec_of(job.job_type)
        return codec.unpack_result(job.result)

    # --- changing its fate ------------------------------------------------------------------------------------------

    def cancel(self, reason: str = "", *, force: bool = False) -> Literal["cancelled", "requested"]:
        """End the job if it waits; ask it to stop if it runs, or with `force` revoke its lease at once."""
        outcome = self._app.engine.ask(Cancel(job_id=self.id, reason=reason, force=force))
        answer: Literal["cancelled", "requested"] = outcome.outcome  # type: ignore[union-attr]  # a Cancel is answered so
        return answer

    def retry(self) -> Job[R]:
        """Run an ended job again, as a new job with a full budget."""
        new_id = JobId(self._app.engine.new_id())
        self._app.engine.ask(Retry(job_id=self.id, new_job_id=new_id))
        return Job(self._app, new_id, self._codec)

    def bury(self, reason: str = "") -> None:
        """Declare the job DEAD."""
        self._app.engine.ask(Bury(job_id=self.id, reason=reason))

    def move(
        self, *, before: str | None = None, after: str | None = None, to: Literal["first", "last"] | None = None
    ) -> None:
        """Give a waiting job another place in its band."""
        self._app.engine.ask(
            Move(
                job_id=self.id,
                before=None if before is None else JobId(before),
                after=None if after is None else JobId(after),
                to=to,
            )
        )

    def update(self, **options: Any) -> None:
        """Change options of a job that waits: queue, priority, timeout, lease, max_attempts and so on."""
        chosen = Chosen().plus(Options(**options)).fields  # type: ignore[typeddict-item]  # names are checked by plus
        self._app.engine.ask(Update(job_id=self.id, changes=JobChanges(**chosen)))

    @property
    def aio(self) -> AioJob[R]:
        """The same calls, to be awaited."""
        from holdfast.app.aio import AioJob  # noqa: PLC0415 - only programs that await pay for it

        return AioJob(self)

"""Reports: how an execution ends, and what the same report sent again gives."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from holdfast.errors import (
    AlreadyReported,
    HoldfastError,
    IdReused,
    InvalidOperation,
    JobNotFound,
    LeaseLost,
    UnknownLease,
)
from holdfast.model.commands import (
    Bury,
    Cancel,
    Command,
    Complete,
    Extend,
    Fail,
    GiveUp,
    Move,
    PauseQueue,
    Release,
    Retry,
    Snooze,
    Update,
)
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import JobStatus, RunStatus
from holdfast.model.outcomes import Grant, Refusal, Reported
from holdfast.testing.conformance.commands import SAMPLES, A
from holdfast.testing.conformance.harness import Harness, Topic, new_job, told

REPORTS: dict[str, Callable[[Token], Command]] = {
    "complete": lambda token: Complete(job_id=A, token=token, result=msgspec.Raw(b"1")),
    "fail": lambda token: Fail(job_id=A, token=token, error="boom"),
    "snooze": lambda token: Snooze(job_id=A, token=token, delay_s=5),
    "give up": lambda token: GiveUp(job_id=A, token=token),
    "release": lambda token: Release(job_id=A, token=token, begun=True),
}
each_report = pytest.mark.parametrize("report", REPORTS)


class Reports(Topic):
    """Complete, fail, snooze, give up, and their repeats."""

    def test_completion_keeps_the_result_and_ends_job_and_run(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.advance(3)
        command = Complete(
            job_id=A, token=grant.token, result=msgspec.Raw(b'{"n": 1}'), artifacts=msgspec.Raw(b"[]"), exit_code=0
        )
        assert harness.report(command) == Reported(job_status=JobStatus.COMPLETED)
        job, (run,) = harness.job("a"), harness.runs("a")
        assert (job.status, job.attempts, job.finished_at) == (JobStatus.COMPLETED, 1, harness.after(3))
        assert bytes(job.result) == b'{"n":1}'
        assert (job.token, job.worker_id, job.lease_expires_at, job.deadline_at) == (None, None, None, None)
        assert (run.status, run.finished_at, run.exit_code) == (RunStatus.COMPLETED, harness.after(3), 0)
        assert bytes(run.artifacts) == b"[]"

    def test_failure_keeps_the_error_in_job_and_run(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.fail(grant, "no bread", error_kind="exit", exit_code=3, details=msgspec.Raw(b'{"why":1}'))
        job, (run,) = harness.job("a"), harness.runs("a")
        assert (job.status, job.error, job.attempts) == (JobStatus.QUEUED, "no bread", 1)
        assert (run.status, run.error, run.error_kind, run.exit_code) == (RunStatus.FAILED, "no bread", "exit", 3)
        assert bytes(run.details) == b'{"why":1}'

    def test_a_long_error_loses_its_middle(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.fail(harness.take(), "first" + "x" * 100_000 + "last")
        error = harness.job("a").error or ""
        assert len(error) <= 16 * 1024
        assert (error[:5], error[-4:]) == ("first", "last")

    def test_an_error_text_with_a_lone_surrogate_is_kept_readable(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.fail(harness.take(), "bad \udcff name")
        assert harness.job("a").error == "bad \\udcff name"

    def test_snoozing_counts_as_a_snooze_only(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        reply = harness.report(Snooze(job_id=A, token=grant.token, delay_s=60))
        job, (run,) = harness.job("a"), harness.runs("a")
        assert reply == Reported(job_status=JobStatus.QUEUED)
        assert (job.snoozes, job.attempts, job.not_before) == (1, 0, harness.after(60))
        assert (run.status, run.reason) == (RunStatus.SKIPPED, "snoozed")

    def test_a_snoozed_chain_job_ends_with_a_successor(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        grant = harness.take()
        reply = harness.report(Snooze(job_id=A, token=grant.token, delay_s=60))
        (heir,) = harness.heirs("a")
        assert reply == Reported(job_status=JobStatus.CANCELLED, successor=heir.job_id)
        assert (heir.snoozes, heir.attempts, heir.not_before) == (1, 0, harness.after(60))

    def test_giving_up_ends_the_job_cancelled(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        reply = harness.report(GiveUp(job_id=A, token=grant.token, reason="no longer needed"))
        job, (run,) = harness.job("a"), harness.runs("a")
        assert reply == Reported(job_status=JobStatus.CANCELLED)
        assert (job.status, job.cancel_reason, job.attempts) == (JobStatus.CANCELLED, "no longer needed", 0)
        assert (run.status, run.reason) == (RunStatus.CANCELLED, "gave_up")

    # --- repeats ----------------------------------------------------------------------------------------------------

    @each_report
    def test_the_same_report_again_is_a_duplicate_and_changes_nothing(self, harness: Harness, report: str) -> None:
        harness.enqueue("a")
        command = REPORTS[report](harness.take().token)
        first = harness.report(command)
        with harness.unchanged():
            again = harness.report(command)
        assert again == msgspec.structs.replace(first, duplicate=True)

    def test_the_first_result_stays(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.complete(grant, "first")
        with harness.unchanged():
            assert harness.complete(grant, "second").duplicate
        assert bytes(harness.job("a").result) == b'"first"'

    @each_report
    def test_another_kind_of_report_with_a_used_token_is_refused(self, harness: Harness, report: str) -> None:
        harness.enqueue("a")
        token = harness.take().token
        harness.report(REPORTS[report](token))
        for other in REPORTS.keys() - {report}:
            harness.refused(AlreadyReported, REPORTS[other](token), job_id="a")

    @each_report
    def test_a_report_with_an_expired_token_is_cancelled(self, harness: Harness, report: str) -> None:
        harness.enqueue("a")
        token = harness.take().token
        harness.advance(30)
        harness.tick()
        harness.refused(LeaseLost, REPORTS[report](token), job_id="a", token=str(token))

    @each_report
    def test_a_report_with_a_foreign_token_is_rejected(self, harness: Harness, report: str) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        _, other = harness.lease(2)
        harness.refused(UnknownLease, REPORTS[report](other.token), job_id="a", token=str(other.token))

    @each_report
    def test_a_report_about_an_unknown_job_is_rejected(self, harness: Harness, report: str) -> None:
        harness.refused(JobNotFound, REPORTS[report](Token(1)), job_id="a")

    @each_report
    def test_a_report_after_a_forced_cancel_is_told_that_authority_is_lost(self, harness: Harness, report: str) -> None:
        harness.enqueue("a")
        token = harness.take().token
        harness.ask(Cancel(job_id=A, force=True))
        harness.refused(LeaseLost, REPORTS[report](token), job_id="a")

    @each_report
    def test_a_report_after_a_burial_is_told_that_authority_is_lost(self, harness: Harness, report: str) -> None:
        harness.enqueue("a")
        token = harness.take().token
        harness.ask(Bury(job_id=A))
        harness.refused(LeaseLost, REPORTS[report](token), job_id="a")

    def test_a_late_failure_never_undoes_a_completion(self, harness: Harness) -> None:
        harness.enqueue("a")
        first = harness.take()
        harness.advance(30)
        harness.complete(harness.take())
        harness.refused(LeaseLost, Fail(job_id=A, token=first.token, error="late"))
        assert harness.status("a") is JobStatus.COMPLETED

    @pytest.mark.parametrize(
        ("report", "status"),
        [
            ("complete", JobStatus.COMPLETED),
            ("fail", JobStatus.CANCELLED),
            ("snooze", JobStatus.CANCELLED),
            ("give up", JobStatus.CANCELLED),
            ("release", JobStatus.CANCELLED),
        ],
    )
    @pytest.mark.parametrize("retry_mode", ["requeue", "chain"])
    def test_after_a_cancel_request_only_completion_wins(
        self, harness: Harness, report: str, status: JobStatus, retry_mode: str
    ) -> None:
        harness.enqueue("a", retry_mode=retry_mode)
        token = harness.take().token
        harness.ask(Cancel(job_id=A))
        assert harness.report(REPORTS[report](token)) == Reported(job_status=status)
        assert harness.heirs("a") == []

    def test_nothing_changes_an_ended_run(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.fail(grant, "first", fatal=True)
        (ended,) = harness.runs("a")
        for report in REPORTS.values():
            harness.engine.submit(report(grant.token))
        harness.advance(100)
        harness.tick()
        assert harness.runs("a") == (ended,)

    # --- the same command again -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("sample", SAMPLES)
    def test_every_command_sent_twice_has_one_effect(self, harness: Harness, sample: str) -> None:
        command = SAMPLES[sample](harness)
        first = harness.ask(command)
        with harness.unchanged():
            again = harness.ask(command)
        assert type(again) is type(first)

    @pytest.mark.parametrize("sample", SAMPLES)
    def test_every_command_sent_twice_in_one_batch_has_one_effect(self, harness: Harness, sample: str) -> None:
        command = SAMPLES[sample](harness)
        seq = harness.seq
        first, again = harness.engine.submit_many([command, command])
        assert not isinstance(first, Refusal)
        assert type(again) is type(first)
        events = [entry.event for entry in told(harness.store, seq)]
        assert events
        assert all(events.count(event) == 1 for event in events)
        with harness.unchanged():
            harness.ask(command)

    def test_an_edit_sent_again_gives_its_first_answer_although_the_job_has_moved_on(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        move = Move(cmd="x", job_id=A, to="last")
        first = harness.ask(move)
        harness.complete(harness.take())
        harness.take()
        with harness.unchanged():
            assert harness.ask(move) == first

    def test_a_remembered_command_is_still_known_after_a_restart(self, harness: Harness) -> None:
        harness.enqueue("a")
        cancel = Cancel(cmd="x", job_id=A)
        first = harness.ask(cancel)
        harness.restart()
        with harness.unchanged():
            assert harness.ask(cancel) == first

    def test_a_command_id_used_for_something_else_is_refused(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.ask(Cancel(cmd="x", job_id=A))
        harness.refused(IdReused, Cancel(cmd="x", job_id=JobId("b")), cmd="x")
        harness.refused(IdReused, PauseQueue(cmd="x", queue="default"), cmd="x")

    def test_a_refused_edit_is_not_remembered(self, harness: Harness) -> None:
        move = Move(cmd="x", job_id=A, to="first")
        harness.refused(JobNotFound, move)
        harness.enqueue("a")
        harness.ask(move)

    def test_a_command_is_remembered_for_an_hour(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(Cancel(cmd="x", job_id=A))
        harness.advance(3600 - 1)
        harness.tick()
        harness.ask(Cancel(cmd="x", job_id=A))
        harness.advance(1)
        harness.tick()
        harness.refused(InvalidOperation, Cancel(cmd="x", job_id=A), job_id="a")


#: What may be asked about a job, whatever its status.
QUESTIONS: dict[str, Callable[[Token], Command]] = {
    "extend": lambda token: Extend(job_id=A, token=token),
    **REPORTS,
    "cancel": lambda _: Cancel(job_id=A),
    "cancel by force": lambda _: Cancel(job_id=A, force=True),
    "bury": lambda _: Bury(job_id=A),
    "update": lambda _: Update(job_id=A, changes=JobChanges(priority=1)),
    "move": lambda _: Move(job_id=A, to="first"),
    "retry": lambda _: Retry(job_id=A, new_job_id=JobId("again")),
}
_ENDED_EDITS: dict[str, type[HoldfastError]] = dict.fromkeys(
    ("cancel", "cancel by force", "bury", "update", "move"), InvalidOperation
)
#: Status → what is refused there, and as what. Reports carry the token the job had last, or one never granted.
REFUSED: dict[JobStatus, dict[str, type[HoldfastError]]] = {
    JobStatus.QUEUED: {**dict.fromkeys(("extend", *REPORTS), UnknownLease), "retry": InvalidOperation},
    JobStatus.RUNNING: dict.fromkeys(("update", "move", "retry"), InvalidOperation),
    JobStatus.COMPLETED: {
        **_ENDED_EDITS,
        "retry": InvalidOperation,
        "extend": LeaseLost,
        **dict.fromkeys(REPORTS.keys() - {"complete"}, AlreadyReported),
    },
    JobStatus.FAILED: {
        **_ENDED_EDITS,
        "extend": LeaseLost,
        **dict.fromkeys(REPORTS.keys() - {"fail"}, AlreadyReported),
    },
    JobStatus.DEAD: {**_ENDED_EDITS, **dict.fromkeys(("extend", *REPORTS), LeaseLost)},
    JobStatus.CANCELLED: {**_ENDED_EDITS, **dict.fromkeys(("extend", *REPORTS), LeaseLost)},
}


def _bring_to(harness: Harness, status: JobStatus) -> Token:
    """Bring job `a` to a status; give the last token it had, or one that was never granted."""
    harness.enqueue("a", max_attempts=1, max_expiries=1)
    if status is JobStatus.QUEUED:
        return Token(1)
    grant: Grant = harness.take()
    match status:
        case JobStatus.COMPLETED:
            harness.complete(grant)
        case JobStatus.FAILED:
            harness.fail(grant)
        case JobStatus.DEAD:
            harness.advance(30)
            harness.tick()
        case JobStatus.CANCELLED:
            harness.ask(Cancel(job_id=A, force=True))
        case _:
            pass
    assert harness.status("a") is status
    return grant.token


class StateTable(Topic):
    """Every status against every question: what is refused leaves the log as long as it was."""

    @pytest.mark.parametrize("status", REFUSED)
    def test_what_a_status_does_not_allow_is_refused(self, harness: Harness, status: JobStatus) -> None:
        token = _bring_to(harness, status)
        for question, expected in REFUSED[status].items():
            harness.refused(expected, QUESTIONS[question](token), job_id="a")

    @pytest.mark.parametrize(
        ("status", "question"),
        [(status, question) for status in REFUSED for question in sorted(QUESTIONS.keys() - REFUSED[status].keys())],
    )
    def test_what_a_status_allows_is_done(self, harness: Harness, status: JobStatus, question: str) -> None:
        outcome = harness.engine.submit(QUESTIONS[question](_bring_to(harness, status)))
        assert not isinstance(outcome, Refusal), outcome

    def test_no_question_makes_a_running_job_queued_but_those_that_end_its_execution(self, harness: Harness) -> None:
        for question in QUESTIONS.keys() - {"fail", "snooze", "release"}:
            job_id = JobId(question.replace(" ", "-"))
            harness.enqueue(job_id)
            grant = harness.take()
            asked = msgspec.structs.replace(QUESTIONS[question](grant.token), job_id=job_id)
            harness.engine.submit(asked)
            assert harness.status(job_id) is not JobStatus.QUEUED, question

"""Activities: jobs with an owner, fetched through the provider or leased by ordinary workers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.errors import InvalidValue
from holdfast.model.commands import Bury, Cancel, Complete, Fail, GiveUp, Release, Retry, Snooze
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job, JobStatus
from holdfast.model.payloads import blob_ref
from holdfast.model.workflows.instances import owner_of
from holdfast.testing.conformance.marks import counts_writes
from holdfast.testing.conformance.provider_kit import (
    Desk,
    ProviderTopic,
    activity,
    completed,
    signal,
    start,
    started,
)
from holdfast.workflows.provider import (
    ActivityExecute,
    ActivityFailed,
    ActivityOptions,
    Category,
    ErrorDetails,
    QueueDepths,
    ScheduledActivityIdentifier,
    TagFilter,
    WorkItem,
)

NOT_FOUND = "Lock token not found: completed, cancelled or deleted"
BOOM = ErrorDetails(category=Category.APPLICATION, kind="Error", message="boom")
AGAIN = ErrorDetails(category=Category.APPLICATION, kind="Error", message="boom", retryable=True)
QUICK = Backoff(base_s=1, factor=1, jitter=0)


def failed(details: ErrorDetails = BOOM, event_id: int = 2) -> ActivityFailed:
    """Build the failure of an activity."""
    return ActivityFailed(instance="i", execution_id=1, id=event_id, details=details)


def job_of(desk: Desk, event_id: int = 2, instance: str = "i") -> Job:
    """Give the newest job of an activity."""
    with desk.harness.engine.read() as view:
        return view.activities(owner_of(instance, 1, event_id))[-1]


def told(desk: Desk) -> tuple[WorkItem, ...]:
    """Give what the instance hears."""
    return desk.fetch()[0].messages


def silent(desk: Desk) -> None:
    """Demand that the instance has heard nothing."""
    desk.nothing()


class ProviderActivities(ProviderTopic):
    """The worker side of the provider."""

    def test_an_activity_comes_back_as_it_was(self, desk: Desk) -> None:
        sent = activity(7, session_id=None, name="mail.send", input='{"a":1}')
        desk.provider.enqueue_for_worker(sent)
        item, token, attempts = desk.take()
        assert (item, attempts) == (sent, 1)
        assert token.isdigit()

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{}",
            '{"a":1}',
            '{"a": 1}',
            "[1]",
            "nonsense",
            '{"$input":"x"}',
            '{"$blob":"x"}',
            f'{{"a":{bytes(blob_ref("a" * 64, 12)).decode()}}}',
            "\0",
            "ü\u2028",
            '{"a":1,"a":2}',
        ],
    )
    def test_input_comes_back_byte_for_byte(self, desk: Desk, text: str) -> None:
        desk.provider.enqueue_for_worker(activity(input=text))
        item, _, _ = desk.take()
        assert isinstance(item, ActivityExecute)
        assert item.input == text

    def test_large_input_and_result_lie_beside_the_records(self, desk: Desk) -> None:
        large = "x" * 300_000
        desk.begin(worker_items=[activity(input=large)])
        item, token, _ = desk.take()
        assert isinstance(item, ActivityExecute)
        assert item.input == large
        desk.provider.ack_work_item(token, completed(result=large))
        assert told(desk) == (completed(result=large),)

    def test_a_result_that_reads_like_a_reference_is_a_text_like_any_other(self, desk: Desk) -> None:
        text = bytes(blob_ref("a" * 64, 12)).decode()
        desk.begin(worker_items=[activity()])
        desk.provider.ack_work_item(desk.take()[1], completed(result=text))
        assert told(desk) == (completed(result=text),)
        assert desk.harness.authority.store.check() == []

    def test_activities_come_first_in_first_out(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity(number) for number in (2, 3, 4)])
        assert [desk.take()[0].id for _ in range(3)] == [2, 3, 4]  # type: ignore[union-attr]  # all have an id

    def test_priority_comes_first(self, desk: Desk) -> None:
        high = activity(3, options=ActivityOptions(priority=9))
        desk.begin(worker_items=[activity(2), high])
        assert [desk.take()[0].id for _ in range(2)] == [3, 2]  # type: ignore[union-attr]  # all have an id

    def test_jobs_without_an_owner_are_not_seen(self, desk: Desk) -> None:
        desk.harness.enqueue("plain")
        desk.idle()

    @pytest.mark.parametrize(
        "owner",
        [
            "nobody",
            "[]",
            '["i"]',
            "1,2,3",
            '["i",1,"2"]',
            '[ "i",1,2]',
            '["i",-1,2]',
            '["i",1,9223372036854775808]',
            '["",1,2]',
            '["a\\u0000b",1,2]',
        ],
    )
    def test_an_owner_that_names_no_activity_is_refused(self, desk: Desk, owner: str) -> None:
        seq = desk.harness.seq
        with pytest.raises(InvalidValue, match="owner"):
            desk.harness.enqueue("odd", owner=owner)
        assert desk.harness.seq == seq

    def test_a_taken_activity_is_not_taken_again(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        desk.take()
        desk.idle()

    @counts_writes
    def test_a_completion_ends_the_job_and_tells_the_instance_in_one_commit(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        _, token, _ = desk.take()
        seq = desk.harness.seq
        desk.provider.ack_work_item(token, completed())
        assert desk.feed(seq) == ["job:completed", "message:stored"]
        assert told(desk) == (completed(),)
        assert job_of(desk).status is JobStatus.COMPLETED

    def test_a_failure_without_options_is_final(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        desk.provider.ack_work_item(desk.take()[1], failed(AGAIN))
        assert told(desk) == (failed(AGAIN),)
        assert job_of(desk).status is JobStatus.FAILED

    def test_a_completion_is_addressed_by_its_own_fields(self, desk: Desk) -> None:
        desk.begin("i", worker_items=[activity()])
        desk.begin("other")
        desk.provider.ack_work_item(desk.take()[1], completed(9, "other"))
        item, _, _ = desk.fetch()
        assert (item.instance, item.messages) == ("other", (completed(9, "other"),))

    @pytest.mark.parametrize("options", [None, ActivityOptions(), ActivityOptions(retry_mode="chain")])
    @counts_writes
    def test_without_a_completion_the_job_is_cancelled_and_nobody_hears(
        self, desk: Desk, options: ActivityOptions | None
    ) -> None:
        desk.begin(worker_items=[activity(options=options)])
        _, token, _ = desk.take()
        seq = desk.harness.seq
        desk.provider.ack_work_item(token)
        assert desk.feed(seq) == ["job:cancelled"]
        assert job_of(desk).status is JobStatus.CANCELLED
        assert desk.provider.get_queue_depths() == QueueDepths()
        silent(desk)

    def test_without_a_completion_nobody_hears_although_a_person_asked_to_cancel(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        _, token, _ = desk.take()
        desk.harness.ask(Cancel(job_id=job_of(desk).job_id, cmd="c1"))
        desk.provider.ack_work_item(token)
        assert job_of(desk).status is JobStatus.CANCELLED
        silent(desk)

    def test_a_token_serves_once(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        _, token, _ = desk.take()
        desk.provider.ack_work_item(token, completed())
        for call in (
            lambda: desk.provider.ack_work_item(token, completed()),
            lambda: desk.provider.renew_work_item_lock(token, 30.0),
            lambda: desk.provider.abandon_work_item(token),
        ):
            desk.refuses(NOT_FOUND, call)

    def test_a_late_ack_is_refused_and_the_activity_can_be_fetched(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        _, token, _ = desk.take()
        desk.advance(30)
        desk.refuses("Lock expired", desk.provider.ack_work_item, token, completed())
        desk.refuses("Lock expired", desk.provider.renew_work_item_lock, token, 5.0)
        assert desk.take()[2] == 2
        desk.refuses(NOT_FOUND, desk.provider.ack_work_item, token, completed())

    def test_leases_may_be_shorter_than_a_second(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        desk.take(0.5)
        desk.advance(0.5)
        assert desk.take()[2] == 2

    def test_renewing_keeps_the_activity(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        _, token, _ = desk.take()
        for _ in range(4):
            desk.advance(20)
            desk.provider.renew_work_item_lock(token, 30.0)
        desk.idle()

    def test_giving_back_keeps_the_place_and_counts(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity(2), activity(3)])
        _, token, _ = desk.take()
        desk.provider.abandon_work_item(token)
        item, _, attempts = desk.take()
        assert (item, attempts) == (activity(2), 2)

    def test_a_delivery_given_back_does_not_count(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        for _ in range(3):
            _, token, attempts = desk.take()
            assert attempts == 1
            desk.provider.abandon_work_item(token, ignore_attempt=True)

    def test_a_delay_holds_an_activity_back(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        desk.provider.abandon_work_item(desk.take()[1], 10.0)
        desk.idle()
        desk.advance(10)
        assert desk.take()[2] == 2

    def test_an_expired_activity_can_be_given_back(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        _, token, _ = desk.take()
        desk.advance(31)
        desk.provider.abandon_work_item(token, ignore_attempt=True)
        assert desk.take()[2] == 1

    def test_without_options_it_is_delivered_for_ever(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        for attempt in range(1, 12):
            assert desk.take(1.0)[2] == attempt
            desk.advance(1)

    def test_it_is_not_asked_whether_the_instance_is_there(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity(instance="ghost"))
        _, token, _ = desk.take()
        desk.provider.ack_work_item(token, completed(instance="ghost"))
        assert desk.provider.get_queue_depths().parked == 1

    def test_a_completion_of_nobody_waits_for_a_start(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity())
        desk.provider.ack_work_item(desk.take()[1], completed())
        desk.send(start())
        assert completed() in desk.fetch()[0].messages


class ProviderCancellation(ProviderTopic):
    """Activities that are no longer awaited."""

    def activities(self, *numbers: int) -> list[ScheduledActivityIdentifier]:
        return [ScheduledActivityIdentifier(instance="i", execution_id=1, activity_id=number) for number in numbers]

    def test_a_waiting_activity_is_gone(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity(2), activity(3)])
        desk.ack(desk.turn(), cancelled_activities=self.activities(2))
        assert desk.take()[0] == activity(3)
        desk.idle()

    def test_a_running_activity_loses_its_token_at_once(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        _, token, _ = desk.take()
        desk.ack(desk.turn(), cancelled_activities=self.activities(2))
        desk.refuses(NOT_FOUND, desk.provider.renew_work_item_lock, token, 30.0)
        desk.refuses(NOT_FOUND, desk.provider.ack_work_item, token, completed())

    def test_nobody_hears_of_what_the_workflow_cancelled(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        desk.ack(desk.turn(), cancelled_activities=self.activities(2))
        silent(desk)

    def test_an_activity_made_and_cancelled_in_one_ack_is_never_fetchable(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()], cancelled_activities=self.activities(2))
        desk.idle()
        assert job_of(desk).status is JobStatus.CANCELLED

    def test_activities_that_are_not_there_do_not_matter(self, desk: Desk) -> None:
        desk.begin(cancelled_activities=self.activities(2, 3))
        desk.begin("j", worker_items=[activity(2, "j")], cancelled_activities=self.activities(2))
        assert desk.take()[0] == activity(2, "j")

    def test_an_activity_that_is_over_stays_as_it_ended(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        desk.provider.ack_work_item(desk.take()[1], completed())
        _, token, _ = desk.fetch()
        desk.ack(token, cancelled_activities=self.activities(2))
        assert job_of(desk).status is JobStatus.COMPLETED


class ProviderOwners(ProviderTopic):
    """What the end of a job tells the workflow that waits for it, whoever ran it."""

    def with_options(self, desk: Desk, **options: Any) -> None:
        given = ActivityOptions(**({"backoff": QUICK} | options))
        desk.begin(worker_items=[activity(options=given)])

    def test_ordinary_workers_lease_activities_like_any_job(self, desk: Desk) -> None:
        self.with_options(desk)
        grant = desk.harness.take()
        desk.harness.complete(grant, {"sum": 3})
        assert told(desk) == (completed(result='{"sum":3}'),)

    def test_a_result_of_nothing_is_null(self, desk: Desk) -> None:
        self.with_options(desk)
        desk.harness.complete(desk.harness.take())
        assert told(desk) == (completed(result="null"),)

    def test_a_large_result_reaches_the_owner(self, desk: Desk) -> None:
        self.with_options(desk)
        desk.harness.complete(desk.harness.take(), "y" * 200_000)
        assert told(desk) == (completed(result='"' + "y" * 200_000 + '"'),)

    def test_a_failure_with_attempts_left_tells_nobody(self, desk: Desk) -> None:
        self.with_options(desk, max_attempts=2)
        desk.harness.fail(desk.harness.take(), "first")
        silent(desk)
        desk.advance(1)
        desk.harness.fail(desk.harness.take(), "second")
        (message,) = told(desk)
        assert isinstance(message, ActivityFailed)
        assert (message.details.message, message.details.category) == ("second", "Application")
        assert (message.details.attempt_count, message.details.max_attempts) == (2, 2)

    def test_the_details_of_the_last_run_are_told(self, desk: Desk) -> None:
        self.with_options(desk, max_attempts=1)
        details = ErrorDetails(category=Category.CONFIGURATION, kind="Odd", message="m", type_name="ValueError")
        raw = msgspec.Raw(msgspec.json.encode(details))
        desk.harness.fail(desk.harness.take(), "text", details=raw)
        (message,) = told(desk)
        assert isinstance(message, ActivityFailed)
        assert (message.details.category, message.details.kind, message.details.type_name) == (
            "Configuration",
            "Odd",
            "ValueError",
        )

    def test_the_provider_judges_by_the_jobs_rules_where_there_are_options(self, desk: Desk) -> None:
        self.with_options(desk, max_attempts=3)
        desk.provider.ack_work_item(desk.take()[1], failed(AGAIN))
        silent(desk)
        desk.advance(1)
        assert desk.take()[2] == 2

    def test_a_failure_that_is_not_retryable_is_final(self, desk: Desk) -> None:
        self.with_options(desk, max_attempts=3)
        desk.provider.ack_work_item(desk.take()[1], failed(BOOM))
        assert told(desk) == (failed(BOOM),)

    def test_a_job_that_kills_its_workers_is_poison(self, desk: Desk) -> None:
        self.with_options(desk, max_expiries=2, lease_s=5.0)
        for _ in range(2):
            desk.harness.take()
            desk.advance(5)
            desk.harness.tick()
        (message,) = told(desk)
        assert isinstance(message, ActivityFailed)
        assert (message.details.category, message.details.kind) == ("Poison", "Dead")

    def test_a_buried_job_is_poison(self, desk: Desk) -> None:
        self.with_options(desk)
        desk.harness.ask(Bury(job_id=job_of(desk).job_id, reason="enough"))
        (message,) = told(desk)
        assert isinstance(message, ActivityFailed)
        assert (message.details.category, message.details.message) == ("Poison", "enough")

    def test_a_job_a_person_cancelled_is_told_as_cancelled(self, desk: Desk) -> None:
        self.with_options(desk)
        desk.harness.ask(Cancel(job_id=job_of(desk).job_id, reason="no need"))
        (message,) = told(desk)
        assert isinstance(message, ActivityFailed)
        assert (message.details.kind, message.details.message) == ("Cancelled", "no need")

    def test_a_handler_that_gives_up_is_told_as_cancelled(self, desk: Desk) -> None:
        self.with_options(desk)
        grant = desk.harness.take()
        desk.harness.ask(GiveUp(job_id=grant.job.job_id, token=grant.token, reason="nothing to do"))
        (message,) = told(desk)
        assert isinstance(message, ActivityFailed)
        assert message.details.kind == "Cancelled"

    def test_a_snoozed_or_released_job_tells_nobody(self, desk: Desk) -> None:
        self.with_options(desk)
        grant = desk.harness.take()
        desk.harness.ask(Snooze(job_id=grant.job.job_id, token=grant.token, delay_s=1))
        desk.advance(1)
        grant = desk.harness.take()
        desk.harness.ask(Release(job_id=grant.job.job_id, token=grant.token, begun=True))
        silent(desk)

    def test_a_cancel_request_that_is_obeyed_is_told_once(self, desk: Desk) -> None:
        self.with_options(desk)
        grant = desk.harness.take()
        desk.harness.ask(Cancel(job_id=grant.job.job_id, reason="stop"))
        silent(desk)
        desk.harness.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="stopped"))
        assert len(told(desk)) == 1

    def test_a_chain_hands_the_owner_on(self, desk: Desk) -> None:
        self.with_options(desk, max_attempts=2, retry_mode="chain")
        desk.harness.fail(desk.harness.take())
        silent(desk)
        desk.advance(1)
        desk.harness.complete(desk.harness.take(), 1)
        assert told(desk) == (completed(result="1"),)

    def test_a_manual_retry_has_no_owner(self, desk: Desk) -> None:
        self.with_options(desk, max_attempts=1)
        desk.harness.fail(desk.harness.take())
        told(desk)
        desk.harness.ask(Retry(job_id=job_of(desk).job_id, new_job_id=JobId("again")))
        assert desk.harness.job("again").owner is None

    def test_a_report_sent_again_tells_the_owner_once(self, desk: Desk) -> None:
        self.with_options(desk)
        grant = desk.harness.take()
        report = Complete(job_id=grant.job.job_id, token=grant.token, result=msgspec.Raw(b"1"))
        desk.harness.ask(report)
        desk.harness.ask(report)
        assert len(told(desk)) == 1

    def test_a_plain_job_tells_nobody(self, desk: Desk) -> None:
        desk.harness.enqueue("plain")
        seq = desk.harness.seq
        desk.harness.complete(desk.harness.take(), 1)
        assert "message:stored" not in desk.feed(seq)

    def test_the_options_of_an_activity_are_the_jobs(self, desk: Desk) -> None:
        self.with_options(desk, priority=5, max_attempts=7, timeout_s=9.5, limit_key="k", key_limit=3)
        job = job_of(desk)
        assert (job.priority, job.max_attempts, job.max_expiries, job.timeout_s) == (5, 7, 5, 9.5)
        assert (job.limit_key, job.key_limit, job.backoff, job.queue) == ("k", 3, QUICK, "default")

    def test_an_activity_may_wait_for_its_time(self, desk: Desk) -> None:
        self.with_options(desk, not_before_ms=desk.now_ms + 5000)
        desk.idle()
        desk.advance(5)
        desk.take()


class ProviderTags(ProviderTopic):
    """Routing by tags."""

    def tagged(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity(2), activity(3, tag="gpu"), activity(4, tag="big")])

    def test_without_a_filter_only_untagged_ones_come(self, desk: Desk) -> None:
        self.tagged(desk)
        assert desk.take()[0] == activity(2)
        desk.idle()

    def test_named_tags_alone(self, desk: Desk) -> None:
        self.tagged(desk)
        assert desk.take(tag_filter=TagFilter.of("big"))[0] == activity(4, tag="big")
        desk.idle(tag_filter=TagFilter.of("big"))

    def test_untagged_and_named_ones(self, desk: Desk) -> None:
        self.tagged(desk)
        wanted = TagFilter.default_and("gpu")
        assert [desk.take(tag_filter=wanted)[0].id for _ in range(2)] == [2, 3]  # type: ignore[union-attr]  # all have an id
        desk.idle(tag_filter=wanted)

    def test_any_tag(self, desk: Desk) -> None:
        self.tagged(desk)
        got = {desk.take(tag_filter=TagFilter.any())[0].id for _ in range(3)}  # type: ignore[union-attr]  # all have an id
        assert got == {2, 3, 4}

    def test_none_takes_nothing_and_does_not_wait(self, desk: Desk) -> None:
        self.tagged(desk)
        assert desk.provider.fetch_work_item(30.0, 3600.0, tag_filter=TagFilter.none()) is None

    def test_a_tag_survives_giving_back_and_expiry(self, desk: Desk) -> None:
        self.tagged(desk)
        wanted = TagFilter.of("gpu")
        desk.provider.abandon_work_item(desk.take(tag_filter=wanted)[1])
        desk.take(tag_filter=wanted)
        desk.advance(31)
        assert desk.take(tag_filter=wanted)[0] == activity(3, tag="gpu")

    def test_a_tag_spelled_default_is_refused(self, desk: Desk) -> None:
        desk.refuses(
            "invalid tag: 'default' is the queue of activities without a tag; leave it out",
            desk.provider.enqueue_for_worker,
            activity(tag="default"),
        )

    def test_the_history_of_an_activity_does_not_matter_to_its_queue(self, desk: Desk) -> None:
        desk.send(start("other"))
        _, token, _ = desk.fetch()
        desk.ack(token, started("other"), worker_items=[activity(2, "other", tag="gpu")])
        desk.send(signal("other"))
        assert desk.take(tag_filter=TagFilter.of("gpu"))[0] == activity(2, "other", tag="gpu")

"""Webhooks: one delivery for each ended run and each webhook that wants it, in the commit that ends the run. §16."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from holdfast.engine.maintenance import tick
from holdfast.errors import (
    DeliveryNotFound,
    IdReused,
    InvalidOperation,
    InvalidValue,
    LeaseLost,
    WebhookNotFound,
)
from holdfast.failpoints import listening
from holdfast.model.commands import (
    Bury,
    Cancel,
    ClaimDeliveries,
    Complete,
    DeleteWebhook,
    EndDelivery,
    EndSessions,
    GiveUp,
    ProbeWebhook,
    PutSchedule,
    PutWebhook,
    Redeliver,
    Release,
    Retention,
    RotateSecret,
    Snooze,
    UpdateWebhook,
)
from holdfast.model.ids import JobId
from holdfast.model.jobs import JobStatus, RunStatus
from holdfast.model.outcomes import Claim, Claimed, Saved
from holdfast.model.schedules import NewSchedule
from holdfast.model.times import later
from holdfast.model.webhooks import Delivery, DeliveryStatus, NewWebhook, Webhook, WebhookChanges
from holdfast.rules.webhooks.deliveries import CLAIM_S
from holdfast.stores.protocol import DeliveryQuery
from holdfast.testing.conformance.commands import webhook
from holdfast.testing.conformance.harness import Harness, Topic, break_here
from holdfast.testing.conformance.marks import counts_writes

URL = "https://receiver.example/hook"
SECRET = "a-secret-of-ours"  # noqa: S105 - no one's
PENDING, DELIVERED, FAILED = DeliveryStatus.PENDING, DeliveryStatus.DELIVERED, DeliveryStatus.FAILED


def deliveries(h: Harness, webhook_id: str = "hook", status: DeliveryStatus | None = None) -> list[Delivery]:
    """Give the deliveries of a webhook, oldest first."""
    with h.engine.read() as view:
        found = view.deliveries(DeliveryQuery(webhook_id=webhook_id, status=status))
        assert sorted(found, key=lambda one: (one.created_at, one.delivery_id), reverse=True) == list(found)
        ended = [one for one in view.all(Delivery) if one.webhook_id == webhook_id and status in (None, one.status)]
        assert sorted(found, key=lambda one: one.delivery_id) == ended[:50]
    return list(reversed(found))


def bodies(h: Harness, webhook_id: str = "hook") -> list[dict[str, Any]]:
    """Give what the deliveries of a webhook say, by the number of their event."""
    return sorted((json.loads(one.body) for one in deliveries(h, webhook_id)), key=lambda body: body["seq"])


def events(h: Harness, webhook_id: str = "hook") -> list[str]:
    """Name what the deliveries of a webhook tell of."""
    return [body["event"] for body in bodies(h, webhook_id)]


def claim(h: Harness, limit: int = 8) -> tuple[Claim, ...]:
    """Claim what is due."""
    outcome = h.ask(ClaimDeliveries(limit=limit))
    assert isinstance(outcome, Claimed)
    return outcome.claims


def end(h: Harness, held: Claim, status: int | None = 200, error: str | None = None) -> Delivery:
    """Record a try; give the delivery as it is then."""
    h.ask(EndDelivery(delivery_id=held.delivery_id, claimed_until=held.claimed_until, status=status, error=error))
    return delivery(h, held.delivery_id)


def delivery(h: Harness, delivery_id: str) -> Delivery:
    """Read a delivery."""
    with h.engine.read() as view:
        found = view.get(Delivery, delivery_id)
    assert found is not None
    return found


def owe(h: Harness, job_id: str = "a", **options: Any) -> Delivery:
    """End a run, and give the delivery that is owed for it."""
    h.enqueue(job_id, **options)
    h.complete(h.take())
    return next(one for one in deliveries(h) if one.job_id == job_id)


class Owed(Topic):
    """What is owed, and what it says."""

    @counts_writes
    def test_without_a_webhook_nothing_is_owed(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.complete(harness.take())
        assert harness.kinds() == ["job:created", "lease:granted", "job:completed"]

    def test_a_run_that_ends_owes_one_delivery_to_each_webhook_in_the_same_commit(self, harness: Harness) -> None:
        webhook(harness, "one")
        webhook(harness, "two")
        harness.enqueue("a")
        held = harness.take()
        seq = harness.seq
        harness.complete(held)
        assert harness.kinds(seq) == ["job:completed", "delivery:created", "delivery:created"]
        for name in ("one", "two"):
            (owed,) = deliveries(harness, name)
            assert (owed.status, owed.attempts, owed.next_attempt_at) == (PENDING, 0, harness.now)
            assert (owed.run_id, owed.job_id, owed.event) == (held.run_id, "a", "job.run.completed")

    @pytest.mark.parametrize("point", ["engine.decided", "engine.committed"])
    @pytest.mark.parametrize("mode", ["requeue", "chain"])
    def test_a_crash_around_the_commit_leaves_failure_retry_and_delivery_all_or_none(
        self, harness: Harness, point: str, mode: str
    ) -> None:
        webhook(harness)
        harness.enqueue("a", retry_mode=mode)
        held = harness.take()
        with listening(point, break_here), pytest.raises(harness.breaks):
            harness.fail(held)
        if harness.store.promises.reopens:
            harness.reopen()
        is_done = point == "engine.committed"
        assert (harness.runs("a")[0].status is RunStatus.FAILED) is is_done
        assert (harness.status("a") is not JobStatus.RUNNING) is is_done
        assert len(deliveries(harness)) == is_done
        assert len(harness.heirs("a")) == (is_done and mode == "chain")

    def test_a_crash_at_every_point_of_the_store_leaves_all_or_none(self, harness: Harness) -> None:
        webhook(harness)
        for number, point in enumerate(self.points):
            harness.enqueue(str(number), max_attempts=1)
            held = harness.take()
            with listening(point, break_here), pytest.raises(BaseException):  # noqa: B017, PT011 - stores wrap it as they must
                harness.fail(held)
            if not harness.store.promises.reopens:
                harness.restart()
            else:
                harness.reopen()
            ended = harness.runs(str(number))[0].status is RunStatus.FAILED
            told = [one for one in deliveries(harness) if one.job_id == str(number)]
            assert len(told) == ended, point
            if not ended:
                harness.ask(Cancel(job_id=JobId(str(number)), force=True))

    def test_the_body_has_exactly_its_fields(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a", job_type="mail.send", queue="mail", max_attempts=2)
        held = harness.take(queues=("mail",))
        harness.advance(1.5)
        artifacts = msgspec.Raw(b'[{"name":"r.pdf","size":3}]')
        harness.ask(Complete(job_id=JobId("a"), token=held.token, artifacts=artifacts, exit_code=0))
        (owed,) = deliveries(harness)
        assert list(json.loads(owed.body).items()) == [
            ("event", "job.run.completed"),
            ("delivery_id", owed.delivery_id),
            ("run_id", held.run_id),
            ("job_id", "a"),
            ("job_type", "mail.send"),
            ("namespace", ""),
            ("queue", "mail"),
            ("status", "COMPLETED"),
            ("job_status", "COMPLETED"),
            ("final", True),
            ("run_no", 1),
            ("started_at", harness.after(0)),
            ("finished_at", harness.after(1.5)),
            ("exit_code", 0),
            ("error", None),
            ("artifacts", [{"name": "r.pdf", "size": 3}]),
            ("template_id", None),
            ("schedule_id", None),
            ("group_id", None),
            ("retry_of", None),
            ("seq", harness.job("a").seq),
        ]

    def test_the_body_is_frozen(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a", max_attempts=2)
        harness.fail(harness.take())
        (first,) = deliveries(harness)
        harness.advance(100)
        harness.complete(harness.take())
        assert delivery(harness, first.delivery_id).body == first.body
        assert json.loads(first.body)["job_status"] == "QUEUED"
        if harness.store.promises.reopens:
            harness.reopen()
            assert delivery(harness, first.delivery_id).body == first.body

    def test_every_way_a_run_ends_is_told_with_its_status_and_whether_it_was_the_last(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a", max_attempts=2, max_expiries=2, queue="default")
        harness.fail(harness.take(), error="boom")
        harness.advance(60)
        held = harness.take()
        harness.ask(Snooze(job_id=JobId("a"), token=held.token, delay_s=0))
        held = harness.take()
        harness.ask(Release(job_id=JobId("a"), token=held.token, begun=True))
        harness.take()
        harness.advance(60)
        harness.tick()
        harness.fail(harness.take(), error="boom again")
        told = [(body["event"], body["status"], body["job_status"], body["final"]) for body in bodies(harness)]
        assert told == [
            ("job.run.failed", "FAILED", "QUEUED", False),
            ("job.run.skipped", "SKIPPED", "QUEUED", False),
            ("job.run.cancelled", "CANCELLED", "QUEUED", False),
            ("job.run.lost", "LOST", "QUEUED", False),
            ("job.run.failed", "FAILED", "FAILED", True),
        ]
        assert [body["error"] for body in bodies(harness)] == [
            "boom",
            None,
            None,
            "worker did not report",
            "boom again",
        ]
        assert [body["run_no"] for body in bodies(harness)] == [1, 2, 3, 4, 5]

    def test_in_a_chain_a_run_that_is_followed_by_a_retry_is_not_the_last(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a", retry_mode="chain", max_attempts=2)
        harness.fail(harness.take())
        harness.advance(60)
        heir = harness.take()
        harness.complete(heir)
        first, last = bodies(harness)
        assert (first["job_id"], first["job_status"], first["final"], first["retry_of"]) == ("a", "FAILED", False, None)
        assert (last["job_id"], last["final"], last["retry_of"]) == (heir.job.job_id, True, "a")

    def test_runs_that_people_end_are_told(self, harness: Harness) -> None:
        webhook(harness)
        for job_id in ("a", "b", "c"):
            harness.enqueue(job_id)
        held = {grant.job.job_id: grant for grant in harness.lease(3)}
        harness.ask(Cancel(job_id=JobId("a"), force=True))
        harness.ask(Bury(job_id=JobId("b")))
        harness.ask(GiveUp(job_id=JobId("c"), token=held[JobId("c")].token))
        assert events(harness) == ["job.run.cancelled"] * 3
        assert [body["job_status"] for body in bodies(harness)] == ["CANCELLED", "DEAD", "CANCELLED"]

    def test_what_ends_without_a_run_is_not_told(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a")
        harness.enqueue("b")
        harness.ask(Cancel(job_id=JobId("a")))
        harness.ask(Bury(job_id=JobId("b")))
        assert deliveries(harness) == []

    def test_a_job_whose_latest_start_has_passed_is_told_as_skipped(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a", ttl_s=10)
        harness.advance(11)
        harness.tick()
        (body,) = bodies(harness)
        assert (body["event"], body["run_no"], body["final"]) == ("job.run.skipped", 0, True)

    def test_a_fire_that_is_made_and_skipped_at_once_is_told(self, harness: Harness) -> None:
        webhook(harness)
        new = NewSchedule(name="s", job_type="work", interval_s=60)
        harness.ask(PutSchedule(schedule_id="s", schedule=new))
        harness.advance(60)
        tick(harness.authority)
        harness.take()
        harness.advance(60)
        tick(harness.authority)
        told = [(body["event"], body["schedule_id"]) for body in bodies(harness)]
        assert ("job.run.skipped", "s") in told

    def test_a_lost_run_whose_job_is_too_late_for_another_is_told_with_the_run_that_never_was(
        self, harness: Harness
    ) -> None:
        webhook(harness)
        harness.enqueue("a", ttl_s=20, lease_s=30)
        harness.take()
        harness.advance(31)
        harness.tick()
        assert sorted(events(harness)) == ["job.run.lost", "job.run.skipped"]

    def test_recovery_tells_of_runs_that_an_earlier_opening_left(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a")
        harness.take(session_id="an earlier opening")
        assert harness.authority.session_id is not None
        harness.ask(EndSessions(session_id=harness.authority.session_id))
        harness.recover()
        assert events(harness) == ["job.run.lost"]

    def test_a_webhook_hears_of_its_events_queues_and_namespace_only(self, harness: Harness) -> None:
        webhook(harness, "failures", events=("job.run.failed", "job.run.lost"))
        webhook(harness, "mail", queues=("mail", "post"))
        webhook(harness, "elsewhere", namespace="other")
        for job_id, queue in (("a", "mail"), ("b", "default")):
            harness.enqueue(job_id, queue=queue, max_attempts=1)
            harness.fail(harness.take(queues=(queue,)))
        harness.enqueue("c")
        harness.complete(harness.take())
        assert [body["job_id"] for body in bodies(harness, "failures")] == ["a", "b"]
        assert [body["job_id"] for body in bodies(harness, "mail")] == ["a"]
        assert deliveries(harness, "elsewhere") == []
        harness.enqueue("d", namespace="other")
        harness.complete(harness.take(namespace="other"))
        assert [body["namespace"] for body in bodies(harness, "elsewhere")] == ["other"]

    def test_a_disabled_webhook_hears_of_nothing_until_it_is_enabled(self, harness: Harness) -> None:
        webhook(harness)
        harness.ask(UpdateWebhook(webhook_id="hook", changes=WebhookChanges(enabled=False)))
        harness.enqueue("a")
        harness.complete(harness.take())
        assert deliveries(harness) == []
        harness.ask(UpdateWebhook(webhook_id="hook", changes=WebhookChanges(enabled=True)))
        owe(harness, "b")
        assert [body["job_id"] for body in bodies(harness)] == ["b"]

    def test_commands_of_one_batch_see_a_webhook_that_an_earlier_one_made(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.enqueue("b")
        first, second = harness.lease(2)
        put = PutWebhook(webhook_id="hook", webhook=NewWebhook(url=URL, secrets=(SECRET,)))
        ends = [Complete(job_id=held.job.job_id, token=held.token) for held in (first, second)]
        harness.engine.submit_many([ends[0], put, ends[1], DeleteWebhook(webhook_id="hook")])
        assert [body["job_id"] for body in bodies(harness)] == ["b"]

    def test_a_run_reported_twice_is_told_once(self, harness: Harness) -> None:
        webhook(harness)
        harness.enqueue("a")
        held = harness.take()
        harness.complete(held)
        with harness.unchanged():
            harness.complete(held)
        assert len(deliveries(harness)) == 1


class Deliveries(Topic):
    """Sending: claims, tries, ends."""

    def test_a_delivery_is_claimed_by_one_at_a_time_and_due_again_when_the_claim_lapses(self, harness: Harness) -> None:
        webhook(harness)
        owed = owe(harness)
        (held,) = claim(harness)
        assert (held.delivery_id, held.claimed_until) == (owed.delivery_id, harness.after(CLAIM_S))
        with harness.unchanged():
            assert claim(harness) == ()
        harness.advance(CLAIM_S - 0.001)
        assert claim(harness) == ()
        harness.restart()
        harness.advance(0.001)
        (again,) = claim(harness)
        assert again.claimed_until == harness.after(2 * CLAIM_S)
        late = EndDelivery(delivery_id=held.delivery_id, claimed_until=held.claimed_until, status=200)
        harness.refused(LeaseLost, late, delivery_id=held.delivery_id)
        assert end(harness, again).status is DELIVERED

    def test_a_claim_that_nobody_took_over_may_still_be_reported(self, harness: Harness) -> None:
        webhook(harness)
        owe(harness)
        (held,) = claim(harness)
        harness.advance(CLAIM_S + 5)
        assert end(harness, held).status is DELIVERED

    def test_no_more_are_claimed_than_asked_for_the_oldest_first(self, harness: Harness) -> None:
        webhook(harness)
        made = []
        for job_id in ("a", "b", "c"):
            made.append(owe(harness, job_id).delivery_id)
            harness.advance(1)
        assert [held.delivery_id for held in claim(harness, 2)] == made[:2]
        assert [held.delivery_id for held in claim(harness, 2)] == made[2:]

    @pytest.mark.parametrize(("status", "error"), [(500, None), (302, None), (404, None), (None, "timed out")])
    def test_a_try_that_fails_is_repeated_after_5_15_and_45_seconds_and_then_no_more(
        self, harness: Harness, status: int | None, error: str | None
    ) -> None:
        webhook(harness)
        body = owe(harness).body
        for tries, wait_s in ((1, 5), (2, 15), (3, 45)):
            (held,) = claim(harness)
            harness.advance(2)  # from the end of a try, not from its beginning
            tried = end(harness, held, status, error)
            assert (tried.status, tried.attempts, tried.claimed_until) == (PENDING, tries, None)
            assert (tried.last_status, tried.body) == (status, body)
            assert tried.last_error == (error or tried.last_error)
            assert tried.next_attempt_at == later(harness.now, wait_s)
            harness.advance(wait_s - 0.001)
            assert claim(harness) == ()
            harness.advance(0.001)
        (held,) = claim(harness)
        last = end(harness, held, status, error)
        assert (last.status, last.attempts, last.finished_at) == (FAILED, 4, harness.now)
        harness.advance(10_000)
        assert claim(harness) == ()

    def test_a_failure_and_then_a_success_is_delivered(self, harness: Harness) -> None:
        webhook(harness)
        owe(harness)
        (held,) = claim(harness)
        end(harness, held, 500)
        harness.advance(5)
        (held,) = claim(harness)
        done = end(harness, held, 204)
        assert (done.status, done.attempts, done.last_status, done.last_error) == (DELIVERED, 2, 204, None)
        assert (done.finished_at, done.claimed_until) == (harness.now, None)

    def test_gone_fails_at_once(self, harness: Harness) -> None:
        webhook(harness)
        owe(harness)
        (held,) = claim(harness)
        done = end(harness, held, 410)
        assert (done.status, done.attempts, done.last_status) == (FAILED, 1, 410)

    def test_redelivering_starts_anew_with_the_same_body(self, harness: Harness) -> None:
        webhook(harness)
        body = owe(harness).body
        (held,) = claim(harness)
        end(harness, held, 410)
        harness.advance(100)
        harness.ask(Redeliver(delivery_id=held.delivery_id))
        again = delivery(harness, held.delivery_id)
        assert (again.status, again.attempts, again.next_attempt_at) == (PENDING, 0, harness.now)
        assert (again.finished_at, again.body) == (None, body)
        (held,) = claim(harness)
        assert end(harness, held, 500).next_attempt_at == later(harness.now, 5)

    def test_what_is_being_sent_is_not_redelivered_beside_it(self, harness: Harness) -> None:
        webhook(harness)
        owe(harness)
        (held,) = claim(harness)
        harness.refused(InvalidOperation, Redeliver(delivery_id=held.delivery_id), delivery_id=held.delivery_id)
        harness.advance(CLAIM_S)
        harness.ask(Redeliver(delivery_id=held.delivery_id))
        late = EndDelivery(delivery_id=held.delivery_id, claimed_until=held.claimed_until, status=200)
        harness.refused(LeaseLost, late)

    @pytest.mark.parametrize("gone", ["removed", "disabled"])
    def test_what_a_webhook_is_owed_is_not_sent_once_it_is_removed_or_disabled(
        self, harness: Harness, gone: str
    ) -> None:
        webhook(harness)
        owed = owe(harness)
        if gone == "removed":
            harness.ask(DeleteWebhook(webhook_id="hook"))
        else:
            harness.ask(UpdateWebhook(webhook_id="hook", changes=WebhookChanges(enabled=False)))
        assert claim(harness) == ()
        ended = delivery(harness, owed.delivery_id)
        assert (ended.status, ended.attempts) == (FAILED, 0)
        assert gone in (ended.last_error or "")
        harness.refused(InvalidOperation, Redeliver(delivery_id=owed.delivery_id), delivery_id=owed.delivery_id)

    def test_deliveries_are_forgotten_a_week_after_they_ended_and_never_before(self, harness: Harness) -> None:
        webhook(harness)
        owe(harness)
        (held,) = claim(harness)
        end(harness, held, 200)
        waiting = owe(harness, "b")
        harness.advance(7 * 86_400 - 1)
        harness.tick()
        assert len(deliveries(harness)) == 2
        harness.advance(1)
        harness.tick()
        assert [one.delivery_id for one in deliveries(harness)] == [waiting.delivery_id]
        with harness.unchanged():
            harness.tick()

    def test_how_long_they_are_kept_can_be_chosen(self, harness: Harness) -> None:
        webhook(harness)
        owe(harness)
        (held,) = claim(harness)
        end(harness, held, 200)
        harness.advance(60)
        harness.tick(Retention(deliveries_s=60))
        assert deliveries(harness) == []

    def test_a_delivery_outlives_its_job(self, harness: Harness) -> None:
        webhook(harness)
        body = owe(harness).body
        harness.advance(60)
        harness.tick(Retention(done_s=1))
        (held,) = claim(harness)
        assert delivery(harness, held.delivery_id).body == body

    def test_a_test_is_tried_once_by_whoever_asked_for_it(self, harness: Harness) -> None:
        webhook(harness)
        outcome = harness.ask(ProbeWebhook(webhook_id="hook", delivery_id="d"))
        assert isinstance(outcome, Claimed)
        (held,) = outcome.claims
        assert claim(harness) == ()
        probe = delivery(harness, "d")
        assert (probe.event, probe.run_id) == ("webhook.test", "d")
        body = json.loads(probe.body)
        assert (body["event"], body["delivery_id"], body["run_id"], body["final"]) == ("webhook.test", "d", None, False)
        assert end(harness, held, 500).status is FAILED
        harness.refused(WebhookNotFound, ProbeWebhook(webhook_id="none", delivery_id="e"), webhook_id="none")

    def test_two_openings_never_claim_the_same(self, harness: Harness) -> None:
        other = harness.second()
        webhook(harness)
        for number in range(20):
            owe(harness, str(number))
        taken = []
        for number in range(20):
            outcome = (harness.engine, other)[number % 2].ask(ClaimDeliveries(limit=1))
            assert isinstance(outcome, Claimed)
            taken += [held.delivery_id for held in outcome.claims]
        assert len(taken) == len(set(taken)) == 20

    def test_who_is_owed_much_leaves_room_for_others(self, harness: Harness) -> None:
        webhook(harness)
        for number in range(6):
            owe(harness, f"much-{number}")
        webhook(harness, webhook_id="other")
        owe(harness, "last")
        outcome = harness.ask(ClaimDeliveries(limit=3, under_way=("hook", "hook")))
        assert isinstance(outcome, Claimed)
        # Others first, then the hands that they leave.
        assert [held.webhook_id for held in outcome.claims] == ["other", "hook", "hook"]
        assert [held.webhook_id for held in claim(harness)] == ["hook"] * 5

    def test_what_names_no_delivery_or_makes_no_sense_is_refused(self, harness: Harness) -> None:
        harness.refused(DeliveryNotFound, Redeliver(delivery_id="none"), delivery_id="none")
        late = EndDelivery(delivery_id="none", claimed_until=harness.now, status=200)
        harness.refused(DeliveryNotFound, late, delivery_id="none")
        harness.refused(InvalidValue, ClaimDeliveries(limit=0), field="limit")
        harness.refused(InvalidValue, ClaimDeliveries(limit=101), field="limit")
        odd = EndDelivery(delivery_id="d", claimed_until=harness.now, status=99)
        harness.refused(InvalidValue, odd, field="status")


class Webhooks(Topic):
    """Making, editing, removing; and what may not be one."""

    def hook(self, harness: Harness, webhook_id: str = "hook") -> Webhook:
        with harness.authority.read() as view:  # who else may see secrets
            found = view.get(Webhook, webhook_id)
        assert found is not None
        return found

    def put(
        self, webhook_id: str = "hook", *, replace: bool = False, allow: tuple[str, ...] = (), **fields: Any
    ) -> PutWebhook:
        new = NewWebhook(**{"url": URL, "secrets": (SECRET,), **fields})
        return PutWebhook(webhook_id=webhook_id, webhook=new, replace=replace, allow=allow)

    @counts_writes
    def test_a_webhook_is_what_it_was_asked_to_be(self, harness: Harness) -> None:
        made = harness.ask(self.put(events=("job.run.failed",), queues=("mail",)))
        assert made == Saved(id="hook", version=1, created=True)
        assert self.hook(harness) == Webhook(
            webhook_id="hook",
            url=URL,
            created_at=harness.now,
            events=("job.run.failed",),
            queues=("mail",),
            secrets=(SECRET,),
        )
        with harness.unchanged():
            assert harness.ask(self.put(events=("job.run.failed",), queues=("mail",))) == made

    @counts_writes
    def test_an_id_belongs_to_one_webhook_unless_it_is_to_be_replaced(self, harness: Harness) -> None:
        harness.ask(self.put())
        harness.refused(IdReused, self.put(url="https://elsewhere.example/"), webhook_id="hook")
        harness.ask(UpdateWebhook(webhook_id="hook", changes=WebhookChanges(enabled=False)))
        harness.ask(self.put(url="https://elsewhere.example/", secrets=None, replace=True))
        replaced = self.hook(harness)
        assert (replaced.url, replaced.secrets, replaced.enabled) == ("https://elsewhere.example/", (SECRET,), False)
        with harness.unchanged():
            harness.ask(self.put(url="https://elsewhere.example/", secrets=None, replace=True))
        harness.refused(IdReused, self.put(namespace="other", replace=True), webhook_id="hook")

    @counts_writes
    def test_secrets_are_changed_one_after_the_other(self, harness: Harness) -> None:
        harness.ask(self.put())
        harness.ask(RotateSecret(webhook_id="hook", secret="second-secret"))  # noqa: S106 - no one's
        assert self.hook(harness).secrets == ("second-secret", SECRET)
        harness.ask(RotateSecret(webhook_id="hook", secret="third-secret"))  # noqa: S106 - no one's
        assert self.hook(harness).secrets == ("third-secret", "second-secret")
        harness.refused(InvalidOperation, RotateSecret(webhook_id="hook", secret="third-secret"))  # noqa: S106 - the same
        harness.ask(RotateSecret(webhook_id="hook"))
        assert self.hook(harness).secrets == ("third-secret",)
        with harness.unchanged():
            harness.ask(RotateSecret(webhook_id="hook"))
        harness.refused(InvalidValue, RotateSecret(webhook_id="hook", secret="x" * 257), field="secret")

    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc/passwd",
            "http://169.254.169.254/latest/meta-data/",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://0251.0376.0251.0376/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fd00:ec2::254]/",
            "http://localhost:8080/",
            "https://user:password@receiver.example/",
            "",
        ],
    )
    def test_an_address_that_is_none_or_not_public_is_refused_before_anything_changes(
        self, harness: Harness, url: str
    ) -> None:
        harness.refused(InvalidValue, self.put(url=url), field="url")
        harness.ask(self.put())
        harness.refused(InvalidValue, self.put(url=url, replace=True), field="url")
        harness.refused(InvalidValue, UpdateWebhook(webhook_id="hook", changes=WebhookChanges(url=url)), field="url")

    def test_an_address_of_a_network_that_is_allowed_is_taken_and_may_stay(self, harness: Harness) -> None:
        harness.ask(self.put(url="http://127.0.0.1:8080/", allow=("127.0.0.0/8",)))
        harness.ask(UpdateWebhook(webhook_id="hook", changes=WebhookChanges(events=("job.run.lost",))))
        moved = UpdateWebhook(webhook_id="hook", changes=WebhookChanges(url="http://127.0.0.1:9090/"))
        harness.refused(InvalidValue, moved, field="url")
        harness.refused(InvalidValue, self.put("b", allow=("nowhere",)), field="webhook_allow")

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"events": ("job.run.exploded",)}, "events"),
            ({"events": ("job.run.lost", "job.run.lost")}, "events"),
            ({"events": ("webhook.test",)}, "events"),
            ({"queues": ()}, "queues"),
            ({"queues": ("no name",)}, "queues"),
            ({"secrets": ()}, "secret"),
            ({"secrets": None}, "secret"),
            ({"secrets": ("short",)}, "secret"),
            ({"secrets": ("x" * 257,)}, "secret"),
            ({"secrets": ("with a blank",)}, "secret"),
            ({"secrets": ("one-secret", "two-secret", "three-secret")}, "secret"),
            ({"namespace": "no name"}, "namespace"),
        ],
    )
    def test_what_is_no_webhook_is_refused_naming_the_field_and_not_the_secret(
        self, harness: Harness, fields: dict[str, Any], field: str
    ) -> None:
        refusal = harness.refused(InvalidValue, self.put(**fields), field=field)
        for secret in fields.get("secrets") or ():
            assert secret not in refusal.message

    def test_what_names_no_webhook_is_refused(self, harness: Harness) -> None:
        for command in (
            UpdateWebhook(webhook_id="none", changes=WebhookChanges(enabled=False)),
            RotateSecret(webhook_id="none"),
            DeleteWebhook(webhook_id="none"),
        ):
            harness.refused(WebhookNotFound, command, webhook_id="none")
        harness.refused(InvalidValue, DeleteWebhook(webhook_id=" "), field="webhook_id")

    def test_a_webhook_is_there_after_reopening_with_what_it_is_owed(self, harness: Harness) -> None:
        webhook(harness)
        owe(harness)
        before = harness.dump()
        harness.reopen()
        assert harness.dump() == before
        (held,) = claim(harness)
        assert end(harness, held).status is DELIVERED

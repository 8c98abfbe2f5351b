"""When a delivery is owed, who may send it, and how often. On every store: `conformance.webhooks`."""

import pytest
from world import World

from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.ids import uuid5
from holdfast.model.jobs import Job
from holdfast.model.webhooks import Delivery, NewWebhook, WebhookChanges
from holdfast.rules.state import Lane
from holdfast.rules.webhooks import deliveries as owing
from holdfast.rules.webhooks.deliveries import CLAIM_S, WAITS_S, owed

SECRET = "a-secret-of-ours"


def listening(**fields):
    world = World()
    new = NewWebhook(**{"url": "https://receiver.example/", "secrets": (SECRET,), **fields})
    world.do(c.PutWebhook(webhook_id="w", webhook=new))
    return world


def deliveries(world):
    return list(world.tables.all(Delivery))


def test_where_nobody_listens_an_ended_run_costs_one_look_for_its_job_and_one_for_webhooks():
    world = World()
    token = world.start("j")
    asked = []

    class Watched:
        def get(self, kind, key):
            asked.append((kind, key))
            return world.tables.get(kind, key)

        def webhooks(self, namespace):
            asked.append(("webhooks", namespace))
            return world.tables.webhooks(namespace)

    events = [ev.JobCompleted(job_id="j", token=token)]
    assert owed(Watched(), events) == []
    assert asked == [(Job, "j"), ("webhooks", "")]


def test_events_that_end_no_run_cost_no_look_at_all():
    class Blind:
        """Whoever looks, fails."""

    world = World()
    world.enqueue("j")
    moved = [ev.JobMoved(job_id="j", position=1), ev.JobCancelRequested(job_id="j"), *world.events()]
    assert owed(Blind(), moved) == []


def test_the_id_of_a_delivery_is_made_from_webhook_run_and_event_so_that_it_is_one():
    world = listening()
    world.do(c.Complete(job_id="j", token=world.start("j")))
    (delivery,) = deliveries(world)
    assert delivery.delivery_id == uuid5("w", world.run().run_id, "job.run.completed")


@pytest.mark.parametrize("retry", ["requeue", "chain"])
def test_a_delivery_stands_in_the_same_command_as_the_end_of_its_run(retry):
    world = listening()
    world.do(c.Fail(job_id="j", token=world.start("j", retry_mode=retry), error="boom"))
    kinds = [type(event) for event in world.last]
    assert kinds[0] is ev.JobFailed
    assert kinds[-1] is ev.DeliveryCreated


def test_a_claim_is_bounded_and_ends_what_nobody_wants_in_steps(monkeypatch):
    monkeypatch.setattr(owing, "UNWANTED", 40)
    world = listening()
    for number in range(50):
        world.do(c.Complete(job_id=f"j{number}", token=world.start(f"j{number}")))
    world.do(c.UpdateWebhook(webhook_id="w", changes=WebhookChanges(enabled=False)))
    assert world.do(c.ClaimDeliveries()).claims == ()
    assert len(world.last) == 40
    assert world.do(c.ClaimDeliveries()).claims == ()
    assert len(world.last) == 10
    assert world.tables.next_due(Lane.DELIVERY) is None


def test_tries_are_as_many_as_there_are_waits_and_one():
    world = listening()
    world.do(c.Complete(job_id="j", token=world.start("j")))
    tries = 0
    while (found := world.do(c.ClaimDeliveries()).claims) or tries < len(WAITS_S):
        (claim,) = found
        world.do(c.EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, error="no route"))
        tries += 1
        world.wait(45)
    assert (tries, deliveries(world)[0].attempts, deliveries(world)[0].last_error) == (4, 4, "no route")


def test_a_delivery_is_due_by_its_claim_while_it_is_claimed_and_by_its_next_try_else():
    world = listening()
    world.do(c.Complete(job_id="j", token=world.start("j")))
    assert world.tables.next_due(Lane.DELIVERY) == world.now
    (claim,) = world.do(c.ClaimDeliveries()).claims
    assert world.tables.next_due(Lane.DELIVERY) == claim.claimed_until
    world.do(c.EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, status=503))
    assert world.tables.next_due(Lane.DELIVERY) == deliveries(world)[0].next_attempt_at


def test_an_answer_without_words_is_told_in_words():
    world = listening()
    world.do(c.Complete(job_id="j", token=world.start("j")))
    for status, said in ((302, "redirects are not followed"), (404, "answered 404"), (None, "no answer")):
        (claim,) = world.do(c.ClaimDeliveries()).claims
        world.do(c.EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, status=status))
        assert said in deliveries(world)[0].last_error
        world.wait(45)


def test_a_long_error_is_cut_and_what_is_no_text_is_written_as_one():
    world = listening()
    world.do(c.Complete(job_id="j", token=world.start("j")))
    (claim,) = world.do(c.ClaimDeliveries()).claims
    error = "\ud800" + "x" * 100_000
    world.do(c.EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, error=error))
    assert len(deliveries(world)[0].last_error.encode()) <= 16 * 1024


def test_a_probe_sent_again_finds_the_first_one_and_another_id_is_not_taken_over():
    world = listening()
    first = world.do(c.ProbeWebhook(webhook_id="w", delivery_id="d"))
    assert world.do(c.ProbeWebhook(webhook_id="w", delivery_id="d")) == first
    (claim,) = first.claims
    world.do(c.EndDelivery(delivery_id="d", claimed_until=claim.claimed_until, status=200))
    assert world.do(c.ProbeWebhook(webhook_id="w", delivery_id="d")).claims == ()
    world.do(c.Complete(job_id="j", token=world.start("j")))
    taken = next(one.delivery_id for one in deliveries(world) if one.delivery_id != "d")
    assert world.refused(c.ProbeWebhook(webhook_id="w", delivery_id=taken)) == "id_reused"


def test_a_claim_of_somebody_else_is_not_ended_even_by_success():
    world = listening()
    world.do(c.Complete(job_id="j", token=world.start("j")))
    (mine,) = world.do(c.ClaimDeliveries()).claims
    world.wait(CLAIM_S)
    (other,) = world.do(c.ClaimDeliveries()).claims
    late = c.EndDelivery(delivery_id=mine.delivery_id, claimed_until=mine.claimed_until, status=200)
    assert world.refused(late) == "lease_lost"
    world.do(c.EndDelivery(delivery_id=other.delivery_id, claimed_until=other.claimed_until, status=200))
    assert world.refused(late) == "lease_lost"

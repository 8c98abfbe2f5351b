"""Folding of webhooks and deliveries: what the rules would have refused is a contradiction, and nothing is guessed."""

import pytest
from world import START, World

from holdfast.errors import CorruptState
from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.webhooks import Delivery, DeliveryStatus, NewWebhook, Webhook, WebhookChanges
from holdfast.rules.fold import fold
from holdfast.rules.fold_changes import Stamp

HOOK = Webhook("w", "https://receiver.example/", START, secrets=("a-secret-of-ours",))
PENDING, DELIVERED = DeliveryStatus.PENDING, DeliveryStatus.DELIVERED


@pytest.fixture
def world():
    """A webhook with one delivery that arrived and one that waits, and a job that runs."""
    made = World()
    new = NewWebhook(url=HOOK.url, secrets=HOOK.secrets)
    made.do(c.PutWebhook(webhook_id="w", webhook=new))
    made.do(c.Complete(job_id="a", token=made.start("a")))
    (claim,) = made.do(c.ClaimDeliveries()).claims
    made.do(c.EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, status=200))
    made.do(c.Complete(job_id="b", token=made.start("b")))
    made.start("open")
    return made


def named(world, status):
    return next(one for one in world.tables.all(Delivery) if one.status is status)


def odd(world):
    waits, arrived = named(world, PENDING).delivery_id, named(world, DELIVERED).delivery_id
    run_id = world.run("open").run_id
    return [
        ev.WebhookCreated(webhook=HOOK),
        ev.WebhookUpdated(webhook_id="none", changes=WebhookChanges(enabled=False)),
        ev.WebhookDeleted(webhook_id="none"),
        ev.DeliveryCreated(delivery_id=waits, webhook_id="w", run_id=world.run("b").run_id, event="job.run.completed"),
        ev.DeliveryCreated(delivery_id="d", webhook_id="none", run_id=run_id, event="job.run.lost"),
        ev.DeliveryCreated(delivery_id="d", webhook_id="w", run_id=run_id, event="job.run.lost"),
        ev.DeliveryCreated(delivery_id="d", webhook_id="w", run_id="none", event="job.run.lost"),
        ev.DeliveryClaimed(delivery_id="none", claimed_until=START),
        ev.DeliveryClaimed(delivery_id=arrived, claimed_until=START),
        ev.DeliveryEnded(delivery_id="none", to=DELIVERED, attempts=1),
        ev.DeliveryEnded(delivery_id=waits, to=PENDING, attempts=1),
        ev.DeliveryEnded(delivery_id=waits, to=DELIVERED, attempts=1, next_attempt_at=START),
        ev.DeliveryPruned(delivery_id="none"),
        ev.DeliveryPruned(delivery_id=waits),
    ]


@pytest.mark.parametrize("number", range(14))
def test_what_contradicts_the_records_is_refused(world, number):
    events = odd(world)
    assert len(events) == 14
    with pytest.raises(CorruptState):
        fold(world.tables, events[number], Stamp(99, START))


def test_a_run_that_has_gone_leaves_its_delivery_as_it_was(world):
    body = named(world, DELIVERED).body
    world.wait(7 * 86_400 - 1)
    world.do(c.Prune(retention=c.Retention(done_s=1)))
    assert world.job("a") is None
    assert named(world, DELIVERED).body == body

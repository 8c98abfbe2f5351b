"""`hf.webhook` and the handle on a webhook, as an application meets them."""

import asyncio
import json
import re

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.errors import (
    DeliveryNotFound,
    IdReused,
    InvalidArguments,
    InvalidOperation,
    InvalidValue,
    WebhookNotFound,
)
from holdfast.model.webhooks import Webhook as Record
from holdfast.testing.clock import ManualClock
from holdfast.testing.receiver import LOOPBACK, Receiver

URL = "https://receiver.example/hook"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def hf(clock):
    with Holdfast("memory:", clock=clock, webhook_allow=[LOOPBACK]) as app:
        yield app


@pytest.fixture
def double(hf):
    @hf.task(name="double", queue="numbers", max_attempts=1)
    def double(n: int) -> int:
        return 2 * n

    return double


def stored(hf, hook):
    with hf.engine.read() as view:
        return view.get(Record, hook.id)


def test_a_webhook_is_made_with_a_secret_that_is_shown_once(hf):
    hook = hf.webhook(URL, events=["job.run.failed"], queues=["numbers"])
    assert re.fullmatch(r"[\w-]{43}", hook.secret)
    assert stored(hf, hook).secrets == (hook.secret,)
    record = hook.record()
    assert (record.url, record.events, record.queues) == (URL, ("job.run.failed",), ("numbers",))
    assert record.secrets == ()
    (listed,) = hf.webhooks()
    assert (listed.id, listed.secret) == (hook.id, None)
    for shown in (repr(hook), repr(stored(hf, hook)), str(msgspec.json.encode(record)), repr(listed)):
        assert hook.secret not in shown


def test_the_same_call_again_is_the_same_webhook_with_its_secret(hf):
    first = hf.webhook(URL)
    again = hf.webhook(URL)
    assert (again.id, again.secret) == (first.id, None)
    assert stored(hf, first).secrets == (first.secret,)
    changed = hf.webhook(URL, events=["job.run.lost"], secret="given-secret")
    assert (changed.id, changed.secret) == (first.id, "given-secret")
    assert stored(hf, first).events == ("job.run.lost",)
    assert stored(hf, first).secrets == ("given-secret",)
    other = hf.webhook(URL, id="other")
    assert [hook.id for hook in hf.webhooks()] == sorted([first.id, "other"])
    assert other.secret != first.secret


def test_webhooks_of_another_namespace_are_its_own(hf):
    hf.webhook(URL, id="mine")
    with hf.engine.read() as view:
        assert view.get(Record, "mine").namespace == ""
    with Holdfast("memory:", namespace="other") as other, other.lend(hf.engine):
        assert other.webhooks() == []
        assert other.webhook(URL).id != hf.webhook(URL).id
        with pytest.raises(IdReused):
            other.webhook(URL, id="mine")


@pytest.mark.parametrize(
    ("url", "options", "field"),
    [
        ("file:///etc/passwd", {}, "url"),
        ("http://169.254.169.254/", {}, "url"),
        ("http://10.0.0.1/", {}, "url"),
        ("https://user:password@receiver.example/", {}, "url"),
        (URL, {"events": ["job.run.exploded"]}, "events"),
        (URL, {"events": "job.run.failed"}, "events"),
        (URL, {"queues": "mail"}, "queues"),
        (URL, {"queues": []}, "queues"),
        (URL, {"secret": "x" * 300}, "secret"),
        (URL, {"secret": "ä" * 20}, "secret"),
        (URL, {"id": " "}, "webhook_id"),
        (URL, {"id": ""}, "webhook_id"),
        (5, {}, "url"),
        ("http://\ud800.example/", {}, "url"),
        (URL, {"events": 5}, "events"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_made(hf, url, options, field):
    with pytest.raises(InvalidValue) as caught:
        hf.webhook(url, **options)
    assert caught.value.facts["field"] == field
    assert hf.webhooks() == []
    assert str(options.get("secret")) not in str(caught.value)


def test_an_option_that_is_none_is_refused(hf):
    with pytest.raises(InvalidArguments, match="event"):
        hf.webhook(URL, event=["job.run.failed"])
    with pytest.raises(InvalidArguments, match="rotate"):
        hf.webhook(URL).update(secret="other-secret")


@pytest.mark.parametrize("allow", ["127.0.0.0/8", ["nowhere"], ["10.0.0.1/8"]])
def test_networks_that_are_none_are_refused_before_the_store_is_opened(allow):
    with pytest.raises(InvalidValue) as caught:
        Holdfast("memory:", webhook_allow=allow)
    assert caught.value.facts["field"] == "webhook_allow"


def test_a_webhook_is_changed_disabled_enabled_and_removed(hf, double):
    hook = hf.webhook(URL)
    hook.update(url="https://other.example/", events=["job.run.lost"], queues=["mail"])
    assert (hook.record().url, hook.record().queues) == ("https://other.example/", ("mail",))
    hook.update(queues=None, events=[])
    assert (hook.record().queues, hook.record().events) == (None, ())
    hook.disable()
    assert not hook.record().enabled
    double.enqueue(1)
    hf.work(until_idle=True)
    assert hook.deliveries() == []
    hook.enable()
    assert hook.record().enabled
    hook.delete()
    for call in (hook.record, hook.delete, hook.test, hook.rotate, hook.disable):
        with pytest.raises(WebhookNotFound):
            call()


def test_secrets_are_rotated_in_two_steps(hf):
    hook = hf.webhook(URL, secret="the-first-one")
    second = hook.rotate()
    assert stored(hf, hook).secrets == (second, "the-first-one")
    assert hook.secret == second
    assert hook.rotate("a-given-one") == "a-given-one"
    assert stored(hf, hook).secrets == ("a-given-one", second)
    hook.forget_old_secret()
    assert stored(hf, hook).secrets == ("a-given-one",)
    with pytest.raises(InvalidValue):
        hook.rotate("short")


def test_a_test_is_sent_from_here_at_once_and_tells_what_came_of_it(hf):
    answers = iter([204, 500])
    with Receiver(lambda _received: next(answers)) as receiver:
        hook = hf.webhook(receiver.url)
        well = hook.test()
        assert (well.status, well.last_status, well.event) == ("DELIVERED", 204, "webhook.test")
        badly = hook.test()
        assert (badly.status, badly.last_status) == ("FAILED", 500)
        first, second = receiver.received
    assert json.loads(first.body)["event"] == first.headers["Holdfast-Event"] == "webhook.test"
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]
    assert [one.delivery_id for one in hook.deliveries(status="FAILED")] == [badly.delivery_id]


def test_deliveries_are_listed_newest_first_and_by_status(hf, double, clock):
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        for n in range(3):
            double.enqueue(n)
            hf.work(until_idle=True)
            clock.advance(1)
        assert [one.created_at[17:19] for one in hook.deliveries()] == ["02", "01", "00"]
        assert len(hook.deliveries(limit=2)) == 2
        assert hook.deliveries(status="PENDING") == []
        hook.redeliver(hook.deliveries()[0].delivery_id)
        assert [one.attempts for one in hook.deliveries(status="PENDING")] == [0]
    for wrong in ({"status": "LOST"}, {"limit": 0}):
        with pytest.raises(InvalidValue):
            hook.deliveries(**wrong)
    with pytest.raises(DeliveryNotFound):
        hook.redeliver("none")


def test_what_a_removed_webhook_is_owed_is_not_redelivered(hf, double):
    hook = hf.webhook("http://127.0.0.1:1/")
    double.enqueue(1)
    hf.work(until_idle=True)
    (delivery,) = hook.deliveries()
    hook.delete()
    with pytest.raises(InvalidOperation, match="removed"):
        hook.redeliver(delivery.delivery_id)


def test_the_same_can_be_awaited(hf, double):
    async def story():
        with Receiver() as receiver:
            hook = await hf.aio.webhook(receiver.url, events=["job.run.failed"])
            assert (await hook.aio.test()).status == "DELIVERED"
            await hook.aio.update(events=[])
            await hook.aio.disable()
            await hook.aio.enable()
            new = await hook.aio.rotate()
            await hook.aio.forget_old_secret()
            assert stored(hf, hook).secrets == (new,)
            assert [one.id for one in await hf.aio.webhooks()] == [hook.id]
            (delivery,) = await hook.aio.deliveries()
            await hook.aio.redeliver(delivery.delivery_id)
            assert (await hook.aio.record()).secrets == ()
            await hook.aio.delete()
            assert await hf.aio.webhooks() == []

    asyncio.run(story())

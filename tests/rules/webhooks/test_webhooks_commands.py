"""What may be a webhook, and what editing one does. On every store: `conformance.webhooks`."""

import pytest
from world import World

from holdfast.model import commands as c
from holdfast.model.webhooks import NewWebhook, Webhook, WebhookChanges
from holdfast.rules.webhooks.commands import LONGEST, SHORTEST, fault_in

URL = "https://receiver.example/"
SECRET = "a-secret-of-ours"


def put(webhook_id="w", *, replace=False, allow=(), **fields):
    new = NewWebhook(**{"url": URL, "secrets": (SECRET,), **fields})
    return c.PutWebhook(webhook_id=webhook_id, webhook=new, replace=replace, allow=allow)


def hook(world, webhook_id="w"):
    return world.tables.get(Webhook, webhook_id)


@pytest.mark.parametrize("length", [SHORTEST - 1, SHORTEST, LONGEST, LONGEST + 1])
def test_a_secret_has_a_shortest_and_a_longest_form(length):
    fault = fault_in(Webhook("w", URL, "t", secrets=("x" * length,)), ())
    assert (fault is None) == (SHORTEST <= length <= LONGEST)


@pytest.mark.parametrize("secret", ["with blank", "tab\tinside", "line\nbreak", "ümlaut-ümlaut", "\x00" * 10])
def test_a_secret_that_headers_or_shells_would_bend_is_refused_without_repeating_it(secret):
    fault = fault_in(Webhook("w", URL, "t", secrets=(secret,)), ())
    assert fault.facts == {"field": "secret"}
    assert secret not in fault.message


def test_a_new_webhook_takes_the_secret_that_was_made_and_an_old_one_keeps_its_own():
    world = World()
    first = world.do(put(secrets=None, made_secret="made-secret-1"))
    again = world.do(put(secrets=None, made_secret="made-secret-2", replace=True))
    assert (first.created, again.created) == (True, False)
    assert hook(world).secrets == ("made-secret-1",)
    world.do(put(secrets=("given-secret",), made_secret="made-secret-3", replace=True))
    assert hook(world).secrets == ("given-secret",)


def test_an_address_that_stays_is_not_judged_again_by_another_list():
    world = World()
    world.do(put(url="http://10.0.0.1/", allow=("10.0.0.0/8",)))
    world.do(put(url="http://10.0.0.1/", replace=True, events=("job.run.failed",)))
    assert hook(world).events == ("job.run.failed",)
    changes = WebhookChanges(url="http://10.0.0.2/")
    assert world.refused(c.UpdateWebhook(webhook_id="w", changes=changes)) == "invalid_value"


def test_what_is_asked_for_again_writes_nothing():
    world = World()
    world.do(put())
    count = len(world.groups)
    world.do(put())
    world.do(put(replace=True))
    world.do(c.UpdateWebhook(webhook_id="w", changes=WebhookChanges(url=URL)))
    world.do(c.RotateSecret(webhook_id="w"))
    assert len(world.groups) == count


def test_a_command_sent_again_by_its_id_is_answered_as_the_first_time():
    world = World()
    world.do(put())
    rotate = c.RotateSecret(webhook_id="w", secret="another-secret", cmd="x")
    assert world.do(rotate) == world.do(rotate)
    assert hook(world).secrets == ("another-secret", SECRET)
    other = c.RotateSecret(webhook_id="w", secret="a-third-secret", cmd="x")
    assert world.refused(other) == "id_reused"


def test_what_a_network_is_called_is_checked_with_the_address():
    assert World().refused(put(allow=("10.0.0.0/33",))) == "invalid_value"

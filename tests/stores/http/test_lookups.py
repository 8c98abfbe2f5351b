"""Every look-up of a view has its form on the wire, and gives the same there as here."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.errors import InvalidValue
from holdfast.model.commands import CreateGroup, Enqueue, Lease, PutWebhook
from holdfast.model.groups import Group
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import FOREVER
from holdfast.model.webhooks import NewWebhook, Webhook
from holdfast.rules.state import Lane
from holdfast.stores.http.lookups import LOOK_UPS, look_up
from holdfast.stores.http.view import HttpView
from holdfast.stores.http.wire import PAGE
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.protocol import InstanceQuery, JobQuery, View
from holdfast.testing.conformance.harness import new_job


@pytest.fixture
def engine():
    engine = Engine(MemoryStore())
    engine.ask(Enqueue(jobs=tuple(new_job(f"job-{n:04}", queue="many") for n in range(PAGE + 10))))
    engine.ask(Enqueue(jobs=(new_job("a"), new_job("b", delay_s=60), new_job("c", ttl_s=60))))
    engine.ask(Lease(worker_id="w", cmd="lease-1"))
    engine.ask(CreateGroup(group_id="g"))
    engine.ask(PutWebhook(webhook_id="h", webhook=NewWebhook(url="https://example.com/", secrets=("s" * 32,))))
    yield engine
    engine.close()


def remote(engine):
    def ask(look):
        with engine.read() as view:
            what = look_up(look.look)
            return what.seen(view, what.find(view, what.given(look)), look.skip)

    return HttpView(ask, lambda: -1)


def test_every_method_of_the_view_can_be_asked():
    methods = {name for name, _ in inspect.getmembers(View, inspect.isfunction) if not name.startswith("_")}
    assert methods == set(LOOK_UPS)
    for what in LOOK_UPS.values():
        msgspec.json.Decoder(what.result)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("get", (Job, "a")),
        ("get", (Job, "nobody")),
        ("get", (Group, "g")),
        ("all", (Job,)),
        ("due", (Lane.LEASE, FOREVER)),
        ("due", (Lane.TTL, FOREVER)),
        ("next_due", (Lane.DELAYED,)),
        ("next_due", (Lane.SCHEDULE,)),
        ("runs", ("a",)),
        ("last_run", ("a",)),
        ("granted_by", ("lease-1",)),
        ("ready", ("", ["many", "default"], None, FOREVER)),
        ("running", ("", "default")),
        ("queued", ("", "default")),
        ("bands", ("", "many")),
        ("ids_with_prefix", ("job-", 3)),
        ("ids_with_prefix", ("g", 3, Group)),
        ("ids_with_prefix", ("", 3, Job, [""])),
        ("jobs", (JobQuery(status=JobStatus.RUNNING),)),
        ("instances", (InstanceQuery(),)),
        ("counts", ()),
        ("flow_totals", ()),
        ("mail_totals", (FOREVER,)),
        ("is_spoken_of", ("s",)),
        ("ended_queues", ()),
        (
            "ended_beyond",
            ("", "many"),
        ),
    ],
)
def test_a_look_up_gives_there_what_it_gives_here(engine, name, args):
    more = {"failed": True, "keep": 1} if name == "ended_beyond" else {}
    with engine.read() as view:
        here = getattr(view, name)(*args, **more)
        several = LOOK_UPS[name].is_walk or LOOK_UPS[name].result_is_list
        here = list(here) if several else here
        there = getattr(remote(engine), name)(*args, **more)
        assert (list(there) if several else there) == here


def test_a_walk_that_is_broken_off_asks_for_no_second_page(engine):
    asked = []
    view = remote(engine)
    real = view._ask
    view._ask = lambda look: asked.append(look.skip) or real(look)
    assert next(iter(view.all(Job))).job_id
    assert asked == [0]
    assert len(list(view.all(Job))) == PAGE + 13
    assert asked == [0, 0, PAGE]


def test_secrets_of_webhooks_do_not_travel(engine):
    with engine.read() as view:
        assert view.get(Webhook, "h").secrets
    there = remote(engine)
    assert there.get(Webhook, "h").secrets == ()
    assert [hook.secrets for hook in [*there.webhooks(""), *there.all(Webhook)]] == [(), ()]


def test_a_view_is_as_old_as_the_oldest_state_it_saw(engine):
    view = remote(engine)
    view.get(Job, "a")
    seen = view.seq
    engine.ask(Enqueue(jobs=(new_job("later"),)))
    assert view.get(Job, "later") is not None
    assert view.seq == seen


def test_there_is_no_other_look_up():
    with pytest.raises(InvalidValue):
        look_up("__class__")
    with pytest.raises(AttributeError):
        HttpView(lambda look: None, lambda: 0).nonsense()

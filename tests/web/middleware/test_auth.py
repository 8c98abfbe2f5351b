"""Who is let in, and what each role may do, at a real port."""

from __future__ import annotations

import hashlib

import httpx2
import msgspec
import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.errors import Forbidden, Unauthorized
from holdfast.model.access import Access, Role
from holdfast.model.commands import Enqueue, Expire, Lease, PauseDispatch, ResumeDispatch
from holdfast.model.jobs import Job
from holdfast.model.records import Queue
from holdfast.stores.http.store import HttpStore
from holdfast.stores.protocol import JobQuery
from holdfast.testing.conformance.harness import new_job


def access(name, *roles, namespaces=None):
    return Access(name=name, roles=roles, namespaces=namespaces, digest=hashlib.sha256(name.encode()).hexdigest())


ACCESSES = [
    access("client", Role.CLIENT),
    access("other", Role.CLIENT),
    access("worker", Role.WORKER),
    access("reader", Role.READER),
    access("operator", Role.OPERATOR),
    access("admin", Role.ADMIN),
    access("within", Role.ADMIN, namespaces=("shop",)),
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with running(f"wal:{tmp_path_factory.mktemp('guarded') / 'jobs'}", accesses=ACCESSES) as serving:
        yield serving


@pytest.fixture
def connect(guarded):
    opened = []

    def connecting(name):
        opened.append(HttpStore.open(guarded.url, access_token=name, patience_s=5))
        return opened[-1]

    yield connecting
    for store in opened:
        store.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:8480"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Authorization": "Bearer nobody"}, 401),
        ({"Authorization": "Basic YTpi"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer reader"}, 200),
    ],
)
def test_strange_hosts_pages_and_tokens_are_kept_out(guarded, headers, status):
    found = httpx2.get(f"{guarded.url}/api/v1/facing", headers=headers)
    assert found.status_code == status
    if status != 200:
        assert found.headers["content-type"] == "application/problem+json"
        assert found.json()["code"] in {"forbidden", "unauthorized"}


def test_a_page_of_the_coordinator_itself_is_let_in(guarded):
    host = guarded.url.removeprefix("http://")
    assert httpx2.get(f"{guarded.url}/api/v1/facing", headers={"Origin": f"http://{host}"}).status_code == 200


def test_a_wrong_access_token_is_told_at_once(guarded):
    with pytest.raises(Unauthorized), Holdfast(guarded.url, access_token="nobody") as hf:
        hf.open()


@pytest.mark.parametrize(
    ("name", "command", "allowed"),
    [
        ("client", Enqueue(jobs=(new_job("by-client"),)), True),
        ("worker", Enqueue(jobs=(new_job("by-worker"),)), False),
        ("reader", Enqueue(jobs=(new_job("by-reader"),)), False),
        ("client", Lease(worker_id="w", queues=("none",)), False),
        ("worker", Lease(worker_id="w", queues=("none",)), True),
        ("worker", PauseDispatch(), False),
        ("admin", Expire(), False),
        ("within", Enqueue(jobs=(new_job("outside"),)), False),
        ("within", Enqueue(jobs=(new_job("inside", namespace="shop"),)), True),
        ("within", PauseDispatch(), False),
    ],
)
def test_each_role_sends_its_own_commands_and_no_others(connect, name, command, allowed):
    (outcome,) = connect(name).decide([command])
    assert (getattr(outcome, "code", None) != "forbidden") is allowed


def test_what_is_forbidden_stops_nothing_else_of_the_batch(connect):
    first, second, third = connect("client").decide(
        [Enqueue(jobs=(new_job("one"),)), PauseDispatch(), Enqueue(jobs=(new_job("two"),))]
    )
    assert (first.jobs[0].job_id, second.code, third.jobs[0].job_id) == ("one", "forbidden", "two")


def test_a_client_sees_what_it_submitted_and_nothing_else(connect):
    mine, other = connect("client"), connect("other")
    mine.decide([Enqueue(jobs=(new_job("mine", submitted_by="other"),))])
    with mine.read() as view:
        assert view.get(Job, "mine").submitted_by == "client"
        with pytest.raises(Forbidden):
            list(view.all(Job))
        assert "mine" in [job.job_id for job in view.jobs(JobQuery())]
        with pytest.raises(Forbidden):
            view.get(Queue, "default")
    with other.read() as view:
        assert view.get(Job, "mine") is view.get(Job, "nobody's") is None
        assert view.runs("mine") == []
        assert view.jobs(JobQuery()) == []


def test_whoever_is_kept_to_a_namespace_sees_no_other(connect):
    connect("admin").decide([Enqueue(jobs=(new_job("abroad"),))])
    with connect("within").read() as view:
        assert view.get(Job, "abroad") is None
        with pytest.raises(Forbidden):
            view.queued("", "default")
        assert view.queued("shop", "elsewhere") == []


@pytest.mark.parametrize("name", ["client", "worker", "within"])
def test_the_feed_is_for_who_may_read_everything(connect, name):
    with pytest.raises(Forbidden):
        list(connect(name).feed(0))


def test_what_was_done_with_an_access_token_bears_its_name(connect):
    store = connect("operator")
    (done,) = store.decide([PauseDispatch(actor="somebody else")])
    assert not hasattr(done, "code")
    events = [msgspec.json.decode(entry.event) for entry in store.feed(0)]
    assert [event["actor"] for event in events if event["type"] == "dispatch:paused"] == ["operator"]


def test_the_role_of_a_worker_is_enough_to_work(guarded, connect):
    with Holdfast(guarded.url, access_token="worker") as hf:

        @hf.task(name="roles", queue="roles")
        def work(n: int) -> int:
            return n

        connect("admin").decide(
            [Enqueue(jobs=(new_job("worked", "roles", {"n": 1}, queue="roles"),)), ResumeDispatch()]
        )
        hf.worker(["roles"], until_idle=True).run()
    with connect("reader").read() as view:
        assert view.get(Job, "worked").status == "COMPLETED"

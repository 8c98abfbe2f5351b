"""Every change bears the name of who made it: in the feed, for each role."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from coordinators import running

from holdfast.model.access import Access, Role
from holdfast.model.commands import Cancel, Complete, Enqueue, Lease, PauseQueue
from holdfast.stores.http.store import HttpStore
from holdfast.testing.conformance.harness import new_job

ACCESSES = [
    Access(name=f"the-{role.value}", roles=(role,), digest=hashlib.sha256(role.value.encode()).hexdigest())
    for role in Role
]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    with running(f"wal:{tmp_path_factory.mktemp('actors') / 'jobs'}", accesses=ACCESSES) as serving:
        yield serving


def test_each_roles_changes_bear_its_name_whatever_it_claims(coordinator):
    opened = {role: HttpStore.open(coordinator.url, access_token=role.value) for role in Role}

    def send(role, *commands):
        outcomes = opened[role].decide([msgspec.structs.replace(one, actor="somebody else") for one in commands])
        assert all(getattr(outcome, "code", None) is None for outcome in outcomes), outcomes
        return outcomes

    send(Role.CLIENT, Enqueue(jobs=(new_job("a"), new_job("b"))))
    (leased,) = send(Role.WORKER, Lease(worker_id="w", n=1))
    send(Role.WORKER, Complete(job_id="a", token=leased.grants[0].token))
    send(Role.OPERATOR, Cancel(job_id="b", reason="no"), PauseQueue(queue="default"))
    send(Role.ADMIN, PauseQueue(queue="other"), Enqueue(jobs=(new_job("c"),)))
    (refused,) = opened[Role.READER].decide([PauseQueue(queue="default")])
    assert refused.code == "forbidden"
    seen = [msgspec.json.decode(entry.event) for entry in opened[Role.READER].feed(0)]
    by = {(event["type"], event.get("actor")) for event in seen if event["type"] != "worker:seen"}
    assert {
        ("job:created", "the-client"),
        ("lease:granted", "the-worker"),
        ("job:completed", "the-worker"),
        ("job:cancelled", "the-operator"),
        ("queue:paused", "the-operator"),
        ("job:created", "the-admin"),
    } <= by
    assert {actor for _, actor in by} <= {access.name for access in ACCESSES}
    assert "the-reader" not in {actor for _, actor in by}
    for store in opened.values():
        store.close()

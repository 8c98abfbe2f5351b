"""Every change bears the name of who made it: in the feed, for each role."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from coordinators import running

from holdfast import Holdfast
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


@pytest.mark.parametrize("by", ["somebody else", ""])
def test_who_answered_a_question_is_who_asked_with_their_token_whatever_they_claim(coordinator, by):
    opened = {role: Holdfast(coordinator.url, access_token=role.value) for role in (Role.ADMIN, Role.WORKER)}

    def program(hf):
        @hf.workflow(name="ask")
        async def ask() -> str:
            return await hf.decision("Send it?", ["yes", "no"])

        return ask

    asked, _ = [program(hf) for hf in opened.values()]
    instance = asked.start()
    opened[Role.WORKER].work(until_idle=True)
    (question,) = opened[Role.ADMIN].decisions(instance=instance.id)
    operator = Holdfast(coordinator.url, access_token=Role.OPERATOR.value)
    operator.decision_record(question.id).resolve("yes", by=by)
    assert question.record().by == "the-operator"
    opened[Role.WORKER].work(until_idle=True)
    # As the workflow was told, too.
    assert instance.result(timeout=30) == "yes"
    assert (question.record().chosen, question.record().by) == ("yes", "the-operator")
    for hf in (*opened.values(), operator):
        hf.close()

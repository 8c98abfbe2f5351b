"""A client learns why its own jobs and workflows are where they are, and nothing of whose else they wait for."""

from __future__ import annotations

import hashlib

import httpx2
import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.app.handles.job import Job
from holdfast.app.workflows.handle import Instance
from holdfast.errors import Forbidden, JobNotFound, WorkflowNotFound
from holdfast.model.access import Access, Role
from holdfast.model.commands import Lease, Retry, SetQueue
from holdfast.model.events import QueueChanges

ROLES = {"shop": Role.CLIENT, "rival": Role.CLIENT, "worker": Role.WORKER, "reader": Role.READER, "admin": Role.ADMIN}


@pytest.fixture(scope="module")
def served():
    """A coordinator where one's job waits behind those of another, on a queue with one place."""
    accesses = [
        Access(name=name, roles=(role,), digest=hashlib.sha256(name.encode()).hexdigest())
        for name, role in ROLES.items()
    ]
    with running("memory:", accesses=accesses) as serving:
        apps = {name: Holdfast(serving.url, access_token=name) for name in ROLES}
        tasks = {name: app.task(name="send")(lambda number: number) for name, app in apps.items()}
        apps["admin"].engine.ask(SetQueue(queue="api", changes=QueueChanges(max_running=1)))
        for queue in ("api", "default"):
            for number in range(2):
                tasks["rival"].options(id=f"theirs-{queue}-{number}", queue=queue).enqueue(number)
            tasks["shop"].options(id=f"mine-{queue}", queue=queue).enqueue(1)
        tasks["shop"].options(id="..").enqueue(1)
        apps["shop"].workflow(name="order")(_order).start(1, id="order/..")
        apps["worker"].engine.ask(Lease(worker_id="w", queues=("api",)))
        yield serving, apps
        for app in apps.values():
            app.close()


async def _order(number: int) -> int:
    return number


def test_a_client_has_its_own_job_explained_without_a_word_of_others(served):
    _, apps = served
    reason = apps["shop"].job("mine-api").explain()
    assert (reason.code, reason.sentence) == ("queue_limit", "queue limit 1 of 1")
    assert (reason.holder, reason.held_by) == (None, ())
    assert apps["reader"].job("mine-api").explain().held_by == ("theirs-api-0",)


def test_where_nothing_of_others_is_named_a_client_hears_what_a_reader_hears(served):
    _, apps = served
    reason = apps["shop"].job("mine-default").explain()
    assert (reason.code, reason) == ("no_worker", apps["reader"].job("mine-default").explain())


def test_whatever_the_api_says_of_a_clients_jobs_names_no_other(served):
    serving, apps = served
    for path in ("/jobs", "/jobs/mine-api", "/jobs/mine-api/explain", "/jobs/mine-api/chain"):
        assert "theirs" not in str(_get(serving, "shop", path))
    assert "theirs" in str(_get(serving, "reader", "/jobs/mine-api/explain"))
    apps["admin"].job("mine-default").cancel()
    apps["admin"].engine.ask(Retry(job_id="mine-default", new_job_id="of admin"))
    chain = {name: _get(serving, name, "/jobs/mine-default/chain")["items"] for name in ("shop", "reader")}
    seen = [one["job_id"] for one in chain["reader"] if one["submitted_by"] == "shop"]
    assert [one["job_id"] for one in chain["shop"]] == seen
    assert len(chain["reader"]) == 2


def test_a_client_has_its_own_instance_explained(served):
    _, apps = served
    reason = Instance(apps["shop"], "order/..").explain()
    assert (reason.code, reason) == ("unregistered", Instance(apps["reader"], "order/..").explain())


def test_whatever_an_id_is_made_of_it_is_the_one_that_is_asked_for(served):
    _, apps = served
    assert apps["shop"].job("..").explain().code == "no_worker"


@pytest.mark.parametrize("name", ["theirs-api-0", "nobody's"])
def test_what_is_others_is_not_there_to_be_explained(served, name):
    _, apps = served
    with pytest.raises(JobNotFound):
        Job(apps["shop"], name).explain()
    with pytest.raises(WorkflowNotFound):
        Instance(apps["rival"], "order/..").explain()


def test_a_client_that_waits_in_vain_is_told_why(served):
    _, apps = served
    with pytest.raises(TimeoutError, match=r"is QUEUED after 0 s: queue limit 1 of 1\. It goes on\."):
        apps["shop"].job("mine-api").result(timeout=0)


def test_a_worker_explains_nothing(served):
    _, apps = served
    with pytest.raises(Forbidden):
        apps["worker"].engine.store.job_reason("mine-api")


def _get(serving, name, path):
    answer = httpx2.get(f"{serving.url}/api/v1{path}", headers={"Authorization": f"Bearer {name}"})
    assert answer.status_code == 200, answer.text
    return answer.json()

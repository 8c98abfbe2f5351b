"""Ids that no path can name, `.` and `..`: not made by HTTP, and reached all the same where programs made them."""

from __future__ import annotations

import hashlib
import json

import httpx2
import pytest
from click.testing import CliRunner
from coordinators import running

from holdfast import Holdfast
from holdfast.cli.root import cli
from holdfast.model.access import Access, Role
from holdfast.testing.receiver import LOOPBACK, Receiver

DOTS = [".", ".."]
ACCESS = Access(name="all", roles=(Role.ADMIN,), digest=hashlib.sha256(b"all").hexdigest())

#: What makes something under an id of its caller's, and which field that is.
MAKING = [
    ("/jobs", "job_id", {"job_type": "t", "job_id": DOTS}),
    ("/jobs/batch", "job_id", {"jobs": [{"job_type": "t", "job_id": DOTS}]}),
    ("/templates", "template_id", {"name": "n", "job_type": "t", "template_id": DOTS}),
    ("/templates/tpl/enqueue", "job_id", {"job_id": DOTS}),
    ("/schedules", "schedule_id", {"name": "n", "job_type": "t", "interval_s": 60, "schedule_id": DOTS}),
    ("/groups", "group_id", {"members": [{"job_type": "t"}], "group_id": DOTS}),
    ("/groups", "job_id", {"members": [{"job_type": "t", "job_id": DOTS}]}),
    ("/reservations", "reservation_id", {"queue": "q", "reservation_id": DOTS}),
    ("/webhooks", "webhook_id", {"url": "https://example.com/", "webhook_id": DOTS}),
    ("/workflows", "id", {"workflow": "w", "id": DOTS}),
]


@pytest.mark.parametrize("dots", DOTS)
@pytest.mark.parametrize(("path", "field", "body"), MAKING)
def test_nothing_is_made_by_http_that_no_path_could_name(served, path, field, body, dots):
    given = json.dumps(body).replace(json.dumps(DOTS), json.dumps(dots))
    before = httpx2.get(f"{served}/jobs").json()["as_of"]
    answer = httpx2.post(f"{served}{path}", content=given)
    assert (answer.status_code, answer.json()["facts"]["field"]) == (422, field), answer.text
    assert "Nothing was changed" in answer.json()["detail"]
    assert httpx2.get(f"{served}/jobs").json()["as_of"] == before


@pytest.fixture(scope="module")
def served():
    with running("memory:") as serving:
        api = f"{serving.url}/api/v1"
        httpx2.post(f"{api}/templates", json={"name": "tpl", "job_type": "t"}).raise_for_status()
        yield api


@pytest.fixture(scope="module", params=["wal", "sqlite"])
def made(request, tmp_path_factory):
    """A coordinator of a store in which a program made all under such ids; and an address that hears."""
    place = tmp_path_factory.mktemp("dots")
    url = f"wal:{place / 'jobs'}" if request.param == "wal" else f"sqlite:{place / 'jobs.db'}"
    with Receiver() as receiver:
        with Holdfast(url, webhook_allow=(LOOPBACK,)) as hf:
            fill(hf, receiver.url)
        with running(url, webhook_allow=(LOOPBACK,), accesses=[ACCESS]) as serving:
            yield serving.url


def tasks(hf):
    @hf.task(name="work")
    def work() -> int:
        return 7

    @hf.workflow(name="flow")
    async def flow() -> int:
        return await hf.signal("go", type=int)

    return work, flow


def fill(hf, address):
    work, flow = tasks(hf)
    for dots in DOTS:
        work.options(id=dots, queue=dots).enqueue()
        flow.start(id=dots)
    hf.webhook(address, id="..")


@pytest.mark.parametrize("dots", DOTS)
def test_what_a_program_made_is_reached_by_python(made, dots):
    with Holdfast(made, access_token="all") as hf:
        tasks(hf)
        job = hf.job(dots)
        assert job.explain().code
        hf.queue(dots).pause("wait")
        assert hf.queue(dots).settings().paused
        hf.queue(dots).resume()
        job.cancel("no")
        assert hf.job(dots).status == "CANCELLED"
        job.retry()
        run = hf.instance(dots)
        assert run.explain().code
        run.signal("go", 3)
        hf.work(until_idle=True)
        assert run.result(timeout=30) == 3
        assert run.history()


def test_what_a_program_made_is_listed_and_reached_by_http_in_a_body(made):
    api = httpx2.Client(base_url=f"{made}/api/v1", headers={"Authorization": "Bearer all"})
    with api:
        assert {*DOTS} <= {one["job_id"] for one in api.get("/jobs").json()["items"]}
        for dots in DOTS:
            seen = api.post("/look", json={"look": "get", "given": {"kind": "jobs", "key": dots}})
            assert seen.json()["found"][1]["job_id"] == dots
            assert api.post("/explain", json={"job_id": dots}).json()["reason"]["code"]
            paused = {"command": "pause_queue", "queue": dots, "reason": "r"}
            assert api.post("/commands", json={"commands": [paused]}).json()["outcomes"][0]["answer"] == "done"
            resumed = {"command": "resume_queue", "queue": dots}
            assert api.post("/commands", json={"commands": [resumed]}).json()["outcomes"][0]["answer"] == "done"


def test_a_webhook_of_such_an_id_is_tried_by_python(made):
    with Holdfast(made, access_token="all") as hf:
        (hook,) = hf.webhooks()
        assert hook.id == ".."
        assert hook.test().status == "DELIVERED"


@pytest.mark.parametrize("dots", DOTS)
def test_what_a_program_made_is_reached_by_the_command_line(made, dots):
    for words in (["jobs", "show", dots], ["explain", dots], ["queues", "show", dots], ["workflows", "show", dots]):
        told = CliRunner().invoke(cli, [*words, "--store", made], env={"HOLDFAST_ACCESS_TOKEN": "all"})
        assert told.exit_code == 0, told.output

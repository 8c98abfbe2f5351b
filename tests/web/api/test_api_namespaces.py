"""A namespace that is named with an id is where the thing must lie, to be changed as to be read."""

from __future__ import annotations

import msgspec
import pytest
from apibodies import BODIES

from holdfast.model.commands import Complete, Lease
from holdfast.web.api.endpoint_table import TABLE
from holdfast.web.api.paging import Query

KINDS = ("job_id", "run_id", "group_id", "template_id", "schedule_id", "reservation_id", "webhook_id", "delivery_id")
#: All that is about one thing which lies in a namespace.
ABOUT_ONE = [
    endpoint
    for endpoint in TABLE
    if issubclass(endpoint.query, Query) and endpoint.parameters and endpoint.parameters[0] in KINDS
]


@pytest.fixture
def ids(api):
    """One of each kind, in a namespace."""
    there = {"params": {"namespace": "there"}}
    api.post("/webhooks", {"url": "https://example.com/", "webhook_id": "w", "secret": "s" * 40}, 201, **there)
    api.post("/jobs", {"job_type": "t", "job_id": "ended"}, 201, **there)
    (grant,) = api.engine.ask(Lease(worker_id="w", namespace="there")).grants
    api.engine.ask(Complete(job_id="ended", token=grant.token, result=msgspec.Raw(b"null")))
    (delivery,) = api.get("/deliveries", **there)["items"]
    api.post("/jobs", {"job_type": "t", "job_id": "j"}, 201, **there)
    api.post("/groups", {"members": [{"job_type": "t"}], "group_id": "g"}, 201, **there)
    api.post("/templates", {"name": "tpl", "template_id": "tpl", "job_type": "t"}, 201, **there)
    plan = {"name": "s", "schedule_id": "s", "job_type": "t", "interval_s": 60}
    api.post("/schedules", plan, 201, **there)
    api.post("/reservations", {"queue": "q", "reservation_id": "r"}, 201, **there)
    values = ("j", grant.run_id, "g", "tpl", "s", "r", "w", delivery["delivery_id"])
    return {**dict(zip(KINDS, values, strict=True)), "number": "0"}


@pytest.mark.parametrize("endpoint", ABOUT_ONE, ids=lambda one: f"{one.method} {one.path}")
def test_what_lies_in_another_namespace_than_is_named_is_not_there(api, ids, endpoint):
    path = endpoint.path.format(**ids)
    body = {} if endpoint.body is None else {"json": BODIES.get((endpoint.method, endpoint.path), {})}
    seq = api.get("/jobs")["as_of"]
    for namespace in ("elsewhere", ""):
        problem = api.ask(endpoint.method, path, 404, params={"namespace": namespace}, **body)
        assert problem["code"].endswith("_not_found")
    assert api.get("/jobs")["as_of"] == seq


def test_what_lies_in_the_namespace_that_is_named_is_changed(api, ids):
    there, key = {"namespace": "there"}, {"Idempotency-Key": "k"}
    api.post(f"/jobs/{ids['job_id']}/cancel", params=there)
    api.post("/groups/g/cancel", params=there)
    api.post("/reservations/r/release", params=there)
    for _ in range(2):  # gone by then, and answered as the first time
        api.delete("/webhooks/w", params=there, headers=key)
    api.delete("/webhooks/w", 404, params=there)


def test_two_scripts_of_one_name_in_two_namespaces_do_not_get_in_each_others_way(api):
    def lease(namespace, role=None):
        wish = {"command": "lease", "cmd": f"c-{namespace}", "worker_id": "script", "namespace": namespace}
        return api.post("/lease", {"lease": wish}, role=role)

    api.post("/jobs?namespace=mine", {"job_type": "t", "job_id": "j"}, 201)
    lease("")
    api.post("/workers/script/quiet", None, 204)
    (grant,) = lease("mine", "here")["grants"]
    beat = {"leases": [{"job_id": "j", "token": grant["token"]}]}
    told = api.post("/workers/script/heartbeat", beat, role="here")
    assert told["outcomes"][0]["answer"] == "extended"
    assert told.get("wish") is None, "that was wished of the other one"
    api.delete("/workers/script", 403, role="here")
    assert api.get("/workers", role="here")["workers"] == []
    (known,) = api.get("/workers")["workers"]
    assert (known["namespace"], known["jobs"]) == ("", []), "the other one holds that job"
    assert api.post("/workers/script/heartbeat", {})["wish"] == "quiet"

"""Paths, methods, bodies, queries and roles of the API as a whole."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from apibodies import BODIES
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Mount

from holdfast.errors import BY_CODE
from holdfast.model.ids import is_id, is_name
from holdfast.web.api.endpoint_table import TABLE
from holdfast.web.api.openapi import ID, NAME, document, written
from holdfast.web.api.paging import cursor_of
from holdfast.web.api.router import Api
from holdfast.web.problems import status_of
from holdfast.web.routes import API

COPY = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"
SERVED = [endpoint for endpoint in TABLE if endpoint.handler is not None]


def test_the_committed_description_is_the_one_that_is_served(api):
    told = api.http.get("/api/v1/openapi.json")
    assert told.content == written(document(TABLE))
    assert COPY.read_bytes() == told.content, "run `make openapi`"


def test_every_path_that_is_served_is_described():
    described = {(one.method, one.path) for one in TABLE}
    for route in API:
        if isinstance(route, Mount):
            continue
        path = route.path.replace(":path}", "}")
        assert {(method, path) for method in route.methods - {"HEAD"}} <= described
    assert len(described) == len(TABLE)


@pytest.mark.parametrize(("pattern", "judge"), [(NAME, is_name), (ID, is_id)])
@given(data=st.data())
def test_what_is_said_of_names_and_ids_is_what_is_taken(pattern, judge, data):
    assert judge(data.draw(st.from_regex(pattern, fullmatch=True)))
    text = data.draw(st.text(max_size=210))
    assert judge(text) == (re.fullmatch(pattern, text) is not None)


def test_every_endpoint_is_in_the_reference():
    page = (COPY.parent / "http.md").read_text()
    assert [f"{one.method} {one.path}" for one in TABLE if f"`{one.method} {one.path}`" not in page] == []


def test_every_operation_has_a_name_of_its_own_and_names_its_errors():
    paths = document(TABLE)["paths"]
    operations = [operation for path in paths.values() for operation in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations) == len(TABLE)
    for operation in operations:
        assert {"401", "403", "422", "429", "500", "503"} <= set(operation["responses"])


@pytest.mark.parametrize("path", ["/", "/nothing", "/jobs/", "/jobs/a/b/c/d", "/jobs/a%2Fb/c", "/é"])
def test_a_path_that_nobody_has_is_not_found(api, path):
    assert api.get(path, 404)["code"] == "not_found"


@pytest.mark.parametrize("path", ["/jobs//runs", "/%FF", "//jobs"])
def test_a_path_that_is_none_is_refused(api, path):
    assert api.get(path, 400)["code"] == "invalid_value"


def test_a_method_that_is_not_there_is_told_those_that_are(api):
    answer = api.http.put("/api/v1/jobs/x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, PATCH, HEAD")
    assert answer.headers["content-type"] == "application/problem+json"
    api.ask("GET", "/commands", 405)
    api.ask("GET", "/schedules/preview", 404)


def test_head_is_get_without_its_body(api):
    whole, head = api.http.get("/api/v1/jobs"), api.http.head("/api/v1/jobs")
    assert head.content == b""
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert api.http.head("/api/v1/jobs/none").status_code == 404


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b'"x"', b"\xff", b'{"job_type":"t","params":[]}', b'{"job_type":"\\ud800"}']
)
def test_a_body_that_is_none_is_refused(api, body):
    assert api.ask("POST", "/jobs", 422, content=body)["code"] == "invalid_value"


def test_a_body_beyond_the_limit_is_refused(api):
    assert api.ask("POST", "/jobs", 413, content=b" " * (9 << 20))["code"] == "payload_too_large"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("limit=5&limit=6", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=%C3%A9", "cursor"),
        ("cursor=WzEsMl0", "cursor"),
        ("status=GONE", "status"),
        ("status=null", "status"),
        ("colour=red", "colour"),
        ("created_after=noon", "created_after"),
    ],
)
def test_a_query_that_does_not_fit_is_refused_with_its_name(api, query, field):
    assert api.get(f"/jobs?{query}", 422)["facts"]["field"] == field


def test_a_cursor_of_another_list_is_refused(api):
    for name in "ab":
        api.post("/jobs", {"job_type": "t", "queue": name}, 201)
        api.post("/groups", {"members": []}, 201)
        api.post("/templates", {"name": name, "job_type": "t"}, 201)
        api.post("/schedules", {"name": name, "job_type": "t", "interval_s": 60}, 201)
        api.post("/webhooks", {"url": f"https://example.com/{name}"}, 201)
        api.post("/reservations", {"queue": f"kept-{name}"}, 201)
    # Places in some of them have the same form, and what lies before one would be left out without a word.
    lists = ("/jobs", "/queues", "/groups", "/templates", "/schedules", "/webhooks", "/reservations")
    cursors = {one: api.get(f"{one}?limit=1")["next_cursor"] for one in lists}
    assert None not in cursors.values()
    for one in (*lists, "/runs", "/deliveries", "/workflows", "/decisions"):
        for other, cursor in cursors.items():
            answer = api.get(one, 200 if one == other else 422, params={"cursor": cursor})
            assert one == other or answer["facts"]["field"] == "cursor"


def test_every_refusal_has_one_status():
    wanted = {
        "job_not_found": 404,
        "decision_not_found": 404,
        "invalid_operation": 409,
        "duplicate_key": 409,
        "id_reused": 409,
        "reservation_conflict": 409,
        "lease_lost": 409,
        "workflow_finished": 409,
        "decision_closed": 409,
        "version_conflict": 412,
        "payload_too_large": 413,
        "record_too_large": 413,
        "invalid_value": 422,
        "invalid_arguments": 422,
        "reservation_timeout": 408,
        "unauthorized": 401,
        "forbidden": 403,
        "too_many_requests": 429,
        "history_corrupt": 500,
        "store_busy": 503,
        "store_full": 503,
        "shutting_down": 503,
    }
    assert {code: status_of(BY_CODE[code]("x")) for code in wanted} == wanted


# --- roles ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["reader", "client", "worker", "operator", "admin"])
def test_a_role_may_do_what_the_description_says_and_nothing_else(api, role):
    for endpoint in SERVED:
        if endpoint.roles == "any":
            continue
        path = endpoint.path
        for name in endpoint.parameters:
            path = path.replace(f"{{{name}}}", "nobody")
        body = BODIES.get((endpoint.method, endpoint.path), {})
        given = {} if endpoint.method == "GET" else {"content": msgspec.json.encode(body)}
        status = api.http.request(
            endpoint.method, f"/api/v1{path}", headers={"Authorization": f"Bearer {role}"}, **given
        ).status_code
        if role == "client" and "client:" in endpoint.allowed:
            continue  # it sees its own, as the next test says
        may = role in endpoint.allowed.partition(";")[0].split(", ")
        assert (status == 403) is not may, (endpoint, status)
        assert status not in (401, 405, 500), (endpoint, status)


def test_a_client_sees_what_it_submitted_and_nothing_else(api):
    own = api.post("/jobs", {"job_type": "t"}, 201, role="client")["job_id"]
    other = api.post("/jobs", {"job_type": "t"}, 201)["job_id"]
    assert [row["job_id"] for row in api.get("/jobs", role="client")["items"]] == [own]
    api.get(f"/jobs/{own}/runs", role="client")
    for nobodys in (other, "nobody"):  # which of them is there does not show
        assert api.get(f"/jobs/{nobodys}", 404, role="client")["code"] == "job_not_found"
    grant = api.lease(n=2)
    runs = {one.job.job_id: one.run_id for one in grant}
    api.get(f"/runs/{runs[own]}", role="client")
    api.get(f"/runs/{runs[other]}/log", 404, role="client")
    assert [run["run_id"] for run in api.get("/runs", role="client")["items"]] == [runs[own]]
    cursor = cursor_of("/api/v1/runs", (api.get(f"/jobs/{other}")["created_at"], other, 9))
    assert runs[other] not in [run["run_id"] for run in api.get(f"/runs?cursor={cursor}", role="client")["items"]]
    assert len(api.get("/runs", role="client", params={"job_id": own})["items"]) == 1
    assert api.get(f"/jobs/{own}")["submitted_by"] == "client"


def test_whoever_belongs_to_a_namespace_stays_there(api):
    api.post("/jobs", {"job_type": "t", "job_id": "mine"}, 201, role="here", params={"namespace": "mine"})
    api.post("/jobs", {"job_type": "t", "job_id": "other"}, 201)
    api.post("/jobs", {"job_type": "t"}, 403, role="here")
    assert len(api.get("/jobs", role="here", params={"namespace": "mine"})["items"]) == 1
    api.get("/jobs", 403, role="here")
    api.get("/jobs/other", 404, role="here")
    api.get("/jobs/mine", role="here")
    for nobodys in ("other", "nobody"):  # which of them is there does not show
        assert api.post(f"/jobs/{nobodys}/cancel", {}, 404, role="here") == {
            "type": "urn:holdfast:job_not_found",
            "title": "Not Found",
            "status": 404,
            "detail": f"there is no job {nobodys}.",
            "code": "job_not_found",
            "facts": {"job_id": nobodys},
        }
    api.post("/jobs/mine/cancel", {}, role="here")
    api.get("/jobs/mine", 404, params={"namespace": "elsewhere"})
    for path in ("/queues", "/templates", "/schedules", "/groups", "/reservations", "/webhooks", "/deliveries"):
        api.get(path, 403, role="here")
        api.get(path, role="here", params={"namespace": "mine"})
    for path in ("/workflows", "/decisions"):
        api.get(path, 403, role="here")


def test_whoever_belongs_to_a_namespace_rules_there_and_nowhere_else(api):
    mine, body = {"params": {"namespace": "mine"}}, {"job_type": "t"}
    for role, where, name in (("here", mine, "mine"), (None, {}, "other")):
        api.post("/templates", {**body, "name": "t", "template_id": f"t-{name}"}, 201, role=role, **where)
        api.post(
            "/schedules", {**body, "name": "s", "interval_s": 9, "schedule_id": f"s-{name}"}, 201, role=role, **where
        )
        api.post("/groups", {"members": [body], "group_id": f"g-{name}"}, 201, role=role, **where)
        api.post("/reservations", {"queue": "q", "reservation_id": f"r-{name}"}, 201, role=role, **where)
        api.post("/webhooks", {"url": "https://example.com/", "webhook_id": f"w-{name}"}, 201, role=role, **where)
    for name, unseen in (("nobody", 404), ("other", 404), ("mine", None)):
        api.post(f"/templates/t-{name}/enqueue", {}, unseen or 201, role="here")
        api.post(f"/templates/t-{name}/archive", {}, unseen or 200, role="here")
        api.post(f"/schedules/s-{name}/trigger", {}, unseen or 201, role="here")
        api.post(f"/schedules/s-{name}/pause", {}, unseen or 200, role="here")
        api.patch(f"/schedules/s-{name}", {"grace_s": 1}, unseen or 200, role="here")
        api.post(f"/groups/g-{name}/cancel", {}, unseen or 200, role="here")
        api.post(f"/reservations/r-{name}/renew", {}, unseen or 200, role="here")
        api.patch(f"/webhooks/w-{name}", {"enabled": False}, unseen or 200, role="here")
        if unseen:
            api.post(f"/webhooks/w-{name}/test", {}, unseen, role="here")
        api.delete(f"/webhooks/w-{name}", unseen or 204, role="here")
    # Nor with a template of others.
    stolen = {"name": "x", "interval_s": 9, "template_id": "t-other"}
    api.post("/schedules", stolen, 404, role="here", **mine)
    api.patch("/schedules/s-mine", {"template_id": "t-other", "job_type": None}, 404, role="here")


def test_what_is_done_carries_who_did_it(api):
    api.post("/jobs", {"job_type": "t", "job_id": "j"}, 201, role="client")
    api.post("/jobs/j/cancel", {"reason": "r"}, role="operator")
    events = [msgspec.json.decode(entry.event) for entry in api.engine.store.feed(0)]
    assert [one.get("actor") for one in events if one["type"] in ("job:created", "job:cancelled")] == [
        "client",
        "operator",
    ]


def test_no_two_endpoints_answer_the_same():
    served = Api(TABLE)
    for endpoint in TABLE:
        parts = ["x" if part.startswith("{") else part for part in endpoint.path.split("/")[1:]]
        same = [one for one in served.matching(parts) if one.endpoint.method == endpoint.method]
        assert same[0].endpoint is endpoint

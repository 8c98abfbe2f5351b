"""Requests that are sent again, because an answer was lost: one effect, the same outcome."""

from __future__ import annotations

import httpx2
import pytest
from apibodies import BODIES
from coordinators import running

#: What makes something, and what is different in a request that is another one.
MAKING = {
    "/jobs": {"job_type": "other"},
    "/jobs/batch": {"jobs": [{"job_type": "other"}]},
    "/templates": {"job_type": "other"},
    "/schedules": {"job_type": "other"},
    "/groups": {"mode": "concurrent"},
    "/reservations": {"queue": "other"},
    "/workflows": {"workflow": "other"},
}


@pytest.mark.parametrize("path", MAKING)
def test_what_is_made_under_a_key_is_made_once(api, path):
    body, key = BODIES["POST", path], {"Idempotency-Key": "the-key"}
    first = api.http.post(f"/api/v1{path}", json=body, headers=key)
    assert first.status_code == 201
    seq = api.get("/jobs")["as_of"]
    again = api.http.post(f"/api/v1{path}", json=body, headers=key)
    assert again.status_code in (200, 201)
    told, retold = first.json(), again.json()
    for one in (told, retold, *told.get("jobs", ()), *retold.get("jobs", ())):
        one.pop("created", None)
    assert retold == told
    assert api.get("/jobs")["as_of"] == seq
    assert api.post(path, {**body, **MAKING[path]}, 409, headers=key)["code"] in (
        "id_reused",
        "workflow_already_started",
    )


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        ("/jobs/j/move", {"to": "first"}, {"to": "last"}),
        ("/jobs/j/bury", {"reason": "a"}, {"reason": "b"}),
        ("/queues/default/pause", {"reason": "a"}, {"reason": "b"}),
        ("/dispatch/pause", {"reason": "a"}, {"reason": "b"}),
        ("/schedules/s/pause", {"reason": "a"}, {"reason": "b"}),
        ("/workflows/i/signal", {"name": "n", "data": 1}, {"name": "n", "data": 2}),
        ("/groups/g/cancel", {"reason": "a"}, {"reason": "b"}),
    ],
)
def test_a_verb_under_a_key_is_done_once(api, path, body, other):
    api.post("/jobs", {"job_type": "t", "job_id": "j"}, 201)
    api.post("/schedules", {"job_type": "t", "name": "s", "interval_s": 60}, 201)
    api.post("/workflows", {"workflow": "w", "id": "i"}, 201)
    api.post("/groups", {"members": [{"job_type": "t"}], "group_id": "g"}, 201)
    key = {"Idempotency-Key": "the-key"}
    first = api.post(path, body, headers=key)
    seq = api.get("/jobs")["as_of"]
    assert api.post(path, body, headers=key) == first
    assert api.get("/jobs")["as_of"] == seq
    assert api.post(path, other, 409, headers=key)["code"] == "id_reused"


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        ("/jobs/j/cancel", {"reason": "a"}, {"reason": "b"}),
        ("/queues/default/pause", {}, {}),
        ("/dispatch/pause", {"reason": "a"}, {"reason": "b"}),
        ("/schedules/s/pause", {}, {}),
        ("/groups/g/cancel", {}, {}),
    ],
)
def test_two_callers_who_chose_the_same_key_each_have_their_own_outcome(api, path, body, other):
    for one in ("j", "k"):
        api.post("/jobs", {"job_type": "t", "job_id": one}, 201)
        api.post(
            "/schedules", {"job_type": "t", "schedule_id": one.replace("j", "s"), "name": one, "interval_s": 60}, 201
        )
        api.post("/groups", {"members": [{"job_type": "t"}], "group_id": one.replace("j", "g")}, 201)
    elsewhere = path.replace("/j/", "/k/").replace("/s/", "/k/").replace("/g/", "/k/")
    key = {"Idempotency-Key": "the-key"}
    api.post(path, body, headers=key, role="operator")
    api.post(elsewhere, other, headers=key, role="admin")
    seq = api.get("/jobs")["as_of"]
    # And each of them repeats their own.
    api.post(path, body, headers=key, role="operator")
    api.post(elsewhere, other, headers=key, role="admin")
    assert api.get("/jobs")["as_of"] == seq
    assert api.post(elsewhere, {"reason": "another"}, 409, headers=key, role="operator")["code"] == "id_reused"


def test_a_key_is_no_command_id_of_somebody_else(api):
    api.post("/commands", {"commands": [{"command": "pause_dispatch", "cmd": "the-key"}]}, role="admin")
    api.post("/queues/default/pause", {}, headers={"Idempotency-Key": "the-key"}, role="operator")
    assert api.get("/queues/default")["paused"]


def test_a_key_that_was_used_for_another_verb_is_refused_by_the_name_that_its_caller_knows(api):
    key = {"Idempotency-Key": "the-key"}
    api.post("/queues/default/pause", {}, headers=key)
    refused = api.post("/dispatch/pause", {}, 409, headers=key)
    assert (refused["code"], refused.get("facts")) == ("id_reused", None)
    assert "the key of this request" in refused["detail"]


def test_a_key_is_known_after_a_restart(tmp_path):
    key = {"Idempotency-Key": "k"}
    for reason, status in (("a", 200), ("a", 200), ("b", 409)):
        with running(f"wal:{tmp_path / 'jobs'}") as serving:
            answer = httpx2.post(f"{serving.url}/api/v1/dispatch/pause", json={"reason": reason}, headers=key)
            assert answer.status_code == status


def test_a_real_server_takes_ids_of_any_characters_and_repeats():
    with running("memory:") as serving, httpx2.Client(base_url=f"{serving.url}/api/v1", trust_env=False) as http:
        key = {"Idempotency-Key": "k"}
        assert http.post("/jobs", json={"job_type": "t", "job_id": "a/b?c#d é"}, headers=key).status_code == 201
        assert http.post("/jobs", json={"job_type": "t", "job_id": "a/b?c#d é"}, headers=key).status_code == 200
        assert http.get("/jobs/a%2Fb%3Fc%23d%20%C3%A9").json()["job_id"] == "a/b?c#d é"
        assert http.get("/jobs/a/b").status_code == 404
        assert http.head("/jobs/a%2Fb%3Fc%23d%20%C3%A9").status_code == 200
        refused = http.get("/nothing")
        assert (refused.status_code, refused.headers["content-type"]) == (404, "application/problem+json")


T1, T2, T3 = ("2025-12-01T00:00:00Z", "2025-12-02T00:00:00Z", "2025-12-03T00:00:00Z")

#: What makes jobs, and requests that make the same ids of the same key.
OTHERS = [
    ("/jobs", {"job_type": "t"}, {"job_type": "t", "queue": "other"}),
    ("/jobs", {"job_type": "t"}, {"job_type": "t", "priority": 9}),
    ("/jobs", {"job_type": "t"}, {"job_type": "t", "delay_s": 60}),
    ("/jobs", {"job_type": "t"}, {"job_type": "t", "key": "k", "on_conflict": "reject"}),
    ("/jobs", {"job_type": "t", "key": "k"}, {"job_type": "t"}),
    ("/jobs", {"template": "tpl"}, {"template": "tpl", "params": {"x": 1}}),
    ("/jobs/batch", {"jobs": [{"job_type": "t"}]}, {"jobs": [{"job_type": "t"}, {"job_type": "t"}]}),
    ("/templates/tpl/enqueue", {}, {"params": {"x": 1}}),
    ("/schedules/s/trigger", {}, {"params": {"x": 1}}),
    ("/schedules/s/backfill", {"since": T1, "until": T2}, {"since": T1, "until": T3}),
    ("/jobs/ended/retry", {}, {"priority": 5}),
    ("/jobs/ended/retry", {}, {"params": {"x": 1}}),
]


@pytest.fixture
def planned(api):
    api.post("/templates", {"name": "tpl", "job_type": "t"}, 201)
    api.post("/schedules", {"name": "s", "job_type": "t", "interval_s": 3600}, 201)
    api.post("/jobs", {"job_type": "t", "job_id": "ended"}, 201)
    api.post("/jobs/ended/cancel")
    return api


@pytest.mark.parametrize(("path", "body", "other"), OTHERS)
def test_a_key_is_refused_to_a_request_that_asks_for_something_else(planned, path, body, other):
    api, key = planned, {"Idempotency-Key": "the-key"}
    first = api.http.post(f"/api/v1{path}", json=body, headers=key)
    assert first.status_code in (200, 201), first.text
    seq = api.get("/jobs")["as_of"]
    again = api.http.post(f"/api/v1{path}", json=body, headers=key)
    assert again.status_code == (201 if path == "/jobs/batch" else 200)
    refused = api.post(path, other, 409, headers=key)
    assert refused["code"] == "id_reused"
    assert "Nothing was changed" in refused["detail"]
    assert api.get("/jobs")["as_of"] == seq
    # It is remembered for an hour, and nobody else's: they have ids of their own.
    api.http.post(f"/api/v1{path}", json=other, headers=key | {"Authorization": "Bearer admin"}).raise_for_status()


def test_the_same_request_written_otherwise_is_the_same(api):
    key = {"Idempotency-Key": "k"}
    first = api.post("/jobs", {"job_type": "t", "params": {"a": 1}, "tags": {"b": "1", "c": "2"}}, 201, headers=key)
    said = b'{ "tags": {"c": "2", "b": "1"}, "params": { "a" : 1 },\n "job_type": "t" }'
    assert api.ask("POST", "/jobs", content=said, headers=key) == {**first, "created": False}


def test_a_job_under_a_key_that_another_job_holds_is_repeatable(api):
    api.post("/jobs", {"job_type": "t", "job_id": "holder", "key": "held"}, 201)
    key = {"Idempotency-Key": "k"}
    for _ in range(2):
        assert api.post("/jobs", {"job_type": "t", "key": "held"}, headers=key)["job_id"] == "holder"
        api.post("/jobs/holder/bury", {"reason": "r"}, headers={"Idempotency-Key": "bury"})
    api.post("/jobs", {"job_type": "t", "key": "held", "priority": 3}, 409, headers=key)


def test_a_change_of_a_template_under_a_key_is_done_once(planned):
    key = {"Idempotency-Key": "k"}
    for _ in range(2):
        assert planned.patch("/templates/tpl", {"description": "d"}, headers=key)["version"] == 2
    assert planned.patch("/templates/tpl", {"description": "e"}, 409, headers=key)["code"] == "id_reused"


@pytest.mark.parametrize("role", [None, "admin"])
@pytest.mark.parametrize("word", ["name", "id"])
@pytest.mark.parametrize("kind", ["template", "schedule"])
def test_what_was_deleted_under_a_key_is_deleted_for_who_asks_again(api, kind, word, role):
    times = {"interval_s": 60} if kind == "schedule" else {}
    for one in ("", "-other"):
        body = {"name": f"name{one}", f"{kind}_id": f"id{one}", "job_type": "t", **times}
        api.post(f"/{kind}s", body, 201)
    key = {"Idempotency-Key": "k"}
    api.delete(f"/{kind}s/{word}", headers=key, role=role)
    seq = api.get("/jobs")["as_of"]
    api.delete(f"/{kind}s/{word}", headers=key, role=role)
    # Only what was asked for under it; and without it, it is gone.
    for other in (f"{word}-other", "nobody"):
        assert api.delete(f"/{kind}s/{other}", 409, headers=key, role=role)["code"] == "id_reused"
    api.delete(f"/{kind}s/{word}", 404, role=role)
    api.delete(f"/{kind}s/{word}", 404, headers={"Idempotency-Key": "another"}, role=role)
    assert api.get("/jobs")["as_of"] == seq
    assert api.get(f"/{kind}s/id-other")

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

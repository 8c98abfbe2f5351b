"""The life of jobs over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
import pytest

from holdfast.model.commands import Complete, Fail, Lease
from holdfast.model.ids import RunId
from holdfast.model.logs import LogLine
from holdfast.web.api.paging import cursor_of

ODD = [
    "a/b",
    "a/../b",
    "a/./b",
    "../..",
    "/..",
    "a\ufffdb",
    "a b",
    "é/日本",
    "%2F",
    "a?b#c",
    "<b>x</b>",
    "a.b.json",
    "'; drop --",
    "x" * 200,
]


def test_a_job_is_made_leased_completed_and_read(api):
    made = api.post("/jobs", {"job_type": "send", "params": {"to": "a"}, "queue": "mail", "tags": {"k": "v"}}, 201)
    assert made["created"]
    job = api.get(f"/jobs/{made['job_id']}")
    assert (job["status"], job["params"], job["runs"]) == ("QUEUED", {"to": "a"}, [])
    assert job["reason"]["code"] == "no_worker"
    (grant,) = api.lease(queues=("mail",))
    assert api.get(f"/jobs/{made['job_id']}")["status"] == "RUNNING"
    api.engine.store.logs.add(
        [(grant.run_id, LogLine(at=job["created_at"], stream="stdout", level="", text=text)) for text in ("one", "é")]
    )
    kept = api.engine.store.blobs.put(b"content")
    artifacts = [
        {"name": "a\r\nb.html", "size": 7, "sha256": kept, "media_type": "text/html"},
        {"name": "big", "size": 7, "sha256": kept, "media_type": "text/html", "path": "/etc/passwd"},
    ]
    result = {"result": msgspec.Raw(b'{"n":1}'), "artifacts": msgspec.Raw(msgspec.json.encode(artifacts))}
    from holdfast.model.commands import Complete  # noqa: PLC0415 - beside what it reports

    api.engine.ask(Complete(job_id=grant.job.job_id, token=grant.token, **result))
    job = api.get(f"/jobs/{made['job_id']}")
    assert (job["status"], job["result"], job["runs"][0]["status"]) == ("COMPLETED", {"n": 1}, "COMPLETED")
    (run,) = api.get(f"/jobs/{made['job_id']}/runs")["items"]
    assert api.get(f"/runs/{run['run_id']}")["params_snapshot"] == {"to": "a"}
    assert api.get(f"/runs/{run['run_id']}/log") == "one\né\n".encode()
    answer = api.http.get(f"/api/v1/runs/{run['run_id']}/artifacts/0")
    assert (answer.content, answer.headers["content-type"]) == (b"content", "application/octet-stream")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a%0D%0Ab.html"
    # A path on some worker's machine is not one of the coordinator's.
    assert "lies where the run was" in api.get(f"/runs/{run['run_id']}/artifacts/1", 409)["detail"]
    for number in ("2", "-1", "x", "99999999999"):
        api.get(f"/runs/{run['run_id']}/artifacts/{number}", 404)


@pytest.mark.parametrize("job_id", ODD)
def test_an_id_may_hold_anything(api, job_id):
    api.post("/jobs", {"job_type": "t", "job_id": job_id}, 201)
    path = f"/jobs/{quote(job_id, safe='')}"
    assert api.get(path)["job_id"] == job_id
    assert api.post(f"{path}/cancel") == {"outcome": "cancelled"}
    assert [one["job_id"] for one in api.get("/jobs")["items"]] == [job_id]


def test_a_list_shows_how_parameters_begin_and_no_more(api):
    api.post("/jobs", {"job_type": "t", "params": {"text": "é" * 500}}, 201)
    (row,) = api.get("/jobs")["items"]
    assert len(row["preview"]) == 120
    assert "params" not in row
    assert "result" not in row


def test_120_jobs_are_paged_through_while_others_come_in(api):
    expected = []
    for number in range(120):
        api.clock.advance(1)
        expected.append(api.post("/jobs", {"job_type": "t", "job_id": f"j{number:03}"}, 201)["job_id"])
    seen = []
    for row in api.pages("/jobs", limit=50):
        seen.append(row["job_id"])
        if len(seen) % 50 == 0:
            api.post("/jobs", {"job_type": "t", "job_id": f"late{len(seen)}"}, 201)
    assert seen == expected[::-1]


def test_a_list_is_filtered(api):
    for number in range(30):
        api.clock.advance(1)
        body = {"job_type": f"t{number % 2}", "job_id": f"j{number}", "queue": f"q{number % 3}"}
        api.post("/jobs", {**body, "tags": {"n": str(number % 5)}, "key": f"k{number}"}, 201)
    ids = lambda **query: [row["job_id"] for row in api.pages("/jobs", limit=2, **query)]  # noqa: E731 - a short name
    assert ids(queue="q0", job_type="t0") == ["j24", "j18", "j12", "j6", "j0"]
    assert ids(tag="n=3") == ["j28", "j23", "j18", "j13", "j8", "j3"]
    assert len(ids(tag="n")) == 30
    assert ids(tag=["n=3", "m"]) == []
    assert ids(key="k7") == ["j7"]
    middle = api.get("/jobs/j10")["created_at"]
    assert len(ids(created_after=middle)) == 19
    assert ids(created_before=middle)[0] == "j9"
    assert ids(status="RUNNING") == []


def test_a_filter_looks_at_so_many_jobs_and_goes_on_behind_them(api, monkeypatch):
    monkeypatch.setattr("holdfast.web.api.paging.LOOKED_AT", 200)
    api.post("/jobs", {"job_type": "t", "job_id": "first", "tags": {"x": "y"}}, 201)
    api.clock.advance(1)
    api.post("/jobs/batch", {"jobs": [{"job_type": "t"} for _ in range(401)]}, 201)
    page = api.get("/jobs", params={"tag": "x"})
    assert page["items"] == []
    assert page["next_cursor"] is not None
    assert [row["job_id"] for row in api.pages("/jobs", tag="x")] == ["first"]


def test_a_batch_is_made_whole_or_not_at_all(api):
    made = api.post("/jobs/batch", {"jobs": [{"job_type": "t", "job_id": "a"}, {"job_type": "t"}]}, 201)
    assert [one["created"] for one in made["jobs"]] == [True, True]
    api.post("/jobs/batch", {"jobs": [{"job_type": "t"}, {"job_type": "no name"}]}, 422)
    api.post("/jobs/batch", {"jobs": [{"job_type": "t"}, {"job_type": "t", "job_id": "a", "params": {"x": 1}}]}, 409)
    assert len(api.get("/jobs")["items"]) == 2
    api.post("/jobs/batch", {"jobs": [{"job_type": "t"}] * 1001}, 413)
    api.post("/jobs/batch", {"jobs": []}, 422)


def test_the_same_id_gives_the_same_job_and_other_content_is_refused(api):
    body = {"job_type": "t", "job_id": "j", "params": {"a": 1}}
    assert api.post("/jobs", body, 201) == {"job_id": "j", "created": True}
    assert api.post("/jobs", body, 200) == {"job_id": "j", "created": False}
    assert api.post("/jobs", {**body, "params": {}}, 409)["code"] == "id_reused"


def test_an_idempotency_key_makes_a_call_repeatable(api):
    key = {"Idempotency-Key": "k-1"}
    first = api.post("/jobs", {"job_type": "t"}, 201, headers=key)
    assert api.post("/jobs", {"job_type": "t"}, 200, headers=key) == {**first, "created": False}
    assert api.post("/jobs", {"job_type": "u"}, 409, headers=key)["code"] == "id_reused"
    # Another caller's key is another key.
    assert api.post("/jobs", {"job_type": "t"}, 201, headers=key, role="client")["job_id"] != first["job_id"]
    path = f"/jobs/{first['job_id']}"
    verb = {"Idempotency-Key": "k-2"}
    assert api.post(f"{path}/cancel", {"reason": "r"}, headers=verb) == {"outcome": "cancelled"}
    assert api.post(f"{path}/cancel", {"reason": "r"}, headers=verb) == {"outcome": "cancelled"}
    assert api.post(f"{path}/cancel", {"reason": "other"}, 409, headers=verb)["code"] == "id_reused"
    assert api.post(f"{path}/cancel", {"reason": "r"}, 409)["code"] == "invalid_operation"
    again = api.post(f"{path}/retry", {}, 201, headers={"Idempotency-Key": "k-3"})
    assert api.post(f"{path}/retry", {}, headers={"Idempotency-Key": "k-3"})["job_id"] == again["job_id"]
    api.post("/jobs", {"job_type": "t"}, 422, headers={"Idempotency-Key": "k" * 201})


def test_a_job_that_waits_is_edited_and_moved(api):
    for name in "abc":
        api.post("/jobs", {"job_type": "t", "job_id": name}, 201)
    api.post("/jobs/c/move", {"to": "first"})
    api.post("/jobs/a/move", {"after": "b"})
    assert [job["job_id"] for job in api.get("/queues/default")["head"]] == ["c", "b", "a"]
    assert api.post("/jobs/a/move", {}, 422)["code"] == "invalid_value"
    api.post("/jobs/a/move", {"before": "nobody"}, 404)
    api.patch("/jobs/b", {"priority": 5, "not_before": "2026-01-01T02:00:00+01:00", "timeout_s": None})
    job = api.get("/jobs/b")
    assert (job["priority"], job["not_before"]) == (5, "2026-01-01T01:00:00.000000Z")
    assert api.patch("/jobs/b", {}, 422)["code"] == "invalid_value"
    assert api.patch("/jobs/b", {"not_before": "tomorrow"}, 422)["facts"]["field"] == "not_before"
    api.lease()
    assert api.patch("/jobs/c", {"priority": 1}, 409)["code"] == "invalid_operation"
    api.patch("/jobs/nobody", {"priority": 1}, 404)


def test_a_running_job_is_asked_to_stop_and_ended_by_force(api):
    api.post("/jobs", {"job_type": "t", "job_id": "j"}, 201)
    api.lease()
    assert api.post("/jobs/j/cancel", {"reason": "why"}) == {"outcome": "requested"}
    assert api.ask("DELETE", "/jobs/j", json={"force": True}) == {"outcome": "cancelled"}
    assert api.get("/jobs/j")["status"] == "CANCELLED"
    assert api.delete("/jobs/j", 409)["code"] == "invalid_operation"


def test_a_failed_job_is_explained_and_run_again(api):
    api.post("/jobs", {"job_type": "t", "job_id": "j", "params": {"a": 1}, "max_attempts": 1}, 201)
    (grant,) = api.lease()
    api.engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="boom"))
    assert api.get("/jobs/j/explain")["reason"]["code"] == "ended"
    made = api.post("/jobs/j/retry", {"priority": 3, "params": {"a": 2}}, 201)
    again = api.get(f"/jobs/{made['job_id']}")
    assert (again["retry_of"], again["params"], again["priority"]) == ("j", {"a": 2}, 3)
    by_run = api.post(f"/runs/{grant.run_id}/retry", {"job_id": "third"}, 201)
    chain = [job["job_id"] for job in api.get("/jobs/third/chain")["items"]]
    assert chain == ["j", made["job_id"], "third"]
    assert by_run["job_id"] == "third"
    links = api.get("/jobs/j/explain")["chain"]
    assert [(one["role"], one["job_id"]) for one in links] == [("retried by", made["job_id"]), ("retried by", "third")]
    api.post(f"/jobs/{made['job_id']}/retry", {}, 409)


def test_a_buried_job_is_dead(api):
    api.post("/jobs", {"job_type": "t", "job_id": "j"}, 201)
    api.post("/jobs/j/bury", {"reason": "poison"})
    assert api.get("/jobs/j")["status"] == "DEAD"
    api.post("/jobs/j/bury", {}, 409)


def test_a_held_key_is_told(api):
    api.post("/jobs", {"job_type": "t", "job_id": "j", "key": "k"}, 201)
    assert api.post("/jobs", {"job_type": "t", "key": "k"}) == {"job_id": "j", "created": False}
    assert api.post("/jobs", {"job_type": "t", "key": "k", "on_conflict": "reject"}, 409)["code"] == "duplicate_key"


def test_runs_are_listed_by_job_the_newest_first(api):
    for number in range(5):
        api.clock.advance(1)
        api.post("/jobs", {"job_type": "t", "job_id": f"j{number}", "backoff": {"base_s": 0}}, 201)
    for _ in range(2):
        for grant in api.lease(n=5):
            api.engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="boom"))
        api.clock.advance(60)
    expected = [(f"j{number}", run) for number in (4, 3, 2, 1, 0) for run in (2, 1)]
    assert [(run["job_id"], run["run_no"]) for run in api.pages("/runs", limit=3)] == expected
    assert [run["run_no"] for run in api.pages("/runs", limit=1, job_id="j2")] == [2, 1]
    assert list(api.pages("/runs", status="COMPLETED")) == []
    api.get("/runs", 404, params={"job_id": "nobody"})
    api.get(f"/runs/{RunId('nobody')}", 404)


def test_a_cursor_made_by_hand_leads_into_no_other_namespace_and_past_no_filter(api):
    for namespace, name in (("mine", "j0"), ("theirs", "secret"), ("mine", "j1")):
        api.clock.advance(1)
        api.post(f"/jobs?namespace={namespace}", {"job_type": "t", "job_id": name, "queue": name}, 201)
        (grant,) = api.engine.ask(Lease(worker_id="w", queues=(name,), namespace=namespace)).grants
        api.engine.ask(Complete(job_id=name, token=grant.token))

    def listed(name, **query):
        cursor = cursor_of("/api/v1/runs", (api.get(f"/jobs/{name}")["created_at"], name, 9))
        return [run["job_id"] for run in api.get("/runs", role="here", params={**query, "cursor": cursor})["items"]]

    # It is a place in the order, whatever it names.
    assert listed("secret", namespace="mine") == ["j0"]
    assert listed("j1", namespace="mine") == ["j1", "j0"]
    assert listed("j1", namespace="mine", queue="j0") == ["j0"]
    assert listed("j1", namespace="mine", job_type="other") == []


def test_content_too_large_for_a_record_is_shown_whole(api):
    text = "x" * 100_000
    api.post("/jobs", {"job_type": "t", "job_id": "j", "params": {"text": text}}, 201)
    assert api.get("/jobs/j")["params"] == {"text": text}


def test_a_heartbeat_whose_lines_are_refused_extends_nothing(api):
    # By a token for one namespace, which holds a lease there and speaks for a run of another.
    grants = {}
    for name, job_id in (("mine", "j"), ("theirs", "k")):
        api.post(f"/jobs?namespace={name}", {"job_type": "t", "job_id": job_id}, 201)
        (grants[name],) = api.engine.ask(Lease(worker_id="w", namespace=name, lease_s=30)).grants
    grant = grants["mine"]
    line = {"at": "2026-01-01T00:00:00.000000Z", "stream": "log", "level": "INFO", "text": "x"}
    held = {"job_id": "j", "token": grant.token, "lease_s": 600}
    until, seq = api.get("/jobs/j")["lease_expires_at"], api.get("/jobs")["as_of"]
    api.clock.advance(10)
    beat = {"leases": [held], "lines": [[grant.run_id, line], [grants["theirs"].run_id, line]]}
    problem = api.post("/workers/w/heartbeat", beat, 403, role="here")
    assert "Nothing was done" in problem["detail"]
    assert (api.get("/jobs/j")["lease_expires_at"], api.get("/jobs")["as_of"]) == (until, seq)
    assert api.get(f"/runs/{grant.run_id}/log") == b""
    api.post("/workers/w/heartbeat", {**beat, "lines": beat["lines"][:1]}, role="here")
    assert api.get("/jobs/j")["lease_expires_at"] > until
    assert api.get(f"/runs/{grant.run_id}/log") == b"x\n"


def test_a_job_of_nothing_is_told_what_to_name(api):
    problem = api.post("/jobs", {}, 422)
    assert "or a template" in problem["detail"]
    assert (problem["facts"], "hint" in problem) == ({"field": "job_type"}, False)
    for body, field in (({}, "job_type"), ({"template": "t"}, "template")):
        assert api.post("/jobs/batch", {"jobs": [body]}, 422)["facts"]["field"] == field
        assert api.post("/groups", {"members": [body]}, 422)["facts"]["field"] == field


def test_a_worker_that_is_not_there_is_named(api):
    problem = api.post("/workers/nobody/quiet", None, 404)
    assert (problem["code"], problem["facts"]) == ("worker_not_found", {"worker_id": "nobody"})


def test_what_workers_hold_is_told_to_who_may_read_jobs(api):
    api.post("/jobs", {"job_type": "t", "job_id": "j"}, 201)
    lease = {"command": "lease", "cmd": "c", "worker_id": "script"}
    api.post("/lease", {"lease": lease}, role="worker")
    (told,) = api.get("/workers", role="reader")["workers"]
    assert (told["used"], [job["job_id"] for job in told["jobs"]]) == (1, ["j"])
    (told,) = api.get("/workers", role="worker")["workers"]
    assert (told["worker_id"], told["used"], told["jobs"]) == ("script", None, None)
    api.get("/workers", 403, role="client")

"""The API with nothing but HTTP: as a worker in another language sees it."""

from __future__ import annotations

import hashlib
import threading

import httpx2
import pytest
from coordinators import running

from holdfast.failpoints import listening


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with (
        running(f"wal:{tmp_path_factory.mktemp('wire') / 'jobs'}") as serving,
        httpx2.Client(base_url=f"{serving.url}/api/v1", timeout=20) as client,
    ):
        yield client


def enqueue(api, job_id, queue="default"):
    job = {"job_id": job_id, "job_type": "work", "params": {"n": 1}, "queue": queue}
    return api.post("/commands", json={"commands": [{"command": "enqueue", "cmd": f"make-{job_id}", "jobs": [job]}]})


def lease(api, worker, queue, wait_s=0.0):
    wish = {"command": "lease", "cmd": f"{worker}-1", "worker_id": worker, "queues": [queue]}
    return api.post("/lease", json={"lease": wish, "wait_s": wait_s})


def test_a_job_is_leased_kept_alive_and_completed(api):
    assert enqueue(api, "a", "plain").json() == {
        "outcomes": [{"answer": "enqueued", "jobs": [{"job_id": "a", "created": True}]}]
    }
    (grant,) = lease(api, "curl", "plain").json()["grants"]
    held = {"job_id": "a", "token": grant["token"]}
    beat = api.post("/workers/curl/heartbeat", json={"leases": [held]}).json()
    assert beat["outcomes"][0]["answer"] == "extended"
    done = {"command": "complete", "cmd": "done", **held, "result": 2}
    for repeated in ({}, {"duplicate": True}):
        (outcome,) = api.post("/commands", json={"commands": [done]}).json()["outcomes"]
        assert outcome == {"answer": "reported", "job_status": "COMPLETED", **repeated}


def test_a_lease_sent_again_gives_what_it_gave(api):
    enqueue(api, "b1", "again")
    enqueue(api, "b2", "again")
    first, second = (lease(api, "w", "again").json()["grants"] for _ in range(2))
    assert [grant["token"] for grant in first] == [grant["token"] for grant in second]


@pytest.mark.parametrize(
    "asked",
    [
        {"worker_id": ""},
        {"worker_id": "\x1b[31mred"},
        {"worker_id": "x" * 300},
        {"n": -5},
        {"lease_s": -1},
        {"queues": []},
        {"queues": ["\0"]},
        {"job_types": [""]},
        {"namespace": "\1"},
    ],
)
def test_whose_lease_is_refused_is_not_known_by_it(api, asked):
    before = api.get("/workers").json()
    refused = api.post("/lease", json={"lease": {"command": "lease", "worker_id": "odd", **asked}})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_value")
    assert api.get("/workers").json() == before


def test_a_worker_that_says_nothing_of_itself_is_known_by_what_it_asks_for(api):
    for name in ("first", "second"):
        enqueue(api, name, "terse")
    explained = api.get("/jobs/second/explain").json()["reason"]["code"]
    assert explained == "no_worker"
    (grant,) = lease(api, "script", "terse").json()["grants"]
    (known,) = (one for one in api.get("/workers").json()["workers"] if one["worker_id"] == "script")
    assert (known["name"], known["queues"]) == ("script", ["terse"])
    # Every field is there, also one that is as usual, and what it holds.
    assert (known["state"], known["slots"], known["used"], known["wish"]) == ("ready", 1, 1, None)
    assert [(job["job_id"], job["queue"]) for job in known["jobs"]] == [("first", "terse")]
    assert api.get("/jobs/second/explain").json()["reason"]["code"] != "no_worker"
    # It learns what is asked of it with its next heartbeat, and is forgotten when it leaves.
    assert api.post("/workers/script/quiet").status_code == 204
    held = {"job_id": "first", "token": grant["token"]}
    assert api.post("/workers/script/heartbeat", json={"leases": [held]}).json()["wish"] == "quiet"
    assert api.delete("/workers/script").status_code == 204
    assert all(one["worker_id"] != "script" for one in api.get("/workers").json().get("workers", ()))


def test_nothing_to_do_is_an_empty_list_at_the_end(api):
    assert lease(api, "idle", "empty").json() == {"answer": "leased"}


def test_whoever_has_waited_longest_is_served_first(api):
    answers = {}
    joined = threading.Semaphore(0)

    def wait(name):
        answers[name] = lease(api, name, "rare", wait_s=20).json().get("grants", [])

    threads = []
    with listening("lobby.joined", joined.release):
        for name in ("first", "second"):
            threads.append(threading.Thread(target=wait, args=(name,)))
            threads[-1].start()
            assert joined.acquire(timeout=20)
    enqueue(api, "c1", "rare")
    threads[0].join()
    assert [grant["job"]["job_id"] for grant in answers["first"]] == ["c1"]
    assert "second" not in answers
    enqueue(api, "c2", "rare")
    threads[1].join()
    assert [grant["job"]["job_id"] for grant in answers["second"]] == ["c2"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/commands", b"{", 422, "invalid_value"),
        ("/commands", b'{"commands": [{"command": "nonsense"}]}', 422, "invalid_value"),
        ("/commands", b"[" * 100_000, 422, "invalid_value"),
        (
            "/commands",
            b'{"commands": [' + b",".join([b'{"command": "resume_dispatch"}'] * 257) + b"]}",
            413,
            "payload_too_large",
        ),
        ("/commands", b" " * (8 << 20) + b" ", 413, "payload_too_large"),
        ("/look", b'{"look": "__class__"}', 422, "invalid_value"),
        ("/look", b'{"look": "get", "given": {"kind": "nothing", "key": "a"}}', 422, "invalid_value"),
        ("/look", b'{"look": "get", "given": {"kind": "jobs"}}', 422, "invalid_value"),
        ("/lease", b'{"lease": {"command": "lease", "worker_id": "w"}, "wait_s": 31}', 422, "invalid_value"),
        ("/lease", b'{"lease": {"command": "lease", "worker_id": "w", "n": 1000}}', 422, "invalid_value"),
    ],
)
def test_what_cannot_be_done_is_a_problem_that_says_why(api, path, body, status, code):
    found = api.post(path, content=body)
    assert (found.status_code, found.json()["code"], found.json()["status"]) == (status, code, status)
    assert found.headers["content-type"] == "application/problem+json"


def test_blobs_are_verified_on_arrival(api):
    content = b"much" * 50_000
    digest = hashlib.sha256(content).hexdigest()
    assert api.head(f"/blobs/{digest}").status_code == 404
    assert api.put(f"/blobs/{digest}", content=b"other").status_code == 422
    assert api.put(f"/blobs/{digest}", content=content).status_code == 204
    assert api.get(f"/blobs/{digest}").content == content
    assert api.get("/blobs/..%2f..%2fetc").status_code == 404, "an id that nothing has"


def test_a_stream_that_was_cut_goes_on_where_it_was(api):
    enqueue(api, "s1", "stream")
    numbers = []
    for headers in ({}, None):
        sent = {"Last-Event-ID": str(numbers[-1])} if headers is None else headers
        if headers is None:
            enqueue(api, "s2", "stream")
        with api.stream("GET", "/feed", headers={"Accept": "text/event-stream", **sent}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            wanted = b'"s1"' if headers is not None else b'"s2"'
            seen = b""
            for part in stream.iter_bytes():
                seen += part
                if wanted in seen and seen.endswith(b"\n\n"):
                    break
        numbers += [int(line[4:]) for line in seen.splitlines() if line.startswith(b"id: ")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_health_needs_nobody_and_says_what_is_so(api):
    root = str(api.base_url).removesuffix("/api/v1/")
    assert httpx2.get(f"{root}/healthz").text == "ok\n"
    assert httpx2.get(f"{root}/readyz").text == "ready\n"

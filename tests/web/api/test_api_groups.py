"""Groups, reservations and direct execution over HTTP."""

from __future__ import annotations

import threading

from holdfast.failpoints import listening
from holdfast.model.commands import Complete


def test_a_group_is_made_followed_and_cancelled(api):
    api.post("/jobs", {"job_type": "t", "job_id": "there"}, 201)
    members = [{"job_type": "t", "job_id": "a"}, "there", {"job_type": "t", "job_id": "c"}]
    body = {"group_id": "g", "members": members, "callback": {"job_type": "after", "job_id": "then"}}
    assert api.post("/groups", body, 201)["members"] == ["a", "there", "c"]
    assert api.post("/groups", body)["created"] is False
    api.post("/groups", {**body, "mode": "concurrent"}, 409)
    assert api.get("/jobs/c/explain")["reason"]["code"] == "group_wait"
    api.run()
    group = api.get("/groups/g")
    assert (group["status"], group["completed"]) == ("RUNNING", 1)
    assert [job["job_id"] for job in group["jobs"]] == ["a", "there", "c"]
    assert len(api.get("/groups/g", params={"members": 1})["jobs"]) == 1
    assert api.post("/groups/g/cancel", {"reason": "r"}) == {"group_id": "g", "cancelled": 2, "requested": 0}
    assert [row["status"] for row in api.pages("/groups")] == ["PARTIAL"]
    assert api.get("/jobs/then")["job_type"] == "after"
    api.post("/groups/g/cancel", {}, 409)
    api.post("/groups/none/cancel", {}, 404)
    api.post("/groups", {"members": ["nobody"]}, 404)
    assert api.post("/groups", {"members": [{"job_type": "t", "x": 1}]}, 422)["facts"]["field"] == "members[0].x"


def test_groups_are_listed_in_pages(api):
    for number in range(5):
        api.clock.advance(1)
        api.post("/groups", {"group_id": f"g{number}", "members": [{"job_type": "t"}]}, 201)
    assert [row["group_id"] for row in api.pages("/groups", limit=2)] == ["g4", "g3", "g2", "g1", "g0"]
    assert list(api.pages("/groups", status="FAILED")) == []


def test_a_queue_is_held_and_a_job_run_there_alone(api):
    api.post("/jobs", {"job_type": "t", "job_id": "before", "queue": "q"}, 201)
    (running,) = api.lease(queues=("q",))
    held = api.post("/reservations", {"queue": "q", "reservation_id": "r", "reserved_by": "me"}, 201)
    assert (held["status"], held["left_s"]) == ("ACTIVE", 60)
    assert api.post("/reservations", {"queue": "q"}, 409)["facts"]["reservation_id"] == "r"
    direct = {"reservation_id": "r", "worker_id": "me", "job": {"job_type": "t", "job_id": "now", "queue": "q"}}
    assert api.post("/direct", direct, 409)["code"] == "reservation_conflict"
    assert api.post("/direct", {**direct, "wait_s": 0.01}, 408)["code"] == "reservation_timeout"
    api.engine.ask(Complete(job_id=running.job.job_id, token=running.token))
    grant = api.post("/direct", direct, 201)
    assert (grant["job"]["job_id"], grant["job"]["direct"]) == ("now", True)
    assert api.get("/reservations")["items"][0]["job_id"] == "now"
    api.engine.ask(Complete(job_id=grant["job"]["job_id"], token=grant["token"]))
    assert api.post("/direct", direct)["token"] is None
    api.clock.advance(30)
    assert api.post("/reservations/r/renew", {"ttl_s": 90})["left_s"] == 90
    assert api.post("/reservations/r/release")["status"] == "RELEASED"
    assert api.get("/reservations")["items"] == []
    assert [row["status"] for row in api.pages("/reservations", all=True)] == ["RELEASED"]
    api.post("/reservations/r/renew", {}, 409)
    api.post("/reservations/none/release", {}, 404)
    api.post("/direct", {**direct, "reservation_id": "none", "job": {"job_type": "t", "queue": "q"}}, 404)
    api.post("/reservations", {"queue": "q", "wait_s": 31}, 422)


def test_a_wait_for_a_queue_ends_when_it_is_given_back(api):
    api.post("/reservations", {"queue": "q", "reservation_id": "first"}, 201)
    waits = threading.Event()
    got = []

    def wait():
        got.append(api.post("/reservations", {"queue": "q", "reservation_id": "second", "wait_s": 30}, 201))

    with listening("bell.waiting", waits.set):
        thread = threading.Thread(target=wait)
        thread.start()
        assert waits.wait(30)
        api.post("/reservations/first/release")
        thread.join()
    assert got[0]["reservation_id"] == "second"

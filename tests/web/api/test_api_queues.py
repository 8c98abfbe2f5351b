"""Queues over HTTP: how full they are, their limits, and whether anything is leased."""

from __future__ import annotations


def test_a_queue_is_paused_limited_and_opened_again(api):
    for name in "abc":
        api.post("/jobs", {"job_type": "t", "job_id": name, "queue": "q"}, 201)
    api.post("/queues/q/pause", {"reason": "because"})
    queue = api.get("/queues/q")
    assert (queue["paused"], queue["pause_reason"], queue["counts"]["QUEUED"]) == (True, "because", 3)
    assert queue["oldest_at"] == "2026-01-01T00:00:00.000000Z"
    assert api.lease(queues=("q",), n=3) == ()
    api.post("/queues/q/resume")
    api.patch("/queues/q", {"max_running": 1, "retention": {"done_s": 60}})
    assert len(api.lease(queues=("q",), n=3)) == 1
    assert api.get("/jobs/b/explain")["reason"]["code"] == "queue_limit"
    api.patch("/queues/q", {"max_running": None})
    assert api.get("/queues/q")["max_running"] is None
    api.patch("/queues/q", {}, 422)
    assert api.patch("/queues/q", {"retention": {"typo": 1}}, 422)["facts"]["field"] == "retention.typo"
    api.patch("/queues/q", {"max_running": -1}, 422)
    api.post("/queues/q/normalize")
    api.get("/queues/none", 404)


def test_queues_are_listed_in_pages_by_namespace(api):
    for number in range(5):
        api.post("/jobs", {"job_type": "t", "queue": f"q/{number}"}, 201, params={"namespace": "n"})
    names = [row["name"] for row in api.pages("/queues", namespace="n", limit=2)]
    assert names == [f"q/{number}" for number in range(5)]
    assert list(api.pages("/queues")) == []
    assert api.get("/queues/q%2F3", params={"namespace": "n"})["counts"]["QUEUED"] == 1


def test_dispatch_is_paused_altogether(api):
    api.post("/jobs", {"job_type": "t", "job_id": "j"}, 201)
    api.post("/dispatch/pause", {"reason": "fire"})
    assert api.get("/jobs/j/explain")["reason"]["code"] == "dispatch_paused"
    api.post("/dispatch/resume")
    assert len(api.lease()) == 1


def test_queues_are_listed_with_how_long_somebody_could_have_run_there(api):
    began = api.get("/status")["now"]
    api.post("/jobs", {"job_type": "t", "queue": "late", "delay_s": 60}, 201)
    api.post("/jobs", {"job_type": "t", "queue": "now"}, 201)
    api.patch("/queues/empty", {"max_running": 1})

    def waits():
        return {row["name"]: row["oldest_at"] for row in api.get("/queues")["items"]}

    assert waits() == {"late": None, "now": began, "empty": None}
    api.clock.advance(60)
    due = api.get("/status")["now"]
    api.lease(queues=("nothing",))  # whoever looks for work makes ready what has become due
    api.clock.advance(5)
    assert waits() == {"late": due, "now": began, "empty": None}
    assert api.get("/queues/late")["oldest_at"] == due, "it was not to run before"

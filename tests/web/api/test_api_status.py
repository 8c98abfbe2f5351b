"""The store on one page, over HTTP."""

from __future__ import annotations

import pytest


def test_the_status_tells_what_is_dispatched_how_much_there_is_and_who_holds_what(api):
    for name in "ab":
        api.post("/jobs", {"job_type": "t", "job_id": name}, 201)
    api.post("/jobs", {"job_type": "t", "job_id": "c", "queue": "mine"}, 201)
    assert len(api.lease()) == 1
    held = api.post("/reservations", {"queue": "mine", "reserved_by": "me"}, 201)
    status = api.get("/status")
    assert status["dispatching"]
    assert (status["counts"]["QUEUED"], status["counts"]["RUNNING"], status["counts"]["DEAD"]) == (2, 1, 0)
    assert status["running"] == 1
    assert [one["reservation_id"] for one in status["reservations"]] == [held["reservation_id"]]
    assert {row["name"]: row["counts"]["QUEUED"] for row in status["queues"]} == {"default": 1, "mine": 1}
    assert status["now"] == "2026-01-01T00:00:00.000000Z"
    assert status["clock_steps"] == {"forward": 0, "back": 0}
    assert status["workers"] == {"ready": 0, "draining": 0, "lost": 0}
    with api.engine.read() as view:
        assert status["seq"] == view.seq
    api.post("/dispatch/pause", {"reason": "fire"})
    status = api.get("/status")
    assert (status["dispatching"], status["dispatch_reason"]) == (False, "fire")


@pytest.mark.parametrize(("role", "answer"), [("reader", 200), ("operator", 200), ("client", 403), ("worker", 403)])
def test_the_status_and_the_metrics_are_for_who_may_read_everything(api, role, answer):
    api.get("/status", answer, role=role)
    metrics = api.http.get("/metrics", headers={"Authorization": f"Bearer {role}"})
    assert metrics.status_code == answer
    if answer == 200:
        assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "\nholdfast_leases_active 0\n" in metrics.text

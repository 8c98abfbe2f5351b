"""Workflows and decisions over HTTP: started, asked, answered, rewound and removed without any code of theirs."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.web.api.paging import cursor_of


@pytest.fixture
def flows(api, monkeypatch):
    """A worker's application on the coordinator's own engine."""
    app = Holdfast("memory:", clock=api.clock)
    monkeypatch.setattr(type(app), "engine", property(lambda _self: api.engine))
    assert isinstance(app.engine, Engine)

    @app.workflow
    async def onboard(user: int) -> str:
        app.kv.set("user", user)
        app.set_status({"step": "waiting"})
        paid = await app.signal("paid")
        answer = await app.decision("Approve?", options=["yes", "no"])
        return f"{answer} {paid}"

    @app.workflow
    async def broken() -> None:
        raise ValueError("boom")

    return app


def test_an_instance_is_started_signalled_asked_and_answered(api, flows):
    body = {"workflow": "onboard", "id": "u/1", "input": {"user": 7}}
    assert api.post("/workflows", body, 201) == {"instance_id": "u/1", "created": True}
    assert api.post("/workflows", body)["created"] is False
    assert api.post("/workflows", {**body, "input": {"user": 8}}, 409)["code"] == "workflow_already_started"
    assert api.get("/workflows")["items"][0]["reason"]["code"] == "unregistered"
    flows.work(until_idle=True)
    whole = api.get("/workflows/u%2F1")
    assert (whole["custom_status"], whole["kv"], whole["decisions"]) == ({"step": "waiting"}, {"user": 7}, [])
    assert whole["waiting_on"]
    api.post("/workflows/u%2F1/signal", {"name": "paid", "data": {"n": 1}})
    flows.work(until_idle=True)
    (question,) = api.get("/decisions", params={"state": "open"})["items"]
    assert (question["prompt"], question["options"]) == ("Approve?", ["yes", "no"])
    path = f"/decisions/{question['decision_id']}"
    assert api.get("/workflows/u%2F1")["decisions"] == [question]
    assert api.post(f"{path}/resolve", {"chosen": "maybe"}, 422)["code"] == "invalid_value"
    api.post(f"{path}/resolve", {}, 422)
    api.post(f"{path}/resolve", {"chosen": "yes", "message": "fine"}, role="operator")
    assert api.post(f"{path}/resolve", {"chosen": "no"}, 409)["code"] == "decision_closed"
    flows.work(until_idle=True)
    assert api.get(path)["by"] == "operator"
    whole = api.get("/workflows/u%2F1")
    assert whole["status"] == "COMPLETED"
    assert "yes" in whole["output"]
    assert api.post("/workflows/u%2F1/signal", {"name": "paid"}, 409)["code"] == "workflow_finished"
    assert api.get("/decisions", params={"state": "answered"})["items"][0]["chosen"] == "yes"
    assert api.get("/decisions", params={"state": "overdue"})["items"] == []


def test_a_history_is_read_backwards_in_pages_and_exported(api, flows):
    api.post("/workflows", {"workflow": "onboard", "id": "i", "input": {"user": 1}}, 201)
    assert api.get("/workflows/i/export", 409)["code"] == "invalid_operation"
    assert api.get("/workflows/i/history")["items"] == []
    flows.work(until_idle=True)
    ids = [event["event_id"] for event in api.pages("/workflows/i/history", limit=2)]
    assert ids == list(range(len(ids), 0, -1))
    assert [one["event_id"] for one in api.get("/workflows/i/history", params={"before": 3})["items"]] == [2, 1]
    api.get("/workflows/i/history", 404, params={"execution": 9})
    assert [one["execution_id"] for one in api.get("/workflows/i/executions")["items"]] == [1]
    file = api.get("/workflows/i/export")
    assert (file["instance"], len(file["executions"][0]["events"])) == ("i", len(ids))
    assert api.get("/workflows/i/export", params={"redact": True})["redacted"]
    assert api.get("/workflows/i/explain")["reason"]["code"] == "waiting"


def test_pages_of_a_history_are_of_one_execution_although_another_one_has_begun(api, flows):
    api.post("/workflows", {"workflow": "broken", "id": "b"}, 201)
    flows.work(until_idle=True)
    ids = [event["event_id"] for event in api.pages("/workflows/b/history")]
    cursor = api.get("/workflows/b/history?limit=1")["next_cursor"]
    api.post("/workflows/b/reset", {"reason": "again"})
    flows.work(until_idle=True)
    assert api.get("/workflows/b")["execution_id"] == 2
    for query in ({}, {"execution": 1}):
        page = api.get("/workflows/b/history", params={**query, "cursor": cursor})
        assert {event["execution_id"] for event in page["items"]} == {1}
        assert [event["event_id"] for event in page["items"]] == ids[1:]
    api.get("/workflows/b/history", 422, params={"execution": 2, "cursor": cursor})


def test_an_instance_is_reset_forked_cancelled_and_removed(api, flows):
    api.post("/workflows", {"workflow": "broken", "id": "b"}, 201)
    api.post("/workflows/b/fail", {"reason": "r"}, 409)
    flows.work(until_idle=True)
    assert api.get("/workflows/b")["status"] == "FAILED"
    assert api.post("/workflows/b/reset", {"reason": "again"})["instance_id"] == "b"
    flows.work(until_idle=True)
    assert len(api.get("/workflows/b/executions")["items"]) == 2
    forked = api.post("/workflows/b/fork", {"id": "c", "input": {}}, 201)
    assert (forked["instance_id"], forked["forked_from"]) == ("c", "b")
    api.post("/workflows/b/reset", {"to": 999}, 422)
    api.post("/workflows", {"workflow": "onboard", "id": "i", "input": {"user": 1}}, 201)
    flows.work(until_idle=True)
    assert api.delete("/workflows/i", 409)["code"] == "invalid_operation"
    api.post("/workflows/i/cancel", {"reason": "enough"})
    flows.work(until_idle=True)
    assert api.get("/workflows/i")["status"] == "CANCELLED"
    assert api.delete("/workflows/i", 200)["instances"] == 1
    api.get("/workflows/i", 404)
    for verb in ("cancel", "reset", "fork", "fail"):
        api.post(f"/workflows/none/{verb}", {}, 404)
    api.delete("/workflows/none", 404)


@pytest.mark.parametrize("verb", ["reset", "fork", "fail"])
def test_how_an_instance_stands_is_not_told_to_an_admin_of_other_namespaces(api, flows, verb):
    api.post("/workflows", {"workflow": "broken", "id": "begun"}, 201)
    flows.work(until_idle=True)
    api.post("/workflows", {"workflow": "broken", "id": "waits"}, 201)
    seq = api.get("/workflows")["as_of"]
    told = [
        api.post(f"/workflows/{name}/{verb}", {"to": 999} if verb != "fail" else {}, 403, role="here")["detail"]
        for name in ("begun", "waits", "none")
    ]
    assert len(set(told)) == 1
    assert api.get("/workflows")["as_of"] == seq


def test_instances_are_listed_in_pages_those_not_begun_first(api, flows):
    for number in range(4):
        api.post("/workflows", {"workflow": "onboard", "id": f"i{number}", "input": {"user": number}}, 201)
    flows.work(until_idle=True)
    for number in range(3):
        api.post("/workflows", {"workflow": "elsewhere", "id": f"e{number}"}, 201)
    begun = ["i3", "i2", "i1", "i0"]
    for limit in (1, 2, 3, 50):
        ids = [row["instance_id"] for row in api.pages("/workflows", limit=limit)]
        assert sorted(ids[:3]) == ["e0", "e1", "e2"]
        assert sorted(ids[3:]) == sorted(begun)
    assert [row["instance_id"] for row in api.pages("/workflows", workflow="elsewhere")] == ["e0", "e1", "e2"]
    assert len(list(api.pages("/workflows", reason="waiting", limit=3))) == 4
    assert list(api.pages("/workflows", status="COMPLETED")) == []
    assert list(api.pages("/workflows", parent="i1")) == []
    assert list(api.pages("/workflows", version="9.9.9")) == []


@pytest.mark.parametrize("place", [2**64, -1, 1.5, None])
def test_a_cursor_made_by_hand_names_no_number_that_a_store_cannot_look_for(api, place):
    cursor = cursor_of("/api/v1/workflows", place)
    assert api.get("/workflows", 422, params={"cursor": cursor})["facts"]["field"] == "cursor"


def test_signals_wait_for_an_instance_and_come_with_its_start(api, flows):
    api.post("/workflows/later/signal", {"name": "paid"}, 404)
    api.post("/workflows/later/signal", {"name": "paid", "data": 1, "hold": 60})
    signals = [{"name": "paid", "data": {"by": "start"}}]
    api.post("/workflows", {"workflow": "onboard", "id": "s", "input": {"user": 1}, "signals": signals}, 201)
    flows.work(until_idle=True)
    assert [one["instance"] for one in api.get("/decisions")["items"]] == ["s"]
    api.post("/workflows/s/signal", {"name": "@decision/1"}, 422)
    api.post("/workflows", {"workflow": "no name"}, 422)
    api.post("/workflows", {"workflow": "onboard", "version": "x"}, 422)
    api.post("/workflows", {"workflow": "onboard", "input": [1]}, 422)

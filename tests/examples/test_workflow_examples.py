"""The examples of workflows do what their READMEs say."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_an_expense_is_paid_asked_about_or_forgotten(example):
    assert example("approval")() == [
        "expense-1 paid 12.50 to bob",
        "asked: eve wants 990.00. Pay?",
        "expense-2 paid 990.00 to eve",
        "expense-3 refused by time",
    ]


def test_a_trip_is_booked_whole_or_undone_last_first(example):
    assert example("trip_saga")() == [
        "trip-Lisbon ['flight in Lisbon', 'hotel in Lisbon', 'car in Lisbon'] | booking a car",
        "trip-Atlantis ['no hotel in Atlantis', 'no flight in Atlantis'] | undoing",
    ]


def test_a_chat_answers_every_message_once_although_it_begins_anew(example):
    said = example("agent_loop")()
    assert said[0].startswith("remembers ['hello', ")
    assert said[1:] == [
        "reply-1 noted, that makes 1",
        "reply-2 42",
        "reply-3 noted, that makes 3",
        "reply-4 noted, that makes 4",
        "reply-5 2",
        "executions: 2",
    ]


def test_pages_are_counted_and_those_that_fail_too(example):
    assert example("bounded_fan_out")() == [
        f"{sum(100 + n for n in range(20) if n % 10 != 7)} words, 2 pages could not be read"
    ]


def test_a_workflow_may_be_a_plain_function(example):
    assert example("plain_workflow")() == ["3 sources, total 42"]


# --- behind HTTP ------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Load the example's module from a directory of its own."""
    shutil.copytree(EXAMPLES / "approval_app", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("app", tmp_path / "app.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "app", module)
    spec.loader.exec_module(module)
    yield module
    module.hf.close()


def until_asked(hf):
    """Wait for the first question, by the store's own bell."""
    while not hf.decisions():
        with hf.engine.read() as view:
            seq = view.seq
        if not hf.decisions():
            hf.engine.store.wait(seq, 60)


def test_an_order_asks_over_http_and_goes_on_after_the_answer(site):
    with TestClient(site.app) as client:
        assert client.post("/orders", json={"item": "lamp", "euros": 20}).status_code == 202
        shown = client.get("/orders/lamp?wait=20").json()
        assert shown == {"status": "COMPLETED", "says": "lamp is on its way"}

        assert client.post("/orders", json={"item": "piano", "euros": 900}).json() == {"id": "order-piano"}
        assert client.post("/orders", json={"item": "piano", "euros": 900}).status_code == 202
        assert client.post("/orders", json={"item": "piano", "euros": 901}).status_code == 409
        until_asked(site.hf)
        assert "Sell piano for 900" in client.get("/orders/piano").json()["says"]
        (question,) = client.get("/questions").json()
        answer = f"/questions/{question['id']}"
        assert client.post(answer, json={"chosen": "maybe", "by": "ann"}).status_code == 422
        assert client.post(answer, json={"chosen": "yes", "by": "ann"}).status_code == 200
        assert client.post(answer, json={"chosen": "no", "by": "bob"}).status_code == 409
        assert client.get("/orders/piano?wait=20").json()["says"] == "piano is on its way"
        assert client.get("/orders/organ").status_code == 404
        assert client.post("/questions/nothing", json={"chosen": "yes", "by": "ann"}).status_code == 404

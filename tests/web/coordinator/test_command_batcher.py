"""Commands of many requests are decided together, and no request pays for another."""

from __future__ import annotations

import asyncio
import threading

import httpx2
import pytest
from coordinators import running

from holdfast.engine.engine import BATCH, Engine
from holdfast.errors import StoreFull
from holdfast.web.coordinator.command_batcher import Gathering


class Deciding:
    """Answers each command by itself; commits are counted, and the first can be held up."""

    def __init__(self, *, held=False):
        self.commits = []
        self.go_on = threading.Event()
        self.begun = threading.Event()
        if not held:
            self.go_on.set()

    def __call__(self, asked):
        self.commits.append([list(one.commands) for one in asked])
        self.begun.set()
        assert self.go_on.wait(20)
        for one in asked:
            for command in one.commands:
                if isinstance(command, Exception):
                    raise command
        return [list(one.commands) for one in asked]


async def gathered(gathering, *requests):
    return await asyncio.gather(*(gathering.decide(None, request) for request in requests), return_exceptions=True)


def run(deciding, work):
    gathering = Gathering(deciding)
    try:
        return asyncio.run(work(gathering))
    finally:
        gathering.close()


def test_what_arrives_together_is_decided_together_and_each_gets_its_own():
    deciding = Deciding()
    found = run(deciding, lambda gathering: gathered(gathering, ["a"], ["b", "c"], []))
    assert found == [["a"], ["b", "c"], []]
    assert deciding.commits == [[["a"], ["b", "c"], []]]


def test_what_arrives_during_a_commit_forms_the_next_one():
    deciding = Deciding(held=True)

    async def work(gathering):
        first = asyncio.create_task(gathering.decide(None, ["first"]))
        await asyncio.to_thread(deciding.begun.wait, 20)
        later = [asyncio.create_task(gathering.decide(None, [n])) for n in range(50)]
        await asyncio.sleep(0)
        deciding.go_on.set()
        return await asyncio.gather(first, *later)

    assert run(deciding, work) == [["first"], *([n] for n in range(50))]
    assert deciding.commits == [[["first"]], [[n] for n in range(50)]]


def test_a_commit_takes_no_more_than_an_engine_does_unless_one_request_alone_has_more():
    deciding = Deciding()
    run(deciding, lambda gathering: gathered(gathering, ["a"] * (BATCH + 1), ["b"] * BATCH, ["c"], ["d"]))
    assert [sum(map(len, commit)) for commit in deciding.commits] == [BATCH + 1, BATCH, 2]


def test_a_request_that_breaks_the_code_takes_no_other_with_it():
    found = run(Deciding(), lambda gathering: gathered(gathering, ["a"], [RuntimeError("a fault")], ["b"]))
    assert found[0] == ["a"]
    assert found[2] == ["b"]
    assert isinstance(found[1], RuntimeError)


def test_a_fault_is_logged_where_it_is_answered_and_here_only_if_nobody_waits(caplog):
    fault = RuntimeError("a fault")
    run(Deciding(), lambda gathering: gathered(gathering, [fault], ["b"]))
    assert caplog.records == []
    deciding = Deciding(held=True)

    async def work(gathering):
        left = asyncio.create_task(gathering.decide(None, [fault]))
        await asyncio.to_thread(deciding.begun.wait, 20)
        left.cancel()
        deciding.go_on.set()
        return await gathering.decide(None, ["next"])

    assert run(deciding, work) == ["next"]
    assert [(one.message, one.exc_info[1]) for one in caplog.records] == [("serve.broken", fault)]


def test_a_store_that_fails_is_told_to_all_and_asked_once():
    deciding = Deciding()
    found = run(deciding, lambda gathering: gathered(gathering, ["a"], [StoreFull("no room")], ["b"]))
    assert [type(one) for one in found] == [StoreFull] * 3
    assert len(deciding.commits) == 1


def test_who_left_meanwhile_disturbs_nobody():
    deciding = Deciding(held=True)

    async def work(gathering):
        left, stayed = (asyncio.create_task(gathering.decide(None, [name])) for name in ("left", "stayed"))
        await asyncio.to_thread(deciding.begun.wait, 20)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        deciding.go_on.set()
        await stayed
        return await gathering.decide(None, ["next"])

    assert run(deciding, work) == ["next"]


def test_a_fault_of_ours_is_one_line_in_the_log(monkeypatch, caplog):
    def broken(*_given):
        message = "ours"
        raise KeyError(message)

    with running("memory:") as serving, httpx2.Client(base_url=serving.url) as http:
        monkeypatch.setattr(Engine, "submit_judged", broken)
        answer = http.post("/api/v1/jobs", json={"job_type": "t"})
        assert http.get("/healthz").status_code == 200  # heard after all of the request before is over
    assert (answer.status_code, [one.message for one in caplog.records]) == (500, ["serve.broken"])

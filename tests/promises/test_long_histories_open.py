"""A history of many events opens: another worker replays it, and the command line shows, explains and exports it."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.root import cli
from holdfast.testing.replaying import replay

#: Events, and how many of them one turn makes.
EVENTS = 100_000 if os.environ.get("HOLDFAST_SOAK") == "1" else 3_000
TURNS = 5
#: Seconds after which a worker that hangs is called broken.
LONG = 600


def application(url: str) -> Holdfast:
    hf = Holdfast(url)

    @hf.workflow(name="long")
    async def long(turns: int, size: int) -> int:
        total = 0
        for _ in range(turns):
            total += await hf.signal("more", type=int)
            for number in range(size - 1):
                hf.set_status(number)
        return total + await hf.signal("more", type=int)

    hf.long = long
    return hf


def settle(hf: Holdfast) -> None:
    worker = hf.worker(until_idle=True)
    worker.start()
    assert worker.join(LONG)


@pytest.mark.parametrize("scheme", ["memory", "wal", "sqlite", "dir"])
def test_a_history_of_many_events_opens(tmp_path, scheme):
    url = "memory:" if scheme == "memory" else f"{scheme}:{tmp_path / 'flows'}"
    hf = application(url)
    run = hf.long.start(TURNS, EVENTS // TURNS, id="x")
    for _ in range(TURNS):
        run.signal("more", 1)
    settle(hf)
    if scheme != "memory":  # there nobody but this process has it; its worker, and what that kept, is gone
        hf.close()
        hf = application(url)
    run = hf.instance("x")
    assert run.explain().sentence == "waits for signal 'more'"
    events = run.history()
    assert len(events) == EVENTS + 1
    assert replay(events, hf.long).pending == ("signal 'more'",)
    run.signal("more", 1)
    settle(hf)
    assert run.result(timeout=0) == TURNS + 1
    hf.close()
    if scheme != "memory":
        look_at(url, tmp_path / "x.json")


def look_at(url: str, file) -> None:
    def told(*words: str) -> str:
        found = CliRunner().invoke(cli, words, env={"HOLDFAST_STORE": url})
        assert found.exit_code == 0, found.output
        return found.output

    assert "COMPLETED" in told("workflows", "show", "x")
    assert "COMPLETED" in told("explain", "x")
    assert len(told("workflows", "history", "x", "-o", "jsonl").splitlines()) == EVENTS + 3
    told("workflows", "export", "x", "--to", str(file))
    assert len(json.loads(file.read_bytes())["executions"][0]["events"]) == EVENTS + 3
    told("store", "check")

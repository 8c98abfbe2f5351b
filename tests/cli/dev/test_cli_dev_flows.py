"""What `holdfast dev` tells of workflows: each turn's end, in the words of `explain`."""

from __future__ import annotations

import io
import re

import pytest

from holdfast import Holdfast
from holdfast.cli.dev.job_lines import line_of
from holdfast.cli.render.terminal import screen
from holdfast.model.events import decode_event


@pytest.fixture
def hf():
    with Holdfast("memory:") as app:
        yield app


def told(hf):
    """Every line about what is in the feed, the view being of the end."""
    looks = screen("never", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), {})
    with hf.engine.read() as view:
        events = [(decode_event(one.event, seq=one.seq, file="feed"), one.ts) for one in hf.engine.store.feed(0)]
        lines = [line_of(event, at, view, looks, "nobody") for event, at in events]
    return [re.sub(r"^\S+ |\d+(\.\d+)? m?s", "", line) for line in lines if line is not None]


def test_an_instance_tells_what_it_waits_for_and_how_it_ended(hf):
    @hf.workflow(name="order")
    async def order(n: int) -> int:
        await hf.step(abs, n)
        answer = await hf.decision("Go?", ["yes", "no"])
        if answer == "no":
            raise ValueError("not wanted")
        return n

    for n in (1, 2):
        order.start(n, id=f"order-{n}")
    hf.work(until_idle=True)
    assert sorted(told(hf)) == [f"◆ order order-{n}   waits for decision 3 'Go?'" for n in (1, 2)]
    for question, answer in zip(hf.decisions(), ("yes", "no"), strict=True):
        question.resolve(answer)
    hf.work(until_idle=True)
    bad, good = sorted(told(hf), reverse=True)[:2]
    assert re.fullmatch(r"✕ order order-\d   not wanted", bad)
    assert re.fullmatch(r"✓ order order-\d ", good)

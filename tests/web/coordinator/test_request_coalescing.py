"""Those who ask together are told the same, and whoever asks later is told what is so then."""

from __future__ import annotations

import asyncio
import itertools

from holdfast.web.coordinator.request_coalescing import Shared


def test_who_asks_in_the_same_turn_shares_and_the_next_turn_asks_anew():
    shared = Shared(itertools.count().__next__)

    async def ask():
        return shared()

    async def turns():
        together = await asyncio.gather(*(ask() for _ in range(3)))
        after = await asyncio.create_task(ask())
        return together, after

    assert asyncio.run(turns()) == ([0, 0, 0], 1)


def test_what_is_asked_behind_an_answer_in_the_same_turn_is_not_older_than_its_question():
    shared = Shared(itertools.count().__next__)

    async def turns():
        loop = asyncio.get_running_loop()
        first, asked = shared(), loop.create_future()
        loop.call_soon(lambda: asked.set_result(shared()))  # as what is read after a look
        return first, await asked

    assert asyncio.run(turns()) == (0, 1)


def test_outside_of_a_loop_nothing_is_shared():
    shared = Shared(itertools.count().__next__)
    assert (shared(), shared()) == (0, 1)

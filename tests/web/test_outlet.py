"""What is written in one turn of the loop leaves in one piece, and nothing is kept back."""

from __future__ import annotations

import asyncio

from holdfast.web.outlet import MOST, Outlet


class Transport:
    def __init__(self):
        self.sent = []

    def write(self, part):
        self.sent.append(part)

    def close(self):
        self.sent.append("closed")

    def is_closing(self):
        return "closed" in self.sent


def run(work):
    """Let `work` write, then let the loop turn once; give what had left before that, and after it."""
    transport = Transport()

    async def turn():
        work(Outlet(transport, asyncio.get_running_loop()))
        before = list(transport.sent)
        await asyncio.sleep(0)
        return before, transport.sent

    return asyncio.run(turn())


def test_a_head_a_body_and_an_end_leave_together_when_the_turn_is_over():
    def work(outlet):
        for part in (b"head", b"body", b""):
            outlet.write(part)

    assert run(work) == ([], [b"headbody"])


def test_closing_sends_what_is_there_first():
    def work(outlet):
        outlet.write(b"last words")
        outlet.close()
        assert outlet.is_closing()

    assert run(work) == ([b"last words", "closed"], [b"last words", "closed"])


def test_much_leaves_at_once_so_that_the_transport_can_say_when_it_has_enough():
    large = b"x" * (MOST + 1)

    def work(outlet):
        outlet.write(large)
        outlet.write(b"more")

    assert run(work) == ([large], [large, b"more"])

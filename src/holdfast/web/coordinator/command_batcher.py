"""Gathering: all commands that wait are decided together, by one thread, in one commit.

A request costs no thread of its own: what arrives while a commit is under way forms the next one. Each request keeps
its place and its own rights; one that breaks the code itself takes no other with it. Knows neither HTTP nor what a
command means.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from holdfast.engine.engine import BATCH
from holdfast.errors import StoreError
from holdfast.model.access import Access
from holdfast.model.commands import Command
from holdfast.model.outcomes import Outcome

log = logging.getLogger("holdfast.serve")


class Submission(NamedTuple):
    """Commands of one request, and who sent them."""

    #: None for the coordinator itself.
    access: Access | None
    commands: Sequence[Command]


#: Decides commands of several requests, in order, each with its outcomes. Blocks; called in one thread only.
Decide = Callable[[Sequence[Submission]], list[list[Outcome]]]
#: What became of one request.
_Answer = list[Outcome] | Exception


class Gathering:
    """Those whose commands wait to be decided. All but `decide` itself runs in one event loop."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._thread = ThreadPoolExecutor(1, "holdfast-decide")
        self._waiting: deque[tuple[Submission, asyncio.Future[list[Outcome]]]] = deque()
        #: A commit is under way, or about to begin.
        self._is_busy = False

    async def decide(self, access: Access | None, commands: Sequence[Command]) -> list[Outcome]:
        """Have commands decided; the outcomes are durable. Raises what deciding them raised."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Outcome]] = loop.create_future()
        self._waiting.append((Submission(access, commands), answer))
        if not self._is_busy:
            self._is_busy = True
            # Not at once: whatever arrived in the same turn of the loop goes along.
            loop.call_soon(self._begin, loop)
        return await answer

    def close(self) -> None:
        """Finish what is under way. Blocks."""
        self._thread.shutdown()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        taken: list[Submission] = []
        answers: list[asyncio.Future[list[Outcome]]] = []
        size = 0
        while self._waiting and (not taken or size + len(self._waiting[0][0].commands) <= BATCH):
            submission, answer = self._waiting.popleft()
            taken.append(submission)
            answers.append(answer)
            size += len(submission.commands)

        def work() -> None:
            found = self._settled(taken)
            loop.call_soon_threadsafe(self._end, loop, answers, found)

        self._thread.submit(work)

    def _end(
        self, loop: asyncio.AbstractEventLoop, answers: Sequence[asyncio.Future[list[Outcome]]], found: list[_Answer]
    ) -> None:
        # The next commit first, so that its syncing and the writing of these answers go on together.
        if self._waiting:
            self._begin(loop)
        else:
            self._is_busy = False
        for answer, one in zip(answers, found, strict=True):
            if answer.done():
                # Who waits raises it where it is answered, and logged; who has left does not.
                if isinstance(one, Exception) and not isinstance(one, StoreError):
                    log.error("serve.broken", exc_info=one, extra={"problem": repr(one)})
            elif isinstance(one, Exception):
                answer.set_exception(one)
            else:
                answer.set_result(one)

    def _settled(self, taken: Sequence[Submission]) -> list[_Answer]:
        """Give what became of each, in order."""
        try:
            return list(self._decide(taken))
        except StoreError as problem:
            return [problem] * len(taken)
        except Exception as problem:  # noqa: BLE001 - raised again where the request is answered, whatever it is
            if len(taken) == 1:
                return [problem]
            # One of them broke the code itself, and nothing was written. Each alone, so that no other pays for it.
            return [found for submission in taken for found in self._settled([submission])]

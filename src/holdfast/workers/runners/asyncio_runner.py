"""Handlers on one event loop, in a thread of its own. They end by cancellation, at their next await."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.model.ids import Token
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.handlers.outcome import Outcome, Raised, Returned, outcome_of
from holdfast.workers.runners import Desk
from holdfast.workers.runners.invoke import OneProcess, own_context, packed, unpacked
from holdfast.workflows.api.error_conversion import tell

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")


class LoopRunner:
    """Runs coroutine functions. Its thread starts with the first of them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The loop that was closed last: the only one that may end.
        self._finished: asyncio.AbstractEventLoop | None = None
        self._inbox: deque[Assignment] = deque()
        self._is_woken = False
        self._ident = 0
        #: Used by the loop's thread alone.
        self._tasks: dict[Token, asyncio.Task[Outcome]] = {}

    def start(self, assignment: Assignment) -> None:
        """Begin a task of the loop."""
        loop = self._running_loop()
        self._inbox.append(assignment)
        # Waking the loop is a system call: none is made by its own thread, nor before it has looked.
        if not self._is_woken:
            self._is_woken = True
            is_own = threading.get_ident() == self._ident
            (loop.call_soon if is_own else loop.call_soon_threadsafe)(self._begin_all)

    def spawn(self, coro: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine beside the handlers."""
        return asyncio.run_coroutine_threadsafe(coro, self._running_loop())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                try:
                    threading.Thread(target=self._serve, args=(loop,), name="holdfast-loop", daemon=True).start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop = loop
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ident = threading.get_ident()
        asyncio.set_event_loop(loop)
        # SystemExit in a task that a handler made leaves the loop, as asyncio has it; the other handlers go on.
        while self._finished is not loop and not loop.is_closed():
            try:
                loop.run_forever()
            except BaseException as problem:  # noqa: BLE001 - the user's code; it ends that task, not the worker
                tell(log, "loop.left", problem)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _begin_all(self) -> None:
        self._is_woken = False
        while self._inbox:
            self._begin(self._inbox.popleft())

    def _begin(self, assignment: Assignment) -> None:
        variables = own_context(assignment.context)
        task = asyncio.get_running_loop().create_task(_outcome(assignment), context=variables)
        self._tasks[assignment.grant.token] = task
        # Not at the end of the coroutine: one that is cancelled before its first step never gets there.
        task.add_done_callback(lambda done: self._end(assignment, done))
        if assignment.stop is not None:
            task.cancel()

    def _end(self, assignment: Assignment, task: asyncio.Task[Outcome]) -> None:
        del self._tasks[assignment.grant.token]
        outcome = assignment.stopped() if task.cancelled() else task.result()
        if assignment.stop is Stop.TIMEOUT and isinstance(outcome, Returned):
            outcome = assignment.stopped()  # too late, whatever it returned while being cancelled
        self._desk.end(assignment, outcome)

    def stop(self, assignment: Assignment) -> None:
        """Cancel its task. A timeout is reported now: the handler may catch that, or keep the loop to itself."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel, assignment.grant.token)
        if assignment.stop is Stop.TIMEOUT:
            self._desk.settle(assignment, assignment.stopped())

    def _cancel(self, token: Token) -> None:
        task = self._tasks.get(token)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Cancel everything and end the loop once that is done."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._finish(loop), loop)

    async def _finish(self, loop: asyncio.AbstractEventLoop) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._finished = loop
        loop.call_soon(loop.stop)


async def _outcome(assignment: Assignment) -> Outcome:
    spec = assignment.spec
    arguments = unpacked(spec, assignment.grant.job.params)
    if isinstance(arguments, Raised):
        return arguments
    args, kwargs = arguments
    try:
        with OneProcess():
            value = await spec.run(*args, **kwargs)
    except asyncio.CancelledError:
        if assignment.stop is not None:
            raise
        # Cancelled by itself, or by something it awaited: nobody asked for it.
        return Raised("the handler was cancelled from within (asyncio.CancelledError)")
    except BaseException as error:  # noqa: BLE001 - the user's code; even SystemExit ends the run, not the worker
        return outcome_of(error, spec.no_retry, detailed=assignment.grant.job.owner is not None)
    return packed(spec, value)

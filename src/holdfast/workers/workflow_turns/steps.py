"""One inline step as a worker runs it: a sync function in a thread of the pool, an async one on the worker's loop.

Attempts, pauses and timeouts are here. A sync function that is late is left to end, and its outcome ignored. Knows no
turn: the outcome goes to whoever asked.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

from holdfast.failpoints import reach
from holdfast.model.error_details import ErrorDetails
from holdfast.workers.runners.invoke import OneProcess
from holdfast.workflows.api.idempotency import running_key
from holdfast.workflows.api.steps import StepCall, pause_before

StepOutcome = str | ErrorDetails


class Stage(Protocol):
    """Where steps run."""

    def now(self) -> float:
        """Give the monotonic time."""
        ...

    def spawn(self, coro: Coroutine[Any, Any, None]) -> Future[None]:
        """Run a coroutine on the worker's loop."""
        ...

    def later(self, at: float, work: Callable[[], None]) -> None:
        """Call `work` at a time, from the pump's thread."""
        ...

    def hand_in(self, work: Callable[[], None]) -> None:
        """Have work done by a thread."""
        ...

    def write_off(self, ident: int) -> None:
        """Count a thread no longer."""
        ...


class StepRun:
    """One step under way."""

    def __init__(self, call: StepCall, stage: Stage, ended: Callable[[int, StepOutcome], None]) -> None:
        """Tell `ended` the outcome, once; unless it is stopped before."""
        self.call = call
        self.is_async = inspect.iscoroutinefunction(call.function)
        self._stage = stage
        self._ended = ended
        self._attempts = 0
        #: The attempt whose outcome counts; 0: none.
        self._counting = 0
        self._lock = threading.Lock()
        self._is_over = False
        self._future: Future[None] | None = None

    def stop(self) -> None:
        """Cancel an async step; a sync one is left to end. Its outcome is ignored either way."""
        with self._lock:
            self._is_over = True
            future = self._future
        if future is not None:
            future.cancel()

    def start_async(self) -> None:
        """Begin on the worker's loop."""
        future = self._stage.spawn(self._run_async())
        with self._lock:
            self._future = future
            is_over = self._is_over
        if is_over:
            future.cancel()

    def run_here(self) -> None:
        """Run one attempt in this thread; another one, if it fails, later and elsewhere."""
        with self._lock:
            if self._is_over:
                return
            self._attempts += 1
            attempt = self._counting = self._attempts
        ident = threading.get_ident()
        timeout_s = self.call.timeout_s
        if timeout_s is not None:
            self._stage.later(self._stage.now() + timeout_s, lambda: self._time_out(attempt, ident))
        variables = _variables(self.call)
        try:
            with OneProcess():
                value = variables.run(self.call.function, *self.call.args, **self.call.kwargs)
                if inspect.iscoroutine(value):
                    value = _result_of(value, self._stage)
            outcome = self.call.outcome(value)
        except BaseException as problem:  # noqa: BLE001 - the user's code; even SystemExit ends the step, not the worker
            if self._counts(attempt):
                self._fail(attempt, problem)
        else:
            if self._counts(attempt):
                self._end(outcome)

    def _time_out(self, attempt: int, ident: int) -> None:
        if self._counts(attempt):
            self._stage.write_off(ident)
            self._fail(attempt, _late(self.call))

    def _counts(self, attempt: int) -> bool:
        """Tell, once, whether what an attempt ended in is wanted: it may be late, or the step stopped."""
        with self._lock:
            wanted = attempt == self._counting and not self._is_over
            if wanted:
                self._counting = 0
            return wanted

    def _fail(self, attempts: int, problem: BaseException) -> None:
        if attempts < self.call.attempts:
            self._stage.later(self._stage.now() + pause_before(attempts + 1), self._again)
        else:
            self._end(self.call.failure(problem, attempts))

    def _again(self) -> None:
        self._stage.hand_in(self.run_here)

    def _end(self, outcome: StepOutcome) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        reach("step.ended")
        self._ended(self.call.step_no, outcome)

    async def _run_async(self) -> None:
        call = self.call
        for attempt in range(1, call.attempts + 1):
            if attempt > 1:
                await asyncio.sleep(pause_before(attempt))
            try:
                running_key.set(lambda: call.idempotency_key)
                with OneProcess():
                    async with asyncio.timeout(call.timeout_s) as limit:
                        value = await call.function(*call.args, **call.kwargs)
            except asyncio.CancelledError:
                if self._is_over:
                    raise
                problem: BaseException = RuntimeError("the step was cancelled from within (asyncio.CancelledError)")
            except BaseException as raised:  # noqa: BLE001 - the user's code, as above
                is_late = limit.expired() and issubclass(type(raised), TimeoutError)
                problem = _late(call) if is_late else raised
            else:
                self._end(call.outcome(value))
                return
        self._end(call.failure(problem, call.attempts))


def _late(call: StepCall) -> TimeoutError:
    return TimeoutError(f"step {call.name!r} ran longer than its timeout of {call.timeout_s:g} s")


def _variables(call: StepCall) -> contextvars.Context:
    variables = contextvars.Context()
    variables.run(running_key.set, lambda: call.idempotency_key)
    return variables


def _result_of(coro: Coroutine[Any, Any, Any], stage: Stage) -> Any:
    """Wait for what a plain function returned to be awaited."""
    got: list[Any] = []

    async def run() -> None:
        got.append(await coro)

    stage.spawn(run()).result()
    return got[0]

"""The event loop of a workflow: asyncio without a world. No selector, no thread, no clock of its own.

It knows ready callbacks, first in first out, and hands everything that takes time to a `Timekeeper`, which records it.
Whatever would reach outside is refused. The order that matters: callbacks run in the order they were asked for, and
tasks and futures hash by a count of their own, so that the sets inside asyncio iterate alike on every replay.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from asyncio import events, tasks
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple, Unpack

from holdfast.errors import WorkflowNotAllowed
from holdfast.workflows.determinism import garbage
from holdfast.workflows.determinism.guard import Guard, Guarded, guarded, leave
from holdfast.workflows.determinism.restrictions import LOOP, refusal

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Tasks and generators that ended are let go when there are twice as many as were left last time, and at least these.
SWEEP = 64


class Before(NamedTuple):
    """What a thread was doing before a loop ran in it."""

    loop: asyncio.AbstractEventLoop | None
    hooks: Any
    watches_collections: bool
    guarded: Guarded


class Timekeeper(Protocol):
    """Who keeps time for a loop."""

    def time(self) -> float:
        """Seconds since 1970, as of the event delivered last."""
        ...

    def start_timer(self, timer: Timer, when: float) -> None:
        """Fire `timer` at `when`, by pushing it to the loop."""
        ...

    def stop_timer(self, timer: Timer) -> None:
        """Forget a timer that may not have fired yet."""
        ...

    def report(self, problem: dict[str, Any]) -> None:
        """Hear of an exception that nobody retrieved."""
        ...


class Timer(asyncio.TimerHandle):
    """A call that is due at a time."""

    __slots__ = ("event_id", "fire_at_ms")

    #: 0: it is no durable one.
    event_id: int
    #: The recorded time, which may be another than the code asks for now.
    fire_at_ms: int


class FlowFuture(asyncio.Future[T]):
    """A future that hashes by its number in the execution."""

    def __init__(self, *, loop: Loop) -> None:
        super().__init__(loop=loop)
        self._number = loop.next_number()

    def __hash__(self) -> int:
        """Be the same on every replay."""
        return self._number


class FlowTask(asyncio.Task[T]):
    """A task that hashes by its number in the execution."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, loop: Loop, number: int, name: str, context: Context | None
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        """Be the same on every replay."""
        return self._number


class Loop(asyncio.AbstractEventLoop):
    """Runs what is ready until nothing is."""

    def __init__(self, keeper: Timekeeper, hash_base: int = 0, guard: Guard | None = None) -> None:
        """Count tasks and futures from `hash_base`. `guard` is in force while code runs in here."""
        self.guard = guard
        #: Whose loop it is.
        self.keeper = keeper
        self._ready: deque[asyncio.Handle] = deque()
        # Apart for each execution, or a thousand first tasks would collide in asyncio's set of all tasks.
        self._number = hash_base
        self._named = 0
        self._tasks: dict[int, FlowTask[Any]] = {}
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._sweep_tasks = self._sweep_generators = SWEEP
        self._running = False
        self._closed = False
        #: Set to stop before the next callback, for good.
        self.halted = False

    def next_number(self) -> int:
        """Count a task or future."""
        self._number += 1
        return self._number

    # --- running ------------------------------------------------------------------------------------------------------

    def run_until_idle(self) -> None:
        """Call what is ready, in order, until nothing is or the loop was halted."""
        ready, guard = self._ready, self.guard
        before = _before()
        try:
            self._enter()
            while ready and not self.halted:
                handle = ready.popleft()
                if not handle.cancelled():
                    try:
                        if guard is not None:
                            guard.enter()  # again: a refusal has switched it off
                        handle._run()  # noqa: SLF001 - a handle is run by its loop; there is no other way
                    except SystemExit:
                        continue  # its task keeps it, and fails by it; no worker ends because a workflow says so
                    except KeyboardInterrupt:
                        if threading.current_thread() is threading.main_thread():
                            raise  # a person's, most likely; in any other thread it can only be the workflow's own
        finally:
            self._leave(before)

    def _enter(self) -> None:
        """Be the running loop of this thread, for asyncio and for asynchronous generators, and guard the thread."""
        garbage.watch(on=True)
        sys.set_asyncgen_hooks(firstiter=self._keep_generator, finalizer=_let_go)
        events._set_running_loop(self)  # noqa: SLF001 - what asyncio.run does
        self._running = True
        if self.guard is not None:
            self.guard.enter()

    def _leave(self, before: Before) -> None:
        if self.guard is not None:
            leave(before.guarded)
        self._running = False
        events._set_running_loop(before.loop)  # noqa: SLF001 - the same
        sys.set_asyncgen_hooks(*before.hooks)
        garbage.watch(on=before.watches_collections)

    @contextmanager
    def _active(self) -> Iterator[None]:
        before = _before()
        try:
            self._enter()
            yield
        finally:
            self._leave(before)

    def _keep_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Kept until it ends: the moment of its collection is no event, so nothing may hang on it.
        self._generators.append(generator)
        if len(self._generators) > self._sweep_generators:
            self._generators = [kept for kept in self._generators if _is_open(kept)]
            self._sweep_generators = max(SWEEP, 2 * len(self._generators))

    @property
    def has_leftovers(self) -> bool:
        """Tell whether anything is left that `cancel_leftovers` would do; mostly the main task was all there was."""
        return bool(self._ready or self.live_tasks() or self._generators)

    def cancel_leftovers(self) -> None:
        """Do as `asyncio.run` does at its end: cancel the tasks that are left, then close the generators."""
        with self._active():
            for task in self.live_tasks():
                task.cancel()
        self.run_until_idle()
        with self._active():
            for generator in [kept for kept in self._generators if _is_open(kept)]:
                self.create_task(_close(generator))
        self.run_until_idle()

    def live_tasks(self) -> list[FlowTask[Any]]:
        """Give the tasks that are not done, oldest first."""
        return [task for task in self._tasks.values() if not task.done()]

    # --- what asyncio asks for ----------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it after all that is ready now."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it after a durable timer; without a delay, after all that is ready now."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it when a durable timer fires; if its time has come, after all that is ready now."""
        timer = Timer(when, callback, args, self, context)
        timer.event_id = timer.fire_at_ms = 0
        if when <= self.time():
            self._ready.append(timer)
        else:
            self.keeper.start_timer(timer, when)
        return timer

    def push(self, handle: asyncio.Handle) -> None:
        """Make a callback ready."""
        self._ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, Timer)
        self.keeper.stop_timer(handle)

    def time(self) -> float:
        """Seconds since 1970, as of the event delivered last."""
        return self.keeper.time()

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return FlowFuture(loop=self)

    def create_task(  # type: ignore[override]  # typeshed's signature changes between versions
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None, **rest: Any
    ) -> asyncio.Task[T]:
        """Make a task; without a name it gets its number in the execution, as every replay gives it."""
        if self._closed:
            coro.close()
            raise WorkflowNotAllowed(
                "the workflow is no longer in this process; what its clean-up asks for now is not done.",
                hint="It is asked for again wherever the workflow goes on.",
            )
        _refuse_unordered(coro)
        if rest.pop("eager_start", None):
            raise refusal("start tasks eagerly", "let them start in the order they were created")
        self._named += 1
        number = self.next_number()
        task: FlowTask[T] = FlowTask(
            coro, loop=self, number=number, name=name or f"task-{self._named}", context=context
        )
        # Dropped only with the whole execution, on purpose.
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio's own switch for this
        # Held until done: a task that nobody else holds must not vanish when memory happens to be collected.
        self._tasks[number] = task
        if len(self._tasks) > self._sweep_tasks:
            self._tasks = {found: kept for found, kept in self._tasks.items() if not kept.done()}
            self._sweep_tasks = max(SWEEP, 2 * len(self._tasks))
        return task

    def is_running(self) -> bool:
        """Tell whether a callback runs now."""
        return self._running

    def is_closed(self) -> bool:
        """Tell whether it is over."""
        return self._closed

    def get_debug(self) -> bool:
        """Return False: what debugging records is no part of a replay.

        Every future asks when it is made. `asyncio.gather` makes its own, by class, and `asyncio.wait([gather(…), …])`
        puts those into a set: so they are given a class of ours here, and asyncio's stays as it is.
        """
        frame = sys._getframe(1)  # noqa: SLF001 - the only way to see what is made
        if frame.f_code is _GATHERING_INIT:
            made = frame.f_locals["self"]
            made.__class__ = FlowGathering
            made.number = self.next_number()
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - the signature is asyncio's
        """Change nothing."""

    def get_task_factory(self) -> None:
        """There is none."""
        return

    def get_exception_handler(self) -> None:
        """There is none."""
        return

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell of an exception that nobody retrieved."""
        self.keeper.report(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell of an exception that nobody retrieved."""
        self.keeper.report(context)

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: the end of the workflow closes them."""

    def stop(self) -> None:
        """Refuse: only the end of the workflow stops it."""
        raise refusal("stop the loop", "return, raise, or use hf.continue_as_new")

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of all code in here; what its `finally` blocks ask for is refused."""
        if self._running:
            raise refusal("close the loop", "return, raise, or use hf.continue_as_new")
        if self._closed:
            return
        self.halted = self._closed = True
        suspended: list[Any] = [task.get_coro() for task in self.live_tasks()]
        suspended.extend(getattr(generator, "ag_await", None) for generator in self._generators)
        if suspended:
            with self._active():
                for coro in suspended:
                    if isinstance(coro, Coroutine):
                        # Users' clean-up may fail: the code is thrown away, and nobody would hear of it.
                        with suppress(BaseException):
                            coro.close()
                        if getattr(coro, "cr_frame", None) is not None:
                            _never_free(coro)
        self._ready.clear()
        self._tasks.clear()
        self._generators.clear()


def _before() -> Before:
    # Read first, so that an exception raised in this thread by another one cannot leave it half changed.
    loop = events._get_running_loop()  # noqa: SLF001 - the same
    return Before(loop, sys.get_asyncgen_hooks(), garbage.is_watched(), guarded())


def _install_refusals() -> None:
    for name, (doing, instead) in LOOP.items():

        def refuse(_self: Loop, *_args: Any, _doing: str = doing, _instead: str = instead, **_kwargs: Any) -> Any:
            raise refusal(_doing, _instead)

        refuse.__name__ = name
        refuse.__doc__ = f"Refuse: a workflow may not {doing}."
        setattr(Loop, name, refuse)


def _refuse_unordered(coro: Coroutine[Any, Any, Any]) -> None:
    """Refuse `asyncio.as_completed` over coroutines: it makes tasks of them in the order of a set of addresses."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the only way to see who makes the task
    while frame is not None and frame.f_globals is _ASYNCIO_TASKS:
        if frame.f_code.co_qualname.startswith(("as_completed", "_AsCompletedIterator")):
            coro.close()
            raise refusal("use asyncio.as_completed over coroutines, which has no fixed order", "use hf.as_completed")
        frame = frame.f_back


_ASYNCIO_TASKS = vars(tasks)


class FlowGathering(tasks._GatheringFuture):  # type: ignore[misc,name-defined]  # noqa: SLF001 - see `get_debug`
    """What `asyncio.gather` returns: a future that hashes by its number in the execution."""

    def __hash__(self) -> int:
        """Be the same on every replay."""
        number: int = self.number
        return number


_GATHERING_INIT = tasks._GatheringFuture.__init__.__code__  # type: ignore[attr-defined]  # noqa: SLF001 - the same
_install_refusals()


def _never_free(coro: Coroutine[Any, Any, Any]) -> None:
    """Keep code that will not be closed as it is, for ever: whoever let go of it would have to run it on and on."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))


def _is_open(generator: AsyncGenerator[Any, Any]) -> bool:
    return getattr(generator, "ag_frame", None) is not None


def _let_go(_generator: AsyncGenerator[Any, Any]) -> None:
    """Do nothing when one is collected: it is closed by the end of the workflow, and dropped when that leaves."""


async def _close(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()

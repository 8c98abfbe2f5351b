"""Inside a child process: take requests line by line, run their handlers, answer line by line.

Started afresh, not forked, so it shares nothing with its worker but three pipes: requests, replies, and a lifeline on
which nothing is ever written. When the lifeline closes, because the worker ended in whatever way, the kernel kills the
child's whole process group. SIGTERM ends the handler by an exception, so that it can clean up. Orphans of the handler's
own children fall to this process (Linux), which is then not used again.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import fcntl
import importlib
import inspect
import os
import resource
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import TextIOWrapper
from types import FrameType
from typing import Any, NoReturn

import msgspec

from holdfast.errors import UnknownTask
from holdfast.workers.handlers import context, output_capture
from holdfast.workers.handlers.context import Context
from holdfast.workers.handlers.outcome import Outcome, Raised, outcome_of
from holdfast.workers.runners.child_protocol import Reply, Request
from holdfast.workers.runners.child_reporter import ChildNotes, Post
from holdfast.workers.runners.invoke import call
from holdfast.workers.task_registry import MAIN_AGAIN, Origin, Registry, TaskSpec

#: Of prctl: orphans among our descendants become our children.
_SET_CHILD_SUBREAPER = 36


class Terminated(BaseException):
    """SIGTERM: the worker wants the handler to end."""


def main(requests_fd: int, replies_fd: int, lifeline_fd: int) -> None:
    """Serve requests until there are no more."""
    for fd in (requests_fd, replies_fd, lifeline_fd):
        os.set_inheritable(fd, False)  # noqa: FBT003 - the system's own signature
    _die_with(lifeline_fd)
    _adopt_orphans()
    context.is_child = True
    faulthandler.enable()  # says on stderr, which the run keeps, where a handler crashed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    post = Post(replies_fd)
    with open(requests_fd, "rb") as requests:
        served = _Served(lambda: ChildNotes(post, requests.readline))
        signal.signal(signal.SIGTERM, served.terminate)
        # Ctrl-C is for the worker, which tells us in its own time.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        decode = msgspec.json.Decoder(Request).decode
        while line := requests.readline():
            outcome = served.run(decode(line))
            # The streams first: when the worker has the reply, it has all that was printed.
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError, AttributeError):  # closed or replaced by the handler
                    stream.flush()
            if not post.is_ours:
                os._exit(0)  # a fork of the handler's that returned from it
            post.send(Reply(outcome, spent=served.is_terminated or _has_children()))


class _Served:
    """The handler being run, and whether it was told to end."""

    def __init__(self, notes: Callable[[], ChildNotes]) -> None:
        self.is_terminated = False
        self._notes = notes
        self._context: Context | None = None
        self._apps: dict[Origin, Mapping[str, Any]] = {}

    def terminate(self, _number: int, _frame: FrameType | None) -> NoReturn:
        """Hear SIGTERM."""
        self.is_terminated = True
        if self._context is None:
            os._exit(0)
        self._context.cancel("terminated")
        raise Terminated

    def run(self, request: Request) -> Outcome:
        """Run one handler, to whatever end."""
        notes = self._notes()
        self._context = execution = Context(request.grant, notes)
        try:
            spec = self._find(request.origin, request.grant.job.job_type)
            # Not before: an application that sets up logging as it is imported must find it untouched.
            output_capture.listen()
            return call(replace(spec, run=_limited(spec, request.memory_limit)), execution)
        except Terminated:
            return Raised("the handler's process was told to end (SIGTERM)", "exit", exit_code=-signal.SIGTERM)
        except BaseException as error:  # noqa: BLE001 - importing the application runs the user's code
            return outcome_of(error, detailed=request.grant.job.owner is not None)
        finally:
            self._context = None
            notes.end()

    def _find(self, origin: Origin, name: str) -> TaskSpec:
        """Import the application and find the task in it. Raises UnknownTask."""
        found = self._apps.get(origin)
        if found is None:
            found = self._apps[origin] = _load(origin)
        for value in list(found.values()):
            spec = _spec_in(value, name)
            if spec is not None:
                return spec
        raise UnknownTask(
            f"{origin[1]} was imported in a child process, and defines no task {name!r} there.",
            hint="Keep the Holdfast object, or the task, in a variable of that module.",
        )


def _spec_in(value: Any, name: str) -> TaskSpec | None:
    """Give the task of that name if a variable of the module holds it, or the application that has it."""
    try:
        tasks = getattr(value, "tasks", None)
        spec = tasks.get(name) if isinstance(tasks, Registry) else getattr(value, "spec", None)
    except Exception:  # noqa: BLE001 - the user's own objects; a proxy may refuse to be asked anything here
        return None
    return spec if isinstance(spec, TaskSpec) and spec.name == name else None


def _load(origin: Origin) -> Mapping[str, Any]:
    kind, where = origin
    match kind:
        case "import":
            return vars(importlib.import_module(where))
        case "module":
            return runpy.run_module(where, run_name=MAIN_AGAIN, alter_sys=True)
        case "file":
            return runpy.run_path(where, run_name=MAIN_AGAIN)


def _limited(spec: TaskSpec, limit: int | None) -> Any:
    """Give the function with its memory limited, and its coroutine awaited if it is one."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with _memory(limit):
            if inspect.iscoroutinefunction(spec.run):
                return asyncio.run(spec.run(*args, **kwargs))
            return spec.run(*args, **kwargs)

    return run


@contextmanager
def _memory(limit: int | None) -> Iterator[None]:
    """Limit the memory of this process inside the block. Afterwards there is room again to say what happened."""
    if limit is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    except MemoryError as error:
        error.add_note(f"The task's memory limit is {limit:,} bytes.")
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _has_children() -> bool:
    """Tell whether the handler left processes behind, running or not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end, so that none goes unnoticed."""
    with suppress(AttributeError, OSError):  # not Linux
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with(lifeline_fd: int) -> None:
    """Have this process group killed when the other end of the lifeline closes."""
    if hasattr(fcntl, "F_SETSIG"):
        # By the kernel, so that neither a handler stuck in C nor one that stops every thread can prevent it.
        fcntl.fcntl(lifeline_fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, fcntl.fcntl(lifeline_fd, fcntl.F_GETFL) | os.O_ASYNC)
        os.set_blocking(lifeline_fd, False)
        try:
            closed = os.read(lifeline_fd, 1) == b""
        except BlockingIOError:
            closed = False
        if closed:  # before we asked to be told
            os.killpg(0, signal.SIGKILL)
    else:
        threading.Thread(target=_wait_and_die, args=(lifeline_fd,), daemon=True).start()


def _wait_and_die(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)
    os.killpg(0, signal.SIGKILL)

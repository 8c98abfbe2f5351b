"""What a workflow may not do, because it could not be replayed, and what to use instead.

Two nets: the loop refuses what goes through it (`LOOP`), and an audit hook refuses, within a turn only, what the
interpreter tells of (`AUDITED`): threads, sockets, processes, `time.sleep`. What no interpreter tells of, or only a
newer one, is wrapped, once the first turn runs (`_untold`): whoever is not in a turn, in this thread, goes through.
Imports and log handlers are exempt. No sandbox: who reads clocks and randomness is found by replay, by the linter, and
by `call_tracing` in tests and `holdfast dev`.
"""

from __future__ import annotations

import _thread
import asyncio
import functools
import gc
import importlib
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from holdfast.errors import WorkflowNotAllowed
from holdfast.workflows.determinism.call_site import caller, is_incidental

_STEP = "do it in hf.step(fn, …) or in a task"
_SOCKETS = ("open sockets or servers", _STEP)
_PROCESSES = ("start processes", _STEP)
_KILLS = ("send signals to processes", _STEP)
_PIPES = ("use pipes", _STEP)
_SIGNALS = ("change signal handlers", "use hf.signal to be told from outside")
_LOOPS = ("run or stop an event loop", "await what you need")
_THREADS = ("start threads", _STEP)
_BLOCKS = ("block its turn", "await asyncio.Event, asyncio.Queue or asyncio.sleep, or call hf.wait in a def workflow")

#: Whoever waits for another thread comes here: events, queues, barriers.
CONDITION = "threading.Condition.wait"

#: Method of the loop → what it would do, what to use instead.
LOOP: dict[str, tuple[str, str]] = {
    "run_forever": _LOOPS,
    "run_until_complete": _LOOPS,
    "run_in_executor": ("use threads or executors", _STEP),
    "set_default_executor": ("use threads or executors", _STEP),
    "shutdown_default_executor": ("use threads or executors", _STEP),
    "call_soon_threadsafe": ("be called from threads", "send it a signal: run.signal(name, …)"),
    "set_task_factory": ("change how tasks are made", "wrap the coroutine instead"),
    "set_exception_handler": ("change how lost exceptions are told", "await the task, or use asyncio.TaskGroup"),
    "add_signal_handler": _SIGNALS,
    "remove_signal_handler": _SIGNALS,
    "subprocess_exec": _PROCESSES,
    "subprocess_shell": _PROCESSES,
    "connect_read_pipe": _PIPES,
    "connect_write_pipe": _PIPES,
} | dict.fromkeys(
    (
        "add_reader",
        "add_writer",
        "connect_accepted_socket",
        "create_connection",
        "create_datagram_endpoint",
        "create_server",
        "create_unix_connection",
        "create_unix_server",
        "getaddrinfo",
        "getnameinfo",
        "remove_reader",
        "remove_writer",
        "sendfile",
        "sock_accept",
        "sock_connect",
        "sock_recv",
        "sock_recv_into",
        "sock_recvfrom",
        "sock_recvfrom_into",
        "sock_sendall",
        "sock_sendfile",
        "sock_sendto",
        "start_tls",
    ),
    _SOCKETS,
)

#: Audit event → what it would do, what to use instead.
AUDITED: dict[str, tuple[str, str]] = (
    {
        "_thread.start_new_thread": _THREADS,
        "_thread.start_joinable_thread": _THREADS,
        "time.sleep": ("block its turn with time.sleep", "await asyncio.sleep(…), or hf.sleep(…) in a def workflow"),
    }
    | dict.fromkeys(("os.kill", "os.killpg", "signal.pthread_kill"), _KILLS)
    | dict.fromkeys(("signal.signal", "signal.alarm", "signal.setitimer", "signal.set_wakeup_fd"), _SIGNALS)
    | dict.fromkeys((CONDITION, "select.select"), _BLOCKS)
    | dict.fromkeys(("asyncio.run", "asyncio.Runner.run", "asyncio.new_event_loop", "asyncio.set_event_loop"), _LOOPS)
    | dict.fromkeys(
        (
            "socket.__new__",
            "socket.bind",
            "socket.connect",
            "socket.getaddrinfo",
            "socket.gethostbyaddr",
            "socket.gethostbyname",
            "socket.gethostname",
            "socket.getnameinfo",
            "socket.sendmsg",
            "socket.sendto",
        ),
        _SOCKETS,
    )
    | dict.fromkeys(
        (
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
            "os.spawn",
            "pty.spawn",
            "_posixsubprocess.fork_exec",
        ),
        _PROCESSES,
    )
)


def refusal(doing: str, instead: str) -> WorkflowNotAllowed:
    """Build the refusal, naming the line of the user's code."""
    place = caller(2)
    where = "" if place is None else f" ({place})"
    return WorkflowNotAllowed(
        f"a workflow may not {doing}{where}; it could not be replayed. Nothing was done.",
        hint=f"Instead, {instead}.",
        location="" if place is None else str(place),
    )


class _Turns(threading.local):
    """What this thread does now."""

    #: It runs workflow code.
    inside = False
    #: It collects garbage, and may call finalisers.
    collecting = False


_turns = _Turns()
#: Sees every call within turns, where somebody wants that (`watching.watch_turns`). It is slow: a worker has none.
look: Callable[[FrameType, str, Any], None] | None = None
_hook_mutex = threading.Lock()
_hooked = False


def _audit(event: str, _args: tuple[Any, ...]) -> None:
    if _turns.inside and event in AUDITED:
        if is_incidental():
            return
        with outside():  # or writing the refusal might be refused
            problem = refusal(*AUDITED[event])
        raise problem


def _untold() -> Iterator[tuple[Any, str, str]]:
    """Give the functions that do not tell: where they are, their name there, the event they stand for."""
    if sys.version_info < (3, 12):
        yield threading, "_start_new_thread", "_thread.start_new_thread"
        yield _thread, "start_new_thread", "_thread.start_new_thread"
    if sys.version_info < (3, 13):
        yield time, "sleep", "time.sleep"
    for name in ("signal", "alarm", "setitimer", "set_wakeup_fd"):
        if hasattr(signal, name):  # not every system has them all
            yield signal, name, f"signal.{name}"
    yield threading.Condition, "wait", CONDITION
    yield select, "select", "select.select"
    yield socket, "socketpair", "socket.__new__"  # told only when the pair is there already
    yield asyncio, "run", "asyncio.run"
    yield asyncio.Runner, "run", "asyncio.Runner.run"
    for module in (asyncio, asyncio.events):
        yield module, "new_event_loop", "asyncio.new_event_loop"
        yield module, "set_event_loop", "asyncio.set_event_loop"
    with suppress(ImportError):
        yield importlib.import_module("_posixsubprocess"), "fork_exec", "_posixsubprocess.fork_exec"


def _wrap_untold() -> None:
    """Let functions tell that the interpreter does not audit. What was imported by name before stays as it is."""
    for owner, name, event in _untold():
        _wrap(owner, name, event)


def _wrap(owner: Any, name: str, event: str) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def telling(*args: Any, **kwargs: Any) -> Any:
        if event == CONDITION and 0 in (kwargs.get("timeout"), *args[1:]):
            return real(*args, **kwargs)  # a look that does not wait
        try:
            _audit(event, args)
        except WorkflowNotAllowed:
            for arg in args:
                if isinstance(arg, Coroutine):
                    arg.close()  # nobody will ever run it
            raise
        return real(*args, **kwargs)

    setattr(owner, name, telling)


def _on_collection(phase: str, _facts: dict[str, int]) -> None:
    _turns.collecting = phase == "start"


def is_inside() -> bool:
    """Tell whether workflow code runs in this thread now."""
    return _turns.inside


def is_collecting() -> bool:
    """Tell whether the code that runs now was called by the garbage collector: no replay would call it there again."""
    return _turns.collecting


def enter() -> bool:
    """Guard this thread from here on, and say whether it was guarded before."""
    global _hooked  # noqa: PLW0603 - the interpreter has one list of hooks, and takes none back
    if not _hooked:
        with _hook_mutex:
            if not _hooked:
                sys.addaudithook(_audit)
                _wrap_untold()
                gc.callbacks.append(_on_collection)
                _hooked = True
    before = _turns.inside
    _turns.inside = True
    if look is not None and not before:
        sys.setprofile(look)
    return before


def leave(before: bool) -> None:  # noqa: FBT001 - what `enter` gave
    """Be guarded again as before."""
    _turns.inside = before
    if look is not None and not before:
        sys.setprofile(None)


@contextmanager
def inside() -> Iterator[None]:
    """Guard this thread while workflow code runs in it."""
    before = enter()
    try:
        yield
    finally:
        leave(before)


@contextmanager
def outside() -> Iterator[None]:
    """Lift the guard while the runtime itself does something in a turn's thread."""
    before = _turns.inside
    _turns.inside = False
    try:
        yield
    finally:
        _turns.inside = before

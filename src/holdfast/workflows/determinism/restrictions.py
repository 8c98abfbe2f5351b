"""Tables of what workflow code may not do, and what to use instead.

The event loop of a workflow always refuses the methods in `LOOP`. A guard, where one is in force, refuses the calls in
`FUNCTIONS`, `METHODS` and `PYTHON`, and reports those in `READS`. This module changes nothing in other modules.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import random
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from datetime import date
from importlib import import_module
from types import CodeType
from typing import Any, NamedTuple

from holdfast.errors import WorkflowNotAllowed
from holdfast.workflows.determinism.call_site import caller


class Restriction(NamedTuple):
    """One thing that workflow code may not do."""

    #: Completes "a workflow may not …".
    doing: str
    #: Completes "Instead, …".
    instead: str


_STEP = "do it in hf.step(fn, …) or in a task"
_SOCKETS = Restriction("open sockets or servers", _STEP)
_PROCESSES = Restriction("start processes", _STEP)
_KILLS = Restriction("send signals to processes", _STEP)
_PIPES = Restriction("use pipes", _STEP)
_SIGNALS = Restriction("change signal handlers", "use hf.signal to be told from outside")
_LOOPS = Restriction("run or stop an event loop", "await what you need")
_THREADS = Restriction("start threads", _STEP)
_EXECUTORS = Restriction("use threads or executors", _STEP)
_SLEEP = Restriction("block its turn with time.sleep", "await asyncio.sleep(…), or hf.sleep(…) in a def workflow")
_BLOCKS = Restriction(
    "block its turn", "await asyncio.Event, asyncio.Queue or asyncio.sleep, or call hf.wait in a def workflow"
)
_CLOCK = Restriction("read a clock", "use hf.now()")
_CHANCE = Restriction("draw from randomness that no replay repeats", "use hf.uuid(), hf.random() or hf.rng()")
_FILES = Restriction("reach files or the terminal", _STEP)

#: Methods of the event loop.
LOOP: dict[str, Restriction] = {
    "run_forever": _LOOPS,
    "run_until_complete": _LOOPS,
    "run_in_executor": _EXECUTORS,
    "set_default_executor": _EXECUTORS,
    "shutdown_default_executor": _EXECUTORS,
    "call_soon_threadsafe": Restriction("be called from threads", "send it a signal: run.signal(name, …)"),
    "set_task_factory": Restriction("change how tasks are made", "wrap the coroutine instead"),
    "set_exception_handler": Restriction(
        "change how lost exceptions are told", "await the task, or use asyncio.TaskGroup"
    ),
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


def _present(module: str, *names: str) -> Iterator[Any]:
    """Return the C functions of a module that this system and version have."""
    try:
        found = import_module(module)
    except ImportError:
        return
    for name in names:
        if hasattr(found, name):
            yield getattr(found, name)


def _each(restriction: Restriction, *groups: Iterable[Any]) -> dict[Any, Restriction]:
    return {function: restriction for group in groups for function in group}


#: C functions.
FUNCTIONS: dict[Any, Restriction] = (
    _each(_SLEEP, _present("time", "sleep"))
    | _each(_THREADS, _present("_thread", "start_new_thread", "start_joinable_thread"))
    | _each(_BLOCKS, _present("select", "select"))
    | _each(_SIGNALS, _present("_signal", "signal", "alarm", "setitimer", "set_wakeup_fd"))
    | _each(_KILLS, _present("_signal", "pthread_kill"), _present("os", "kill", "killpg"))
    | _each(
        _PROCESSES,
        _present("os", "system", "execv", "execve", "fork", "fork1", "forkpty", "posix_spawn", "posix_spawnp"),
        _present("os", "spawnv", "spawnve", "startfile") if os.name == "nt" else (),
        _present("_posixsubprocess", "fork_exec"),
        _present("_winapi", "CreateProcess"),
    )
    | _each(
        _SOCKETS,
        _present("_socket", "socketpair", "getaddrinfo", "getnameinfo", "gethostname"),
        _present("_socket", "gethostbyname", "gethostbyname_ex", "gethostbyaddr"),
    )
)
_SOCKET_TYPE = socket.socket.__base__
assert _SOCKET_TYPE is not None
_SOCKET_METHODS = ("accept", "bind", "connect", "connect_ex", "listen", "send", "sendall", "sendmsg", "sendto")
_SOCKET_READS = ("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into")
#: Methods of C types, by name: the type, or what its module is called.
METHODS: dict[str, tuple[type | str, Restriction]] = {
    **dict.fromkeys((*_SOCKET_METHODS, *_SOCKET_READS), (_SOCKET_TYPE, _SOCKETS)),
    "poll": ("select", _BLOCKS),
}
#: Python functions, by their code.
PYTHON: dict[CodeType, Restriction] = {
    threading.Condition.wait.__code__: _BLOCKS,  # events, queues, barriers and futures wait here
    socket.socket.__init__.__code__: _SOCKETS,
    subprocess.Popen.__init__.__code__: _PROCESSES,
    asyncio.run.__code__: _LOOPS,
    asyncio.Runner.run.__code__: _LOOPS,
    asyncio.new_event_loop.__code__: _LOOPS,
    asyncio.set_event_loop.__code__: _LOOPS,
}
#: A call of this with a timeout of 0 only looks, and is allowed.
CONDITION_WAIT = threading.Condition.wait.__code__

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
_FILE_CALLS = ("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rmdir", "unlink", "remove", "rename", "replace")
#: C functions whose result no replay repeats.
READS: dict[Any, Restriction] = (
    _each(_CLOCK, _present("time", *_CLOCKS, *(f"{name}_ns" for name in _CLOCKS), "localtime", "gmtime"))
    | _each(_CHANCE, _present("os", "urandom", "getrandom"), _present("uuid", "_generate_time_safe"))
    | _each(_FILES, _present("os", *_FILE_CALLS), (builtins.open, builtins.input, io.open_code))
)
_NOW = {"now", "utcnow", "today"}
_SHARED_RANDOM = getattr(random, "_inst", None)
_RANDOM_METHODS = {"random", "getrandbits", "seed", "getstate", "setstate"}
#: The names of everything that is looked for. Most calls are of no such name, and cost one look-up.
NAMES = frozenset(function.__name__ for function in (*FUNCTIONS, *READS)) | {*METHODS, *_NOW, *_RANDOM_METHODS}


def restriction_of(function: Any) -> Restriction | None:
    """Return what a call of this C function breaks; None if it is allowed."""
    owner = getattr(function, "__self__", None)
    known = METHODS.get(function.__name__)
    if known is not None:
        kind, restriction = known
        is_it = type(owner).__module__ == kind if isinstance(kind, str) else isinstance(owner, kind)
        if is_it:
            return restriction
    return FUNCTIONS.get(function)


def read_of(function: Any) -> Restriction | None:
    """Return what a call of this C function reads that no replay repeats; None if it reads nothing of the kind."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, date) and function.__name__ in _NOW:
        return _CLOCK
    if _SHARED_RANDOM is not None and owner is _SHARED_RANDOM:
        return _CHANCE
    return READS.get(function)


def refusal(doing: str, instead: str) -> WorkflowNotAllowed:
    """Build the error, with the line of the user's code."""
    place = caller(2)
    where = "" if place is None else f" ({place})"
    return WorkflowNotAllowed(
        f"a workflow may not {doing}{where}; it could not be replayed. Nothing was done.",
        hint=f"Instead, {instead}.",
        location="" if place is None else str(place),
    )

"""A program that runs workflows and compares the standard library before, within and after their turns.

Run by `test_no_global_effects.py` in a process of its own, with `default` or `guarded`.
"""

import asyncio
import concurrent.futures.thread
import gc
import multiprocessing.process
import multiprocessing.util
import queue
import secrets
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

MODULES = {
    *("_posixsubprocess", "_random", "_signal", "_socket", "_thread", "asyncio", "builtins", "concurrent", "datetime"),
    *("gc", "importlib", "io", "logging", "multiprocessing", "os", "posix", "queue", "random", "secrets", "select"),
    *("selectors", "signal", "socket", "subprocess", "sys", "threading", "time", "uuid", "warnings", "weakref"),
}
IMPORTED = (concurrent.futures.thread, multiprocessing.process, multiprocessing.util, queue, secrets, select, selectors)
IMPORTED += (signal, socket, subprocess, uuid)
#: Fixed here: what is imported later has nothing to compare with.
WATCHED = [name for name in sys.modules if name.partition(".")[0] in MODULES]
SPIED = ("addaudithook", "setprofile", "settrace")
spied = []


def spy(name):
    """Note every call of a function of `sys`, with the thread."""
    real = getattr(sys, name)

    def noting(*args):
        spied.append((name, threading.current_thread().name))
        return real(*args)

    setattr(sys, name, noting)


def library():
    """Return every function and class of these modules, and what the classes consist of, by name."""
    found = {}
    for module in WATCHED:
        for name, value in list(vars(sys.modules[module]).items()):
            if callable(value):
                found[f"{module}.{name}"] = value
            if isinstance(value, type):
                parts = [(part, kept) for part, kept in list(vars(value).items()) if not part.startswith("_abc_")]
                found |= {f"{module}.{name}.{part}": kept for part, kept in parts}
    return found


for spied_name in SPIED:
    spy(spied_name)
before = library()
collectors = list(gc.callbacks)

from holdfast import Holdfast  # noqa: E402 - what importing it changes is compared as well
from holdfast.testing import replay, virtual  # noqa: E402 - the same


def changed():
    """Return the names of what is another object than before."""
    now = library()
    return sorted(name for name in before.keys() | now.keys() if before.get(name) is not now.get(name))


guarded = sys.argv[1] == "guarded"
hf = Holdfast("memory:", guard_workflows=guarded)
in_turns, threads, profiled = [], set(), set()


def look():
    """Compare within a turn."""
    in_turns.extend(changed())
    threads.add(threading.current_thread().name)
    if sys.getprofile() is not None:
        profiled.add(threading.current_thread().name)


def outside_world(number: int) -> int:
    """Do what a task or a step may, and a workflow may not."""
    assert sys.getprofile() is None
    time.sleep(0)  # noqa: TID251 - the point
    socket.socket().close()
    thread = threading.Thread(target=threading.Event().wait, args=(0.001,))
    thread.start()
    thread.join()
    return number


work = hf.task(outside_world)


@hf.workflow
async def flow() -> list[int]:
    """Use a bit of everything, in the thread of the turn."""
    look()
    await asyncio.sleep(0.001)
    found = await asyncio.gather(work.call(1), hf.step(outside_world, 2))
    await asyncio.wait([asyncio.gather(asyncio.sleep(0), asyncio.sleep(0)) for _ in range(3)])
    look()
    return found


@hf.workflow
def blocking() -> int:
    """The same in a thread of its own."""
    look()
    hf.sleep(0.001)
    found = work.call(3)
    look()
    return found


def main():
    """Run them."""
    runs = [make.start() for make in (flow, blocking, flow, blocking)]
    hf.work(until_idle=True)
    assert [run.result(timeout=0) for run in runs] == [[1, 2], 3, [1, 2], 3]
    assert len(threads) > 1, "the def workflow has a thread of its own"
    if guarded:
        replay(runs[0], flow)
        with virtual(hf) as world:
            assert world.run(flow.start()) == [1, 2]
    hf.close()
    assert sys.getprofile() is None
    assert not in_turns, in_turns
    assert not changed(), changed()
    assert gc.callbacks == collectors, gc.callbacks
    assert {name for name, _ in spied} == ({"setprofile"} if guarded else set()), spied
    assert profiled == (threads if guarded else set()), profiled
    print("nothing changed")


if __name__ == "__main__":
    main()

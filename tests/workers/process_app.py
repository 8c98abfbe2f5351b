"""Tasks that misbehave, each in a process of its own. Imported by the tests and again by the child processes."""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import Fatal, Holdfast, Snooze
from holdfast.testing.clock import ManualClock

clock = ManualClock()
hf = Holdfast("memory:", clock=clock)
task = partial(hf.task, isolation="process", max_attempts=1)


@task()
def double(n: int) -> int:
    return n * 2


@task()
def echo(text: str) -> str:
    return text


@task()
async def double_later(n: int) -> int:
    return n * 2


@task()
def pid() -> int:
    return os.getpid()


@task()
def me() -> list[Any]:
    return [hf.current.job_id, hf.current.run_no, hf.current.token, hf.current.cancelled]


@task()
def segfault() -> None:
    ctypes.string_at(0)


@task()
def exit_with(code: int) -> None:
    os._exit(code)


@task()
def aborts() -> None:
    os.abort()


@task()
def wants(what: str) -> None:
    raise {"snooze": Snooze(60), "fatal": Fatal("no"), "error": ValueError("broken"), "exit": SystemExit(5)}[what]


@task()
def odd_result() -> object:
    return object()


@task(memory_limit=400 << 20)
def leaks() -> int:
    kept = []
    while True:
        kept.append(bytearray(8 << 20))


def _tell(fifo: str, *numbers: int) -> None:
    with Path(fifo).open("w") as file:
        file.write(" ".join(map(str, numbers)))


@task(timeout=5)
def waits(started: str, note: str) -> None:
    """Wait to be stopped; leave a note."""
    try:
        _tell(started, os.getpid())
        signal.pause()
    finally:
        Path(note).write_text("cleaned up")


@task(timeout=5)
def deaf(started: str) -> None:
    """Ignore SIGTERM, as do its children."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child:
        _tell(started, os.getpid(), child)
    while True:
        signal.pause()


@task()
def leaves_a_program() -> int:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]).pid


@task()
def leaves_a_fork() -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


@task()
def dies_before_its_fork() -> None:
    """Leave the pipe of replies open in a fork, and die."""
    if os.fork() == 0:
        signal.pause()
    os._exit(7)


@task()
def fork_returns() -> int:
    """Return twice: in the child process, and in a fork of it."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return 1 if child else 2


@task()
def closes_everything() -> int:
    os.closerange(3, 256)
    return 1


@task()
def scribbles() -> None:
    for fd in range(3, 256):
        with suppress(OSError):
            os.write(fd, b"nonsense\n")

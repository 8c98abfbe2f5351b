"""Tasks that misbehave, each in a process of its own. Imported by the tests and again by the child processes."""

import contextvars
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import Fatal, Holdfast, Snooze
from holdfast.testing.clock import ManualClock
from holdfast.workflows.api.idempotency import idempotency_key

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
def raises_with_cause() -> None:
    raise ValueError(402, "declined") from KeyError("card")


@task()
def key() -> str:
    return idempotency_key()


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


@task(max_attempts=4)
def odd_result_inside(calls: str) -> object:
    with Path(calls).open("a") as file:
        file.write("called\n")
    return {"rows": [1, {"when": object()}]}


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


def _daemon(fifo: str) -> None:
    """Start a process twice removed: its parent is gone, and it leads a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _tell(fifo, os.getpid())
            while True:
                signal.pause()
        os._exit(0)
    os.wait()


@task(timeout=5)
def leaves_a_daemon(fifo: str, go: str, end: str) -> int:
    """Leave a daemon behind, and end as told."""
    _daemon(fifo)
    match Path(go).read_text(), end:
        case _, "return":
            return 1
        case _, "crash":
            os.abort()
        case _, "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _tell(fifo, 0)
            while True:
                signal.pause()
    raise AssertionError(end)


@task()
def talks(path: str) -> None:
    """Say something in every way there is."""
    hf.current.progress(1, 2, "half")
    print("printed")
    os.write(2, b"written\n")
    subprocess.run(["echo", "by a program"], check=True)
    logging.getLogger("app").warning("logged %d", 7)
    hf.current.log.info("told")
    try:
        hf.current.artifact("/nowhere")
    except ValueError as problem:
        print(type(problem).__name__, end="")
    Path(path).write_text("content")
    kept = hf.current.artifact(path, media_type="text/x-thing")
    Path(path).unlink()
    assert kept.size == 7


@task()
def says_where_it_crashed() -> None:
    print("before")
    ctypes.string_at(0)


@task()
def floods() -> None:
    for _ in range(3000):
        print("x" * 1000)
        hf.current.log.info("y" * 1000)


@task()
def late_words() -> None:
    """Log in a thread that outlives the handler."""

    def say() -> None:
        while True:
            hf.current.log.info("from the past")

    variables = contextvars.copy_context()
    threading.Thread(target=variables.run, args=(say,), daemon=True).start()


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


#: Above every descriptor that the process of a test run has.
MOST_OPEN = 4096


@task()
def closes_everything() -> int:
    os.closerange(3, MOST_OPEN)
    return 1


def scribble(text: bytes) -> None:
    for fd in range(3, MOST_OPEN):
        with suppress(OSError):
            os.write(fd, text)


@task()
def scribbles() -> None:
    scribble(b"nonsense\n")


@task()
def scribbles_other_letters() -> None:
    scribble(b'{"type":"Said","stream":"\xff","level":"","text":""}\n')


@task()
def scribbles_deeply() -> None:
    scribble(b'{"x":' + b"[" * 5000 + b"\n")

"""Capture: what a handler logs and prints, routed to its run by the context it runs in.

While a worker runs in this process there is one more handler on the root logger, and `sys.stdout` and `sys.stderr` are
wrapped; both still pass on whatever they get. Which run a line belongs to is told by a context variable, so coroutines,
`asyncio.to_thread` and callbacks keep their run. Not seen: plain threads and executors that a handler starts without
copying its context, loggers that do not propagate or whose level says no, and what is written below Python's streams
(`sys.stdout.buffer`, C code, child processes of a thread's handler). In a process of its own the last three are caught.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal, TextIO

from holdfast.workers.handlers.context import TASK_LOG, current

_traceback = logging.Formatter().formatException


class Ear(logging.Handler):
    """Gives records to the run they were made in."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        if (context := current.get(None)) is not None:
            try:
                context.notes.say("log", record.levelname, _text(record))
            except Exception:  # noqa: BLE001 - the user's own arguments and __str__; logging's way to tell of them
                self.handleError(record)
        # Without us nobody might have listened, and logging would have shown warnings on stderr.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._others_hear(record):
            last.handle(record)

    def _others_hear(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        text += "\n" + _traceback(record.exc_info)
    return text + ("\n" + record.stack_info if record.stack_info else "")


def _only_outside_runs() -> AbstractContextManager[None]:
    """Let a stream fail that is closed, unread or lacks a character; but no run, whose lines are kept all the same."""
    return nullcontext() if current.get(None) is None else suppress(OSError, ValueError)


class Tee:
    """A text stream that also tells the run which writes to it."""

    def __init__(self, through: TextIO, stream: Literal["stdout", "stderr"]) -> None:
        self.through = through
        self._stream = stream

    def write(self, text: str) -> int:
        """Write through, then tell the run."""
        context = current.get(None)
        written = len(text)
        with _only_outside_runs():
            written = self.through.write(text)
        # A logging handler that writes here was given a record, which the run has already.
        if context is not None and sys._getframe(1).f_globals.get("__name__") != "logging":  # noqa: SLF001 - there is no other way to ask
            context.notes.write(self._stream, text)
        return written

    def flush(self) -> None:
        """Flush what is written through."""
        with _only_outside_runs():
            self.through.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Be the stream in everything else."""
        return getattr(self.through, name)


_lock = threading.Lock()
_workers = 0
_ear = Ear()


def listen() -> None:
    """Route what is logged; again, if the application has set up logging anew."""
    logging.getLogger().addHandler(_ear)
    TASK_LOG.disabled = False
    if TASK_LOG.level == logging.NOTSET:
        TASK_LOG.setLevel(logging.INFO)


def begin() -> None:
    """Route what is logged and printed in this process, until as many have called `end`."""
    global _workers  # noqa: PLW0603 - the streams are the process's own, too
    with _lock:
        _workers += 1
        if _workers > 1:
            return
        listen()
        # None where a process has no such stream.
        streams: Any = sys
        streams.stdout = sys.stdout and Tee(sys.stdout, "stdout")
        streams.stderr = sys.stderr and Tee(sys.stderr, "stderr")


def end() -> None:
    """Leave the streams as they were, unless somebody has put others there meanwhile."""
    global _workers  # noqa: PLW0603 - as above
    with _lock:
        _workers -= 1
        if _workers:
            return
        logging.getLogger().removeHandler(_ear)
        if isinstance(sys.stdout, Tee):
            sys.stdout = sys.stdout.through
        if isinstance(sys.stderr, Tee):
            sys.stderr = sys.stderr.through

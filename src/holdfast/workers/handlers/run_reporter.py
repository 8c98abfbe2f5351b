"""Notes: what one execution says while it works, beside its outcome: lines, progress, artifacts.

Bounded, so that no handler can flood the store: a line, the lines of a run, the artifacts of a run. Knows no store: the
scribe of the worker takes the lines and keeps the content. In a fork of the worker's process nothing is noted: its
locks may be held by threads that are not there, and nobody would write what it kept.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from holdfast.errors import InvalidOperation, InvalidValue
from holdfast.model.artifacts import Artifact
from holdfast.model.ids import RunId
from holdfast.model.logs import MAX_LINE, Allowance, Stream
from holdfast.model.payloads import NULL
from holdfast.model.workers import Progress
from holdfast.workers.handlers.artifacts import MAX_ARTIFACTS, take

#: Bytes of the list of a run's artifacts, far below what a record takes.
MAX_LIST = 512 * 1024
_encode = msgspec.json.Encoder().encode


#: How often this process is a fork of a fork.
_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - a process has one number of them
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Notes(Protocol):
    """Where an execution's notes go. Any thread of the handler may call it."""

    def say(self, stream: Stream, level: str, text: str) -> None:
        """Take whole lines. Never raises, never waits."""
        ...

    def write(self, stream: Stream, text: str) -> None:
        """Take a piece of what was printed; lines are made of it. Never raises, never waits."""
        ...

    def advance(self, progress: Progress) -> None:
        """Take how far the work is; the last one counts."""
        ...

    def keep(self, path: str, name: str | None, media_type: str | None) -> Artifact:
        """Take a file. Raises InvalidValue if it cannot be one, StoreError if it cannot be kept."""
        ...


class Scribe(Protocol):
    """Who keeps the notes of all executions of a worker."""

    def line(self, run_id: RunId, stream: Stream, level: str, text: str) -> None:
        """Take one line, or leave it out. Never raises, never waits."""
        ...

    def put(self, content: bytes) -> str:
        """Keep content and give its SHA-256 in hex. Raises StoreError."""
        ...


class RunNotes:
    """The notes of one execution, in the process of its worker."""

    __slots__ = ("_advanced", "_allowance", "_forks", "_lock", "_open", "_run_id", "_scribe", "artifacts", "progress")

    def __init__(
        self, run_id: RunId, scribe: Scribe | None = None, advanced: Callable[[], None] = lambda: None
    ) -> None:
        """Take notes for a run; without a scribe lines are not kept. `advanced` is told of each progress."""
        self._advanced = advanced
        self._forks = _forks
        self._run_id = run_id
        self._scribe = scribe
        self._allowance = Allowance()
        self._lock = threading.RLock()
        #: What was printed since the last end of a line.
        self._open: dict[Stream, str] = {}
        self.progress: Progress | None = None
        self.artifacts: tuple[Artifact, ...] = ()

    # --- lines --------------------------------------------------------------------------------------------------------

    def say(self, stream: Stream, level: str, text: str) -> None:
        """Take whole lines."""
        if self._forks == _forks:
            for line in text.splitlines() or [""]:
                self._line(stream, level, line)

    def write(self, stream: Stream, text: str) -> None:
        """Take a piece of what was printed."""
        if self._forks != _forks:
            return
        with self._lock:
            *whole, rest = (self._open.pop(stream, "") + text).split("\n")
            rest = _shown(rest)
            # A line without end is cut into pieces before it fills the memory.
            while len(rest) >= MAX_LINE:
                whole.append(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]
            if rest:
                self._open[stream] = rest
        for line in whole:
            self._line(stream, "", _shown(line).removesuffix("\r"))

    def end(self) -> None:
        """Close lines that were left open."""
        if not self._open:
            return
        with self._lock:
            left, self._open = self._open, {}
        for stream, line in left.items():
            self._line(stream, "", line)

    def _line(self, stream: Stream, level: str, line: str) -> None:
        taken = None if self._scribe is None else self._allowance.take(stream, level, line)
        if self._scribe is not None and taken is not None:
            self._scribe.line(self._run_id, *taken)

    # --- progress and artifacts ---------------------------------------------------------------------------------------

    def advance(self, progress: Progress) -> None:
        """Take how far the work is."""
        if self._forks == _forks:
            self.progress = progress
            self._advanced()

    def keep(self, path: str, name: str | None, media_type: str | None) -> Artifact:
        """Take a file."""
        if len(self.artifacts) >= MAX_ARTIFACTS:
            raise InvalidValue(f"a run has at most {MAX_ARTIFACTS} artifacts; this one was not kept.", field="path")
        if self._scribe is None or self._forks != _forks:
            raise InvalidOperation(
                "artifacts are kept only in the process of a handler that a worker runs. Nothing was kept."
            )
        taken = take(path, name, media_type, self._scribe.put)
        with self._lock:
            listed = (*self.artifacts, taken)
            if len(_encode(listed)) > MAX_LIST:
                raise InvalidValue("the names and paths of a run's artifacts are too long; this one was not kept.")
            self.artifacts = listed
        return taken

    def forget(self) -> bool:
        """Let go of progress and artifacts; tell whether there were any."""
        had_any = self.progress is not None or bool(self.artifacts)
        self.progress, self.artifacts = None, ()
        return had_any

    def reported(self) -> tuple[msgspec.Raw, msgspec.Raw]:
        """Give artifacts and progress as a report carries them."""
        return (
            msgspec.Raw(_encode(self.artifacts)) if self.artifacts else NULL,
            msgspec.Raw(_encode(self.progress)) if self.progress is not None else NULL,
        )


def _shown(line: str) -> str:
    """Give what a terminal would show of a line that was written over, as progress bars do."""
    before, _, last = line.rpartition("\r")
    return last if last or not before else before.rpartition("\r")[2] + "\r"

"""What a handler says inside a child process, sent to its worker as it is said."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import msgspec

from holdfast.errors import BY_CODE, HoldfastError, InvalidOperation
from holdfast.model.artifacts import Artifact
from holdfast.model.logs import MAX_LINE, MAX_LINES, Stream
from holdfast.model.workers import Progress
from holdfast.workers.runners.child_protocol import Advanced, Keep, Kept, Message, NotKept, Said

_encode = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(Kept | NotKept).decode


class Post:
    """The way to the worker: whole messages, one at a time, from any thread of the child but from no fork of it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Tell whether this is the child itself. In a fork of it nobody may use the pipe, or open the lock."""
        return os.getpid() == self._pid

    def send(self, message: Message) -> None:
        """Send a message."""
        rest = memoryview(_encode(message) + b"\n")
        with self._lock:
            while rest:
                rest = rest[os.write(self._fd, rest) :]


class ChildNotes:
    """The notes of one execution, in the process of its handler."""

    def __init__(self, post: Post, listen: Callable[[], bytes]) -> None:
        """Send by `post`; `listen` gives the worker's next line."""
        self._post = post
        self._listen = listen
        self._asking = threading.Lock()
        self._bytes = 0
        self._is_over = False

    def end(self) -> None:
        """Send nothing more: what threads of the handler say from now on belongs to no run."""
        self._is_over = True

    def _goes(self) -> bool:
        return not self._is_over and self._post.is_ours

    def say(self, stream: Stream, level: str, text: str) -> None:
        """Send lines, as many as are kept. The worker counts them exactly; here the pipe is spared."""
        if self._goes() and self._bytes <= 2 * MAX_LINES:
            raw = text.encode("utf-8", "backslashreplace")
            self._bytes += min(len(raw), MAX_LINE)
            self._send(Said(stream, level, raw.decode()[: 8 * MAX_LINE]))

    def write(self, stream: Stream, text: str) -> None:
        """Do nothing: what is printed reaches the worker by the process's own streams."""

    def advance(self, progress: Progress) -> None:
        """Send how far the work is."""
        if self._goes():
            self._send(Advanced(progress))

    def _send(self, message: Message) -> None:
        try:
            self._post.send(message)
        except OSError:
            # The handler closed the pipe. Its run will fail for that, not for a line.
            self._is_over = True

    def keep(self, path: str, name: str | None, media_type: str | None) -> Artifact:
        """Have the worker keep a file, and wait until it has."""
        if not self._goes():
            raise InvalidOperation("the run is over, or this is a fork of its process; the artifact was not kept.")
        with self._asking:
            self._post.send(Keep(path, name, media_type))
            answer: Kept | NotKept = _answer(self._listen())
        if isinstance(answer, NotKept):
            raise BY_CODE.get(answer.code, HoldfastError)(answer.message)
        return answer.artifact

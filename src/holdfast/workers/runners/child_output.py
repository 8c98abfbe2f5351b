"""The standard streams of a child process, read as they come: told to its run, and passed on to those of the worker."""

from __future__ import annotations

import codecs
import os
import select
import sys
from typing import Literal

from holdfast.workers.handlers.run_reporter import Notes
from holdfast.workers.runners.process_group import pipes

_CHUNK = 1 << 16
#: Bytes read at most when a process has ended: more than a pipe holds comes from somebody who does not stop.
_REST = 1 << 20


class Output:
    """Two pipes, from one child process."""

    def __init__(self, tail: int = 0) -> None:
        """Make them; keep the last `tail` bytes of each. Raises OSError if there are no descriptors left."""
        self._tail = tail
        (out, out_in), (err, err_in) = pipes(2)
        #: The ends for the child.
        self.theirs = (out_in, err_in)
        self._streams: dict[int, Literal["stdout", "stderr"]] = {out: "stdout", err: "stderr"}
        self._tails = {"stdout": b"", "stderr": b""}
        # Bytes that are no UTF-8 are shown as such; a character may come in two pieces.
        self._decoders = {fd: codecs.getincrementaldecoder("utf-8")("replace") for fd in self._streams}
        for fd in self._streams:
            os.set_blocking(fd, False)

    def handed_over(self) -> None:
        """Let go of the child's ends, when it has them."""
        for fd in self.theirs:
            os.close(fd)

    def register(self, poll: select.poll) -> None:
        """Have both watched."""
        for fd in self._streams:
            poll.register(fd, select.POLLIN)

    def take(self, fd: int, poll: select.poll, notes: Notes) -> None:
        """Read from `fd` if it is one of ours; stop watching it when nobody can write to it any more."""
        if fd in self._streams and self._read(fd, notes) == 0:
            poll.unregister(fd)

    def drain(self, notes: Notes) -> None:
        """Read what the child has written before it answered or ended."""
        for fd in self._streams:
            left = _REST
            while left > 0 and (size := self._read(fd, notes)):
                left -= size

    def _read(self, fd: int, notes: Notes) -> int | None:
        """Read once; give how much, 0 at the end, None if there is nothing now."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return None
        stream = self._streams[fd]
        if self._tail:
            self._tails[stream] = (self._tails[stream] + chunk)[-self._tail :]
        text = self._decoders[fd].decode(chunk, final=not chunk)
        if text:
            notes.write(stream, text)
            _pass_on(stream, text)
        return len(chunk)

    def tail(self, stream: Literal["stdout", "stderr"]) -> str:
        """Give the end of what was written."""
        return self._tails[stream].decode("utf-8", "replace")

    def close(self) -> None:
        """Let go of the pipes."""
        for fd in self._streams:
            os.close(fd)


def _pass_on(stream: Literal["stdout", "stderr"], text: str) -> None:
    out = getattr(sys, stream)
    if out is None:
        return
    try:
        out.write(text)
        out.flush()
    except (OSError, ValueError):
        # Closed, or gone: the run has the lines, and is not to fail for it.
        return

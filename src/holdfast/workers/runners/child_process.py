"""A child process as its worker sees it: started, asked, listened to, ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from holdfast.errors import HoldfastError
from holdfast.workers.handlers.run_reporter import Notes
from holdfast.workers.runners.child_output import Output
from holdfast.workers.runners.child_protocol import Advanced, Keep, Kept, Message, NotKept, Reply, Request, Said
from holdfast.workers.runners.process_group import Group, pipes

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from holdfast.workers.runners.child_main import main; main(*map(int, sys.argv[2:5]))"
)
#: Bytes of one message; beyond it something else than our child writes to the pipe.
MAX_MESSAGE = 400 << 20
_decode = msgspec.json.Decoder(Message).decode
_encode = msgspec.json.Encoder().encode


class Child:
    """One child process, leader of its own session and process group."""

    def __init__(self) -> None:
        """Start it. Raises OSError if the system has no room for it."""
        self.output = Output()
        try:
            (theirs_in, self._requests), (self.replies, theirs_out), (theirs_life, self._lifeline) = pipes(3)
        except OSError:
            self.output.handed_over()
            self.output.close()
            raise
        theirs = (theirs_in, theirs_out, theirs_life)
        mine = [self._requests, self.replies, self._lifeline]
        try:
            self.group = Group(
                [sys.executable, "-c", _START, json.dumps(sys.path), *map(str, theirs)],
                streams=(subprocess.DEVNULL, *self.output.theirs),
                pass_fds=theirs,
            )
        except BaseException:
            for fd in mine:
                os.close(fd)
            self.output.close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
            self.output.handed_over()
        self._fds = mine
        self._received = bytearray()

    def ask(self, request: Request | Kept | NotKept) -> None:
        """Send a request. Raises BrokenPipeError if nobody is there to take it."""
        rest = memoryview(_encode(request) + b"\n")
        while rest:
            rest = rest[os.write(self._requests, rest) :]

    def read(self, notes: Notes) -> Reply | None:
        """Read what has come; write down what the handler says, and give the reply once it is complete.

        Raises EOFError if nothing more can come, msgspec.DecodeError if what came is no message.
        """
        chunk = os.read(self.replies, 1 << 16)
        if not chunk:
            raise EOFError
        self._received += chunk
        for message in self._messages():
            match message:
                case Reply():
                    return message
                case Said():
                    notes.say(message.stream, message.level, message.text)
                case Advanced():
                    notes.advance(message.progress)
                case Keep():
                    self._keep(message, notes)
        return None

    def _messages(self) -> Iterator[Message]:
        if b"\n" not in self._received:
            if len(self._received) > MAX_MESSAGE:
                raise msgspec.DecodeError("no message is so long")
            return
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            try:
                yield _decode(line)
            except (UnicodeDecodeError, RecursionError) as problem:  # neither is one of the decoder's own errors
                raise msgspec.DecodeError(f"no message: {problem}") from problem

    def _keep(self, wish: Keep, notes: Notes) -> None:
        try:
            answer: Kept | NotKept = Kept(notes.keep(wish.path, wish.name, wish.media_type))
        except HoldfastError as problem:
            answer = NotKept(problem.code, problem.message)
        with suppress(BrokenPipeError):  # its end is noticed elsewhere
            self.ask(answer)

    def last_words(self, notes: Notes) -> Reply | None:
        """Give the reply of a process that has ended, if it sent one before."""
        os.set_blocking(self.replies, False)
        with suppress(BlockingIOError, EOFError, msgspec.DecodeError):
            while True:
                reply = self.read(notes)
                if reply is not None:
                    return reply
        return None

    def end(self) -> int:
        """Kill it with its descendants and let go of it; give its exit code, negative for a signal."""
        code = self.group.end()
        for fd in self._fds:
            os.close(fd)
        self.output.close()
        return code

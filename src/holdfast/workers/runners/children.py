"""A child process as its worker sees it: started, asked, ended. Never reaped before its group is killed.

The order matters: as long as the dead leader is not waited for, its process group id cannot be given to strangers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import msgspec

from holdfast.workers.runners.child import Reply, Request

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from holdfast.workers.runners.child import main; main(*map(int, sys.argv[2:5]))"
)
_decode = msgspec.json.Decoder(Reply).decode
_encode = msgspec.json.Encoder().encode


class Child:
    """One child process, leader of its own session and process group."""

    def __init__(self) -> None:
        """Start it. Raises OSError if the system has no room for it."""
        theirs_in, self._requests = os.pipe()
        self.replies, theirs_out = os.pipe()
        theirs_life, self._lifeline = os.pipe()
        theirs = (theirs_in, theirs_out, theirs_life)
        mine = [self._requests, self.replies, self._lifeline]
        try:
            arguments = [sys.executable, "-c", _START, json.dumps(sys.path), *map(str, theirs)]
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own words
                arguments, stdin=subprocess.DEVNULL, pass_fds=theirs, start_new_session=True
            )
        except BaseException:
            for fd in mine:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self.pid = self._process.pid
        self._fds = mine
        self._received = b""
        try:
            #: Becomes readable when the process ends; forks of the handler may keep the pipe of replies open.
            self.exit_fd = os.pidfd_open(self.pid)
        except OSError:
            self.end()
            raise
        self._fds.append(self.exit_fd)

    def ask(self, request: Request) -> None:
        """Send a request. Raises BrokenPipeError if nobody is there to take it."""
        rest = memoryview(_encode(request) + b"\n")
        while rest:
            rest = rest[os.write(self._requests, rest) :]

    def read(self) -> Reply | None:
        """Read what has come; give the reply once it is complete.

        Raises EOFError if nothing more can come, msgspec.DecodeError if what came is no reply.
        """
        chunk = os.read(self.replies, 1 << 16)
        if not chunk:
            raise EOFError
        self._received += chunk
        line, newline, self._received = self._received.partition(b"\n")
        if newline:
            return _decode(line)
        self._received = line
        return None

    def last_words(self) -> Reply | None:
        """Give the reply of a process that has ended, if it sent one before."""
        os.set_blocking(self.replies, False)
        with suppress(BlockingIOError, EOFError, msgspec.DecodeError):
            while True:
                reply = self.read()
                if reply is not None:
                    return reply
        return None

    def signal(self, number: int) -> None:
        """Send a signal to the process and all its descendants that stayed in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def has_ended(self) -> bool:
        """Tell whether the process is over."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """Kill the group, wait for the process and let go of it; give its exit code, negative for a signal."""
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        for fd in self._fds:
            os.close(fd)
        return code


def obituary(code: int) -> str:
    """Say how a process ended that gave no result."""
    if code >= 0:
        return f"the handler's process exited with code {code} before it gave a result"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    return f"the handler's process was killed by {name} (signal {-code}) before it gave a result"

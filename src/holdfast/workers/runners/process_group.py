"""A process that leads its own session and group, with whatever it starts; and how all of it is brought to an end.

Never reaped before its group is killed: as long as the dead leader is not waited for, its process group id cannot be
given to strangers. Descendants that left the group are found by a mark in their environment (Linux). Out of reach are
those that left it with another environment or under another user, and, if the worker itself is killed by SIGKILL, all
that left the group.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.workers.handlers.leased_job import Stop

#: The variable that marks descendants.
MARK = "HOLDFAST_PROCESS"
#: Seconds in which killed descendants must be gone; one that hangs in the kernel is not waited for longer.
GONE_S = 5.0
_NEVER = float("inf")


class Group:
    """One process and its descendants."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        streams: tuple[int, int, int],
        pass_fds: Sequence[int],
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        """Start it, with `env` on top of this process's own. Raises OSError if it cannot be started."""
        self._mark = secrets.token_hex(16)
        stdin, stdout, stderr = streams
        self._process = subprocess.Popen(  # noqa: S603 - no shell: words stay words
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            env={**os.environ, **(env or {}), MARK: self._mark},
            cwd=cwd,
            start_new_session=True,
        )
        self.pid = self._process.pid
        try:
            #: Becomes readable when the process ends; its forks may keep its pipes open.
            self.exit_fd = os.pidfd_open(self.pid)
        except OSError:
            self.exit_fd = -1
            self.end()
            raise

    def signal(self, number: int) -> None:
        """Send a signal to the process and all its descendants that stayed in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def has_ended(self) -> bool:
        """Tell whether the process is over."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """Kill everything, wait for it and let go; give the exit code of the process, negative for a signal."""
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        _end_marked(self._mark)
        if self.exit_fd >= 0:
            os.close(self.exit_fd)
        return code


class Ladder:
    """The steps from asking a group to end to killing it."""

    def __init__(self, group: Group, kill_after_s: float) -> None:
        self._group = group
        self._kill_after_s = kill_after_s
        self._clock = SystemClock()
        self._kill_at: float | None = None

    def step(self, stop: Stop | None, *, is_closing: bool) -> float | None:
        """Send the signal that is due; give the milliseconds to the next step, None if there is none."""
        now = self._clock.monotonic()
        if is_closing:
            self._group.signal(signal.SIGKILL)
            self._kill_at = _NEVER
        elif stop is not None and self._kill_at is None:
            self._group.signal(signal.SIGTERM)
            # A timeout must be reported before the lease ends, which is 10 s later and cannot be extended.
            share = 0.5 if stop is Stop.TIMEOUT else 1.0
            self._kill_at = now + share * self._kill_after_s
        elif self._kill_at is not None and self._kill_at <= now:
            self._group.signal(signal.SIGKILL)
            self._kill_at = _NEVER
        return None if self._kill_at in (None, _NEVER) else max(0.0, self._kill_at - now) * 1000


def pipes(count: int) -> list[tuple[int, int]]:
    """Make several pipes, or none. Raises OSError if there are not enough descriptors left."""
    made: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            made.append(os.pipe())  # noqa: PERF401 - what was made must be known if the next one fails
    except OSError:
        for fd in (end for pair in made for end in pair):
            os.close(fd)
        raise
    return made


class Bell:
    """Wakes a thread that sleeps in `poll`."""

    def __init__(self) -> None:
        self.fd, self._in = os.pipe()
        os.set_blocking(self._in, False)

    def ring(self) -> None:
        """Wake it. A bell that is full of rings has been heard by nobody yet."""
        with suppress(BlockingIOError):
            os.write(self._in, b"\0")

    def heard(self) -> None:
        """Take one ring."""
        os.read(self.fd, 1)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)
        os.close(self._in)


def obituary(code: int, what: str) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"{what} exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    return f"{what} was killed by {name} (signal {-code})"


def _end_marked(mark: str) -> None:
    """Kill every process that has the mark, until there is none."""
    clock = SystemClock()
    until = clock.monotonic() + GONE_S
    while (found := _marked(mark)) and clock.monotonic() < until:
        for pid in found:
            _kill(pid, mark)


def _marked(mark: str) -> list[int]:
    return [int(place.name) for place in Path("/proc").glob("[0-9]*") if _has_mark(place.name, mark)]


def _has_mark(pid: str, mark: str) -> bool:
    """Return whether a process has the mark. A process that ended or belongs to another user has none to read.

    A process inside `execve` shows no environment for a moment: it is read again until the kernel has set the new one.
    """
    clock = SystemClock()
    until = clock.monotonic() + GONE_S
    try:
        while not (environment := Path("/proc", pid, "environ").read_bytes()):
            if _has_no_environment(pid) or clock.monotonic() >= until:
                return False
    except OSError:
        return False
    return f"{MARK}={mark}\0".encode() in environment


def _has_no_environment(pid: str) -> bool:
    """Return whether an empty environment is final: the process is a zombie, a kernel thread, or was given none."""
    # The name in parentheses may contain spaces and parentheses; the fields after it are numbers (proc(5): 3 and on).
    fields = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()
    memory, start_code, env_start, env_end = (int(fields[number - 3]) for number in (23, 26, 50, 51))
    # `execve` sets the start of the code last: before that, the bounds of the environment mean nothing.
    return memory == 0 or (start_code != 0 and env_start == env_end)


def _kill(pid: int, mark: str) -> None:
    """Kill one process and wait for its end."""
    with suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            # Asked again, now that the number cannot pass to another process unnoticed.
            if _has_mark(str(pid), mark):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                poll.poll(GONE_S * 1000)
        finally:
            os.close(fd)

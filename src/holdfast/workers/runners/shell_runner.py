"""Commands, each in a process group of its own and with a thread to watch it.

The task's function gives the command; its exit code decides: 0 is success, any other a failure that shows the end of
stderr. Whatever it has started is killed when it ends, and by the kernel if the worker dies (Linux).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack

from holdfast.errors import HoldfastError
from holdfast.model.ids import Token
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.handlers.outcome import Outcome, Raised, Returned
from holdfast.workers.handlers.shell import MAX_STDOUT, Shell, ShellResult, command
from holdfast.workers.runners import Desk
from holdfast.workers.runners.child_output import Output
from holdfast.workers.runners.invoke import Gave, packed, value_of
from holdfast.workers.runners.process_group import Bell, Group, Ladder, obituary

#: Lines and bytes of stderr, from its end, that an error shows.
ERROR_LINES, ERROR_BYTES = 20, 4096
#: Seconds in which threads end once their commands were killed.
CLOSING_S = 5.0
COULD_NOT = "the command could not be started"
#: Ties the command's group to the worker by a pipe, as `child_main` does, and becomes the command. Python ignores
#: SIGPIPE and SIGXFSZ; a command expects them to be as everywhere.
_LAUNCH = """
import fcntl, os, signal, sys
life, words = int(sys.argv[1]), sys.argv[2:]
if hasattr(fcntl, "F_SETSIG"):
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        if not os.read(life, 1):
            os._exit(125)
    except BlockingIOError:
        pass
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(words[0], words)
except OSError as problem:
    os.write(2, f"{words[0]}: {problem.strerror}\\n".encode("utf-8", "surrogateescape"))
    os._exit(127 if isinstance(problem, FileNotFoundError) else 126)
"""


class _Running:
    """A thread at work: first on the task's function, then on the command it gave."""

    def __init__(self) -> None:
        self.thread: threading.Thread
        self.bell = Bell()
        self.has_command = False


class ShellRunner:
    """Runs the commands that tasks return."""

    def __init__(self, desk: Desk, kill_after_s: float) -> None:
        """Give a command that was told to end `kill_after_s` seconds before it is killed."""
        self._desk = desk
        self._kill_after_s = kill_after_s
        self._lock = threading.Lock()
        self._running: dict[Token, _Running] = {}
        self._closing = threading.Event()

    def start(self, assignment: Assignment) -> None:
        """Begin a thread for it."""
        try:
            running = _Running()
        except OSError as problem:
            self._desk.end(assignment, Raised(f"{COULD_NOT}: {problem}", "exit"))
            return
        running.thread = threading.Thread(
            target=self._serve, args=(assignment, running), name="holdfast-shell", daemon=True
        )
        with self._lock:
            self._running[assignment.grant.token] = running
        try:
            running.thread.start()
        except RuntimeError:
            with self._lock:
                del self._running[assignment.grant.token]
                running.bell.close()
            raise

    def _serve(self, assignment: Assignment, running: _Running) -> None:
        outcome = self._outcome(assignment, running)
        with self._lock:
            del self._running[assignment.grant.token]
            running.bell.close()
        self._desk.end(assignment, outcome)

    def stop(self, assignment: Assignment) -> None:
        """Terminate its process group, and kill it if that does not help."""
        with self._lock:
            found = self._running.get(assignment.grant.token)
            if found is None:
                return
            found.bell.ring()
            is_late = assignment.stop is Stop.TIMEOUT and not found.has_command
        if is_late:
            # The function that gives the command runs in a thread, and may never return.
            self._desk.settle(assignment, assignment.stopped())

    def close(self) -> None:
        """Kill every command."""
        self._closing.set()
        with self._lock:
            running = list(self._running.values())
            for one in running:
                one.bell.ring()
        for one in running:
            # A function that does not give its command cannot be stopped, and is not waited for.
            if one.has_command:
                one.thread.join(CLOSING_S)

    # --- one command --------------------------------------------------------------------------------------------------

    def _outcome(self, assignment: Assignment, running: _Running) -> Outcome:
        given = value_of(assignment.spec, assignment.context)
        if not isinstance(given, Gave):
            return given
        try:
            wanted = command(given.value)
        except HoldfastError as problem:
            return Raised(str(problem), "bad_result")
        with self._lock:
            if assignment.stop is not None or self._closing.is_set():
                return assignment.stopped()
            running.has_command = True
        try:
            output = Output(MAX_STDOUT)
        except OSError as problem:
            return Raised(f"{COULD_NOT}: {problem}", "exit")
        try:
            code = self._run(wanted, assignment, running.bell, output)
        except (OSError, ValueError) as problem:
            return Raised(f"{COULD_NOT}: {problem}", "exit")
        finally:
            output.close()
        return _judged(assignment, wanted, code, output)

    def _run(self, wanted: Shell, assignment: Assignment, bell: Bell, output: Output) -> int:
        """Run a command to its end; give its exit code, negative for a signal. Raises OSError if it cannot begin."""
        notes = assignment.notes
        with ExitStack() as stack:
            with ExitStack() as theirs:
                theirs.callback(output.handed_over)
                theirs_life, lifeline = os.pipe()
                stack.callback(os.close, lifeline)
                theirs.callback(os.close, theirs_life)
                group = Group(
                    [sys.executable, "-I", "-S", "-c", _LAUNCH, str(theirs_life), *wanted.words()],
                    streams=(_stdin(wanted, theirs), *output.theirs),
                    pass_fds=(theirs_life,),
                    env={**_about(assignment), **(wanted.env or {})},
                    cwd=None if wanted.cwd is None else os.fspath(wanted.cwd),
                )
            ladder = Ladder(group, self._kill_after_s)
            poll = select.poll()
            for fd in (group.exit_fd, bell.fd):
                poll.register(fd, select.POLLIN)
            output.register(poll)
            readable: list[int] = []
            while group.exit_fd not in readable:
                left_ms = ladder.step(assignment.stop, is_closing=self._closing.is_set())
                readable = [fd for fd, _ in poll.poll(left_ms)]
                for fd in readable:
                    output.take(fd, poll, notes)
                if bell.fd in readable:
                    bell.heard()
            output.drain(notes)
            return group.end()


def _judged(assignment: Assignment, wanted: Shell, code: int, output: Output) -> Outcome:
    """Say what a command's exit code means."""
    stop = assignment.stop
    if stop is Stop.TIMEOUT or (stop is not None and code != 0):
        return assignment.stopped()
    if code == 0:
        done = packed(assignment.spec, ShellResult(0, output.tail("stdout")))
        return Returned(done.result, exit_code=0) if isinstance(done, Returned) else done
    said = "\n".join(output.tail("stderr")[-ERROR_BYTES:].splitlines()[-ERROR_LINES:])
    # Only the program is named: its words may hold what nobody should read in a list of failures.
    program = os.path.basename(wanted.words()[0])  # noqa: PTH119 - a word, not a path of ours
    return Raised(f"{obituary(code, program)}\n{said}".rstrip(), "exit", exit_code=code)


def _stdin(wanted: Shell, stack: ExitStack) -> int:
    """Give a descriptor that the command's input can be read from."""
    if wanted.stdin is None:
        return subprocess.DEVNULL
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack is its context
    file.write(wanted.stdin.encode() if isinstance(wanted.stdin, str) else wanted.stdin)
    file.seek(0)
    return file.fileno()


def _about(assignment: Assignment) -> dict[str, str]:
    """Tell a command whose it is, so that a script can be idempotent and fence off late writers."""
    grant = assignment.grant
    return {
        "HOLDFAST_JOB_ID": grant.job.job_id,
        "HOLDFAST_RUN_ID": grant.run_id,
        "HOLDFAST_TOKEN": str(grant.token),
    }

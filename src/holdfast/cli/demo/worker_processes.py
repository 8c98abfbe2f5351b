"""The demo's worker processes: started, killed, sent home. None of them outlives the demo, however it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holdfast.errors import StoreError

#: Seconds that a worker has to leave when it is sent home.
LEAVE_S = 10.0


@dataclass
class Hand:
    """One worker process."""

    name: str
    #: What it is called in leases and runs.
    worker_id: str
    process: subprocess.Popen[str]
    killed: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def kill(self) -> None:
        """Send SIGKILL; it is gone when this returns."""
        self.process.kill()
        self.process.wait()
        self.killed = True

    def go_on(self) -> None:
        """Let it finish what it was told to hold; one that is gone need not."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()


@contextmanager
def crew(size: int, program: str, *arguments: str) -> Iterator[list[Hand]]:
    """Start so many workers, each this module with these arguments; at work in the block, and gone after it."""
    # A group of their own: Ctrl-C is for the demo, which sends them home itself.
    command = [sys.executable, "-m", program, *arguments]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)  # noqa: S603 - our own module
        for _ in range(size)
    ]
    try:
        yield [Hand(f"worker-{number}", _hello(process), process) for number, process in enumerate(processes, 1)]
        for process in processes:
            process.terminate()
    finally:
        for process in processes:
            _see_off(process)


def _hello(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    if not name:
        raise StoreError("a worker of the demo could not start; what it said stands above.")
    return name


def _see_off(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):  # it is gone, and has not read all that it was told
        process.stdin.close()  # its lifeline: it releases what it holds and leaves
    process.stdout.close()
    try:
        process.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

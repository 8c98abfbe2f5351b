"""A process to be killed: producers and workers on one store, telling everything they send and hear.

Run as `python -m support.crash URL NAME [half]`. Four threads create jobs, four lease, run and report them. Each line
goes to standard output in one write, before or after the call it speaks of, so that what was acknowledged is known to
the parent even if the next instruction is the last. `Child` starts one and kills it after so many acknowledgements, or,
with `half` and `wal:`, in the middle of a large write.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from random import Random

import msgspec

from holdfast.engine import Engine
from holdfast.engine.maintenance import recover, tick
from holdfast.errors import LeaseLost, StoreError
from holdfast.journal.filesystem import Handle, OsFS
from holdfast.journal.segments import FOLDER
from holdfast.model.commands import Complete, Enqueue, Fail, Lease, NewJob
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, RetryMode
from holdfast.model.outcomes import Grant, Leased, Refusal
from holdfast.stores.opening import open_store, parse_url
from holdfast.stores.wal import WalStore
from support import child_env
from support.oracle import Oracle

PRODUCERS = WORKERS = 4
#: Jobs a producer makes before it rests; a child is meant to be killed long before.
MOST = 400
#: Bytes of a padding so large that its write to the log can be met half done, but that still fits a record.
LARGE = 60_000
#: Bytes of one that does not: it is kept beside the record.
HUGE = 200_000
#: Short, so that what a killed process held is soon run by others, and what is merely slow is lost now and then.
LEASE_S = 2.0
#: Seconds a worker waits for work before it looks whether time has ended something.
IDLE_S = 0.05


def tell(*words: object) -> None:
    """Tell the parent one line, in one write: it arrives whole or not at all."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def produced(job_id: str, size: int) -> Enqueue:
    """Build the command that creates a job; the same id gives the same command. An odd one in twenty is refused."""
    number = int(job_id.rsplit("-", 1)[1])
    job = NewJob(
        job_id=JobId(job_id),
        job_type="work",
        params=msgspec.Raw(msgspec.json.encode({"padding": job_id + "x" * size})),
        priority=101 if number % 20 == 19 else number % 3,
        retry_mode=RetryMode.CHAIN if number % 2 else RetryMode.REQUEUE,
        backoff=Backoff(base_s=0, jitter=0),
    )
    return Enqueue(cmd=job_id, jobs=(job,))


def produce(engine: Engine, name: str, dice: Random) -> None:
    """Create jobs, and tell which were sent, taken and refused."""
    for number in range(MOST):
        job_id = f"{name}-{number}"
        size = dice.choices((dice.randrange(200), LARGE, HUGE), (93, 4, 3))[0]
        tell("sent", job_id, size)
        outcome = engine.submit(produced(job_id, size))
        tell("no" if isinstance(outcome, Refusal) else "yes", job_id)


def work(engine: Engine, name: str, dice: Random) -> None:
    """Lease, run and report, and tell each step."""
    while True:
        with engine.read() as view:
            seq = view.seq
        lease = Lease(
            cmd=engine.new_id(),
            worker_id=name,
            n=dice.randint(1, 3),
            lease_s=LEASE_S,
            session_id=engine.session_id,
        )
        leased = engine.submit(lease)
        if not isinstance(leased, Leased):
            tell("trouble", "a lease was refused:", leased)
            return
        for grant in leased.grants:
            tell("begun", grant.job.job_id, grant.token)
        for grant in leased.grants:
            _end(engine, grant, dice)
        if not leased.grants:
            engine.store.wait(seq, IDLE_S)
            tick(engine)


def _end(engine: Engine, grant: Grant, dice: Random) -> None:
    execution, chance = (grant.job.job_id, grant.token), dice.random()
    if chance < 0.1:
        return  # a worker that hangs: its lease runs out
    fails = chance < 0.25
    tell("reporting", *execution)
    if fails:
        outcome = engine.submit(Fail(job_id=grant.job.job_id, token=grant.token, error="so it was drawn"))
    else:
        outcome = engine.submit(Complete(job_id=grant.job.job_id, token=grant.token))
    if not isinstance(outcome, Refusal):
        tell("failed" if fails else "completed", *execution)
    elif outcome.code == LeaseLost.code:
        tell("lost", *execution)
    else:
        tell("trouble", *execution, outcome.code)


class HalfDone(OsFS):
    """Files of which the log's first large write stops half done: the process will be killed there."""

    def write(self, h: Handle, data: bytes | memoryview) -> int:
        """Write, or write a half, say so, and wait for the end."""
        if len(data) < LARGE or not h.path.startswith(f"{FOLDER}/"):
            return super().write(h, data)
        super().write(h, data[: len(data) // 2])
        tell("half")
        threading.Event().wait()
        raise AssertionError("nobody sets it")


def main(url: str, name: str, *modes: str) -> None:
    """Open the store, recover, and work until killed."""
    path = parse_url(url).path
    engine = Engine(WalStore.open(path, fs=HalfDone(path)) if "half" in modes else open_store(url))
    recover(engine)

    def run(action: Callable[[Engine, str, Random], None], label: str) -> None:
        try:
            action(engine, label, Random(label))
        except StoreError as error:
            tell("trouble", label, error)

    threads = [threading.Thread(target=run, args=(produce, f"{name}-p{number}")) for number in range(PRODUCERS)]
    threads += [threading.Thread(target=run, args=(work, f"{name}-w{number}")) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Child:
    """A process that works on a store until it is killed."""

    def __init__(self, url: str, name: str, oracle: Oracle, *modes: str) -> None:
        """Start it; what it tells goes to the oracle. With the mode `half` it stops in its first large write."""
        self.name = name
        self._oracle = oracle
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.crash", url, name, *modes],
            env=child_env(),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self._ear = threading.Thread(target=self._listen)
        self._ear.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a dying process is whole: it was one write, shorter than a pipe's page.
            self._oracle.hear(self.name, line.decode().rstrip("\n"))
        self._oracle.lose(self.name)

    def kill_after(self, acknowledged: int, patience_s: float = 120) -> None:
        """Kill it when it has had that many acknowledgements, and hear what it still said. Raises if it never had."""
        alive = self._oracle.wait_for(self.name, acknowledged, patience_s)
        self.kill()
        if not alive:
            raise AssertionError(f"{self.name} ended or hung before {acknowledged} acknowledgements")

    def kill_half_done(self, patience_s: float = 120) -> None:
        """Kill it in the middle of a write. Raises if it never got there."""
        alive = self._oracle.wait_for_half(self.name, patience_s)
        self.kill()
        if not alive:
            raise AssertionError(f"{self.name} ended or hung before it stood in a write")

    def kill(self) -> None:
        """Kill it now, as a power cut for this process alone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._ear.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

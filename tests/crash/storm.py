"""Workflows in a storm of messages, and the processes that run them; run as a program it is one such process.

    storm.py worker URL PLACE INSTANCES ROUNDS SECONDS      runs turns until it is asked to end
    storm.py alone URL PLACE INSTANCES ROUNDS SECONDS       also sends, for a store that one process has

Senders note every message in a file outside the store, after its acknowledgement returned: that file is the oracle. A
sender that died in between sends the same command again. The feed is copied to another file while it grows: a store
may forget the beginning of it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from holdfast import Holdfast
from holdfast.app.workflows.commands import cancel_command, signal_command
from holdfast.errors import StoreBusy, WorkflowFinished
from holdfast.stores.protocol import Entry

SENDERS = 4
#: The longest step and timer, seconds.
STEP_S = 0.03
#: What the code of a workflow counts after a step, some milliseconds: messages come between a step and its commit.
COUNTED = 100_000
#: Signals that are sent to an instance before another has its turn: they come while it runs steps.
BURST = 4
#: One instance of so many is cancelled.
CANCELLED = 5
#: Seconds of the lease of an activity, and of a lock where no other process can notice that its holder is dead.
LEASE_S, LOCK_S = 2.0, 5.0
#: Seconds after which something that hangs is called broken.
PATIENCE_S = 100


class Plan(NamedTuple):
    """How large a storm is."""

    instances: int
    #: Signals that each instance reads.
    rounds: int
    #: How long senders send.
    seconds: float

    def words(self) -> list[str]:
        """Give the plan as words of a command line."""
        return [str(one) for one in self]


def name_of(n: int) -> str:
    """Give the id of an instance."""
    return f"s{n}"


def cancelled_in(n: int, rounds: int) -> int | None:
    """Give the round in which an instance is cancelled; None: it is not."""
    return (n // CANCELLED) % rounds if n % CANCELLED == CANCELLED - 1 else None


def pause(seconds: float) -> None:
    """Take some time."""
    threading.Event().wait(seconds)


def think() -> None:
    """Be busy for a moment, as workflows may be."""
    sum(range(COUNTED))


# --- the workflows ----------------------------------------------------------------------------------------------------


def build(url: str) -> Holdfast:
    """Make the application. Of its instances every second is written as `def`; all do some of everything."""
    hf = Holdfast(url)

    def work(n: int, at: int) -> int:
        pause(Random(f"{n} {at}").uniform(0, STEP_S))
        return at

    @hf.task(name="double", max_expiries=100, lease=LEASE_S)
    def double(n: int) -> int:
        return 2 * n

    @hf.workflow(name="child")
    async def child(n: int) -> int:
        return await hf.step(work, n, 0) + await double.call(n)

    @hf.workflow(name="awaiting")
    async def awaiting(n: int, rounds: int) -> list[int]:
        found = []
        try:
            for at in range(rounds):
                await hf.step(work, n, at)
                if not hf.is_replaying():
                    think()
                found.append(await hf.signal("go", type=int))
                match (n + at) % 4:
                    case 0:
                        await asyncio.gather(asyncio.sleep(STEP_S), hf.step(work, n, -at), hf.step(work, n, at))
                    case 1:
                        await child.call(n)
                    case 2:
                        await asyncio.gather(hf.step(work, n, at), double.call(at))
                    case _:
                        await hf.step(work, n, -at)
        except asyncio.CancelledError:
            await hf.step(work, n, rounds)
            raise
        return found

    @hf.workflow(name="blocking")
    def blocking(n: int, rounds: int) -> list[int]:
        found = []
        for at in range(rounds):
            hf.step(work, n, at)
            if not hf.is_replaying():
                think()
            found.append(hf.signal("go", type=int))
            match (n + at) % 4:
                case 0:
                    hf.sleep(STEP_S)
                case 1:
                    child.call(n)
                case 2:
                    double.call(at)
                case _:
                    hf.step(work, n, -at)
        return found

    hf.shapes = (awaiting, blocking)  # type: ignore[attr-defined]  # for whoever built it
    return hf


# --- sending ----------------------------------------------------------------------------------------------------------


class Book:
    """What was acknowledged and what was refused, line by line, in a file that only grows."""

    def __init__(self, place: Path) -> None:
        self._path = place / "book"
        self._file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def note(self, word: str, n: int, at: int) -> None:
        """Add a line. It is whole, whoever is killed meanwhile."""
        os.write(self._file, f"{word} {n} {at}\n".encode())

    def read(self) -> set[tuple[str, int, int]]:
        """Give all lines."""
        lines = (line.split() for line in self._path.read_text().splitlines())
        return {(word, int(n), int(at)) for word, n, at in lines}


class Senders:
    """Start, signal and cancel the instances, from some threads; go on where others ended."""

    def __init__(self, hf: Holdfast, place: Path, plan: Plan) -> None:
        self._hf = hf
        self._plan = plan
        self._book = Book(place)
        self._done = self._book.read()
        self._is_over = threading.Event()
        self.problems: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run, args=(which,)) for which in range(SENDERS)]
        for thread in self.threads:
            thread.start()

    @property
    def are_alive(self) -> bool:
        """Tell whether any of them still sends."""
        return any(thread.is_alive() for thread in self.threads)

    def stop(self) -> None:
        """End them, wherever they are."""
        self._is_over.set()
        for thread in self.threads:
            thread.join()

    def _run(self, which: int) -> None:
        try:
            self._send_all(which)
        except BaseException as problem:  # noqa: BLE001 - told by who waits
            self.problems.append(problem)

    def _send_all(self, which: int) -> None:
        plan, dice = self._plan, Random(which)
        mine = range(which, plan.instances, SENDERS)
        for n in mine:
            self._do("started", n, 0)
        bursts = range(0, plan.rounds, BURST)
        rest_s = max(0.0, plan.seconds / (len(mine) * len(bursts)) - BURST * STEP_S)
        for first in bursts:
            for n in dice.sample(mine, len(mine)):
                has_sent = False
                for at in range(first, min(first + BURST, plan.rounds)):
                    if cancelled_in(n, plan.rounds) == at:
                        self._do("cancelled", n, at)
                    if self._do("signal", n, at):
                        has_sent = True
                        self._is_over.wait(dice.uniform(0, 2 * STEP_S))
                if has_sent:
                    self._is_over.wait(dice.uniform(0, 2 * rest_s))
                if self._is_over.is_set():
                    return

    def _do(self, word: str, n: int, at: int) -> bool:
        """Send one message, if it was not sent before; tell whether it was sent now."""
        if {(word, n, at), (f"{word}-refused", n, at)} & self._done:
            return False
        while not self._is_over.is_set():
            try:
                self._ask(word, n, at, str(uuid.uuid5(uuid.NAMESPACE_OID, f"{word} {n} {at}")))
            except WorkflowFinished:
                self._book.note(f"{word}-refused", n, at)
                return False
            except StoreBusy:
                continue
            self._book.note(word, n, at)
            return True
        return False

    def _ask(self, word: str, n: int, at: int, cmd: str) -> None:
        engine, instance = self._hf.engine, name_of(n)
        match word:
            case "started":
                self._hf.shapes[n % 2].start(n, self._plan.rounds, id=instance)  # type: ignore[attr-defined]  # as above
            case "signal":
                engine.ask(signal_command(instance, "go", str(at), cmd=cmd))
            case "cancelled":
                engine.ask(cancel_command(instance, "enough", force=False, cmd=cmd))


# --- the feed ---------------------------------------------------------------------------------------------------------


class Recorder:
    """Copies the feed of a store to a file, from where another one ended."""

    def __init__(self, hf: Holdfast, place: Path) -> None:
        self._store = hf.engine.store
        path = place / "feed"
        whole = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
        self._after = msgspec.json.decode(whole[-1], type=Entry).seq if whole else 0
        path.write_bytes(b"".join(line + b"\n" for line in whole))
        self._file = os.open(path, os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            with suppress(StoreBusy):  # its coordinator is dead, and comes again
                self._copy()
                self._store.wait(self._after, 0.5)
        self._copy()

    def _copy(self) -> None:
        for entry in self._store.feed(self._after):
            os.write(self._file, msgspec.json.encode(entry) + b"\n")
            self._after = entry.seq

    def finish(self) -> None:
        """Copy what there is, and end."""
        self._is_over.set()
        self._thread.join()


def recorded(place: Path) -> list[Entry]:
    """Give all that was copied."""
    return [msgspec.json.decode(line, type=Entry) for line in (place / "feed").read_bytes().splitlines()]


# --- a process --------------------------------------------------------------------------------------------------------


def shorten_locks(seconds: float) -> None:
    """Let the locks of this process' turns last so long."""
    import holdfast.workers.workflow_turns.scheduler  # noqa: F401, PLC0415 - brings all parts with it

    values = {"LOCK_S": seconds, "RENEW_S": seconds / 3, "LOCK_MS": round(seconds * 1000)}
    for module in [one for name, one in sys.modules.items() if name.startswith("holdfast.workers.workflow_turns.")]:
        for name, value in values.items():
            for spelt in (name, f"_{name}"):
                if hasattr(module, spelt):
                    setattr(module, spelt, value)


def say(word: str) -> None:
    """Tell whoever started this process."""
    os.write(1, f"{word}\n".encode())


def run_worker(hf: Holdfast) -> None:
    """Run turns until SIGTERM."""
    hf.worker(concurrency=4).run(begun=lambda: say("working"))


def run_alone(hf: Holdfast, place: Path, plan: Plan) -> None:
    """Send and run turns until SIGTERM, or until everything has ended."""
    worker = hf.worker(concurrency=4)
    recorder = Recorder(hf, place)
    senders = Senders(hf, place, plan)

    def finish() -> None:
        for thread in senders.threads:
            thread.join()
        with suppress(Exception):  # the store is closed, and the process ends
            for n in range(plan.instances):
                hf.instance(name_of(n)).wait()
            say("finished")
            worker.drain()

    def begin() -> None:
        say("working")
        threading.Thread(target=finish, daemon=True).start()

    worker.run(begun=begin)
    senders.stop()
    recorder.finish()
    for problem in senders.problems:
        raise problem
    hf.close()


def main(role: str, url: str, place: Path, plan: Plan) -> None:
    """Be one process of the storm."""
    hf = build(url)
    if url.startswith("http"):
        shorten_locks(LOCK_S)
    if role == "worker":
        run_worker(hf)
    else:
        run_alone(hf, place, plan)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Plan(int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])))

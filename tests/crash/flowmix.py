"""Workflows that do some of everything, for processes that are killed; run as a program it is one such process.

Every run of a step or activity is told to a file beside the store, under its idempotency key, before it returns: what
really happened, outside the store that is judged. A process dies where an order lies in the directory `deaths`: a file
`POINT.N` for each time that any process is to come to a point, and whoever takes away `POINT.1` is killed there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import uuid
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast import Holdfast
from holdfast.failpoints import listening
from holdfast.model.workflows.commands import NewMessage, TellInstance
from holdfast.model.workflows.work_items import QueueMessage, encode_item

#: Rounds of an instance; in each it reads two signals. It goes on as new in the middle of one.
ROUNDS = 4
CONTINUES = 1
#: Where processes can die: around a commit, a turn, a step. The first of each are enough for a short form.
POINTS = {
    "sqlite": (
        "sqlite.committing",
        "step.ended",
        "sqlite.committed",
        "turns.answered",
        "engine.decided",
        "sqlite.begun",
        "sqlite.settled",
        "pump.sending",
        "pump.sent",
    ),
    "wal": ("journal.written", "step.ended", "wal.synced", "journal.leading", "wal.appended", "turns.answered"),
    "dir": ("dir.intended", "step.ended", "dir.applied", "dir.renamed", "dir.committed", "turns.answered"),
}
#: Seconds after which something that hangs is called broken; nothing waits so long.
LONG = 120


class Report(msgspec.Struct):
    """What an instance has seen."""

    #: Signals, in the order they were read.
    signals: list[int] = []
    #: Results of steps, in the order of their calls.
    draws: list[str] = []
    #: Results of activities.
    doubled: list[int] = []
    answer: str = ""
    child: str = ""


class Diary:
    """A file that processes add lines to; a line is whole, whoever is killed meanwhile."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def build(url: str, place: Path) -> Holdfast:
    """Make the application: each instance runs on one process or another, wherever its next turn is fetched."""
    hf = Holdfast(url)
    diary = Diary(place / "diary")

    def draw(name: str) -> str:
        value = f"{name}-{uuid.uuid4()}"
        diary.note(hf.idempotency_key(), value)
        return value

    @hf.task(name="double", max_expiries=100)
    def double(n: int) -> int:
        diary.note(hf.idempotency_key(), 2 * n)
        return 2 * n

    @hf.workflow(name="child")
    async def child(n: int) -> str:
        first = await hf.step(draw, f"child{n}")
        return f"{first} {await double.call(n)}"

    @hf.workflow(name="mixed")
    async def mixed(n: int, first: int = 0, so_far: Report | None = None) -> Report:
        seen = so_far or Report()

        async def two_draws(name: str) -> list[str]:
            return await asyncio.gather(hf.step(draw, f"{name}a"), hf.step(draw, f"{name}b"))

        for at in range(first, ROUNDS):
            if at != first or not first:
                seen.signals.append(await hf.signal("n", type=int))
            if at == CONTINUES and not first:
                hf.continue_as_new(n, at, seen)
            seen.draws.append(await hf.step(draw, f"first{at}"))
            seen.draws.append(await hf.step(draw, f"second{at}"))
            seen.doubled.append(await double.call(n + at))
            seen.signals.append(await hf.signal("n", type=int))
            if at == CONTINUES:
                seen.child = await child.call(n)
            if at == CONTINUES + 1:
                seen.answer = await hf.decision(f"Go on with {n}?", options=["yes", "no"])
                await asyncio.sleep(0.01)
            seen.draws += await two_draws(f"both{at}")
        return seen

    hf.mixed, hf.child = mixed, child  # type: ignore[attr-defined]  # for whoever built it
    return hf


# --- what is done to them ---------------------------------------------------------------------------------------------


def begin(hf: Holdfast, count: int) -> None:
    """Start all; again, if they are there."""
    for n in range(count):
        hf.mixed.start(n, id=f"w{n}")  # type: ignore[attr-defined]  # as above


def tell(hf: Holdfast, n: int, number: int) -> None:
    """Send an instance its signal of that number, as a command that may be repeated."""
    item = QueueMessage(instance=f"w{n}", name="n", data=str(number))
    command = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{n} {number}"))
    hf.engine.ask(TellInstance(cmd=command, message=NewMessage(item=msgspec.Raw(encode_item(item)))))


def tell_all(hf: Holdfast, count: int, at: int) -> None:
    """Send all instances their signals of one round."""
    for number in (2 * at, 2 * at + 1):
        for n in range(count):
            tell(hf, n, number)


def answer_to(instance: str) -> str:
    """Give what an instance is told when it asks."""
    return "yes" if int(instance[1:]) % 2 else "no"


def answer_all(hf: Holdfast, is_over: threading.Event) -> None:
    """Answer every question that comes up, until it is over."""
    store = hf.engine.store
    while not is_over.is_set():
        with hf.engine.read() as view:
            seq = view.seq
        for one in hf.decisions(limit=1000):
            one.resolve(answer_to(one.record().instance), by="tester")
        store.wait(seq, 1)


# --- dying ------------------------------------------------------------------------------------------------------------


def order(place: Path, point: str, times: int) -> None:
    """Have whoever comes to a point, as the last of so many times from now on, be killed there."""
    for number in range(1, times + 1):
        (place / "deaths" / f"{point}.{number}").touch()


def come_to(place: Path, point: str) -> None:
    """Take one of a point's orders away, the highest; die with the last."""
    numbers = [int(one.suffix[1:]) for one in (place / "deaths").iterdir() if one.stem == point]
    for number in sorted(numbers, reverse=True):
        with suppress(FileNotFoundError):  # somebody else took it
            (place / "deaths" / f"{point}.{number}").unlink()
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return


def main(url: str, place: Path, alone: str = "") -> None:
    """Work until killed; alone on a store, also do what others would do to the instances."""
    hf = build(url, place)
    with ExitStack() as listeners:
        for point in POINTS[url.partition(":")[0]]:
            listeners.enter_context(listening(point, partial(come_to, place, point)))
        if not alone:
            hf.work(concurrency=4)
            return
        worker = hf.worker(concurrency=4)
        worker.start()
        _be_everybody(hf, int(alone))
        worker.stop()
        assert worker.join(LONG)
        hf.close()


def _be_everybody(hf: Holdfast, count: int) -> None:
    is_over = threading.Event()
    begin(hf, count)
    answering = threading.Thread(target=answer_all, args=(hf, is_over))
    answering.start()
    for at in range(ROUNDS):
        tell_all(hf, count, at)
    for n in range(count):
        hf.instance(f"w{n}").wait(LONG)
    is_over.set()
    answering.join(LONG)


class Ran(NamedTuple):
    """One run of a step or activity."""

    #: Where it stands in the diary: what is higher ended later.
    line: int
    value: str


def diary_of(place: Path) -> dict[str, list[Ran]]:
    """Give the runs of each key, in the order they ended."""
    found: dict[str, list[Ran]] = {}
    for number, line in enumerate((place / "diary").read_text().splitlines()):
        key, value = line.split()
        found.setdefault(key, []).append(Ran(number, value))
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])

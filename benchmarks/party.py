"""One process of `benchmarks jobs`: a producer or a worker, of Holdfast or of a peer, told by lines what to do.

Times are the machine's monotonic clock, which all processes share. A handler that ticks writes the time of its start
into a pipe; the producer of latency jobs reads it there, so nobody polls while times are taken.
"""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast import Holdfast

#: Seconds between two looks at how many jobs are done.
LOOK_S = 0.005
#: Seconds that all jobs of a turn may take.
PATIENCE_S = 120.0
#: Jobs in one call of `enqueue_many`.
MANY = 1000
_TICK = struct.Struct("<d")


class Party(Protocol):
    """A system under measure, opened in this process."""

    def put(self) -> object:
        """Enqueue one no-op job; durable as far as the system promises."""
        ...

    def put_many(self, count: int) -> object:
        """Enqueue no-op jobs in the fastest way there is."""
        ...

    def put_tick(self) -> object:
        """Enqueue one job that tells when it starts."""
        ...

    def work(self) -> Callable[[], int]:
        """Start a worker in threads of this process; give how to ask it for the jobs completed so far."""
        ...


def open_party(kind: str, path: Path, tick: Callable[[], int]) -> Party:
    """Open a system by its name."""
    return _Huey(path, tick, fsync=kind == "huey-full") if kind.startswith("huey") else _Ours(kind, path, tick)


class _Ours:
    """Holdfast, as it comes."""

    def __init__(self, scheme: str, path: Path, tick: Callable[[], int]) -> None:
        self.app = Holdfast(f"{scheme}:{path}")

        @self.app.task(name="noop")
        def noop() -> int:
            return 1

        self._noop = noop
        self._tick = self.app.task(name="tick")(tick)
        self.put, self.put_tick = noop.enqueue, self._tick.enqueue

    def put_many(self, count: int) -> None:
        for at in range(0, count, MANY):
            self._noop.enqueue_many([()] * min(MANY, count - at))

    def work(self) -> Callable[[], int]:
        worker = self.app.worker()
        worker.start()

        def done() -> int:
            worker.join(0)  # raises what a worker that failed ended with
            return worker.pump.reported

        return done


class _Huey:
    """SqliteHuey with its own defaults: WAL, one worker thread, results stored. `fsync` is synchronous FULL or OFF."""

    def __init__(self, path: Path, tick: Callable[[], int], *, fsync: bool) -> None:
        from huey import SqliteHuey  # type: ignore[import-untyped]  # noqa: PLC0415 - only who has it can measure it

        self._huey = SqliteHuey(filename=str(path), fsync=fsync)
        self.put, self.put_tick = self._huey.task(name="noop")(_one), self._huey.task(name="tick")(tick)

    def put_many(self, count: int) -> None:
        for _ in range(count):
            self.put()

    def work(self) -> Callable[[], int]:
        from huey import signals  # noqa: PLC0415 - as above
        from huey.consumer import Consumer  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

        done: list[str] = []
        # Sent after the result is stored.
        self._huey.signal(signals.SIGNAL_COMPLETE)(lambda _signal, task: done.append(task.id))
        consumer = Consumer(self._huey)
        # Not run(): that waits for signals in the main thread, and adds nothing but that.
        consumer.start()
        return lambda: len(done)


def _one() -> int:
    return 1


# --- the process ------------------------------------------------------------------------------------------------------


def main(kind: str, path: str, ticks_in: int, ticks_out: int) -> None:
    """Obey lines from stdin until it ends; answer each with a line of JSON."""

    def tick() -> int:
        os.write(ticks_in, _TICK.pack(time.monotonic()))
        return 1

    party = open_party(kind, Path(path), tick)
    chance = random.Random(1)  # noqa: S311 - pauses, not secrets
    pause = threading.Event()
    done: Callable[[], int] = lambda: 0  # noqa: E731 - replaced by `work`

    def latency() -> float:
        pause.wait(chance.uniform(0.002, 0.03))  # let the worker become idle, at no fixed beat
        began = time.monotonic()
        party.put_tick()
        (started,) = _TICK.unpack(os.read(ticks_out, _TICK.size))
        return float(started - began)

    for line in sys.stdin:
        verb, *rest = line.split()
        count = int(rest[0]) if rest else 0
        began = time.monotonic()
        answer: float | list[float] = began
        match verb:
            case "work":
                done = party.work()
            case "put":
                for _ in range(count):
                    party.put()
            case "many":
                party.put_many(count)
            case "latency":
                answer = [latency() for _ in range(count)]
            case _:  # done
                while done() < count:
                    if time.monotonic() > began + PATIENCE_S:
                        raise TimeoutError(f"{done()} of {count} jobs were done after {PATIENCE_S} s")
                    pause.wait(LOOK_S)
                answer = time.monotonic()
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer
    os._exit(0)  # workers are still running; what they hold is thrown away with the store


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

"""One process of `benchmarks serve`: callers of a coordinator. It reads a command a line and answers in JSON.

What is measured goes over HTTP with an access token. `batched` and `threads` use our own client, the rest thin
connections, so that the server is what limits them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import msgspec

from benchmarks.mixed import mixed_round
from benchmarks.raw import Connection
from holdfast import Holdfast
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Leased
from holdfast.stores.http.store import HttpStore
from holdfast.stores.http.wire import MOST_COMMANDS, Commands, LeaseWish, Outcomes, encode

#: Leases of one request, and completions of one.
GRANTS = 100
#: Jobs in one call of `enqueue_many`.
MANY = 1000


class Measured(msgspec.Struct):
    """What a measurement gave."""

    #: From the first request to the last answer.
    seconds: float
    #: Of each request, seconds.
    waits: list[float]
    #: Bytes of requests and answers together, where they were counted.
    size: int = 0


class Callers:
    """Those who call one coordinator."""

    def __init__(self, url: str, access_token: str) -> None:
        self._url, self._access_token = url, access_token
        self._made = 0

    def new(self) -> Enqueue:
        """Make a command that enqueues one job nobody had."""
        self._made += 1
        name = f"{os.getpid():x}-{self._made:08x}"
        return Enqueue(cmd=name, jobs=(NewJob(job_id=JobId(name), job_type="noop", params=msgspec.Raw(b"{}")),))

    # --- our client ---------------------------------------------------------------------------------------------------

    def batched(self, count: int) -> Measured:
        """Enqueue with as many commands a request as one may have, from one thread."""
        store = HttpStore.open(self._url, access_token=self._access_token)
        waits = []
        began = time.perf_counter()
        for _ in range(0, count, MOST_COMMANDS):
            commands = [self.new() for _ in range(MOST_COMMANDS)]
            waits.append(_timed(lambda: store.decide(commands)))  # noqa: B023 - called at once
        seconds = time.perf_counter() - began
        store.close()
        return Measured(seconds, waits)

    def many(self, count: int) -> Measured:
        """Enqueue by `enqueue_many`, from one thread."""
        with self._app() as hf:
            task = hf.task(name="noop")(_noop)
            began = time.perf_counter()
            waits = [_timed(lambda: task.enqueue_many([()] * MANY)) for _ in range(0, count, MANY)]
            return Measured(time.perf_counter() - began, waits)

    def threads(self, count: int, callers: int) -> Measured:
        """Enqueue one job a call, each in one of several threads."""
        with self._app() as hf, ThreadPoolExecutor(callers) as pool:
            task = hf.task(name="noop")(_noop)
            began = time.perf_counter()
            waits = list(pool.map(lambda _: _timed(task.enqueue), range(count)))
            return Measured(time.perf_counter() - began, waits)

    def _app(self) -> Holdfast:
        return Holdfast(self._url, access_token=self._access_token)

    # --- thin connections ---------------------------------------------------------------------------------------------

    def alone(self, count: int, connections: int) -> Measured:
        """Enqueue one job a request on several connections, each with one request in flight."""

        async def call(connection: Connection) -> list[float]:
            waits = []
            for _ in range(count // connections):
                began = time.perf_counter()
                await connection.post("/commands", encode(Commands([self.new()])))
                waits.append(time.perf_counter() - began)
            return waits

        return asyncio.run(self._on_connections(connections, call))

    def batch(self, _count: int) -> Measured:
        """Send one full batch, for the bytes it takes."""

        async def call(connection: Connection) -> list[float]:
            await connection.post("/commands", encode(Commands([self.new() for _ in range(MOST_COMMANDS)])))
            return []

        return asyncio.run(self._on_connections(1, call))

    def work(self, count: int) -> Measured:
        """Lease and complete jobs that are there, many a request, on one connection. Gives up on none."""

        async def call(connection: Connection) -> list[float]:
            done, waits = 0, []
            while done < count:
                began = time.perf_counter()
                (leased,) = await _decided(connection, [Lease(cmd=self.new().cmd, worker_id="bench", n=GRANTS)])
                assert isinstance(leased, Leased)
                if not leased.grants:
                    raise RuntimeError(f"{done} jobs were done, and there are no more")
                ends = [
                    Complete(cmd=self.new().cmd, job_id=one.job.job_id, token=one.token, result=msgspec.Raw(b"1"))
                    for one in leased.grants
                ]
                await _decided(connection, ends)
                done += len(ends)
                waits.append(time.perf_counter() - began)
            return waits

        return asyncio.run(self._on_connections(1, call))

    def wake(self, count: int) -> Measured:
        """Enqueue while a long poll waits, and time how long it takes until the poll is answered."""

        async def call(connection: Connection) -> list[float]:
            waits = []
            chance = random.Random(1)  # noqa: S311 - pauses, not secrets
            async with Connection(self._url, self._access_token) as other:
                for _ in range(count):
                    lease = Lease(cmd=self.new().cmd, worker_id="bench", queues=("wake",))
                    await connection.send("POST", "/lease", encode(LeaseWish(lease=lease, wait_s=20)))
                    await asyncio.sleep(chance.uniform(0.002, 0.03))  # let it find nothing first, at no fixed beat
                    job = msgspec.structs.replace(self.new().jobs[0], queue="wake")  # beside all that waits elsewhere
                    began = time.perf_counter()
                    await other.send("POST", "/commands", encode(Commands([Enqueue(cmd=job.job_id, jobs=(job,))])))
                    _, body = await connection.answer()
                    waits.append(time.perf_counter() - began)
                    await other.answer()
                    (grant,) = msgspec.json.decode(body, type=Leased).grants
                    await _decided(other, [Complete(job_id=job.job_id, token=grant.token, result=msgspec.Raw(b"1"))])
            return waits

        return asyncio.run(self._on_connections(1, call))

    def mix(self, rounds: int, connections: int) -> Measured:
        """Ask for a bit of everything, again and again."""

        async def call(connection: Connection) -> list[float]:
            for _ in range(rounds):
                await mixed_round(connection, self.new)
            return []

        return asyncio.run(self._on_connections(connections, call))

    async def _on_connections(self, count: int, call: Callable[[Connection], Awaitable[list[float]]]) -> Measured:
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(Connection(self._url, self._access_token)) for _ in range(count)]
            began = time.perf_counter()
            waits = await asyncio.gather(*(call(one) for one in opened))
            seconds = time.perf_counter() - began
            size = sum(one.sent + one.received for one in opened)
        return Measured(seconds, [wait for some in waits for wait in some], size)


async def _decided(connection: Connection, commands: list[Lease] | list[Complete]) -> list[object]:
    body = await connection.post("/commands", encode(Commands([*commands])))
    return list(msgspec.json.decode(body, type=Outcomes).outcomes)


def _noop() -> int:
    return 1


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(url: str) -> None:
    """Obey lines from stdin until it ends."""
    callers = Callers(url, os.environ.get("HOLDFAST_ACCESS_TOKEN", ""))
    for line in sys.stdin:
        verb, *sizes = line.split()
        measured: Measured = getattr(callers, verb)(*map(int, sizes))
        print(json.dumps(msgspec.to_builtins(measured)), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1])

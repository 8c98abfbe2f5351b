"""A coordinator that is asked for everything, again and again, keeps nothing of it in memory."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from itertools import count

import msgspec
import pytest
from coordinators import running

from benchmarks.mixed import REQUESTS, mixed_round
from benchmarks.raw import Connection
from holdfast.engine.maintenance import tick
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.retention import Retention
from holdfast.stores.sqlite import batch
from holdfast.testing.clock import ManualClock

#: Rounds before the first look, and between the first and the last.
WARM, WATCHED = 60, int(os.environ.get("HOLDFAST_SOAK_ROUNDS", "60"))
_numbers = count()


def new():
    name = f"m{next(_numbers):06}"
    return Enqueue(cmd=name, jobs=(NewJob(job_id=name, job_type="t", params=msgspec.Raw(b"{}")),))


async def ask_for_everything(url, rounds):
    for _ in range(rounds):
        async with Connection(url, "") as connection:
            await mixed_round(connection, new)
        # One who breaks off in the middle of a request, and one who never waits for the answer.
        async with Connection(url, "") as gone:
            gone._writer.write(b"POST /api/v1/commands HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
            await gone._writer.drain()
        async with Connection(url, "") as gone:
            await gone.send("GET", "/feed?after=0")
    # Once these are answered, nobody works on anything else any more.
    async with Connection(url, "") as connection:
        for _ in range(5):
            await mixed_round(connection, new)


def blocks():
    """Count what Python has allocated: also what its collector does not look at."""
    for _ in range(3):  # what collecting frees may free more
        gc.collect()
    return sys.getallocatedblocks()


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no file of a disk
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


#: On `wal:` all that is kept is in memory: few ended jobs, and nothing that is remembered for some minutes.
FEW, SOON_S = Retention(done_max=10, failed_max=10), 600


def forget(serving, clock):
    """Have removed what need not be kept, and a snapshot made, as time does."""
    clock.advance(SOON_S)
    assert tick(serving._engine, FEW).pruned
    serving._engine.store.snapshot()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheme", ["sqlite", "wal"])
def test_thousands_of_requests_of_all_kinds_leave_memory_as_it_was(scheme, tmp_path, caplog, monkeypatch):
    # Records that a store keeps at hand are many, and filled soon here.
    monkeypatch.setattr(batch, "KNOWN", 20)
    clock = ManualClock()
    with running(f"{scheme}:{tmp_path / 'jobs'}", clock=clock) as serving:
        asyncio.run(ask_for_everything(serving.url, WARM))
        forget(serving, clock)
        before, bytes_before = blocks(), resident()
        asyncio.run(ask_for_everything(serving.url, WATCHED))
        forget(serving, clock)
        grown, bytes_grown = blocks() - before, resident() - bytes_before
    requests = WATCHED * (REQUESTS + 2)
    assert requests >= 1000
    assert grown < requests, f"{grown} blocks are kept after {requests} requests"
    assert bytes_grown < 32 << 20
    assert not caplog.records, "nor a line in the log: strangers who break off could fill a disk"

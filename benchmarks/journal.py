"""How fast and small the journal is, beside loops that encode the same events and write the same bytes, without it.

Ours and the bare loop take turns, five times each, and the medians are compared: what else the machine does meets both.
The events are typed and 100 to 200 bytes long.
"""

from __future__ import annotations

import os
import statistics
import tracemalloc
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import msgspec

from benchmarks import Row, seconds, seconds_of
from holdfast.journal import Journal, JournalOptions
from holdfast.journal.zstd import compressor, decompressor

NOW = datetime(2026, 2, 5, 10, 11, 12, tzinfo=UTC)
ROUNDS = 5
_MIB = 1024 * 1024


class Moved(msgspec.Struct, frozen=True, tag="job:moved", tag_field="type"):
    """An event of the usual kind and length."""

    job_id: str
    queue: str
    priority: int
    position: int
    by: str


class Noted(msgspec.Struct, frozen=True, tag="job:noted", tag_field="type"):
    """Another, so that decoding has to choose."""

    job_id: str
    text: str


class Line(msgspec.Struct):
    """What the bare reader decodes a whole line into."""

    seq: int
    event: Moved | Noted
    ts: datetime
    b: int
    sum: str
    more: bool = False
    v: int = 1


class Job(msgspec.Struct, frozen=True):
    """A record of a snapshot."""

    job_id: str
    queue: str
    status: str
    priority: int
    position: int
    params: dict[str, str]
    created_at: datetime


def run(directory: Path) -> list[Row]:
    """Measure everything; takes about a minute."""
    rows: list[Row] = []
    for measure in (_appends, _threads, _commits, _replay, _snapshots, _pause, _during_checkpoint, _memory):
        place = directory / measure.__name__.strip("_")
        place.mkdir()
        rows.extend(measure(place))
    return rows


def _events(count: int, start: int = 0) -> list[Moved]:
    return [
        Moved(f"0199c3a0-7f2e-7000-8000-{n:012d}", "default", n % 10, n * 100, "an operator with a name")
        for n in range(start, start + count)
    ]


def _turns(ours: Callable[[], float], bare: Callable[[], float], slices: int = 1) -> tuple[float, float]:
    """Measure both in turns; gives the medians.

    With `slices`, a round is made of so many short turns of each, so that what else the machine does meets both alike.
    """
    rounds = [[(ours(), bare()) for _ in range(slices)] for _ in range(ROUNDS)]
    pairs = [[statistics.harmonic_mean(side) for side in zip(*turns, strict=True)] for turns in rounds]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def _ratio(name: str, unit: str, measured: tuple[float, float], percent: int) -> Row:
    ours, bare = measured
    return Row(name, ours, unit, bare, f">= {percent} %", ours / bare >= percent / 100)


class _Bare:
    """A file that is written to and synced by hand."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, data: bytes) -> None:
        os.write(self._fd, data)
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _lines_of(place: Path) -> list[bytes]:
    return [line for part in sorted((place / "log").iterdir()) for line in part.read_bytes().splitlines(keepends=True)]


# --- writing ----------------------------------------------------------------------------------------------------------


def _appends(place: Path) -> Iterable[Row]:
    """One thread, 100 appends, one flush; the bare loop encodes the same events and writes the same lines."""
    count, size = 100, 500
    journal, bare = Journal.open(place / "ours"), _Bare(place / "bare")
    events = _events(size)
    encode = msgspec.json.Encoder().encode

    def ours() -> float:
        def work() -> None:
            for at in range(0, size, count):
                for event in events[at : at + count]:
                    journal.append((event,), ts=NOW)
                journal.flush()

        return size / seconds_of(work)

    ours()
    lines = _lines_of(place / "ours")[:size]

    def same() -> float:
        def work() -> None:
            for at in range(0, size, count):
                encoded = [encode(event) for event in events[at : at + count]]
                bare.write(b"".join(lines[at : at + len(encoded)]))

        return size / seconds_of(work)

    yield _ratio("append x100, flush; one thread", "records/s", _turns(ours, same, 20), 60)
    overhead = statistics.mean(
        len(line) - len(b'{"seq":%d,"event":%b}\n' % (n, encode(event)))
        for n, (line, event) in enumerate(zip(lines, events, strict=True), 1)
    )
    yield Row("log overhead", overhead, "bytes/record", None, "<= 75", overhead <= 75)
    journal.close()
    bare.close()


def _threads(place: Path) -> Iterable[Row]:
    """32 threads, each waiting for its acknowledgement; the bare loop makes as many syncs as we did."""
    threads, each = 32, 25
    total = threads * each
    journal, bare = Journal.open(place / "ours"), _Bare(place / "bare")
    events = _events(total)
    encode = msgspec.json.Encoder().encode
    syncs: list[int] = []

    def ours() -> float:
        def commit(first: int) -> None:
            for event in events[first : first + each]:
                journal.append((event,), ts=NOW).wait()

        def work() -> None:
            workers = [Thread(target=commit, args=(n * each,)) for n in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

        before = journal.stats().fsync_seconds.count
        taken = seconds(work)
        syncs.append(journal.stats().fsync_seconds.count - before)
        return total / taken

    ours()
    lines = _lines_of(place / "ours")[:total]

    def same() -> float:
        share = -(-total // syncs[-1])

        def work() -> None:
            for at in range(0, total, share):
                encoded = [encode(event) for event in events[at : at + share]]
                bare.write(b"".join(lines[at : at + len(encoded)]))

        return total / seconds(work)

    yield _ratio("32 threads, each waits", "records/s", _turns(ours, same, 3), 40)
    grouped = total / statistics.median(syncs)
    yield Row("32 threads: records a sync", grouped, "records", None, ">= 8", grouped >= 8)
    journal.close()
    bare.close()


def _commits(place: Path) -> Iterable[Row]:
    """One thread, commit by commit; bare: a write and a sync for each record."""
    size = 10
    journal, bare = Journal.open(place / "ours"), _Bare(place / "bare")
    events = _events(size)
    encode = msgspec.json.Encoder().encode

    def ours() -> float:
        def work() -> None:
            for event in events:
                journal.append((event,), ts=NOW).wait()

        return size / seconds_of(work)

    ours()
    lines = _lines_of(place / "ours")[:size]

    def same() -> float:
        def work() -> None:
            for event, line in zip(events, lines, strict=True):
                encode(event)
                bare.write(line)

        return size / seconds_of(work)

    yield _ratio("commit by commit; one thread", "records/s", _turns(ours, same, 40), 70)
    journal.close()
    bare.close()


# --- reading ----------------------------------------------------------------------------------------------------------


def _replay(place: Path) -> Iterable[Row]:
    """Read, verify, decode and put into a dict; bare: decode the same lines into typed structs."""
    size = 100_000
    journal = Journal.open(place)
    events = _events(size)  # each of another job, so that the state grows as it does after a real start
    for at in range(0, size, 1000):
        journal.append(events[at : at + 1000], ts=NOW)
    journal.flush()
    event_of = msgspec.json.Decoder(Moved | Noted).decode
    line_of = msgspec.json.Decoder(Line).decode

    def ours() -> float:
        def work() -> None:
            state = {}
            for record in journal.read():
                event = event_of(record.raw)
                state[event.job_id] = event
            assert len(state) == size

        return size / seconds(work)

    def same() -> float:
        def work() -> None:
            for part in sorted((place / "log").iterdir()):
                for line in part.read_bytes().splitlines():
                    line_of(line)

        return size / seconds(work)

    yield _ratio("replay: read, verify, decode, keep", "records/s", _turns(ours, same), 40)
    journal.close()
    opened: list[float] = []

    def reopen() -> float:
        """Open again, which verifies everything as well; shown for what it is."""
        began = [0.0]

        def work() -> None:
            again = Journal.open(place, readonly=True)
            began[0] = again.durable_seq
            again.close()

        opened.append(size / seconds(work))
        return opened[-1]

    yield Row(
        "opening: survey of the log", statistics.median(reopen() for _ in range(3)), "records/s", None, "", holds=True
    )


# --- snapshots --------------------------------------------------------------------------------------------------------


def _jobs(count: int) -> dict[str, Job]:
    made = (
        Job(
            f"0199c3a0-7f2e-7000-8000-{n:012d}",
            "default",
            "QUEUED",
            n % 10,
            n * 100,
            {"to": f"user{n * 7919 % 1_000_003}@example.com", "subject": f"report {n * 31 % 1009}"},
            NOW,
        )
        for n in range(count)
    )
    return {job.job_id: job for job in made}


def _snapshots(place: Path) -> Iterable[Row]:
    """Write a snapshot, verified, and load it; bare: encode and compress, decompress and decode."""
    size = 100_000
    jobs = _jobs(size)
    options = JournalOptions(flush_after_s=None)
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Job).decode
    journal = Journal.open(place / "ours", options=options)

    def ours() -> float:
        seq = journal.append([b'{"type":"x:one"}'], ts=NOW).last_seq
        copy = SimpleNamespace(applied_seq=seq, tables={"jobs": jobs.values()})
        return size / seconds(lambda: journal.checkpoint(lambda: copy, wait=True))

    def same() -> float:
        def work() -> None:
            packer = compressor()
            packed = [packer.compress(encode(job) + b",\n") for job in jobs.values()]
            (place / "bare").write_bytes(b"".join(packed) + packer.flush())

        return size / seconds(work)

    yield _ratio("snapshot: write, sync, read back", "records/s", _turns(ours, same), 50)
    journal.close()
    newest = max((place / "ours" / "snapshots").iterdir())
    plain = decompressor().decompress(newest.read_bytes())
    share = newest.stat().st_size / len(plain)
    yield Row("snapshot size", share * 100, "% of JSON", None, "<= 30 %", share <= 0.30)

    def load() -> float:
        opened = Journal.open(place / "ours", readonly=True, options=options)
        return size / seconds(lambda: [decode(raw) for _, raw in opened.load().records])

    def unpack() -> float:
        def work() -> None:
            text = decompressor().decompress(newest.read_bytes())
            rows = [
                decode(line.removesuffix(b",")) for line in text.splitlines() if line[:2] == b'{"' and line[2:3] == b"j"
            ]
            assert len(rows) == size

        return size / seconds(work)

    yield _ratio("snapshot: load", "records/s", _turns(load, unpack), 50)


def _pause(place: Path) -> Iterable[Row]:
    """How long the caller's thread stands still for a checkpoint; bare: the copy of the same table alone."""
    size = 100_000
    jobs = _jobs(size)
    journal = Journal.open(place)

    def ours() -> float:
        journal.append([b'{"type":"x:one"}'], ts=NOW).wait()
        handles = []

        def work() -> None:
            handles.append(
                journal.checkpoint(
                    lambda: SimpleNamespace(applied_seq=journal.durable_seq, tables={"jobs": jobs.copy().values()})
                )
            )

        taken = seconds_of(work)
        handles[0].wait()
        return taken * 1000

    pause, copy = _turns(ours, lambda: seconds_of(jobs.copy) * 1000)
    holds = pause <= 20 and pause <= 3 * copy + 5
    yield Row("pause for a checkpoint, 100,000 records", pause, "ms", copy, "<= 20 ms, <= 3x + 5", holds)
    journal.close()


def _during_checkpoint(place: Path) -> Iterable[Row]:
    """Commit while a checkpoint runs, beside commits without; and see what it adds to the slow ones."""
    jobs = _jobs(100_000)
    journal = Journal.open(place)
    events = _events(400)

    def commit(until: Callable[[], bool]) -> list[float]:
        taken: list[float] = []
        while not until():
            taken.append(seconds_of(lambda: journal.append((events[len(taken) % 400],), ts=NOW).wait()))
        return taken

    def count_to(limit: int) -> Callable[[], bool]:
        left = iter(range(limit))
        return lambda: next(left, None) is None

    rates, slowest = [], []
    for _ in range(ROUNDS):
        calm = commit(count_to(300))
        copy = SimpleNamespace(applied_seq=journal.durable_seq, tables={"jobs": jobs.values()})
        handle = journal.checkpoint(lambda: copy)  # noqa: B023 - called at once
        busy = commit(handle.done)
        handle.wait()
        rates.append((len(busy) / sum(busy), len(calm) / sum(calm)))
        slowest.append((_p99(busy) - _p99(calm)) * 1000)
    ours, bare = statistics.median(a for a, _ in rates), statistics.median(b for _, b in rates)
    yield _ratio("commits during a checkpoint", "records/s", (ours, bare), 50)
    added = statistics.median(slowest)
    yield Row("p99 added by a checkpoint", added, "ms", None, "<= 25 ms", added <= 25)
    journal.close()


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(place: Path) -> Iterable[Row]:
    """Find what a checkpoint and a replay need beyond the live state."""
    size = 50_000
    jobs = _jobs(size)
    journal = Journal.open(place)
    for at in range(0, size, 1000):
        journal.append(_events(1000, at), ts=NOW)
    journal.flush()

    def checkpoint() -> None:
        copy = SimpleNamespace(applied_seq=journal.durable_seq, tables={"jobs": jobs.copy().values()})
        journal.checkpoint(lambda: copy, wait=True)

    def replay() -> None:
        for record in journal.read(journal.first_seq - 1):
            assert record.seq

    limit = 16 + 120 * size / _MIB
    extra = _peak(checkpoint)
    yield Row("extra memory of a checkpoint, 50,000 records", extra, "MiB", None, f"<= {limit:.1f} MiB", extra <= limit)
    extra = _peak(replay)
    yield Row("extra memory of a replay", extra, "MiB", None, "<= 32 MiB", extra <= 32)
    journal.close()


def _peak(work: Callable[[], None]) -> float:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return (tracemalloc.get_traced_memory()[1] - before) / _MIB
    finally:
        tracemalloc.stop()

"""What the journal's tests share: a journal on the fake disk that makes the same calls each time; lines by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from zlib import crc32

from holdfast.journal import Journal, JournalOptions
from holdfast.journal.records import first_chain
from holdfast.testing import ManualClock, SimFS

NOW = datetime(2026, 2, 5, 10, 11, 12, 123, tzinfo=UTC)
STAMP = b"2026-02-05T10:11:12.000123Z"

#: Nothing flushes on its own, so that a test decides when.
QUIET = JournalOptions(flush_after_s=None, full_retry_s=0.0, full_retries=3)


def opened(fs: SimFS, options: JournalOptions = QUIET, **more) -> Journal:
    return Journal.open("store", fs=fs, clock=ManualClock(), options=options, **more)


def put(journal: Journal, *numbers: int, ts: datetime = NOW):
    """Append one group and wait for it."""
    ticket = journal.append([{"type": "t:put", "n": number} for number in numbers], ts=ts)
    ticket.wait()
    return ticket


def events(journal: Journal, after: int = 0) -> list[tuple[int, bytes]]:
    return [(record.seq, record.event) for record in journal.read(after)]


def numbers(journal: Journal, after: int = 0) -> list[int]:
    """The numbers put, without the journal's own records."""
    found = [event for _, event in events(journal, after)]
    return [int(event[20:-1]) for event in found if event.startswith(b'{"type":"t:put","n":')]


def kinds(journal: Journal) -> list[str]:
    return [event.split(b'"')[3].decode() for _, event in events(journal, journal.first_seq - 1)]


def checkpoint(journal: Journal, rows=({"id": "a"}, {"id": "b"}), **more):
    """Make a checkpoint of all that is durable."""
    copy = SimpleNamespace(applied_seq=journal.durable_seq, tables={"rows": list(rows)})
    return journal.checkpoint(lambda: copy, **{"wait": True, **more})


def segments(fs: SimFS) -> list[str]:
    return sorted(path for path in fs.tree() if path.startswith("log/"))


def snapshots(fs: SimFS) -> list[str]:
    return sorted(path for path in fs.tree() if path.startswith("snapshots/"))


def line(seq: int, chain: int, event: bytes = b'{"type":"t:put"}', *, b: int | None = None, tail: bytes = b"") -> bytes:
    """One good line, by hand, with its newline."""
    body = b'{"seq":%d,"event":%b,"ts":"%b","b":%d%b' % (seq, event, STAMP, b or seq, tail)
    return b'%b,"sum":"%08x"}\n' % (body, crc32(body, chain))


def chained(start: int, *bodies: tuple) -> bytes:
    """Several lines by hand: each a tuple (seq, event, keywords)."""
    text, chain = b"", start
    for seq, event, *more in bodies:
        made = line(seq, chain, event, **(more[0] if more else {}))
        chain = int(made[-11:-3], 16)
        text += made
    return text


def crashed(*groups: tuple[int, ...]) -> SimFS:
    """A disk with a journal of these groups, each its own batch, whose process died."""
    fs = SimFS()
    journal = opened(fs)
    for group in groups:
        put(journal, *group)
    return fs.reboot()


def log_of(fs: SimFS) -> bytes:
    return b"".join(fs.tree()[path] for path in segments(fs))


def start_of(fs: SimFS) -> int:
    """The chain value before record 1."""
    return first_chain(fs.tree()["journal.json"].split(b'"id":"')[1][:32].decode())

"""The vital signs of a store's place: disk, syncs, descriptors, who holds it, how long opening it takes.

`measure` looks and times, and leaves nothing behind: what it writes for timing has no name. `weak_points` judges, and
is pure.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.errors import InvalidValue
from holdfast.journal.filesystem import filesystem_kind, is_network
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp, later
from holdfast.rules.far_expiries import was_set_back
from holdfast.stores.opening import StoreUrl
from holdfast.stores.protocol import Entry, Finding, HandMade, Store

#: Syncs that are timed at most, and seconds they may take together.
SYNCS, SYNCING_S = 50, 1.0
#: From here on the median sync is slow, and so is opening; seconds.
SLOW_SYNC_S, SLOW_OPENING_S = 0.25, 30.0
#: A disk with less is nearly full; and so is one without room for a second copy of the store.
ROOM = 256 << 20
#: Fewer descriptors than this are soon used up by a worker with its runners.
DESCRIPTORS = 256
#: The last events of the feed in which steps of the clock are looked for, in this many seconds.
LAST_EVENTS, JUMPS_S = 1000, 86_400.0


class Vitals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was measured."""

    url: str
    directory: str
    filesystem: str
    network_allowed: bool = False
    free_bytes: int
    store_bytes: int
    #: Median and 99th percentile of a small write with its sync; None where nothing may be written.
    sync_p50_s: float | None = None
    sync_p99_s: float | None = None
    descriptors_open: int
    descriptors_most: int
    #: The process that has a store of one process, as its lock says; "" if none has.
    holder: str = ""
    format: str = ""
    #: How long it took to open: what recovery will take.
    opening_s: float
    #: Of `wal:`: the newest snapshot, and records read after it; bytes of a group that was cut short.
    snapshot_at: str | None = None
    replayed: int = 0
    torn_bytes: int = 0
    #: Of `dir:`: files that could not be used.
    set_aside: int = 0
    last_event_at: Timestamp | None = None
    #: Leases that steps of the clock ended lately.
    clock_jumps: int = 0


# --- looking ----------------------------------------------------------------------------------------------------------


def measure(url: str, where: StoreUrl, store: Store, opening_s: float, clock: Clock) -> Vitals:
    """Look at a store that is open for reading, and at where it lies."""
    place = Path(where.path)
    directory = place if place.is_dir() else place.parent
    disk = os.statvfs(directory)
    syncs = time_syncs(directory, clock)
    last, jumps = _feed(store)
    wal = _wal(store)
    return Vitals(
        url=url,
        directory=str(directory.resolve()),
        filesystem=filesystem_kind(directory),
        network_allowed=where.network,
        free_bytes=disk.f_bavail * disk.f_frsize,
        store_bytes=size_of(place),
        sync_p50_s=syncs[len(syncs) // 2] if syncs else None,
        sync_p99_s=syncs[min(len(syncs) - 1, len(syncs) * 99 // 100)] if syncs else None,
        descriptors_open=_descriptors(),
        descriptors_most=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        holder=_holder(place / "LOCK") if place.is_dir() else "",
        format=_format(place),
        opening_s=opening_s,
        snapshot_at=wal[0],
        replayed=wal[1],
        torn_bytes=wal[2],
        set_aside=store.set_aside() if isinstance(store, HandMade) else 0,
        last_event_at=last,
        clock_jumps=jumps,
    )


def time_syncs(directory: Path, clock: Clock) -> list[float]:
    """Give how long small writes with their sync take here, in seconds, ascending; nothing where none may be made."""
    taken: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            began = clock.monotonic()
            while len(taken) < SYNCS and clock.monotonic() - began < SYNCING_S:
                before = clock.monotonic()
                os.write(file.fileno(), b"\0" * 512)
                os.fsync(file.fileno())
                taken.append(clock.monotonic() - before)
    except OSError:
        return []
    return sorted(taken)


class _Told(msgspec.Struct):
    """What an event says that matters here."""

    type: str
    reason: msgspec.Raw = NULL


_told = msgspec.json.Decoder(_Told)


def _feed(store: Store) -> tuple[Timestamp | None, int]:
    """Give the time of the last event, and how many of the last ones tell of a step of the clock."""
    with store.read() as view:
        seq = view.seq
    for after in (max(0, seq - LAST_EVENTS), max(0, seq - 1)):
        with suppress(InvalidValue):  # so old ones have been trimmed away
            entries = list(store.feed(after))
            last = entries[-1].ts if entries else None
            since = None if last is None else later(last, -JUMPS_S)
            return last, sum(since is not None and entry.ts >= since and _is_jump(entry) for entry in entries)
    return None, 0


def _is_jump(entry: Entry) -> bool:
    told = _told.decode(entry.event)
    return told.type in ("lease:expired", "turn:expired") and bytes(told.reason) == b'"clock_jump"'


def _wal(store: Store) -> tuple[str | None, int, int]:
    journal = getattr(store, "journal", None)
    if journal is None:
        return None, 0, 0
    found = journal.found
    cut = 0 if found.cut is None else found.cut.size
    return None if found.snapshot is None else found.snapshot.created_at, found.scanned, cut


def size_of(place: Path) -> int:
    """Give the bytes of the store, with what lies beside a database."""
    if not place.is_dir():
        return sum(file.stat().st_size for file in place.parent.glob(f"{place.name}*") if file.is_file())
    sizes = 0
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                sizes += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - walked by the thousand
            except FileNotFoundError:  # others are at work
                continue
    return sizes


def _descriptors() -> int:
    for place in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(place)) - 1  # noqa: PTH208 - only the number counts; one is the look itself
        except OSError:
            continue
    return 0


def _holder(lock: Path) -> str:
    """Say who has the lock, by the kernel's list: to try it would be in the way of whoever comes now."""
    try:
        inode, text = lock.stat().st_ino, lock.read_text(encoding="utf-8", errors="replace")
        held = Path("/proc/locks").read_text(encoding="utf-8")
    except OSError:
        return ""
    is_held = any(line.split()[1] == "FLOCK" and line.split()[5].endswith(f":{inode}") for line in held.splitlines())
    return text.strip() if is_held else ""


def _format(place: Path) -> str:
    """Say which format is on the disk: the number that opening compares with its own."""
    try:
        if not place.is_dir():
            with place.open("rb") as file:
                return f"sqlite {int.from_bytes(file.read(64)[60:64])}"
        for name in ("journal.json", "holdfast.json"):
            if (place / name).exists():
                known = msgspec.json.decode((place / name).read_bytes())
                return " ".join(str(known[key]) for key in ("format", "version") if key in known)
    except (OSError, msgspec.MsgspecError, TypeError):
        pass
    return ""


# --- judging ----------------------------------------------------------------------------------------------------------


def weak_points(vitals: Vitals, now: Timestamp) -> Iterator[Finding]:
    """Say what is not as it should be."""
    if is_network(vitals.filesystem):
        yield Finding(
            code="network_filesystem",
            message=f"{vitals.directory} lies on {vitals.filesystem}, where locks and syncs promise less",
            remedy="Move the store to a local disk.",
        )
    if vitals.free_bytes < max(ROOM, vitals.store_bytes):
        yield Finding(
            code="space_low",
            message=f"{_mib(vitals.free_bytes)} are free at {vitals.directory}, and the store has "
            f"{_mib(vitals.store_bytes)}: there is no room for a second copy, as a snapshot or a migration needs",
            remedy="Make room, or shorten the retention.",
        )
    if vitals.sync_p50_s is not None and vitals.sync_p50_s > SLOW_SYNC_S:
        yield Finding(
            code="sync_slow",
            message=f"a sync at {vitals.directory} takes {vitals.sync_p50_s * 1000:,.0f} ms; each commit waits for one",
            remedy="Use a faster disk, or find out what else writes to this one.",
        )
    if vitals.descriptors_most < DESCRIPTORS:
        yield Finding(
            code="descriptors_few",
            message=f"a process may have {vitals.descriptors_most} open files here",
            remedy="Raise the limit: `ulimit -n 1024`.",
        )
    yield from _weak_store(vitals, now)


def _weak_store(vitals: Vitals, now: Timestamp) -> Iterator[Finding]:
    if vitals.torn_bytes and not vitals.holder:
        yield Finding(
            code="torn_tail",
            message=f"the log ends with {vitals.torn_bytes:,} bytes that were never acknowledged",
            remedy="Nothing: the next process that opens the store cuts them off and keeps them beside it.",
        )
    if vitals.opening_s > SLOW_OPENING_S:
        since = f" since the snapshot of {vitals.snapshot_at}" if vitals.snapshot_at else ""
        records = f": {vitals.replayed:,} records{since}" if vitals.replayed else ""
        yield Finding(
            code="recovery_slow",
            message=f"opening took {vitals.opening_s:,.0f} s, and so will recovery{records}",
            remedy=f"Run `holdfast store snapshot {vitals.url}` while no other process has it.",
        )
    if vitals.set_aside:
        yield Finding(
            code="quarantined",
            message=f"{vitals.set_aside} file{'s' * (vitals.set_aside != 1)} could not be used and were set aside",
            remedy=f"See `holdfast store check {vitals.url}`.",
        )
    yield from clock_behind(vitals.last_event_at, now)
    if vitals.clock_jumps:
        yield Finding(
            code="clock_jumped",
            message=f"steps of the clock ended {vitals.clock_jumps} leases within a day",
            remedy="Let a time service adjust the clock slowly; a suspended machine does the same.",
        )


def clock_behind(last_event_at: Timestamp | None, now: Timestamp, machine: str = "this machine") -> Iterator[Finding]:
    """Say that the clock of the machine that decides was set back."""
    if was_set_back(last_event_at, now):
        yield Finding(
            code="clock_behind",
            message=f"the last event is of {last_event_at}, and by the clock of {machine} it is {now}",
            remedy=f"Set the clock of {machine}; if it had run ahead, times of new work stand still until then.",
        )


def summary(vitals: Vitals) -> Sequence[tuple[str, str]]:
    """Give what was looked at, for people."""
    took = "not measured: nothing may be written here"
    if vitals.sync_p50_s is not None and vitals.sync_p99_s is not None:
        took = f"p50 {vitals.sync_p50_s * 1000:.2f} ms, p99 {vitals.sync_p99_s * 1000:.2f} ms"
    snapshot = f", snapshot of {vitals.snapshot_at}" if vitals.snapshot_at else ""
    return (
        ("place", f"{vitals.directory} on {vitals.filesystem}"),
        ("space", f"{_mib(vitals.free_bytes)} free, {_mib(vitals.store_bytes)} in the store"),
        ("sync", took),
        ("files", f"{vitals.descriptors_open} open of {vitals.descriptors_most}"),
        ("held by", vitals.holder or "no single process"),
        ("format", f"{vitals.format}{snapshot}"),
        ("opening", f"{vitals.opening_s:.3f} s, {vitals.replayed:,} records read; recovery takes as long"),
        ("clock", f"last event {vitals.last_event_at or 'none'}, {vitals.clock_jumps} leases ended by its steps"),
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"

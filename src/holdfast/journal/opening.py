"""Opening for writing: take the lock, survey, recover, and hand over a log that ends in a whole, durable group.

Recovery is one path for every crash: unless the journal was closed in order, the good part of the last segment is
written to a new file, which replaces it. That cuts a torn tail, heals a missing newline and makes durable what was
only in the page cache. Whatever was repaired is noted as a record in that same file, so cut and note are there
together or not at all.
"""

from __future__ import annotations

import errno
import logging
import re
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import PurePath
from socket import gethostname

import msgspec

from holdfast.clock import Clock
from holdfast.errors import StoreLocked
from holdfast.journal import backups, layout, segments, snapshots
from holdfast.journal.filesystem import FS, Handle, Lock, LockHeld, process_id, write_all
from holdfast.journal.inspection import Cut, Survey, survey
from holdfast.journal.options import JournalOptions
from holdfast.journal.records import bodies, seal, stamp, tails
from holdfast.journal.scan import CHUNK, reading
from holdfast.journal.segments import Mark, Segment

log = logging.getLogger(__name__)

#: Drafts of ours that a crash can leave, by folder. Other names are never touched.
_DRAFTS = {
    "": re.compile(r"(journal\.json|log\.bak|snapshot\.bak)\.tmp"),
    segments.FOLDER: re.compile(r"[0-9]{20}-[0-9a-f]{8}\.jsonl\.tmp"),
    snapshots.FOLDER: re.compile(r"[0-9]{20}\.json\.zst\.tmp"),
}


def take_lock(fs: FS, options: JournalOptions, clock: Clock, root: str) -> tuple[Lock, dict[str, object]]:
    """Become the only writer; gives the lock and what was written into it."""
    holder: dict[str, object] = {
        "pid": process_id(),
        "host": gethostname(),
        "program": options.program or PurePath(sys.argv[0] or "python").name,
        "started_at": stamp(clock.now()).decode(),
    }
    try:
        return fs.lock(layout.LOCK, msgspec.json.encode(holder)), holder
    except LockHeld as held:
        who, url = _describe(held.holder)
        hint = "Stop that process, or use a store that many processes may write, such as sqlite:."
        raise StoreLocked(
            f"{root} is in use by {who}. Nothing was changed.",
            hint=f"It is served at {url}: use that URL in place of the path." if url else hint,
            holder=held.holder.decode(errors="replace"),
            **({"url": url} if url else {}),
        ) from None


def _describe(holder: bytes) -> tuple[str, str]:
    """Say who has the lock, and where that process is to be asked, if it is."""
    try:
        found = msgspec.json.decode(holder, type=dict[str, object])
    except (ValueError, RecursionError):
        return "another process", ""
    since = (
        f"pid {found.get('pid')} ({found.get('program')}) on host {found.get('host')} since {found.get('started_at')}"
    )
    url = str(found.get("url", ""))
    return f"{since}, serving {url}" if url else since, url


def open_log(fs: FS, options: JournalOptions, clock: Clock, root: str) -> Survey:
    """Find or make the journal, and bring it into order. The lock is held by the caller."""
    identity = layout.read_identity(fs, root)
    if identity is None:
        layout.refuse_orphans(fs, root)
        identity, segment = layout.create(fs, clock.now())
        return Survey(identity, segments=[segment], end=segment.marks[0])
    found = survey(fs, identity, options, root)
    recover(fs, found, clock.now(), root)
    return found


def recover(fs: FS, found: Survey, now: datetime, root: str) -> None:
    """Do what the survey found necessary. A crash at any step leaves what the next survey finds necessary again."""
    notes = [_note_snapshot(seq, reason) for seq, reason in found.damaged]
    if found.cut is not None:
        backups.keep_bytes(fs, "log", [(found.cut.segment.path, found.cut.place.offset)])
        notes.append(_note_cut(found.cut))
    if notes or found.unended or not found.closed:
        rewrite(fs, found, notes, now)
    elif found.end.offset:
        _renew_closing(fs, found)
    for seq, _ in found.damaged:
        backups.keep_file(fs, "snapshot", snapshots.path_of(seq))
    for segment in found.leftovers:
        fs.unlink(segment.path)
    if found.leftovers:
        fs.sync_dir(segments.FOLDER)
    if fs.stat(snapshots.FOLDER) is None:
        fs.mkdir(snapshots.FOLDER)
    # A snapshot, or journal.json itself, renamed by a process that died may have a name in the cache only.
    fs.sync_dir(snapshots.FOLDER)
    fs.sync_dir("")
    remove_drafts(fs)
    for note in notes:
        log.warning("journal.repaired", extra={"root": root, **note})


def rewrite(fs: FS, found: Survey, notes: list[dict[str, object]], now: datetime) -> None:
    """Replace the last segment by its good part, with a record for each repair behind it; moves the survey's end."""
    segment, end = found.segments[-1], found.end
    draft = f"{segment.path}.tmp"
    with suppress(FileNotFoundError):
        fs.unlink(draft)
    handle = fs.open(draft, "create")
    try:
        _copy(fs, segment.path, handle, end.offset - found.unended)
        if found.unended:
            write_all(fs, handle, b"\n")
        if notes:
            ts = max(stamp(now), found.last_ts)
            encoded = [msgspec.json.encode(note) for note in notes]
            lines, chain = seal(bodies(encoded, end.seq, tails(ts, end.seq, 1)), end.chain)
            write_all(fs, handle, lines)
            found.end = Mark(end.seq + len(notes), end.offset + len(lines), chain)
            found.last_line = lines.split(b"\n")[-2]
        fs.sync(handle, metadata=True)
    finally:
        fs.close(handle)
    fs.rename(draft, segment.path)
    fs.sync_dir(segments.FOLDER)
    found.unended = False


def _copy(fs: FS, path: str, target: Handle, size: int) -> None:
    """Copy the first `size` bytes of a file; if that is none, the file need not be there."""
    at = 0
    while at < size:
        with reading(fs, path) as source:
            while chunk := fs.read(source, min(CHUNK, size - at), at):
                at += len(chunk)
                write_all(fs, target, chunk)
        if at < size:
            raise OSError(errno.EIO, "the file ends before what was verified of it", path)


def _renew_closing(fs: FS, found: Survey) -> None:
    """Write the closing line once more, and sync it.

    It can be read, and yet not be on the disk: the sync behind it may have failed, and whoever saw that may have died
    of it. All before it was synced before it was written, so this one line is all that has to be made sure.
    """
    line = found.last_line + b"\n"
    handle = fs.open(found.segments[-1].path, "append")
    try:
        fs.truncate(handle, found.end.offset - len(line))
        write_all(fs, handle, line)
        fs.sync(handle, metadata=True)
    finally:
        fs.close(handle)


def remove_drafts(fs: FS) -> None:
    """Delete the leftovers of writes that a crash cut short: our own names only, regular files only."""
    for folder, pattern in _DRAFTS.items():
        if fs.stat(folder) is None:
            continue
        for name in fs.listdir(folder):
            path = f"{folder}/{name}" if folder else name
            if pattern.fullmatch(name) and (found := fs.stat(path)) is not None and found.kind == "file":
                fs.unlink(path)


def _note_cut(cut: Cut) -> dict[str, object]:
    return repaired(cut.segment, cut.place, cut.size, f"torn tail: {cut.reason}", "log.bak")


def repaired(segment: Segment, place: Mark, size: int, reason: str, backup: str) -> dict[str, object]:
    """Describe a cut as the event that stays in the log."""
    return {
        "type": "journal:repaired",
        "file": segment.path,
        "offset": place.offset,
        "bytes": size,
        "reason": reason,
        "backup": backup,
    }


def _note_snapshot(seq: int, reason: str) -> dict[str, object]:
    return {
        "type": "journal:repaired",
        "file": snapshots.path_of(seq),
        "offset": 0,
        "bytes": 0,
        "reason": f"damaged snapshot: {reason}",
        "backup": "snapshot.bak",
    }

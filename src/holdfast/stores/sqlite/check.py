"""Check: read every page, every row and every event, and name what is wrong. Changes nothing.

SQLite finds broken pages and indexes that disagree with their table, but not flipped bits in content; our sums do. The
invariants come last: they only mean something when the rows can be trusted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import sha256

from holdfast.errors import LogMissing, StoreError
from holdfast.model.artifacts import copies_in
from holdfast.rules.invariants import reported
from holdfast.stores.protocol import Finding, finding_of
from holdfast.stores.sqlite.commit_marker import claimed, demand_log
from holdfast.stores.sqlite.connections import translated
from holdfast.stores.sqlite.lookups import Lookups
from holdfast.stores.sqlite.rows import LANE_BIT, WAITS_BIT, Meta, chained, sum_of
from holdfast.stores.sqlite.statements import SQL

#: Findings of SQLite's own check that are listed.
LISTED = 100
_RESTORE = "Restore a copy of the database; what else it holds stays readable."
_SUMMED = {
    "job": SQL["summed_jobs"],
    "run": SQL["summed_runs"],
    "queue": SQL["summed_queues"],
    "held key": SQL["summed_held_keys"],
    "command": SQL["summed_commands"],
    "template": SQL["summed_templates"],
    "schedule": SQL["summed_schedules"],
    "reservation": SQL["summed_reservations"],
    "group": SQL["summed_groups"],
    "webhook": SQL["summed_webhooks"],
    "delivery": SQL["summed_deliveries"],
    "instance": SQL["summed_instances"],
    "execution": SQL["summed_executions"],
    "event of a history": SQL["summed_event_rows"],
    "message": SQL["summed_messages"],
    "turn": SQL["summed_turns"],
    "key of an instance": SQL["summed_key_values"],
    "session": SQL["summed_affinities"],
    "decision": SQL["summed_decisions"],
    "meta": SQL["summed_meta"],
}


def findings(db: sqlite3.Connection, path: str) -> list[Finding]:
    """List what is wrong with one state of the database."""
    found: list[Finding] = []
    claim = claimed(path)  # before the state is fixed: others may commit meanwhile
    db.execute("BEGIN")

    def log_is_there(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
        try:
            demand_log(db, path, claim)
        except LogMissing as lost:
            yield Finding(code=lost.code, message=lost.message, remedy=lost.hint, file=path)

    for step in (log_is_there, _pages, _references, _sums, _turns, _blobs, _chain, _invariants):
        try:
            found.extend(step(db, path))
        except sqlite3.Error as error:
            found.append(_damaged(translated(error, path), path))
        except (LookupError, ValueError, TypeError) as error:
            # A row that cannot even be read as a record; its sum has been named above.
            found.append(Finding(code="unreadable", message=f"{path}: {error!r}.", remedy=_RESTORE, file=path))
    return found


def _damaged(error: Exception, path: str) -> Finding:
    code = error.code if isinstance(error, StoreError) else "store_damaged"
    message = error.message if isinstance(error, StoreError) else str(error)
    return Finding(code=code, message=message, remedy=_RESTORE, file=path)


def _pages(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
    for (answer,) in db.execute(f"PRAGMA integrity_check({LISTED})"):
        if answer != "ok":
            yield Finding(code="page", message=f"{path}: {answer}.", remedy=_RESTORE, file=path)


def _references(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
    for table, row, other, _ in db.execute("PRAGMA foreign_key_check"):
        message = f"{path}: row {row} of {table} names a row of {other} that is not there."
        yield Finding(code="reference", message=message, remedy=_RESTORE, file=path)


def _sums(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
    for kind, sql in _SUMMED.items():
        for row in db.execute(sql):
            *fields, total = row
            if kind == "job":
                lane, waits = fields[-2:]
                del fields[-2:]
                expected = sum_of(fields) | lane << LANE_BIT | (waits or 0) << WAITS_BIT
            else:
                expected = sum_of(fields)
            if total != expected:
                name = str(fields[0]) if kind not in ("queue", "held key") else f"{fields[0]}/{fields[1]}"
                message = f"{path}: the {kind} {name} is not what was written: its sum differs."
                yield Finding(code="row_sum", message=message, remedy=_RESTORE, file=path, id=name)


def _turns(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
    for (job_id,) in db.execute(SQL["misplaced_turns"]):
        message = f"{path}: member {job_id} of a group waits for its turn, or does not, against what the group says."
        yield Finding(code="turn", message=message, remedy=_RESTORE, file=path, id=job_id)


def _blobs(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
    found: set[str] = set()
    for digest, content in db.execute(SQL["all_blobs"]):
        found.add(digest)
        if sha256(content).hexdigest() != digest:
            message = f"{path}: the content of the blob {digest} is not what its name says."
            yield Finding(code="blob_damaged", message=message, remedy=_RESTORE, file=path, id=digest)
    named = {digest for (digest,) in db.execute(SQL["named_blobs"])}
    for (text,) in db.execute(SQL["all_artifacts"]):
        named |= copies_in(text)
    for digest in sorted(named - found):
        message = f"{path}: the blob {digest} is named by a record and is not there."
        yield Finding(code="blob_missing", message=message, remedy=_RESTORE, file=path, id=digest)


def _chain(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
    meta = Meta(*db.execute(SQL["meta"]).fetchone())
    seq, chain, ts = meta.trimmed_seq, meta.trimmed_chain, ""
    for number, when, event, total in db.execute(SQL["chained_events"]):
        if number != seq + 1:
            yield _broken(path, f"events {seq + 1} to {number - 1} are missing", number)
        elif total != chained(chain, number, when, event.encode()):
            yield _broken(path, f"event {number} is not what was written, or does not follow the one before", number)
        if when < ts:
            yield _broken(path, f"event {number} is older than the one before", number)
        seq, chain, ts = number, total, when
    if (seq, chain) != (meta.seq, meta.chain):
        yield _broken(path, f"the feed ends with event {seq}, the store has counted {meta.seq}", seq)


def _broken(path: str, what: str, seq: int) -> Finding:
    return Finding(code="event_chain", message=f"{path}: {what}.", remedy=_RESTORE, file=path, seq=seq)


def _invariants(db: sqlite3.Connection, path: str) -> Iterator[Finding]:
    del path
    for fault in reported(Lookups(db)):
        yield finding_of(fault)

"""Opening a directory: who may, which store it is, what a crash left undone, what lies there now.

The order: private → lock → which store → directories → recovery (the feed's end, the one intent that may be open) →
loading (records, live jobs, names of ended ones). A second opening changes nothing. With `readonly` no lock is taken
and nothing is changed.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import msgspec

from holdfast.clock import Clock
from holdfast.errors import StoreFailed
from holdfast.journal.filesystem import FS
from holdfast.rules.jobs.retention import DAY_S, DONE_S, FAILED_S
from holdfast.stores.dir import feed, store_files
from holdfast.stores.dir.feed import Feed
from holdfast.stores.dir.format.file_names import stem_of
from holdfast.stores.dir.format.record_files import COMPLETED, FAILED, FEED, INTENT, MADE, PENDING, RUNNING, STATES
from holdfast.stores.dir.integrity.quarantine import Quarantine
from holdfast.stores.dir.job_locations import Places
from holdfast.stores.dir.load.records import HandEdit, Loading, Stray
from holdfast.stores.dir.load.recovery import Recovery, Report
from holdfast.stores.dir.reader import shares_in
from holdfast.stores.dir.store_files import AdoptedFiles, Counters
from holdfast.stores.dir.tables import DirTables

log = logging.getLogger("holdfast.stores.dir")

#: What retention does to the ended jobs of a directory that is adopted.
KEPT_FROM_NOW = (
    f"ended jobs count as finished now: completed ones are deleted in {DONE_S / DAY_S:.0f} days and failed ones in "
    f"{FAILED_S / DAY_S:.0f}, unless the store or a queue says otherwise"
)
#: What becomes of such a directory that is only looked at.
UNOPENED = "another program made this directory; the first process that opens it for work adopts these jobs"


@dataclass
class Opened:
    """Everything an opening hands over; what it speaks of is told in `loading`."""

    tables: DirTables
    places: Places
    feed: Feed
    quarantine: Quarantine
    extras: dict[str, msgspec.Raw]
    strays: list[Stray]
    moved: list[str]
    missing: list[str]
    edited: list[HandEdit]
    unreadable: list[tuple[str, str]]
    #: Whether something follows the last whole line of the feed, and no commit is under way that explains it.
    torn: bool
    #: Whether the counters were lost, and the highest token is known by the runs of all jobs only.
    uncounted: bool
    report: Report


def load(data: FS, root: str, clock: Clock, tables: DirTables, *, readonly: bool, fresh: bool = False) -> Opened:
    """Recover and read the store below `data`."""
    report = Report()
    recovery = Recovery(data, root, report, readonly=readonly, fresh=fresh)
    found = recovery.run()
    loading = Loading(data, root, clock, tables, report, readonly=readonly)
    loading.run(found, recovery.counters, recovery.settled_at, recovery.feed)
    return Opened(
        tables=tables,
        places=loading.places,
        feed=recovery.feed,
        quarantine=loading.quarantine,
        extras=loading.extras,
        strays=loading.strays,
        moved=loading.moved,
        missing=loading.missing,
        edited=loading.edited,
        unreadable=loading.unreadable,
        uncounted=recovery.counters is None,
        torn=readonly and recovery.is_torn,
        report=report,
    )


def demand_private(root: str) -> None:
    """Refuse a directory that others can write or own; warn of one they can read."""
    found = os.stat(root)  # noqa: PTH116 - the path may be bytes that are no text
    if found.st_uid != os.geteuid():
        raise StoreFailed(
            f"{root} belongs to user {found.st_uid}, this process is of user {os.geteuid()}. Nothing was opened.",
            hint="Run as its owner, or use a directory of your own.",
        )
    if found.st_mode & 0o022:
        raise StoreFailed(
            f"{root} can be written by others (mode {found.st_mode & 0o777:o}). Nothing was opened.",
            hint=f"Run `chmod go-w {root}`: whoever can write there can have any task run.",
        )
    if found.st_mode & 0o044:
        log.warning("dir.readable", extra={"file": root, "mode": f"{found.st_mode & 0o777:o}"})


def prepare(fs: FS, data: FS, root: str, clock: Clock) -> bool:
    """Find the store, or make one around what is there; tell whether it is new."""
    known = store_files.read_identity(fs, root)
    if fs.stat("data") is None:
        fs.mkdir("data")
    fs.sync_dir("")
    made = [folder for folder in MADE if data.stat(folder) is None]
    for folder in made:
        data.mkdir(folder)
    for folder in dict.fromkeys(folder.rpartition("/")[0] for folder in made):
        data.sync_dir(folder)
    if known is not None:
        return False
    if was_store(data):
        store_files.write_identity(fs, clock.now(), None)
        return False
    store_files.write_counters(data, Counters())
    adopted = foreign_jobs(data)
    store_files.write_identity(fs, clock.now(), adopted)
    if adopted is not None:
        log.warning("dir.adopted", extra={"file": root, **msgspec.structs.asdict(adopted), "retention": KEPT_FROM_NOW})
    return True


def was_store(data: FS) -> bool:
    """Tell whether a directory that does not say which store it is has been one."""
    # An opening that was interrupted before it said so has left counters at nought.
    counted = store_files.read_counters(data) not in (None, Counters())
    return counted or (data.stat(FEED) is not None and bool(feed.files(data))) or _has_intent(data)


def foreign_jobs(data: FS) -> AdoptedFiles | None:
    """Count the job files of a directory that is no store yet; None if there are none."""
    found = dict.fromkeys(STATES, 0)
    for state in STATES:
        names = data.listdir(state) if data.stat(state) is not None else []
        folders = [names, *(data.listdir(share) for share in shares_in(data, state, names))]
        found[state] = sum(stem_of(name) is not None for listed in folders for name in listed)
    if not any(found.values()):
        return None
    return AdoptedFiles(found[PENDING], found[RUNNING], found[COMPLETED], found[FAILED])


def _has_intent(data: FS) -> bool:
    return data.stat(INTENT) is not None and any(stem_of(name) for name in data.listdir(INTENT))


def refuse_missing(fs: FS, root: str) -> None:
    """Refuse to read where there is no store."""
    if store_files.read_identity(fs, root) is None and fs.stat("data/tasks") is None:
        raise StoreFailed(f"{root} is no store of this kind. Nothing was opened.", hint="Check the path.", file=root)

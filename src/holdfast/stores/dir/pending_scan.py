"""Looking at `pending/`: which files are new there, which of ours are gone or changed. Touches none.

A directory whose time says that nothing happened since the last look is not listed again. Its time alone proves little:
it must be older than that look by more than clocks and file systems are coarse.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.journal.filesystem import FS
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.file_names import no_text, stem_of
from holdfast.stores.dir.format.record_files import PENDING
from holdfast.stores.dir.format.record_text import signature
from holdfast.stores.dir.job_locations import Places
from holdfast.stores.dir.reader import shares_in

#: A directory whose time is so many seconds older than our last look at it has not changed since.
SETTLED_S = 1.0
#: So many pending files are looked at one by one at each look; of more, only those that are about to be leased.
FEW = 1_000


class Seen(NamedTuple):
    """What a look found: (directory, name) of files that are not ours, names of ours that are not as we left them.

    `odd` are files that nobody can take: their names are no text.
    """

    new: list[tuple[str, str]]
    changed: list[str]
    odd: list[tuple[str, str]]


class Scan:
    """Remembers the last look at one store's `pending/`."""

    def __init__(self, fs: FS, places: Places, clock: Clock) -> None:
        self._fs = fs
        self._places = places
        self._clock = clock
        self._folders = [PENDING]
        #: Directory → its time at our last look, and when that was.
        self._looked: dict[str, tuple[int, datetime]] = {}

    def look(self) -> Seen:
        """Look, as far as anything may have happened."""
        if not any([self._may_have_changed(folder) for folder in self._folders]):  # noqa: C419 - each is looked at
            return Seen([], self._touched(), [])
        names = {folder: self._fs.listdir(folder) for folder in (PENDING,)}
        for share in shares_in(self._fs, PENDING, names[PENDING]):
            names[share] = self._fs.listdir(share)
        self._folders = list(names)
        there = {(folder, stem) for folder, found in names.items() for name in found if (stem := stem_of(name))}
        ours = {(self._places.folders[name], name) for name in self._places.seen}
        gone = (name for _, name in ours - there)
        odd = [(folder, shown) for folder, found in names.items() for name in found if (shown := no_text(name))]
        return Seen(sorted(there - ours), sorted({*gone, *self._touched()}), odd)

    def _touched(self) -> list[str]:
        """Give those of a few files that somebody wrote into: their directory does not tell."""
        seen = self._places.seen
        if len(seen) > FEW:
            return []
        return [name for name, known in seen.items() if self._signature(name) != known]

    def _signature(self, name: str) -> tuple[int, int, int] | None:
        return signature(self._fs.stat(path_of(self._places.folders[name], name)))

    def _may_have_changed(self, folder: str) -> bool:
        found, now = self._fs.stat(folder), self._clock.now()
        mtime = 0 if found is None else found.mtime_ns
        before = self._looked.get(folder)
        self._looked[folder] = (mtime, now)
        if before is None or not mtime or before[0] != mtime:
            return True
        return datetime.fromtimestamp(mtime / 1e9, UTC) > before[1] - timedelta(seconds=SETTLED_S)

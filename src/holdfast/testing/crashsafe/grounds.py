"""Where a run keeps its state: a store made for it alone, what a crash leaves of it, and nothing afterwards.

A crash takes everything that was not durable: `wal:` and `dir:` stand on a disk in memory whose power goes, `sqlite:`
on files that are copied as a killed process leaves them. Of `memory:` the process is what a crash takes; the store is
kept, as if it were a server's.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from holdfast.clock import Clock
from holdfast.errors import InvalidValue, StoreError
from holdfast.journal import JournalOptions
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.opening import open_store
from holdfast.stores.protocol import Batch, Store
from holdfast.testing.crashsafe.striking import When
from holdfast.testing.simfs import SimCrash, SimFS

#: Files of a moment need no disk: where there is a file system in memory, syncing them costs nothing.
_SHORT_LIVED = "/dev/shm"  # noqa: S108 - folders in it are made by tempfile, unguessable and our own


class Ground(Protocol):
    """What one run stands on."""

    def open(self, clock: Clock) -> Store:
        """Open the store: a fresh one at first, later what the last crash left."""
        ...

    def crash(self) -> None:
        """Let the process that has the store die."""
        ...

    def clear(self) -> None:
        """Remove all of it."""
        ...


class InMemory:
    """`memory:`."""

    def __init__(self) -> None:
        self._store: MemoryStore | None = None

    def open(self, clock: Clock) -> Store:
        """Give the one store there is."""
        if self._store is None:
            self._store = MemoryStore(clock=clock)
        return self._store

    def crash(self) -> None:
        """Leave the store as it is: what was not committed, it undid."""

    def clear(self) -> None:
        """Let it go."""
        self._store = None


class OnSimulatedDisk:
    """`wal:` and `dir:`: what was not synced is gone when the power is."""

    def __init__(self, opener: Callable[[SimFS, Clock], Store]) -> None:
        self._opener = opener
        self._files = SimFS()
        self._store: Store | None = None

    def open(self, clock: Clock) -> Store:
        """Open what the disk holds."""
        self._store = self._opener(self._files, clock)
        return self._store

    def crash(self) -> None:
        """Cut the power."""
        self._files = self._files.power_loss("lose", names="lose")
        self._bury()

    def clear(self) -> None:
        """Let no thread of an old store write any more."""
        self._files.die()
        self._bury()

    def _bury(self) -> None:
        """End the threads of a store whose disk is dead: the process they belonged to would have taken them along."""
        if self._store is not None:
            with suppress(StoreError, SimCrash):
                self._store.close()
            self._store = None


class OnFiles:
    """`sqlite:`: a folder of its own, copied at a crash while the store still has it open."""

    #: A database without content, made once.
    _empty: bytes | None = None

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="holdfast-", dir=_short_lived()))
        self._number = 0
        self._store: Store | None = None

    @property
    def _folder(self) -> Path:
        return self._root / str(self._number)

    def open(self, clock: Clock) -> Store:
        """Open the present folder."""
        if not self._folder.exists():
            self._folder.mkdir()
            (self._folder / "jobs.db").write_bytes(self._made(clock))
        self._store = open_store(f"sqlite:{self._folder / 'jobs.db'}", clock=clock)
        return self._store

    def _made(self, clock: Clock) -> bytes:
        """Give an empty database: to make the tables anew for each run would be the most of a short one."""
        if OnFiles._empty is None:
            file = self._root / "empty.db"
            open_store(f"sqlite:{file}", clock=clock).close()
            OnFiles._empty = file.read_bytes()
        return OnFiles._empty

    def crash(self) -> None:
        """Go on with a copy of the files as they are now; whoever still has the old ones changes nothing here."""
        old = self._folder
        self._number += 1
        shutil.copytree(old, self._folder)
        self._close()
        shutil.rmtree(old)

    def clear(self) -> None:
        """Remove the files."""
        self._close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _open_wal(files: SimFS, clock: Clock) -> Store:
    from holdfast.stores.wal import WalStore  # noqa: PLC0415 - a run pays only for the store it uses

    # Snapshots are written by a thread of their own when time has passed: here time leaps, and threads draw lots.
    return WalStore.open("wal", fs=files, clock=clock, options=JournalOptions(checkpoint_after_s=math.inf))


def _open_dir(files: SimFS, clock: Clock) -> Store:
    from holdfast.stores.dir import DirStore  # noqa: PLC0415 - the same

    return DirStore.open("dir", fs=files, clock=clock)


_GROUNDS: dict[str, Callable[[], Ground]] = {
    "memory:": InMemory,
    "sqlite:": OnFiles,
    "wal:": lambda: OnSimulatedDisk(_open_wal),
    "dir:": lambda: OnSimulatedDisk(_open_dir),
}
#: The kinds of stores that runs can be made on.
STORES = tuple(_GROUNDS)


def ground_for(store: str) -> Callable[[], Ground]:
    """Say how a store of this kind is made for a run. Raises InvalidValue for anything else."""
    found = _GROUNDS.get(store)
    if found is None:
        raise InvalidValue(
            f"store: {store!r} is no kind of store that runs are made on. Nothing was run.",
            hint=f"Use {', '.join(STORES)}, without a path: each run has a store of its own, which goes with it.",
            field="store",
        )
    return found


class Mortal:
    """A store whose process dies just before a commit, or just after it, when `strikes` says so by raising."""

    def __init__(self, store: Store, strikes: Callable[[When], None]) -> None:
        self._store = store
        self._strikes = strikes

    def __getattr__(self, name: str) -> Any:
        """Be the store in all else."""
        return getattr(self._store, name)

    @contextmanager
    def write(self) -> Iterator[Batch]:
        """Open a batch; one that changes nothing is no commit."""
        with self._store.write() as batch:
            before = batch.seq
            yield batch
            changed = batch.seq != before
            if changed:
                self._strikes("before")
        if changed:
            self._strikes("after")


def _short_lived() -> str | None:
    with suppress(OSError):
        if os.access(_SHORT_LIVED, os.W_OK | os.X_OK):
            return _SHORT_LIVED
    return None

"""The roster as files, `workers/<hash>.json`, for stores that are directories.

The process that holds the store writes them; another may read them, and leave a wish beside one. Soft: nothing is
synced, and what cannot be read or written is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from holdfast.clock import Clock
from holdfast.errors import StoreReadOnly
from holdfast.journal.filesystem import FS, write_all
from holdfast.journal.scan import reading, size_of
from holdfast.model.times import stamp
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.stores.sidecar.protocol import Sessions
from holdfast.stores.sidecar.worker_liveness import forgotten_before, shown

FOLDER = "workers"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode


class FileRoster:
    """Workers below the root of `fs`."""

    def __init__(self, fs: FS, root: str, clock: Clock, sessions: Sessions, *, readonly: bool = False) -> None:
        self._fs = fs
        self._root = root
        self._clock = clock
        self._sessions = sessions
        self._readonly = readonly
        self._tidied = False

    def note(self, worker: WorkerInfo) -> None:
        """Insert or replace; once, remove what nobody is shown any more."""
        if self._readonly:
            return
        with suppress(OSError):
            with suppress(FileExistsError):
                self._fs.mkdir(FOLDER)
            self._put(f"{_path(worker.worker_id)}.json", _encode(worker))
            if not self._tidied:
                self._tidied = True
                limit = forgotten_before(stamp(self._clock.now()))
                for known in list(self._known()):
                    if known.last_seen < limit:
                        self.drop(known.worker_id)

    def _put(self, path: str, text: bytes) -> None:
        """Replace a file in one step, without waiting for the disk."""
        draft = f"{path}.tmp"
        with suppress(FileNotFoundError):
            self._fs.unlink(draft)
        handle = self._fs.open(draft, "create")
        try:
            write_all(self._fs, handle, text)
        finally:
            self._fs.close(handle)
        self._fs.rename(draft, path)

    def drop(self, worker_id: str) -> None:
        """Forget a worker and what was wished of it."""
        if not self._readonly:
            for ending in ("json", "wish"):
                with suppress(OSError):
                    self._fs.unlink(f"{_path(worker_id)}.{ending}")

    def all(self) -> Sequence[WorkerInfo]:
        """Give all, `lost` and wishes filled in."""
        workers = [
            msgspec.structs.replace(worker, wish=self.wish(worker.worker_id) or worker.wish) for worker in self._known()
        ]
        return shown(workers, self._sessions, stamp(self._clock.now()))

    def _known(self) -> Iterator[WorkerInfo]:
        with suppress(OSError):
            for name in self._fs.listdir(FOLDER):
                if name.endswith(".json"):
                    with suppress(OSError, msgspec.MsgspecError):
                        yield _decode(self._read(f"{FOLDER}/{name}"))

    def _read(self, path: str) -> bytes:
        with reading(self._fs, path) as handle:
            return self._fs.read(handle, size_of(self._fs, path), 0)

    def ask(self, worker_id: str, wish: Wish) -> bool:
        """Leave a wish, if this process may write there."""
        if self._fs.stat(FOLDER) is None or self._fs.stat(f"{_path(worker_id)}.json") is None:
            return False
        try:
            self._put(f"{_path(worker_id)}.wish", wish.value.encode())
        except OSError as error:
            raise StoreReadOnly(f"{self._root}: the wish cannot be left there: {error.strerror}.") from error
        return True

    def wish(self, worker_id: str) -> Wish | None:
        """Give the wish; one look at a name while there is none."""
        with suppress(OSError, ValueError):
            path = f"{_path(worker_id)}.wish"
            if self._fs.stat(path) is not None:
                return Wish(self._read(path).decode())
        return None


def _path(worker_id: str) -> str:
    return f"{FOLDER}/{sha256(worker_id.encode('utf-8', 'backslashreplace')).hexdigest()[:40]}"

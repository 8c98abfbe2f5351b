"""Blobs as files, `blobs/ab/<sha256>`, for stores that are directories held by one process.

Order of a put: note its age, so that no sweep takes it from here on; write and sync a file beside its place, rename it,
sync the directory. A blob that is found was put whole, but perhaps by a process that died before the last step; so the
first time one is met its content is read and its name synced. Whoever commits afterwards names content that stays.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

from holdfast.clock import Clock
from holdfast.errors import BlobMissing, StoreDamaged, StoreError, StoreReadOnly
from holdfast.failpoints import reach
from holdfast.journal.filesystem import FS, atomic_write, parent
from holdfast.journal.fs_errors import telling
from holdfast.journal.scan import reading, size_of
from holdfast.model.times import Timestamp, stamp
from holdfast.stores.sidecar.blob_upload import FileDraft

FOLDER = "blobs"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FOLDER = re.compile(r"[0-9a-f]{2}")
_DRAFT = re.compile(r"[0-9a-f]{64}\.[0-9]+\.tmp")
#: Bytes read at a time.
PIECE = 1 << 20


class FileBlobs:
    """Blobs below the root of `fs`. `unnamed` calls back for each that no record names, and keeps it so meanwhile."""

    def __init__(
        self,
        fs: FS,
        root: str,
        clock: Clock,
        unnamed: Callable[[Collection[str], Callable[[str], None]], None],
        *,
        readonly: bool = False,
    ) -> None:
        self._fs = fs
        self._root = root
        self._clock = clock
        self._unnamed = unnamed
        self._readonly = readonly
        self._lock = threading.Lock()
        #: When this process put what; for all others the time of their file counts.
        self._put_at: dict[str, Timestamp] = {}
        #: Blobs and directories of blobs whose names this process has synced.
        self._durable: set[str] = set()
        self._drafts: set[str] = set()
        self._count = 0

    def put(self, content: bytes) -> str:
        """Keep content; durable on return."""
        if self._readonly:
            raise StoreReadOnly(f"{self._root} was opened for reading; nothing was stored.")
        digest = sha256(content).hexdigest()
        with self._lock:
            self._put_at[digest] = stamp(self._clock.now())
            known = digest in self._durable
            self._count += 1
            draft = f"{digest}.{self._count}.tmp"
            self._drafts.add(draft)
        try:
            if not known or not self.has(digest):  # what was there may have been taken away
                with telling(self._root, "keeping a blob"):
                    self._write(digest, content, draft)
                reach("blobs.written")
        finally:
            with self._lock:
                self._drafts.discard(draft)
        with self._lock:
            self._durable.add(digest)
        return digest

    def draft(self, digest: str) -> FileDraft:
        """Begin to keep content that arrives in pieces."""
        if self._readonly:
            raise StoreReadOnly(f"{self._root} was opened for reading; nothing was stored.")
        path = _path(digest)
        with self._lock:
            self._count += 1
            draft = f"{digest}.{self._count}.tmp"
            self._drafts.add(draft)

        def ended(kept: bool) -> None:  # noqa: FBT001 - its only argument
            with self._lock:
                self._drafts.discard(draft)
                if kept:
                    self._put_at[digest] = stamp(self._clock.now())
                    self._durable.add(digest)

        try:
            with telling(self._root, "keeping a blob"):
                self._make(FOLDER)
                self._make(parent(path))
            return FileDraft(self._fs, self._root, path, f"{parent(path)}/{draft}", ended)
        except BaseException:
            ended(kept=False)
            raise

    def size(self, digest: str) -> int:
        """Give how many bytes its file has."""
        with telling(self._root, f"reading the blob {digest}"):
            found = self._fs.stat(_path(digest))
        if found is None:
            raise BlobMissing(f"{self._root}/{_path(digest)}: the blob is not there.", digest=digest)
        return found.size

    def pieces(self, digest: str) -> Iterator[bytes]:
        """Walk the content, held back by one piece until all of it was verified."""
        path, left, at = _path(digest), self.size(digest), 0
        seen, held = sha256(), b""
        with telling(self._root, f"reading the blob {digest}"), reading(self._fs, path) as handle:
            while left > 0 and (piece := self._fs.read(handle, min(left, PIECE), at)):
                seen.update(piece)
                if held:
                    yield held
                held = piece
                at += len(piece)
                left -= len(piece)
        if seen.hexdigest() != digest:
            raise self._damaged(path, digest)
        yield held

    def _write(self, digest: str, content: bytes, draft: str) -> None:
        path = _path(digest)
        self._make(FOLDER)
        self._make(parent(path))
        if self._fs.stat(path) is not None and sha256(self._read(path)).hexdigest() == digest:
            self._fs.sync_dir(parent(path))
        else:
            atomic_write(self._fs, path, content, draft)

    def _make(self, folder: str) -> None:
        """Make a directory whose name stays."""
        if folder in self._durable:
            return
        with suppress(FileExistsError):
            self._fs.mkdir(folder)
        self._fs.sync_dir(parent(folder))
        with self._lock:
            self._durable.add(folder)

    def get(self, digest: str) -> bytes:
        """Give content back, verified."""
        path = _path(digest)
        try:
            with telling(self._root, f"reading the blob {digest}"):
                content = self._read(path)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise BlobMissing(f"{self._root}/{path}: the blob is not there.", digest=digest) from error
            raise
        if sha256(content).hexdigest() != digest:
            raise self._damaged(path, digest)
        return content

    def _damaged(self, path: str, digest: str) -> StoreDamaged:
        return StoreDamaged(
            f"{self._root}/{path}: the content is not what its name says.",
            hint="Restore this file from a copy of the store.",
            digest=digest,
            file=path,
        )

    def _read(self, path: str) -> bytes:
        pieces: list[bytes] = []
        left = size_of(self._fs, path)
        with reading(self._fs, path) as handle:
            at = 0
            while left > 0 and (piece := self._fs.read(handle, min(left, PIECE), at)):
                pieces.append(piece)
                at += len(piece)
                left -= len(piece)
        return b"".join(pieces)

    def has(self, digest: str) -> bool:
        """Tell whether its file is there."""
        if _DIGEST.fullmatch(digest) is None:
            return False
        with telling(self._root, "looking for a blob"), suppress(FileNotFoundError):
            return self._fs.stat(_path(digest)) is not None
        return False

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Forget what is old and not named."""
        with telling(self._root, "looking for old blobs"):
            old = [digest for digest in self._all() if self._age(digest) < before]
        gone: list[str] = []

        def forget(digest: str) -> None:
            with self._lock:
                # Put again meanwhile: somebody is about to name it.
                if len(gone) < limit and self._put_at.get(digest, "") < before:
                    with suppress(FileNotFoundError):
                        self._fs.unlink(_path(digest))
                    self._put_at.pop(digest, None)
                    self._durable.discard(digest)
                    gone.append(digest)

        with telling(self._root, "removing old blobs"):
            self._unnamed(old, forget)
        return len(gone)

    def _all(self) -> Iterator[str]:
        """Walk all blobs, and remove what a put that was cut short left. What others have put there is not ours."""
        if self._fs.stat(FOLDER) is None:
            return
        for folder in self._fs.listdir(FOLDER):
            if _FOLDER.fullmatch(folder) is None:
                continue
            for name in self._fs.listdir(f"{FOLDER}/{folder}"):
                if _DIGEST.fullmatch(name) is not None:
                    yield name
                elif _DRAFT.fullmatch(name) is not None:
                    with self._lock:
                        if name not in self._drafts:
                            self._fs.unlink(f"{FOLDER}/{folder}/{name}")

    def _age(self, digest: str) -> Timestamp:
        put_at = self._put_at.get(digest)
        if put_at is None:
            found = self._fs.stat(_path(digest))
            if found is None:
                return stamp(self._clock.now())
            put_at = stamp(datetime.fromtimestamp(found.mtime_ns / 1e9, UTC))
        return put_at


def _path(digest: str) -> str:
    """Give the place of a blob. Raises BlobMissing for what is no digest: it never becomes a path."""
    if _DIGEST.fullmatch(digest) is None:
        raise BlobMissing(f"{digest!r:.80} names no blob.", digest=digest)
    return f"{FOLDER}/{digest[:2]}/{digest}"

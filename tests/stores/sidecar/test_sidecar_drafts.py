"""A blob that comes in pieces is there whole and durable, or not at all."""

from __future__ import annotations

import errno
from hashlib import sha256

import pytest

from holdfast.errors import BlobMissing, InvalidValue, StoreDamaged, StoreError, StoreReadOnly
from holdfast.journal.filesystem import OsFS
from holdfast.stores.sidecar.blob_files import PIECE, FileBlobs
from holdfast.testing.clock import ManualClock

CONTENT = bytes(range(256)) * (PIECE // 100)
DIGEST = sha256(CONTENT).hexdigest()


class Disk(OsFS):
    """A disk that fails at one kind of step."""

    fails = ""

    def sync(self, handle, *, metadata):
        self._may("sync")
        super().sync(handle, metadata=metadata)

    def rename(self, old, new):
        self._may("rename")
        super().rename(old, new)

    def _may(self, step):
        if step == self.fails:
            raise OSError(errno.EIO, "the disk is broken")


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path, create=True)


@pytest.fixture
def blobs(disk, tmp_path):
    return FileBlobs(disk, str(tmp_path), ManualClock(), lambda _digests, _action: None)


def write(blobs, content=CONTENT):
    draft = blobs.draft(DIGEST)
    for at in range(0, len(content), 100_000):
        draft.write(content[at : at + 100_000])
    return draft


def test_it_is_found_when_it_was_kept_and_not_before(blobs, tmp_path):
    draft = write(blobs)
    assert not blobs.has(DIGEST)
    draft.keep()
    draft.drop()  # too late
    assert blobs.get(DIGEST) == CONTENT
    assert b"".join(blobs.pieces(DIGEST)) == CONTENT
    assert blobs.size(DIGEST) == len(CONTENT)
    assert list(tmp_path.rglob("*.tmp")) == []


def test_other_content_is_refused(blobs, tmp_path):
    with pytest.raises(InvalidValue, match="not that of"):
        write(blobs, CONTENT[1:]).keep()
    assert not blobs.has(DIGEST)
    assert list(tmp_path.rglob("*.tmp")) == []


@pytest.mark.parametrize("step", ["sync", "rename"])
def test_a_disk_that_fails_leaves_nothing_and_the_next_try_is_free(blobs, disk, tmp_path, step):
    draft = write(blobs)
    disk.fails = step
    with pytest.raises(StoreError):
        draft.keep()
    draft.drop()
    assert not blobs.has(DIGEST)
    assert list(tmp_path.rglob("*.tmp")) == []
    disk.fails = ""
    write(blobs).keep()
    assert blobs.get(DIGEST) == CONTENT


def test_the_last_piece_is_held_back_until_all_were_verified(blobs, tmp_path):
    write(blobs).keep()
    (file,) = tmp_path.rglob(DIGEST)
    file.write_bytes(b"?" + CONTENT[1:])
    given = blobs.pieces(DIGEST)
    assert len(next(given)) == PIECE
    with pytest.raises(StoreDamaged):
        list(given)


def test_what_is_no_digest_or_not_there_is_no_blob(blobs, disk, tmp_path):
    for name in ("../../etc/passwd", "A" * 64):
        with pytest.raises(BlobMissing):
            blobs.draft(name)
    with pytest.raises(BlobMissing):
        blobs.size(DIGEST)
    with pytest.raises(BlobMissing):
        list(blobs.pieces(DIGEST))
    sealed = FileBlobs(disk, str(tmp_path), ManualClock(), lambda _digests, _action: None, readonly=True)
    with pytest.raises(StoreReadOnly):
        sealed.draft(DIGEST)

"""Checking blobs: what a record names must be there and be what its name says."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import BlobMissing, StoreDamaged, StoreFailed
from holdfast.stores.protocol import Finding
from holdfast.stores.sidecar.protocol import Blobs


def missing_blobs(blobs: Blobs, named: Iterable[str]) -> list[Finding]:
    """Read every blob that is named, and list those that are not there, cannot be read or are not what was put."""
    found: list[Finding] = []
    for digest in named:
        try:
            blobs.get(digest)
        except (StoreDamaged, StoreFailed) as problem:
            code = "blob_unreadable" if isinstance(problem, StoreFailed) else "blob_damaged"
            if isinstance(problem, BlobMissing):
                code = "blob_missing"
            remedy = "Restore the blob from a copy of the store; jobs that do not name it are not concerned."
            found.append(Finding(code=code, message=problem.message, remedy=remedy, id=digest))
    return found

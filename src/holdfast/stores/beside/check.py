"""Checking blobs: what a record names must be there and be what its name says."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import BlobMissing, StoreDamaged, StoreFailed
from holdfast.stores.beside.protocol import Blobs
from holdfast.stores.protocol import Finding


#: What reading a blob may raise → the code of what was found. Whoever has the disk against them wants to hear of all.
_CODES = {BlobMissing: "blob_missing", StoreDamaged: "blob_damaged", StoreFailed: "blob_unreadable"}


def missing_blobs(blobs: Blobs, named: Iterable[str]) -> list[Finding]:
    """Read every blob that is named, and list those that are not there, cannot be read or are not what was put."""
    found: list[Finding] = []
    for digest in named:
        try:
            blobs.get(digest)
        except (*_CODES,) as problem:
            code = next(code for kind, code in _CODES.items() if isinstance(problem, kind))
            remedy = "Restore the blob from a copy of the store; jobs that do not name it are not concerned."
            found.append(Finding(code=code, message=problem.message, remedy=remedy, id=digest))
    return found

"""Artifacts: files that a run leaves behind, as its record names them."""

from __future__ import annotations

import msgspec


class Artifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file, as it was when the handler handed it over."""

    name: str
    #: Bytes.
    size: int
    #: In hex; also the name of the blob, if the store has a copy.
    sha256: str
    media_type: str
    #: Where a file lies that was too large to be copied; None: the store's blobs have it.
    path: str | None = None


_listed = msgspec.json.Decoder(list[Artifact])


def copies_in(raw: bytes | str | msgspec.Raw) -> set[str]:
    """Give the digests of the blobs that a run's artifacts name. A list of another form names none."""
    try:
        return {artifact.sha256 for artifact in _listed.decode(raw) if artifact.path is None}
    except msgspec.MsgspecError:
        return set()

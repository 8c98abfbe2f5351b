"""Files that a run left behind: what is known of them, and their content, checked against its hash."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast.errors import InvalidOperation
from holdfast.model.artifacts import Artifact as Record
from holdfast.model.jobs import Run
from holdfast.model.payloads import NULL
from holdfast.stores.protocol import Store

_STEP = 1 << 20
_listed = msgspec.json.Decoder(list[Record])


class Artifact:
    """One file of a run, as it was when the handler handed it over."""

    def __init__(self, store: Store, record: Record) -> None:
        self._store = store
        self.name = record.name
        #: Bytes.
        self.size = record.size
        self.sha256 = record.sha256
        self.media_type = record.media_type
        #: Where a file lies that was too large for the store to have a copy of; None for all others.
        self.path = record.path

    def __repr__(self) -> str:
        """Show name and size."""
        return f"<Artifact {self.name!r}, {self.size} bytes>"

    def read(self) -> bytes:
        """Give its content. Raises InvalidOperation for a file that lies outside and is gone or changed."""
        return b"".join(self._pieces())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write its content to `path`, replacing what is there only when it is whole. Raises as `read` does."""
        target = Path(path)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with draft.open("xb") as file:
                file.writelines(self._pieces())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    def _pieces(self) -> Iterator[bytes]:
        """Walk the content; the last piece comes before the hash is known to be right, so that ends with an error."""
        if self.path is None:
            yield self._store.blobs.get(self.sha256)
            return
        seen = sha256()
        try:
            with Path(self.path).open("rb") as file:
                while piece := file.read(_STEP):
                    seen.update(piece)
                    yield piece
        except OSError as problem:
            raise InvalidOperation(
                f"artifact {self.name!r}: its file {self.path} cannot be read: {problem.strerror}.", path=self.path
            ) from problem
        if seen.hexdigest() != self.sha256:
            raise InvalidOperation(
                f"artifact {self.name!r}: its file {self.path} has changed since the run.", path=self.path
            )


def artifacts_of(store: Store, run: Run) -> list[Artifact]:
    """Give what a run left behind."""
    return [] if run.artifacts == NULL else [Artifact(store, record) for record in _listed.decode(run.artifacts)]

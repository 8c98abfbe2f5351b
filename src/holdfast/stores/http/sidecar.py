"""What a coordinator's store keeps beside its records, reached over its channel."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from urllib.parse import quote

import msgspec

from holdfast.errors import BlobMissing, NotFound, StoreDamaged, WorkerNotFound
from holdfast.model.ids import RunId, Token
from holdfast.model.logs import LogLine, NumberedLine, storable
from holdfast.model.times import Timestamp
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.stores.http.channel import SOFT_S, Channel, Request
from holdfast.stores.http.wire import Beat, Heartbeat, Lines, Roll, RunLines, encode
from holdfast.stores.sidecar.protocol import Marks, NoMarks

_DIGEST = re.compile(r"[0-9a-f]{64}")


class HttpBlobs:
    """Content by its hash. Verified on both sides."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def put(self, content: bytes) -> str:
        """Keep content, durably, and give its hash."""
        digest = hashlib.sha256(content).hexdigest()
        self._channel.send(Request("PUT", f"/blobs/{digest}", content, is_content=True))
        return digest

    def get(self, digest: str) -> bytes:
        """Give the content."""
        if not _DIGEST.fullmatch(digest):  # such a name is never put into a path
            raise BlobMissing(f"there is no blob {digest!r:.100}.", digest=digest)
        content = self._channel.send(Request("GET", f"/blobs/{digest}", is_content=True))
        if hashlib.sha256(content).hexdigest() != digest:
            raise StoreDamaged(f"blob {digest}: other bytes arrived. They were not used.", digest=digest)
        return content

    def has(self, digest: str) -> bool:
        """Tell whether there is such a blob."""
        if not _DIGEST.fullmatch(digest):
            return False
        try:
            self._channel.send(Request("HEAD", f"/blobs/{digest}"))
        except NotFound:
            return False
        return True

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Leave it to the coordinator."""
        del before, limit
        return 0


class HttpLogs:
    """The lines of runs."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def add(self, lines: Sequence[tuple[RunId, LogLine]]) -> None:
        """Keep lines. Raises at once where the coordinator cannot be reached: no run waits for its lines."""
        said = Lines([(run_id, storable(line)) for run_id, line in lines])
        self._channel.send(Request("POST", "/lines", encode(said)), attempt_s=SOFT_S)

    def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[NumberedLine]:
        """Give the lines of a run."""
        asked = {"run": run_id, "after": str(after), "limit": str(limit)}
        return msgspec.json.decode(self._channel.send(Request("GET", "/lines", params=asked)), type=RunLines).lines

    def path(self, run_id: RunId) -> str | None:
        """Give none: they are files of another machine."""
        del run_id
        return None

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Leave it to the coordinator."""
        del before, limit
        return 0


class HttpRoster:
    """The workers of a coordinator."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def note(self, worker: WorkerInfo) -> None:
        """Tell of a worker."""
        self._beat(worker.worker_id, Heartbeat(worker=worker))

    def drop(self, worker_id: str) -> None:
        """Tell that a worker has stopped."""
        self._channel.send(Request("DELETE", f"/workers/{quote(worker_id)}"), attempt_s=SOFT_S)

    def all(self) -> Sequence[WorkerInfo]:
        """Give every worker of the last day."""
        return msgspec.json.decode(self._channel.send(Request("GET", "/workers")), type=Roll).workers

    def ask(self, worker_id: str, wish: Wish) -> bool:
        """Leave a wish."""
        try:
            self._channel.send(Request("POST", f"/workers/{quote(worker_id)}/{wish.value}"))
        except WorkerNotFound:
            return False
        return True

    def wish(self, worker_id: str) -> Wish | None:
        """Give the wish left for a worker."""
        return self._beat(worker_id, Heartbeat()).wish

    def _beat(self, worker_id: str, beat: Heartbeat) -> Beat:
        sent = Request("POST", f"/workers/{quote(worker_id)}/heartbeat", encode(beat))
        # Soft, too: it comes again, and whoever works must not wait for it.
        return msgspec.json.decode(self._channel.send(sent, attempt_s=SOFT_S), type=Beat)


class NoSessions:
    """Openings of a coordinator's store are its own; whoever works elsewhere is known by leases alone."""

    def hold(self, session_id: str) -> None:
        """Do nothing."""

    def gone(self, session_ids: Collection[str]) -> set[str]:
        """Give none: nothing is provable from here."""
        del session_ids
        return set()

    def marks(self, session_id: str | None) -> Marks:
        """Mark nothing: what is lost here is never taken from the dead."""
        del session_id
        return NoMarks()

    def unbegun(self, session_id: str, leases: Iterable[tuple[str | None, Token]]) -> set[Token]:
        """Give none."""
        del session_id, leases
        return set()

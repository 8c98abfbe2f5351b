"""The four things a store keeps beside its records, as what is true afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from holdfast.model.ids import RunId, Token
from holdfast.model.logs import LogLine, NumberedLine
from holdfast.model.times import Timestamp
from holdfast.model.workers import Wish, WorkerInfo


class Blobs(Protocol):
    """Content found by its own hash."""

    def put(self, content: bytes) -> str:
        """Keep content and give its SHA-256 in hex.

        - Durable no later than the first commit after it.
        - The same content twice is one blob; its age starts anew.
        """
        ...

    def get(self, digest: str) -> bytes:
        """Give the content, verified. Raises BlobMissing, or StoreDamaged if the bytes are others."""
        ...

    def has(self, digest: str) -> bool:
        """Tell whether there is such a blob, without reading it."""
        ...

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Forget blobs put before then that no record names; return how many (at most `limit`)."""
        ...


class BlobDraft(Protocol):
    """Content that arrives in pieces. For one thread at a time."""

    def write(self, piece: bytes) -> None:
        """Add a piece."""
        ...

    def keep(self) -> None:
        """Keep it as `put` does. Raises InvalidValue, and keeps nothing, if it has not the hash it was begun with."""
        ...

    def drop(self) -> None:
        """Forget it, unless it was kept."""
        ...


@runtime_checkable
class Streaming(Protocol):
    """Blobs that need not be in memory whole."""

    def draft(self, digest: str) -> BlobDraft:
        """Begin to keep the content of this hash."""
        ...

    def size(self, digest: str) -> int:
        """Give how many bytes it has. Raises BlobMissing."""
        ...

    def pieces(self, digest: str) -> Iterator[bytes]:
        """Walk the content. Raises StoreDamaged in place of the last piece if the bytes are others."""
        ...


class RunLogs(Protocol):
    """The lines of each run. Soft: synced by nothing of its own."""

    def add(self, lines: Sequence[tuple[RunId, LogLine]]) -> None:
        """Keep lines in their order. Never raises for a store that is full, busy or read-only: then they are lost."""
        ...

    def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[NumberedLine]:
        """Give the lines of a run with a number above `after`, at most `limit`."""
        ...

    def path(self, run_id: RunId) -> str | None:
        """Give the file that holds the run's lines, where one does."""
        ...

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Forget lines written before then; return how many lines, or files of them (at most `limit`)."""
        ...


class Roster(Protocol):
    """Which workers there are. Soft: losing it, or a worker lying in it, changes no outcome of a job.

    The types of signals that live workers publish are judged by: without them a signal is taken, whatever it carries.
    """

    def note(self, worker: WorkerInfo) -> None:
        """Insert or replace by worker_id. A wish left meanwhile stays."""
        ...

    def drop(self, worker_id: str) -> None:
        """Forget a worker that has stopped."""
        ...

    def all(self) -> Sequence[WorkerInfo]:
        """Give every worker of the last day, by worker_id; those that are gone or silent have the state `lost`."""
        ...

    def ask(self, worker_id: str, wish: Wish) -> bool:
        """Leave a wish; False if there is no such worker. Raises StoreReadOnly where nothing can be written."""
        ...

    def wish(self, worker_id: str) -> Wish | None:
        """Give the wish left for a worker. Cheap: an idle one asks once a second."""
        ...


class Sessions(Protocol):
    """Which openings of the store still live on this machine."""

    def hold(self, session_id: str) -> None:
        """From now on others can tell that this opening lives, until the process ends or the store is closed."""
        ...

    def gone(self, session_ids: Collection[str]) -> set[str]:
        """Give those that are provably dead. One that never held anything here is not."""
        ...

    def marks(self, session_id: str | None) -> Marks:
        """Give where the process of this opening marks what it has not begun. Never raises; nothing may be kept."""
        ...

    def unbegun(self, session_id: str, leases: Iterable[tuple[str | None, Token]]) -> set[Token]:
        """Give those leases and locks of a dead opening, each with its worker, whose work had certainly not begun.

        - What nothing is known of is not among them.
        - Nothing is known once the machine has started anew.
        """
        ...


class Marks(Protocol):
    """Leases and locks that an opening holds and has not begun. Any thread may call it; nothing is synced."""

    def join(self, worker: str) -> None:
        """Register a worker: no lease granted to it counts as begun until it says that it has received the lease."""
        ...

    def receive(self, worker: str | None, received: Token, waiting: Sequence[Token]) -> None:
        """Say that a worker has received leases up to this token, and that the `waiting` ones have not begun.

        - Called before any of them begins.
        - The worker is None for locks of instances, which name none.
        """
        ...

    def clear(self, token: Token) -> None:
        """Say that this one begins now, or is given back. Called before its code runs."""
        ...


class NoMarks:
    """Marks where none can be kept: everything counts as begun."""

    def join(self, worker: str) -> None:
        """Mark nothing."""

    def receive(self, worker: str | None, received: Token, waiting: Sequence[Token]) -> None:
        """Mark nothing."""

    def clear(self, token: Token) -> None:
        """Have nothing to clear."""

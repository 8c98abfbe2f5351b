"""Real files without syncs: for checks of what is written, not of what survives a power cut. Those use `simfs`."""

from __future__ import annotations

from holdfast.journal.filesystem import Handle, OsFS


class Unsynced(OsFS):
    """The operating system's files; nothing waits for the disk."""

    def sync(self, h: Handle, *, metadata: bool) -> None:
        """Do nothing."""

    def sync_dir(self, path: str) -> None:
        """Do nothing."""

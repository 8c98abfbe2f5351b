"""The conformance suite on `wal:`."""

from pathlib import Path

import pytest

from holdfast.stores.wal import WalStore
from holdfast.testing.conformance import Conformance


class TestWal(Conformance):
    points = (*Conformance.points, "journal.leading", "journal.written", "journal.synced", "wal.appended", "wal.synced")

    def open(self, path: Path) -> WalStore:
        return WalStore.open(path / "jobs", clock=self.clock)

    def plant(self, store, kind, key, record) -> None:
        pytest.skip("wal: records are folded from a log whose every byte is checked; none can be other than it says")

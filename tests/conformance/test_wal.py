"""The conformance suite on `wal:`."""

from pathlib import Path

import pytest

from holdfast.journal import JournalOptions
from holdfast.stores.wal import WalStore
from holdfast.testing.conformance import Conformance

#: No checkpoints by age: they would cut the feed that checks compare, whenever time is let pass.
KEPT = JournalOptions(checkpoint_after_s=1e9)


class TestWal(Conformance):
    points = (*Conformance.points, "journal.leading", "journal.written", "journal.synced", "wal.appended", "wal.synced")

    def open(self, path: Path) -> WalStore:
        return WalStore.open(path / "jobs", clock=self.clock, options=KEPT)

    def plant(self, store, kind, key, record) -> None:
        pytest.skip("wal: records are folded from a log whose every byte is checked; none can be other than it says")

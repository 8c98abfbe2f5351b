"""The conformance suite on a coordinator over `wal:`. Syncs cost time and prove nothing here; see tests/stores."""

from pathlib import Path

import pytest
from served import Served, shared
from test_wal import KEPT

from holdfast.stores.wal import WalStore
from holdfast.testing.conformance import Conformance
from support.unsynced import Unsynced


@shared(0)
class TestHttpOverWal(Conformance):
    points = (*Conformance.points, "journal.leading", "journal.written", "journal.synced", "wal.appended", "wal.synced")

    def open(self, path: Path) -> WalStore:
        return WalStore.open(path / "jobs", fs=Unsynced(path / "jobs", create=True), clock=self.clock, options=KEPT)

    def harnessed(self, path: Path) -> Served:
        return Served(self.open, path, self.clock)

    def plant(self, store, kind, key, record) -> None:
        pytest.skip("wal: records are folded from a log whose every byte is checked; none can be other than it says")

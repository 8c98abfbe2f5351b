"""The provider's suite on `wal:`."""

from pathlib import Path

from test_wal import KEPT

from holdfast.stores.wal import WalStore
from holdfast.testing.conformance.provider import ProviderConformance


class TestProviderOnWal(ProviderConformance):
    points = (
        *ProviderConformance.points,
        "journal.leading",
        "journal.written",
        "journal.synced",
        "wal.appended",
        "wal.synced",
    )

    def open(self, path: Path) -> WalStore:
        return WalStore.open(path / "jobs", clock=self.clock, options=KEPT)

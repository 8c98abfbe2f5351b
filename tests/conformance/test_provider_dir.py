"""The provider's suite on `dir:`. Syncs cost time and prove nothing here; see tests/stores/dir."""

from pathlib import Path

from holdfast.stores.dir import DirStore
from holdfast.testing.conformance.provider import ProviderConformance
from support.unsynced import Unsynced


class TestProviderOnDir(ProviderConformance):
    points = (*ProviderConformance.points, "dir.renamed", "dir.intended", "dir.applied", "dir.told", "dir.committed")

    def open(self, path: Path) -> DirStore:
        return DirStore.open(path / "jobs", fs=Unsynced(path / "jobs", create=True), clock=self.clock)

"""The conformance suite on `dir:`. Syncs cost time and prove nothing here; see tests/stores/dir."""

from pathlib import Path

import pytest

from holdfast.stores.dir import DirStore
from holdfast.testing.conformance import Conformance
from support.unsynced import Unsynced


class TestDir(Conformance):
    points = (*Conformance.points, "dir.renamed", "dir.intended", "dir.applied", "dir.told", "dir.committed")

    def open(self, path: Path) -> DirStore:
        return DirStore.open(path / "jobs", fs=Unsynced(path / "jobs", create=True), clock=self.clock)

    def plant(self, store, kind, key, record) -> None:
        pytest.skip("dir: a run lies in the file of its job, and a file that says other than the feed is set aside")

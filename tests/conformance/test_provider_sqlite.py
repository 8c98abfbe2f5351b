"""The provider's suite on `sqlite:`."""

from pathlib import Path

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance.provider import ProviderConformance


class TestProviderOnSqlite(ProviderConformance):
    points = (*ProviderConformance.points, "sqlite.begun", "sqlite.settled", "sqlite.committing", "sqlite.committed")

    def open(self, path: Path) -> SqliteStore:
        return SqliteStore.open(path / "jobs.db", clock=self.clock)

"""The conformance suite on `sqlite:`."""

from pathlib import Path

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance import Conformance


class TestSqlite(Conformance):
    points = (*Conformance.points, "sqlite.begun", "sqlite.settled", "sqlite.committing", "sqlite.committed")

    def open(self, path: Path) -> SqliteStore:
        return SqliteStore.open(path / "jobs.db", clock=self.clock)

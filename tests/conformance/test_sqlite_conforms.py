"""The conformance suite on `sqlite:`."""

from pathlib import Path

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.conformance import Conformance


class TestSqlite(Conformance):
    def open(self, path: Path) -> SqliteStore:
        return SqliteStore.open(path / "jobs.db")

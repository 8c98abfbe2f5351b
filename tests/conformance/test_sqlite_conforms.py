"""The conformance suite on `sqlite:`."""

import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.record_tables import BY_KIND
from holdfast.testing.conformance import Conformance


class TestSqlite(Conformance):
    points = (*Conformance.points, "sqlite.begun", "sqlite.settled", "sqlite.committing", "sqlite.committed")

    def open(self, path: Path) -> SqliteStore:
        return SqliteStore.open(path / "jobs.db", clock=self.clock)

    def plant(self, store, kind, key, record) -> None:
        """Through a connection of its own, which minds no foreign key; by a new row, which no trigger minds."""
        table = BY_KIND[kind]
        with closing(sqlite3.connect(store.path)) as db:
            db.execute(table.delete, table.key(key))
            if record is not None:
                insert = table.inserts[-1]
                db.execute(insert.sql, insert.bind(table.write(record)))
            db.commit()

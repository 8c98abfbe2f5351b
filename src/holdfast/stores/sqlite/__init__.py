"""`sqlite:` — one table a kind of record in one SQLite file, written by many processes of one host.

- `store` the Store: one transaction a batch, connections for readers, what happens on failure.
- `batch` the records a batch knows and the rows it writes; `lookups` the queries behind a view.
- `rows` records as rows with their sums; `statements` the SQL of `stores/sqlite/sql`.
- `connections` settings and errors; `schema` making, recognising and migrating the file.
- `rewrite_wal` making sure that what opening found stays; `wal_cycle` how long the log is.
- `fork_guard` keeping everybody out of SQLite while the process forks.
- `sidecar` blobs, run logs and the roster, as tables of the same file.
- `wakeup` wake-up between processes; `check` reading everything and naming what is wrong.
"""

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

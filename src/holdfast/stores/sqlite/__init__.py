"""`sqlite:` — one table a kind of record in one SQLite file, written by many processes of one host.

- `store` the Store: one transaction a batch, connections for readers, what happens on failure.
- `batch` the records a batch knows and the rows it writes; `lookups` the queries behind a view.
- `rows` records as rows with their sums; `statements` the SQL of `stores/sql`.
- `connections` settings and errors; `schema` making, recognising and migrating the file.
- `relog` making sure that what opening found stays; `cycle` how long the log is.
- `forking` keeping everybody out of SQLite while the process forks.
- `beside` blobs, run logs and the roster, as tables of the same file.
- `wake` wake-up between processes; `check` reading everything and naming what is wrong.
"""

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

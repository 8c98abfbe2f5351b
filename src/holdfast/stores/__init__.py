"""Where state is kept. Stores keep, they do not judge: no rule is repeated here.

The seam is small. A `Store` opens a batch for writing (`write`), a consistent view for reading (`read`), tells what was
committed (`feed`, `wait`) and looks after its bytes (`check`, `snapshot`, `trim`). Inside a batch the engine decides
commands with `rules`, which look the state up through the batch and hand back events; `Batch.add` folds them and keeps
the changed records. Leaving the batch makes all of it durable at once, or, on an exception, none of it.

Legal order of calls: open → (write | read | feed | wait | check | snapshot | trim)* → close. One batch at a time per
process; any number of readers. After a failed commit every call raises `StoreFailed` until the store is reopened.

Beside its records a store keeps content and soft knowledge (`sidecar`): blobs, lines of runs, workers, sessions.

- `memory:` tables in this process; the model for all others.
- `dir:` the same tables, one readable file a record; one intent file per batch.
- `wal:` the same tables, folded from a journal; one fsync per batch.
- `sqlite:` one table a kind of record, many processes on one file; one transaction per batch.
"""

"""What a store keeps beside its records: content and soft knowledge, never events.

- `protocol` the four parts every store has: blobs, run logs, the roster of workers, sessions.
- `memory` dicts, for `memory:`; `blob_files`, `log_files`, `worker_files` files, for stores that are directories.
- `sessions` locks that the kernel lets go of when a process dies; `blob_refs` which blobs a record names.
- `worker_liveness` what of the roster is shown, and what of a worker that is gone.

Only blobs are part of what was acknowledged: a record may name one, and the commit that names it makes it durable too.
"""

"""Jobs: enqueued, leased, ended, retried, edited and forgotten."""

-- Schema version 2 of a `sqlite:` store: what is added to version 1. A new file takes the same steps as an old one.

-- A queue has limits now. Its rows are copied by the migration, which works out their sums anew.
ALTER TABLE queues RENAME TO queues_v1;

CREATE TABLE queues (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  pause_reason TEXT,
  max_running INTEGER,
  rate_count INTEGER,
  rate_period_s REAL,
  rate_scope TEXT NOT NULL,
  aging_s REAL,
  retention TEXT NOT NULL,
  sum INTEGER NOT NULL,
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Content that records name. Its own hash is its sum; the bytes come last, so that the rest is read without them.
CREATE TABLE blobs (
  row INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL UNIQUE,
  size INTEGER NOT NULL,
  put_at TEXT NOT NULL,
  bytes BLOB NOT NULL
) STRICT;

CREATE INDEX ix_blobs_put_at ON blobs(put_at, sha256);

-- Which records name a blob: `{"$blob":"…","size":…}` stands in place of a payload. Rows without one are in none of them.
CREATE INDEX ix_jobs_params_blob ON jobs(substr(params, 11, 64)) WHERE substr(params, 1, 10) = '{"$blob":"';
CREATE INDEX ix_jobs_result_blob ON jobs(substr(result, 11, 64)) WHERE substr(result, 1, 10) = '{"$blob":"';
CREATE INDEX ix_runs_params_blob ON job_runs(substr(params_snapshot, 11, 64))
  WHERE substr(params_snapshot, 1, 10) = '{"$blob":"';
CREATE INDEX ix_runs_details_blob ON job_runs(substr(details, 11, 64)) WHERE substr(details, 1, 10) = '{"$blob":"';
CREATE INDEX ix_runs_artifacts ON job_runs(row) WHERE artifacts <> 'null';

-- Soft, like the roster below: neither summed nor synced by itself.
CREATE TABLE run_logs (
  run_id TEXT NOT NULL,
  line_no INTEGER NOT NULL,
  at TEXT NOT NULL,
  stream TEXT NOT NULL,
  level TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (run_id, line_no)
) STRICT, WITHOUT ROWID;

CREATE INDEX ix_logs_at ON run_logs(at);

CREATE TABLE workers (
  worker_id TEXT NOT NULL PRIMARY KEY,
  last_seen TEXT NOT NULL,
  wish TEXT,
  -- All the worker says of itself, as JSON.
  worker TEXT NOT NULL
) STRICT, WITHOUT ROWID;

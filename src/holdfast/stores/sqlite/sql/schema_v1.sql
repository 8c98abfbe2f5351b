-- Schema version 1 of a `sqlite:` store. Run once, on an empty file, before anybody else can see it.
--
-- A column has the name of the record's field, in the field's order. Beside the fields each record has a `sum`, since
-- SQLite does not notice flipped bits. Ids are text, but rows are joined to their indexes by the small integer `row`:
-- that and time-ordered ids keep every insert at the right edge of its tree.

CREATE TABLE jobs (
  row INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL UNIQUE,
  job_type TEXT NOT NULL,
  params TEXT NOT NULL,
  created_at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  queue TEXT NOT NULL,
  status TEXT NOT NULL,
  priority INTEGER NOT NULL,
  position INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  not_before TEXT,
  expires_at TEXT,
  timeout_s REAL,
  lease_s REAL NOT NULL,
  retry_mode TEXT NOT NULL,
  max_attempts INTEGER NOT NULL,
  max_expiries INTEGER,
  backoff TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  expiries INTEGER NOT NULL,
  snoozes INTEGER NOT NULL,
  executions INTEGER NOT NULL,
  retry_of TEXT,
  retry_kind TEXT,
  template_id TEXT,
  schedule_id TEXT,
  fire_at TEXT,
  backfill_id TEXT NOT NULL,
  overlap TEXT,
  group_id TEXT,
  sequence_number INTEGER,
  direct INTEGER NOT NULL,
  reservation_id TEXT,
  key TEXT,
  key_scope TEXT NOT NULL,
  key_hold TEXT NOT NULL,
  key_until TEXT,
  limit_key TEXT,
  key_limit INTEGER NOT NULL,
  owner TEXT,
  affinity TEXT,
  deliveries INTEGER NOT NULL,
  tags TEXT,
  worker_id TEXT,
  token INTEGER,
  lease_expires_at TEXT,
  deadline_at TEXT,
  session_id TEXT,
  grant_cmd TEXT,
  submitted_by TEXT,
  traceparent TEXT,
  cancel_requested_at TEXT,
  cancel_reason TEXT,
  result TEXT,
  error TEXT,
  started_at TEXT,
  finished_at TEXT,
  seq INTEGER NOT NULL,
  -- Index state, not a fact: 0 ready, 1 held back by `not_before`.
  lane INTEGER NOT NULL CHECK (lane IN (0, 1)),
  -- crc32 of the fields, with `lane` as bit 32.
  sum INTEGER NOT NULL,
  queued_at TEXT GENERATED ALWAYS AS (created_at) VIRTUAL,
  -- Written with OR: a list after IN is built anew for every row.
  CHECK (status = 'QUEUED' OR status = 'RUNNING' OR status = 'COMPLETED' OR status = 'FAILED' OR status = 'DEAD'
    OR status = 'CANCELLED'),
  CHECK ((status = 'RUNNING') = (token IS NOT NULL)),
  CHECK ((token IS NULL) = (worker_id IS NULL)),
  CHECK ((token IS NULL) = (lease_expires_at IS NULL)),
  CHECK ((status = 'QUEUED' OR status = 'RUNNING') = (finished_at IS NULL))
) STRICT;

CREATE INDEX ix_jobs_ready ON jobs(namespace, queue, rank, position, created_at, job_id)
  WHERE status = 'QUEUED' AND lane = 0;
CREATE INDEX ix_jobs_held_back ON jobs(namespace, queue, rank, position, created_at, job_id)
  WHERE status = 'QUEUED' AND lane = 1;
CREATE INDEX ix_jobs_delayed ON jobs(not_before, job_id) WHERE status = 'QUEUED' AND lane = 1;
CREATE INDEX ix_jobs_lease ON jobs(lease_expires_at, job_id) WHERE status = 'RUNNING';
CREATE INDEX ix_jobs_active ON jobs(namespace, queue) WHERE status = 'RUNNING';
CREATE INDEX ix_jobs_limit ON jobs(namespace, limit_key) WHERE status = 'RUNNING' AND limit_key IS NOT NULL;
CREATE INDEX ix_jobs_ttl ON jobs(expires_at, job_id) WHERE status = 'QUEUED' AND expires_at IS NOT NULL;
CREATE INDEX ix_jobs_group ON jobs(group_id, sequence_number) WHERE group_id IS NOT NULL;
CREATE INDEX ix_jobs_schedule ON jobs(schedule_id) WHERE (status = 'QUEUED' OR status = 'RUNNING') AND schedule_id IS NOT NULL;
-- The queue at its end lets jobs be counted without reading them.
CREATE INDEX ix_jobs_list ON jobs(namespace, status, created_at, job_id, queue);
-- Two lanes of retention in one index: what failed stays longer, and must not stand in the way of the rest.
CREATE INDEX ix_jobs_ended ON jobs(status IN ('FAILED', 'DEAD'), finished_at, job_id) WHERE finished_at IS NOT NULL;
CREATE INDEX ix_jobs_retry_of ON jobs(retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX ix_jobs_owner ON jobs(owner) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX ux_jobs_auto_retry ON jobs(retry_of) WHERE retry_kind = 'auto';
CREATE UNIQUE INDEX ux_jobs_fire ON jobs(schedule_id, fire_at, backfill_id)
  WHERE fire_at IS NOT NULL AND retry_of IS NULL;

CREATE TRIGGER jobs_end_is_final AFTER UPDATE OF status ON jobs
  WHEN OLD.finished_at IS NOT NULL AND NEW.status <> OLD.status
BEGIN
  SELECT RAISE(ABORT, 'an ended job keeps its status');
END;

CREATE TABLE job_runs (
  row INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  job_id TEXT NOT NULL REFERENCES jobs(job_id),
  run_no INTEGER NOT NULL,
  started_at TEXT NOT NULL,
  params_snapshot TEXT NOT NULL,
  namespace TEXT NOT NULL,
  queue TEXT NOT NULL,
  limit_key TEXT,
  template_id TEXT,
  worker_id TEXT,
  token INTEGER,
  status TEXT CHECK (status = 'COMPLETED' OR status = 'FAILED' OR status = 'SKIPPED' OR status = 'CANCELLED'
    OR status = 'LOST'),
  finished_at TEXT,
  exit_code INTEGER,
  error TEXT,
  error_kind TEXT,
  details TEXT,
  reason TEXT,
  log_path TEXT,
  artifacts TEXT,
  progress TEXT,
  sum INTEGER NOT NULL,
  CHECK ((status IS NULL) = (finished_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX ux_runs_open ON job_runs(job_id) WHERE status IS NULL;
CREATE UNIQUE INDEX ux_runs_token ON job_runs(token) WHERE token IS NOT NULL;
CREATE INDEX ix_runs_job ON job_runs(job_id, run_no);
CREATE INDEX ix_runs_started ON job_runs(namespace, queue, started_at);
CREATE INDEX ix_runs_key ON job_runs(namespace, queue, limit_key, started_at) WHERE limit_key IS NOT NULL;

CREATE TRIGGER job_runs_end_is_final
  AFTER UPDATE OF status, finished_at, exit_code, error, error_kind, details, reason, artifacts ON job_runs
  WHEN OLD.status IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'an ended run never changes');
END;
CREATE TRIGGER job_runs_are_fixed AFTER UPDATE OF run_id, job_id, params_snapshot ON job_runs
  WHEN NEW.run_id <> OLD.run_id OR NEW.job_id <> OLD.job_id OR NEW.params_snapshot <> OLD.params_snapshot
BEGIN
  SELECT RAISE(ABORT, 'a run keeps its id, its job and its parameters');
END;

CREATE TABLE queues (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  pause_reason TEXT,
  sum INTEGER NOT NULL,
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_keys (
  namespace TEXT NOT NULL,
  unique_key TEXT NOT NULL,
  job_id TEXT NOT NULL,
  hold TEXT NOT NULL,
  held_until TEXT,
  sum INTEGER NOT NULL,
  PRIMARY KEY (namespace, unique_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX ix_keys_until ON job_keys(held_until, namespace, unique_key)
  WHERE hold = 'window' AND held_until IS NOT NULL;

CREATE TABLE commands (
  cmd TEXT NOT NULL PRIMARY KEY,
  digest TEXT NOT NULL,
  outcome TEXT NOT NULL,
  at TEXT NOT NULL,
  sum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX ix_commands_at ON commands(at, cmd);

CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  ts TEXT NOT NULL,
  event TEXT NOT NULL,
  -- crc32 of number, time and event, continued from the sum of the event before.
  sum INTEGER NOT NULL
) STRICT;

-- One row: what the store as a whole remembers.
CREATE TABLE meta (
  row INTEGER PRIMARY KEY CHECK (row = 1),
  store_id TEXT NOT NULL,
  -- Highest token ever granted; null until there was one, or dispatch was paused.
  last_token INTEGER,
  dispatch_paused INTEGER NOT NULL,
  dispatch_reason TEXT,
  -- The last event: its number, time and sum. Kept here because all events may have been trimmed.
  seq INTEGER NOT NULL,
  ts TEXT NOT NULL,
  chain INTEGER NOT NULL,
  -- The last event that was trimmed, where the chain of those present begins.
  trimmed_seq INTEGER NOT NULL,
  trimmed_chain INTEGER NOT NULL,
  sum INTEGER NOT NULL
) STRICT;

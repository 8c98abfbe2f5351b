-- Schema version 4 of a `sqlite:` store: reservations, groups, webhooks. A new file takes the same steps as an old one.

CREATE TABLE direct_reservations (
  row INTEGER PRIMARY KEY,
  reservation_id TEXT NOT NULL UNIQUE,
  queue TEXT NOT NULL,
  reserved_by TEXT NOT NULL,
  reserved_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  session_id TEXT,
  status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'RELEASED', 'EXPIRED')),
  ended_at TEXT,
  sum INTEGER NOT NULL,
  CHECK ((status = 'ACTIVE') = (ended_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX ux_reservations_active ON direct_reservations(namespace, queue) WHERE status = 'ACTIVE';
CREATE INDEX ix_reservations_due ON direct_reservations(expires_at, reservation_id) WHERE status = 'ACTIVE';
CREATE INDEX ix_reservations_ended ON direct_reservations(ended_at, reservation_id) WHERE ended_at IS NOT NULL;
CREATE INDEX ix_jobs_direct ON jobs(namespace, queue) WHERE status = 'RUNNING' AND direct = 1;

CREATE TABLE job_groups (
  row INTEGER PRIMARY KEY,
  group_id TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name TEXT,
  mode TEXT NOT NULL CHECK (mode IN ('sequential', 'concurrent')),
  on_failure TEXT NOT NULL CHECK (on_failure IN ('stop', 'continue', 'skip')),
  callback TEXT NOT NULL,
  status TEXT NOT NULL
    CHECK (status IN ('CREATED', 'QUEUED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'PARTIAL')),
  -- How many members there are, and how many of them are in which state; see `store check`.
  members INTEGER NOT NULL,
  queued INTEGER NOT NULL,
  running INTEGER NOT NULL,
  completed INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  started_at TEXT,
  finished_at TEXT,
  sum INTEGER NOT NULL,
  CHECK ((status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'PARTIAL')) = (finished_at IS NOT NULL))
) STRICT;

-- By the end, or by the creation of a group that has no members and never ends.
CREATE INDEX ix_groups_ended ON job_groups(coalesce(finished_at, created_at), group_id)
  WHERE finished_at IS NOT NULL OR members = 0;
CREATE INDEX ix_groups_live ON job_groups(group_id) WHERE finished_at IS NULL AND members > 0;
CREATE INDEX ix_groups_list ON job_groups(namespace, created_at, group_id);

-- What a foreign key of `jobs` would say; a table cannot be given one later.
CREATE TRIGGER jobs_group_is_there BEFORE INSERT ON jobs
  WHEN NEW.group_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM job_groups WHERE group_id = NEW.group_id)
BEGIN
  SELECT RAISE(ABORT, 'a job belongs to a group that is not there');
END;
CREATE TRIGGER jobs_group_joined_is_there BEFORE UPDATE OF group_id ON jobs
  WHEN NEW.group_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM job_groups WHERE group_id = NEW.group_id)
BEGIN
  SELECT RAISE(ABORT, 'a job belongs to a group that is not there');
END;
CREATE TRIGGER job_groups_have_no_jobs BEFORE DELETE ON job_groups
  WHEN EXISTS (SELECT 1 FROM jobs WHERE group_id = OLD.group_id)
BEGIN
  SELECT RAISE(ABORT, 'a group has jobs');
END;

-- A member of a sequential group that waits for its turn is held back (lane 1), and waits; index state like the lane.
ALTER TABLE jobs ADD COLUMN waits INTEGER CHECK (waits = 1);
DROP INDEX ix_jobs_delayed;
CREATE INDEX ix_jobs_delayed ON jobs(not_before, job_id) WHERE status = 'QUEUED' AND lane = 1 AND waits IS NULL;
-- Whose turn it is.
CREATE INDEX ix_jobs_turn ON jobs(group_id, sequence_number)
  WHERE (status = 'QUEUED' OR status = 'RUNNING') AND sequence_number IS NOT NULL;
-- Each queue may be kept by a rule of its own, so ended jobs are walked queue by queue. What failed stays longer, and
-- must not stand in the way of the rest; what belongs to a group goes with it.
DROP INDEX ix_jobs_ended;
CREATE INDEX ix_jobs_ended ON jobs(namespace, queue, status IN ('FAILED', 'DEAD'), finished_at, job_id)
  WHERE finished_at IS NOT NULL AND group_id IS NULL;

-- Failed jobs of chains, each of which is followed by another one unless its attempts are used up.
CREATE INDEX ix_jobs_chains ON jobs(job_id) WHERE status = 'FAILED' AND retry_mode = 'chain';

CREATE TABLE webhooks (
  row INTEGER PRIMARY KEY,
  webhook_id TEXT NOT NULL UNIQUE,
  url TEXT NOT NULL,
  created_at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  events TEXT NOT NULL,
  queues TEXT,
  secrets TEXT NOT NULL,
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  sum INTEGER NOT NULL
) STRICT;

CREATE TABLE webhook_deliveries (
  row INTEGER PRIMARY KEY,
  delivery_id TEXT NOT NULL UNIQUE,
  webhook_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  event TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at TEXT NOT NULL,
  next_attempt_at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('PENDING', 'DELIVERED', 'FAILED')),
  attempts INTEGER NOT NULL,
  claimed_until TEXT,
  last_status INTEGER,
  last_error TEXT,
  finished_at TEXT,
  sum INTEGER NOT NULL,
  CHECK ((status = 'PENDING') = (finished_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX ux_deliveries ON webhook_deliveries(webhook_id, run_id, event);
CREATE INDEX ix_deliveries_list ON webhook_deliveries(webhook_id, created_at, delivery_id);
-- By the next try, or by the end of the claim of who is sending it.
CREATE INDEX ix_deliveries_due ON webhook_deliveries(coalesce(claimed_until, next_attempt_at), delivery_id)
  WHERE status = 'PENDING';
CREATE INDEX ix_deliveries_ended ON webhook_deliveries(finished_at, delivery_id) WHERE finished_at IS NOT NULL;

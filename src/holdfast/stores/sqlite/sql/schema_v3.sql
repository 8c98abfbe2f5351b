-- Schema version 3 of a `sqlite:` store: templates and schedules. A new file takes the same steps as an old one.

CREATE TABLE job_templates (
  row INTEGER PRIMARY KEY,
  template_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  job_type TEXT NOT NULL,
  created_at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  default_params TEXT NOT NULL,
  options TEXT NOT NULL,
  description TEXT,
  version INTEGER NOT NULL,
  archived_at TEXT,
  updated_at TEXT,
  sum INTEGER NOT NULL,
  UNIQUE (namespace, name)
) STRICT;

CREATE TABLE schedules (
  row INTEGER PRIMARY KEY,
  schedule_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  created_at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  template_id TEXT REFERENCES job_templates(template_id),
  job_type TEXT,
  workflow TEXT,
  cron_expression TEXT,
  interval_s REAL,
  run_at TEXT,
  timezone TEXT NOT NULL,
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  pause_reason TEXT,
  param_overrides TEXT NOT NULL,
  options TEXT NOT NULL,
  priority INTEGER,
  queue TEXT,
  catch_up TEXT NOT NULL CHECK (catch_up IN ('none', 'latest', 'all')),
  catch_up_window_s REAL,
  grace_s REAL NOT NULL,
  overlap TEXT NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow')),
  jitter_s REAL NOT NULL,
  start_at TEXT,
  end_at TEXT,
  last_fire_at TEXT,
  next_fire_at TEXT,
  last_triggered_at TEXT,
  next_trigger_at TEXT,
  fires INTEGER NOT NULL,
  missed INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('code', 'api')),
  version INTEGER NOT NULL,
  updated_at TEXT,
  sum INTEGER NOT NULL,
  UNIQUE (namespace, name),
  CHECK ((template_id IS NOT NULL) + (job_type IS NOT NULL) + (workflow IS NOT NULL) = 1),
  CHECK ((cron_expression IS NOT NULL) + (interval_s IS NOT NULL) + (run_at IS NOT NULL) = 1),
  CHECK ((next_fire_at IS NULL) = (next_trigger_at IS NULL)),
  CHECK (enabled = 1 OR next_fire_at IS NULL)
) STRICT;

CREATE INDEX ix_schedules_due ON schedules(next_trigger_at, schedule_id)
  WHERE enabled = 1 AND next_trigger_at IS NOT NULL;
CREATE INDEX ix_schedules_template ON schedules(template_id) WHERE template_id IS NOT NULL;

-- With the id at its end: the first of them is named where a job is skipped, the same on every store.
DROP INDEX ix_jobs_schedule;
CREATE INDEX ix_jobs_schedule ON jobs(schedule_id, job_id)
  WHERE (status = 'QUEUED' OR status = 'RUNNING') AND schedule_id IS NOT NULL;
-- Who holds back the jobs that wait for others of their schedule: asked for each that waits.
CREATE INDEX ix_jobs_overlap ON jobs(schedule_id) WHERE status = 'RUNNING' AND schedule_id IS NOT NULL;

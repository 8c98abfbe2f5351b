-- Schema version 5 of a `sqlite:` store: workflow instances. A new file takes the same steps as an old one.
--
-- `blob` names the content beside a record that one of its fields refers to, so that it is found without reading it.

CREATE TABLE instances (
  row INTEGER PRIMARY KEY,
  instance_id TEXT NOT NULL UNIQUE,
  orchestration_name TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  seq INTEGER NOT NULL UNIQUE,
  orchestration_version TEXT,
  current_execution_id INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'CONTINUED_AS_NEW')),
  completed_at TEXT,
  parent_instance_id TEXT,
  custom_status TEXT NOT NULL,
  custom_status_version INTEGER NOT NULL,
  waiting_on TEXT,
  digest TEXT,
  forked_from TEXT,
  forks TEXT NOT NULL,
  schedule_id TEXT,
  keep_until TEXT,
  blob TEXT,
  sum INTEGER NOT NULL,
  CHECK ((status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = (completed_at IS NOT NULL))
) STRICT;

CREATE INDEX ix_instances_status ON instances(status, seq);
CREATE INDEX ix_instances_parent ON instances(parent_instance_id, seq) WHERE parent_instance_id IS NOT NULL;
CREATE INDEX ix_instances_ended ON instances(completed_at, instance_id)
  WHERE completed_at IS NOT NULL AND parent_instance_id IS NULL;
CREATE INDEX ix_instances_aging ON instances(completed_at, instance_id)
  WHERE completed_at IS NOT NULL AND parent_instance_id IS NULL AND keep_until IS NULL;
CREATE INDEX ix_instances_leaving ON instances(keep_until, instance_id)
  WHERE keep_until IS NOT NULL AND parent_instance_id IS NULL;
CREATE INDEX ix_instances_schedule ON instances(schedule_id, instance_id)
  WHERE schedule_id IS NOT NULL AND completed_at IS NULL;
CREATE INDEX ix_instances_blob ON instances(blob) WHERE blob IS NOT NULL;

CREATE TABLE executions (
  row INTEGER PRIMARY KEY,
  instance_id TEXT NOT NULL REFERENCES instances(instance_id),
  execution_id INTEGER NOT NULL,
  history_id INTEGER NOT NULL UNIQUE,
  started_at TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'CONTINUED_AS_NEW')),
  output TEXT NOT NULL,
  completed_at TEXT,
  event_count INTEGER NOT NULL,
  history_bytes INTEGER NOT NULL,
  last_event_id INTEGER NOT NULL,
  pinned_engine_version TEXT,
  blob TEXT,
  sum INTEGER NOT NULL,
  UNIQUE (instance_id, execution_id),
  CHECK ((status = 'RUNNING') = (completed_at IS NULL))
) STRICT;

CREATE INDEX ix_executions_blob ON executions(blob) WHERE blob IS NOT NULL;

CREATE TRIGGER executions_end_is_final AFTER UPDATE OF status ON executions
  WHEN OLD.completed_at IS NOT NULL AND NEW.status <> OLD.status
BEGIN
  SELECT RAISE(ABORT, 'an ended execution keeps its status');
END;

-- Only added to; an execution that goes takes its history along.
CREATE TABLE history (
  history_id INTEGER NOT NULL REFERENCES executions(history_id) ON DELETE CASCADE,
  event_id INTEGER NOT NULL CHECK (event_id >= 1),
  event TEXT NOT NULL,
  blob TEXT,
  sum INTEGER NOT NULL,
  PRIMARY KEY (history_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX ix_history_blob ON history(blob) WHERE blob IS NOT NULL;

CREATE TABLE orchestrator_queue (
  seq INTEGER PRIMARY KEY,
  instance_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  item TEXT NOT NULL,
  due_at TEXT NOT NULL,
  stored_at TEXT NOT NULL,
  visible_at TEXT,
  attempts INTEGER NOT NULL,
  parked TEXT,
  drop_at TEXT,
  orchestration TEXT,
  version TEXT,
  parent_instance_id TEXT,
  execution_id INTEGER,
  event_id INTEGER,
  digest TEXT,
  schedule_id TEXT,
  blob TEXT,
  sum INTEGER NOT NULL
) STRICT;

-- In the order of delivery: what can go at once, and what has a time. What has a time stands by the one it was given
-- first, so that those still to come are never passed.
CREATE INDEX ix_queue_ready ON orchestrator_queue(due_at, seq, instance_id) WHERE parked IS NULL AND visible_at IS NULL;
CREATE INDEX ix_queue_timed ON orchestrator_queue(due_at, seq, visible_at, instance_id)
  WHERE parked IS NULL AND visible_at IS NOT NULL;
CREATE INDEX ix_queue_visible ON orchestrator_queue(visible_at, seq) WHERE parked IS NULL AND visible_at IS NOT NULL;
CREATE INDEX ix_queue_instance ON orchestrator_queue(instance_id, due_at, seq);
CREATE INDEX ix_queue_start ON orchestrator_queue(instance_id) WHERE orchestration IS NOT NULL;
CREATE INDEX ix_queue_timer ON orchestrator_queue(instance_id, execution_id, event_id) WHERE event_id IS NOT NULL;
CREATE INDEX ix_queue_parked ON orchestrator_queue(drop_at, seq) WHERE parked IS NOT NULL AND drop_at IS NOT NULL;
CREATE INDEX ix_queue_schedule ON orchestrator_queue(schedule_id, parked, seq) WHERE schedule_id IS NOT NULL;
CREATE INDEX ix_queue_blob ON orchestrator_queue(blob) WHERE blob IS NOT NULL;

CREATE TABLE turns (
  instance_id TEXT NOT NULL PRIMARY KEY,
  seq INTEGER NOT NULL,
  token INTEGER UNIQUE,
  locked_until TEXT,
  locked_at TEXT,
  messages TEXT NOT NULL,
  session_id TEXT,
  cmd TEXT NOT NULL,
  reason TEXT,
  reason_at TEXT,
  sum INTEGER NOT NULL
) STRICT;

CREATE INDEX ix_turns_lock ON turns(locked_until, instance_id) WHERE locked_until IS NOT NULL;
CREATE INDEX ix_turns_stuck ON turns(instance_id) WHERE locked_until IS NULL AND reason IS NOT NULL;

CREATE TABLE instance_kv (
  instance_id TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  touched INTEGER NOT NULL CHECK (touched IN (0, 1)),
  delta TEXT NOT NULL,
  delta_at_ms INTEGER NOT NULL,
  sum INTEGER NOT NULL,
  PRIMARY KEY (instance_id, key)
) STRICT;

CREATE TABLE sessions (
  session TEXT NOT NULL PRIMARY KEY,
  owner_id TEXT NOT NULL,
  locked_until TEXT NOT NULL,
  last_activity_at TEXT NOT NULL,
  sum INTEGER NOT NULL
) STRICT;

CREATE INDEX ix_sessions_owner ON sessions(owner_id, session);
CREATE INDEX ix_sessions_lock ON sessions(locked_until, session);

CREATE TABLE decisions (
  decision_id TEXT NOT NULL PRIMARY KEY,
  instance_id TEXT NOT NULL,
  execution_id INTEGER NOT NULL,
  event_id INTEGER NOT NULL,
  question TEXT NOT NULL,
  created_at TEXT NOT NULL,
  options TEXT,
  answered_by TEXT,
  closed_at TEXT,
  answer TEXT NOT NULL,
  sum INTEGER NOT NULL
) STRICT;

CREATE INDEX ix_decisions_instance ON decisions(instance_id, decision_id);

-- Activities are jobs: found by their token, counted where they wait, and by the session they belong to.
CREATE UNIQUE INDEX ux_jobs_activity ON jobs(token) WHERE token IS NOT NULL AND owner IS NOT NULL;
CREATE INDEX ix_jobs_owned ON jobs(queue) WHERE status = 'QUEUED' AND owner IS NOT NULL;
CREATE INDEX ix_jobs_affinity ON jobs(affinity) WHERE affinity IS NOT NULL AND finished_at IS NULL;

-- Statements of the `sqlite:` store on workflow instances. Blocks as in `statements.sql`.

-- name: instance
-- One record of `instances` by its key.
SELECT {instances} FROM instances WHERE instance_id = ?;

-- name: all_instances
-- Every record of `instances`, in the order of its key.
SELECT {instances} FROM instances ORDER BY instance_id;

-- name: save_instance
-- A new or changed record of `instances`. What its executions refer to stays: naming it would look at each of them.
INSERT INTO instances ({instances}, blob, sum) VALUES ({instances?}, ?, ?)
ON CONFLICT (instance_id) DO UPDATE SET orchestration_name = excluded.orchestration_name,
  updated_at = excluded.updated_at, orchestration_version = excluded.orchestration_version,
  current_execution_id = excluded.current_execution_id, status = excluded.status, completed_at = excluded.completed_at,
  custom_status = excluded.custom_status, custom_status_version = excluded.custom_status_version,
  waiting_on = excluded.waiting_on, forks = excluded.forks,
  keep_until = excluded.keep_until, blob = excluded.blob, sum = excluded.sum;

-- name: go_on_instance
-- What most turns change: it is told to be elsewhere. No index is touched.
UPDATE instances SET updated_at = ?, waiting_on = ?, sum = ? WHERE instance_id = ?;

-- name: delete_instance
-- Forget a record of `instances`.
DELETE FROM instances WHERE instance_id = ?;

-- name: summed_instances
-- Every record of `instances` with its sum.
SELECT {instances}, blob, sum FROM instances;

-- name: execution
-- One record of `executions` by its key.
SELECT {executions} FROM executions WHERE instance_id = ? AND execution_id = ?;

-- name: all_executions
-- Every record of `executions`, in the order of its key.
SELECT {executions} FROM executions ORDER BY instance_id, CAST(execution_id AS TEXT);

-- name: save_execution
-- A new or changed record of `executions`. What its history refers to stays: naming it would look at every event.
INSERT INTO executions ({executions}, blob, sum) VALUES ({executions?}, ?, ?)
ON CONFLICT (instance_id, execution_id) DO UPDATE SET status = excluded.status, output = excluded.output,
  completed_at = excluded.completed_at, event_count = excluded.event_count, history_bytes = excluded.history_bytes,
  last_event_id = excluded.last_event_id, pinned_engine_version = excluded.pinned_engine_version,
  blob = excluded.blob, sum = excluded.sum;

-- name: lengthen_execution
-- What most turns change: there are more events. No index is touched, and nothing that refers to it.
UPDATE executions SET event_count = ?, history_bytes = ?, last_event_id = ?, sum = ?
WHERE instance_id = ? AND execution_id = ?;

-- name: delete_execution
-- Forget a record of `executions`.
DELETE FROM executions WHERE instance_id = ? AND execution_id = ?;

-- name: summed_executions
-- Every record of `executions` with its sum.
SELECT {executions}, blob, sum FROM executions;

-- name: event_row
-- One record of `history` by its key.
SELECT {history} FROM history WHERE history_id = ? AND event_id = ?;

-- name: all_event_rows
-- Every record of `history`, in the order of its key.
SELECT {history} FROM history ORDER BY history_id, event_id;

-- name: save_event_row
-- A new or changed record of `history`.
INSERT INTO history ({history}, blob, sum) VALUES ({history?}, ?, ?)
ON CONFLICT (history_id, event_id) DO UPDATE SET {history=}, blob = excluded.blob, sum = excluded.sum;

-- name: delete_event_row
-- Forget a record of `history`.
DELETE FROM history WHERE history_id = ? AND event_id = ?;

-- name: summed_event_rows
-- Every record of `history` with its sum.
SELECT {history}, blob, sum FROM history;

-- name: message
-- One record of `orchestrator_queue` by its key.
SELECT {orchestrator_queue} FROM orchestrator_queue WHERE seq = ?;

-- name: all_messages
-- Every record of `orchestrator_queue`, in the order of its key.
SELECT {orchestrator_queue} FROM orchestrator_queue ORDER BY seq;

-- name: save_message
-- A new or changed record of `orchestrator_queue`.
INSERT INTO orchestrator_queue ({orchestrator_queue}, blob, sum) VALUES ({orchestrator_queue?}, ?, ?)
ON CONFLICT (seq) DO UPDATE SET {orchestrator_queue=}, blob = excluded.blob, sum = excluded.sum;

-- name: delete_message
-- Forget a record of `orchestrator_queue`.
DELETE FROM orchestrator_queue WHERE seq = ?;

-- name: summed_messages
-- Every record of `orchestrator_queue` with its sum.
SELECT {orchestrator_queue}, blob, sum FROM orchestrator_queue;

-- name: turn
-- One record of `turns` by its key.
SELECT {turns} FROM turns WHERE instance_id = ?;

-- name: all_turns
-- Every record of `turns`, in the order of its key.
SELECT {turns} FROM turns ORDER BY instance_id;

-- name: save_turn
-- A new or changed record of `turns`.
INSERT INTO turns ({turns}, sum) VALUES ({turns?}, ?)
ON CONFLICT (instance_id) DO UPDATE SET {turns=}, sum = excluded.sum;

-- name: hold_turn
-- The same holder goes on: until when, and with which messages.
UPDATE turns SET seq = ?, locked_until = ?, messages = ?, sum = ? WHERE instance_id = ?;

-- name: delete_turn
-- Forget a record of `turns`.
DELETE FROM turns WHERE instance_id = ?;

-- name: summed_turns
-- Every record of `turns` with its sum.
SELECT {turns}, sum FROM turns;

-- name: key_value
-- One record of `instance_kv` by its key.
SELECT {instance_kv} FROM instance_kv WHERE instance_id = ? AND key = ?;

-- name: all_key_values
-- Every record of `instance_kv`, in the order of its key.
SELECT {instance_kv} FROM instance_kv ORDER BY instance_id, key;

-- name: save_key_value
-- A new or changed record of `instance_kv`.
INSERT INTO instance_kv ({instance_kv}, sum) VALUES ({instance_kv?}, ?)
ON CONFLICT (instance_id, key) DO UPDATE SET {instance_kv=}, sum = excluded.sum;

-- name: delete_key_value
-- Forget a record of `instance_kv`.
DELETE FROM instance_kv WHERE instance_id = ? AND key = ?;

-- name: summed_key_values
-- Every record of `instance_kv` with its sum.
SELECT {instance_kv}, sum FROM instance_kv;

-- name: affinity
-- One record of `sessions` by its key.
SELECT {sessions} FROM sessions WHERE session = ?;

-- name: all_affinities
-- Every record of `sessions`, in the order of its key.
SELECT {sessions} FROM sessions ORDER BY session;

-- name: save_affinity
-- A new or changed record of `sessions`.
INSERT INTO sessions ({sessions}, sum) VALUES ({sessions?}, ?)
ON CONFLICT (session) DO UPDATE SET {sessions=}, sum = excluded.sum;

-- name: delete_affinity
-- Forget a record of `sessions`.
DELETE FROM sessions WHERE session = ?;

-- name: summed_affinities
-- Every record of `sessions` with its sum.
SELECT {sessions}, sum FROM sessions;

-- name: decision
-- One record of `decisions` by its key.
SELECT {decisions} FROM decisions WHERE decision_id = ?;

-- name: all_decisions
-- Every record of `decisions`, in the order of its key.
SELECT {decisions} FROM decisions ORDER BY decision_id;

-- name: save_decision
-- A new or changed record of `decisions`.
INSERT INTO decisions ({decisions}, sum) VALUES ({decisions?}, ?)
ON CONFLICT (decision_id) DO UPDATE SET {decisions=}, sum = excluded.sum;

-- name: delete_decision
-- Forget a record of `decisions`.
DELETE FROM decisions WHERE decision_id = ?;

-- name: summed_decisions
-- Every record of `decisions` with its sum.
SELECT {decisions}, sum FROM decisions;

-- name: turn_by_token
-- The turn with one token.
SELECT {turns} FROM turns WHERE token = ?;

-- name: due_turns
-- Turns whose lock ends by a time, earliest first.
SELECT {turns} FROM turns WHERE locked_until <= ? ORDER BY locked_until, instance_id;

-- name: next_turn
-- When the first lock ends.
SELECT min(locked_until) FROM turns WHERE locked_until IS NOT NULL;

-- name: local_turns
-- Turns that an opening of the store holds.
SELECT {turns} FROM turns WHERE locked_until IS NOT NULL AND session_id IS NOT NULL ORDER BY locked_until, instance_id;

-- name: stuck_turns
-- Turns that were given back with a reason and that nobody holds.
SELECT {turns} FROM turns WHERE locked_until IS NULL AND reason IS NOT NULL ORDER BY instance_id;

-- name: ready_mail
-- Messages that can go at once, in order, of instances that nobody holds and that are there or can begin.
SELECT due_at, seq, instance_id FROM orchestrator_queue AS q INDEXED BY ix_queue_ready
WHERE parked IS NULL AND visible_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.instance_id = q.instance_id AND locked_until IS NOT NULL)
  AND (EXISTS (SELECT 1 FROM instances WHERE instances.instance_id = q.instance_id)
    OR EXISTS (SELECT 1 FROM orchestrator_queue AS s WHERE s.instance_id = q.instance_id
      AND s.orchestration IS NOT NULL AND s.parked IS NULL AND (s.visible_at IS NULL OR s.visible_at <= :now)))
ORDER BY due_at, seq;

-- name: timed_mail
-- Messages whose time has come, in order, of instances that nobody holds and that are there or can begin.
SELECT due_at, seq, instance_id FROM orchestrator_queue AS q INDEXED BY ix_queue_timed
WHERE parked IS NULL AND visible_at IS NOT NULL AND due_at <= :now AND visible_at <= :now
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.instance_id = q.instance_id AND locked_until IS NOT NULL)
  AND (EXISTS (SELECT 1 FROM instances WHERE instances.instance_id = q.instance_id)
    OR EXISTS (SELECT 1 FROM orchestrator_queue AS s WHERE s.instance_id = q.instance_id
      AND s.orchestration IS NOT NULL AND s.parked IS NULL AND (s.visible_at IS NULL OR s.visible_at <= :now)))
ORDER BY due_at, seq;

-- name: few_timed_mail
-- The same where few have come: found by their times and put in order, past however many that wait for theirs.
SELECT due_at, seq, instance_id FROM orchestrator_queue AS q INDEXED BY ix_queue_visible
WHERE parked IS NULL AND visible_at <= :now AND due_at <= :now
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.instance_id = q.instance_id AND locked_until IS NOT NULL)
  AND (EXISTS (SELECT 1 FROM instances WHERE instances.instance_id = q.instance_id)
    OR EXISTS (SELECT 1 FROM orchestrator_queue AS s WHERE s.instance_id = q.instance_id
      AND s.orchestration IS NOT NULL AND s.parked IS NULL AND (s.visible_at IS NULL OR s.visible_at <= :now)))
ORDER BY due_at, seq;

-- name: is_mail_heaped
-- Whether so many messages' time has come that putting all of them in order would cost more than walking in order.
SELECT 1 FROM orchestrator_queue INDEXED BY ix_queue_visible
WHERE parked IS NULL AND visible_at <= ? LIMIT 1 OFFSET 200;

-- name: visible_mail
-- The messages of one instance that nothing holds back, in order.
SELECT {orchestrator_queue} FROM orchestrator_queue INDEXED BY ix_queue_instance
WHERE instance_id = ? AND parked IS NULL AND (visible_at IS NULL OR visible_at <= ?) ORDER BY due_at, seq;

-- name: beginnings
-- The messages of one instance that begin an execution, by number.
SELECT {orchestrator_queue} FROM orchestrator_queue INDEXED BY ix_queue_start
WHERE instance_id = ? AND orchestration IS NOT NULL ORDER BY seq;

-- name: mail
-- All messages of one instance, by number.
SELECT {orchestrator_queue} FROM orchestrator_queue WHERE instance_id = ? ORDER BY seq;

-- name: timers
-- The queued timers that one event asked for.
SELECT {orchestrator_queue} FROM orchestrator_queue
WHERE instance_id = ? AND execution_id = ? AND event_id = ? ORDER BY seq;

-- name: due_mail
-- Messages that are delivered by a time, earliest first.
SELECT {orchestrator_queue} FROM orchestrator_queue
WHERE parked IS NULL AND visible_at <= ? ORDER BY visible_at, seq;

-- name: next_mail
-- When the first message is delivered that has a time.
SELECT min(visible_at) FROM orchestrator_queue WHERE parked IS NULL AND visible_at IS NOT NULL;

-- name: due_parked
-- Parked messages that are dropped by a time, earliest first.
SELECT {orchestrator_queue} FROM orchestrator_queue WHERE parked IS NOT NULL AND drop_at <= ? ORDER BY drop_at, seq;

-- name: next_parked
-- When the first parked message is dropped.
SELECT min(drop_at) FROM orchestrator_queue WHERE parked IS NOT NULL AND drop_at IS NOT NULL;

-- name: executions_of
-- The executions of one instance, ascending.
SELECT {executions} FROM executions WHERE instance_id = ? ORDER BY execution_id;

-- name: children
-- The instances whose parent is this one, oldest first.
SELECT instance_id FROM instances WHERE parent_instance_id = ? ORDER BY seq;

-- name: instances_of_status
-- The instances of one status, newest first, made before a number.
SELECT {instances} FROM instances INDEXED BY ix_instances_status
WHERE status = :status AND seq < :before
  AND (:name IS NULL OR orchestration_name = :name) AND (:parent IS NULL OR parent_instance_id = :parent)
  AND (:submitted_by IS NULL OR submitted_by = :submitted_by)
ORDER BY seq DESC;

-- name: ended_instances
-- Roots that ended by a time, earliest first.
SELECT {instances} FROM instances WHERE completed_at <= ? AND parent_instance_id IS NULL
ORDER BY completed_at, instance_id;

-- name: next_ended_instance
-- When the first root ended.
SELECT min(completed_at) FROM instances WHERE completed_at IS NOT NULL AND parent_instance_id IS NULL;

-- name: aging_instances
-- Roots that ended by a time and say nothing of how long they are kept, earliest first.
SELECT {instances} FROM instances WHERE completed_at <= ? AND parent_instance_id IS NULL AND keep_until IS NULL
ORDER BY completed_at, instance_id;

-- name: next_aging_instance
-- When the first of them ended.
SELECT min(completed_at) FROM instances
WHERE completed_at IS NOT NULL AND parent_instance_id IS NULL AND keep_until IS NULL;

-- name: leaving_instances
-- Roots that go by a time, earliest first.
SELECT {instances} FROM instances WHERE keep_until <= ? AND parent_instance_id IS NULL
ORDER BY keep_until, instance_id;

-- name: next_leaving_instance
-- When the first of them goes.
SELECT min(keep_until) FROM instances WHERE keep_until IS NOT NULL AND parent_instance_id IS NULL;

-- name: begun_by
-- The instances of a schedule that are not over, and those whose start waits to be delivered.
SELECT instance_id FROM instances WHERE schedule_id = :schedule AND completed_at IS NULL
UNION SELECT instance_id FROM orchestrator_queue WHERE schedule_id = :schedule AND parked IS NULL ORDER BY instance_id;

-- name: starts_under
-- The starts that wait to be taken of instances whose parent is this one, oldest first.
SELECT {orchestrator_queue} FROM orchestrator_queue INDEXED BY ix_queue_parent
WHERE parent_instance_id = ? AND orchestration IS NOT NULL ORDER BY seq;

-- name: unbegun
-- The first starts of instances that have no record, by instance: without those that were set aside.
SELECT {orchestrator_queue} FROM orchestrator_queue AS q INDEXED BY ix_queue_start
WHERE instance_id > :after AND orchestration IS NOT NULL AND (parked IS NULL OR parked = 'overlap')
  AND (:name IS NULL OR orchestration = :name) AND (:submitted_by IS NULL OR submitted_by = :submitted_by)
  AND NOT EXISTS (SELECT 1 FROM instances WHERE instances.instance_id = q.instance_id)
  AND NOT EXISTS (SELECT 1 FROM orchestrator_queue AS s WHERE s.instance_id = q.instance_id
    AND s.orchestration IS NOT NULL AND (s.parked IS NULL OR s.parked = 'overlap') AND s.seq < q.seq)
ORDER BY instance_id LIMIT :limit;

-- name: held_by
-- The starts of a schedule that wait for another of its instances to end, oldest first.
SELECT {orchestrator_queue} FROM orchestrator_queue WHERE schedule_id = ? AND parked = 'overlap' ORDER BY seq;

-- name: execution_of
-- The execution that has a history.
SELECT {executions} FROM executions WHERE history_id = ?;

-- name: history_of
-- The events of one history behind an id, by id.
SELECT {history} FROM history WHERE history_id = ? AND event_id > ? ORDER BY event_id LIMIT ?;

-- name: keys_of
-- The keys of one instance, by name.
SELECT {instance_kv} FROM instance_kv WHERE instance_id = ? ORDER BY key;

-- name: decisions_of
-- The questions of one instance, by id.
SELECT {decisions} FROM decisions WHERE instance_id = ? ORDER BY decision_id;

-- name: leased
-- The running activity with one token.
SELECT {jobs} FROM jobs INDEXED BY ux_jobs_activity WHERE token = ? AND owner IS NOT NULL;

-- name: activities
-- The jobs of one activity, oldest first.
SELECT {jobs} FROM jobs WHERE owner = ? ORDER BY created_at, job_id;

-- name: activities_of
-- The jobs of all activities whose owners lie between two texts, by id.
SELECT {jobs} FROM jobs WHERE owner >= ? AND owner < ? ORDER BY job_id;

-- name: owned_queues
-- The queues in which activities wait.
SELECT DISTINCT queue FROM jobs INDEXED BY ix_jobs_owned WHERE status = 'QUEUED' AND owner IS NOT NULL ORDER BY queue;

-- name: affinities_of
-- The sessions of one owner, by name.
SELECT {sessions} FROM sessions WHERE owner_id = ? ORDER BY session;

-- name: due_affinities
-- Sessions that are held until a time, earliest first.
SELECT {sessions} FROM sessions WHERE locked_until <= ? ORDER BY locked_until, session;

-- name: next_affinity
-- When the first session lapses.
SELECT min(locked_until) FROM sessions;

-- name: is_spoken_of
-- Whether a waiting or running job belongs to one session.
SELECT 1 FROM jobs WHERE affinity = ? AND finished_at IS NULL LIMIT 1;

-- name: count_instances
-- How many instances have which status.
SELECT status, count(*) FROM instances GROUP BY status;

-- name: count_executions
-- How many executions and events there are.
SELECT count(*), coalesce(sum(event_count), 0) FROM executions;

-- name: count_mail
-- How many messages are not parked, how many of these are timers that are not due, and how many messages there are.
-- By indexes: the table has the items, which may be large. Last comes how many are handed out.
SELECT (SELECT count(*) FROM orchestrator_queue INDEXED BY ix_queue_ready WHERE parked IS NULL AND visible_at IS NULL)
  + (SELECT count(*) FROM orchestrator_queue INDEXED BY ix_queue_visible
    WHERE parked IS NULL AND visible_at IS NOT NULL),
  (SELECT count(*) FROM orchestrator_queue INDEXED BY ix_queue_visible
    WHERE parked IS NULL AND visible_at > :now AND event_id IS NOT NULL),
  (SELECT count(*) FROM orchestrator_queue),
  (SELECT coalesce(sum(json_array_length(messages)), 0) FROM turns WHERE locked_until > :now);

-- name: count_activities
-- How many activities wait, or have lost their worker.
SELECT (SELECT count(*) FROM jobs INDEXED BY ix_jobs_owned WHERE status = 'QUEUED' AND owner IS NOT NULL),
  (SELECT count(*) FROM jobs WHERE status = 'RUNNING' AND lease_expires_at <= ? AND owner IS NOT NULL);

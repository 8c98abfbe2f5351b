-- Every statement the `sqlite:` store runs on its tables. A block opens with its name and one sentence.
-- `{jobs}`, `{job_runs}` … stand for the columns of a table in the order of the record's fields, `{jobs?}` for as many
-- parameters, `{webhooks=}` for their replacement in an upsert. Values are always bound.

-- name: job
-- One job by its id.
SELECT {jobs} FROM jobs WHERE job_id = ?;

-- name: run
-- One run by its id.
SELECT {job_runs} FROM job_runs WHERE run_id = ?;

-- name: queue
-- One queue's settings.
SELECT {queues} FROM queues WHERE namespace = ? AND name = ?;

-- name: held_key
-- The holder of one key.
SELECT {job_keys} FROM job_keys WHERE namespace = ? AND unique_key = ?;

-- name: command
-- One remembered command.
SELECT {commands} FROM commands WHERE cmd = ?;

-- name: template
-- One template by its id.
SELECT {job_templates} FROM job_templates WHERE template_id = ?;

-- name: schedule
-- One schedule by its id.
SELECT {schedules} FROM schedules WHERE schedule_id = ?;

-- name: template_by_name
-- One template by its name.
SELECT {job_templates} FROM job_templates WHERE namespace = ? AND name = ?;

-- name: schedule_by_name
-- One schedule by its name.
SELECT {schedules} FROM schedules WHERE namespace = ? AND name = ?;

-- name: schedules_of
-- The schedules that use a template, by id.
SELECT {schedules} FROM schedules WHERE template_id = ? ORDER BY schedule_id;

-- name: meta
-- What the store as a whole remembers.
SELECT {meta} FROM meta;

-- name: all_jobs
-- Every job, by id.
SELECT {jobs} FROM jobs ORDER BY job_id;

-- name: all_runs
-- Every run, by id.
SELECT {job_runs} FROM job_runs ORDER BY run_id;

-- name: all_queues
-- Every queue that has settings.
SELECT {queues} FROM queues ORDER BY namespace, name;

-- name: all_held_keys
-- Every held key.
SELECT {job_keys} FROM job_keys ORDER BY namespace, unique_key;

-- name: all_commands
-- Every remembered command.
SELECT {commands} FROM commands ORDER BY cmd;

-- name: all_templates
-- Every template, by id.
SELECT {job_templates} FROM job_templates ORDER BY template_id;

-- name: all_schedules
-- Every schedule, by id.
SELECT {schedules} FROM schedules ORDER BY schedule_id;

-- name: highest_ids
-- The highest id of each kind: a greater one is new, and nothing was sent to an instance above the last of these.
SELECT (SELECT max(job_id) FROM jobs), (SELECT max(run_id) FROM job_runs),
  (SELECT max(instance_id) FROM instances), (SELECT max(instance_id) FROM turns),
  (SELECT max(instance_id) FROM orchestrator_queue);

-- name: runs_of_job
-- The runs of one job, oldest first; one that never started has no number and comes last.
SELECT {job_runs} FROM job_runs WHERE job_id = ? ORDER BY run_no = 0, run_no, started_at, run_id;

-- name: successors
-- The jobs that retry one job, oldest first.
SELECT {jobs} FROM jobs WHERE retry_of = ? ORDER BY created_at, job_id;

-- name: granted_by
-- The running jobs that one command leased, in the order it did.
SELECT {jobs} FROM jobs WHERE status = 'RUNNING' AND grant_cmd = ? ORDER BY token;

-- name: local_leases
-- The running jobs whose worker lives in a process that opened the store.
SELECT {jobs} FROM jobs WHERE status = 'RUNNING' AND session_id IS NOT NULL ORDER BY lease_expires_at, job_id;

-- name: ready
-- The jobs of one queue that may be leased, in the order of dispatch, from one place to before another.
-- All, or those of some tasks (a JSON list). All, or those that need not wait: for a place of their limit key,
-- or until no other job of their schedule runs.
SELECT {jobs} FROM jobs INDEXED BY ix_jobs_ready
WHERE status = 'QUEUED' AND lane = 0 AND namespace = ? AND queue = ?
  AND (rank, position, created_at, job_id) >= (?, ?, ?, ?) AND (rank, position, created_at, job_id) < (?, ?, ?, ?)
  AND (? OR job_type IN (SELECT value FROM json_each(?)))
  AND (? OR limit_key IS NULL OR key_limit > (
    SELECT count(*) FROM jobs AS held
    WHERE held.status = 'RUNNING' AND held.namespace = jobs.namespace AND held.limit_key = jobs.limit_key))
  AND (? OR overlap IS NOT 'queue' OR NOT EXISTS (
    SELECT 1 FROM jobs AS before INDEXED BY ix_jobs_overlap
    WHERE before.status = 'RUNNING' AND before.schedule_id = jobs.schedule_id))
ORDER BY rank, position, created_at, job_id;

-- name: place_behind
-- The place of the ready job that stands so many behind a place.
SELECT rank, position, created_at, job_id FROM jobs INDEXED BY ix_jobs_ready
WHERE status = 'QUEUED' AND lane = 0 AND namespace = ? AND queue = ?
  AND (rank, position, created_at, job_id) >= (?, ?, ?, ?)
ORDER BY rank, position, created_at, job_id LIMIT 1 OFFSET ?;

-- name: heads_of_tasks
-- The place of the first ready job of each of these tasks (a JSON list) in one queue, from a place on.
SELECT json_each.value, head.rank, head.position, head.created_at, head.job_id
FROM json_each(?) JOIN jobs AS head ON head.row = (
  SELECT row FROM jobs INDEXED BY ix_jobs_task
  WHERE status = 'QUEUED' AND lane = 0 AND namespace = ? AND queue = ? AND job_type = json_each.value
    AND (rank, position, created_at, job_id) >= (?, ?, ?, ?)
  ORDER BY rank, position, created_at, job_id LIMIT 1);

-- name: ready_of_task
-- The same as `ready`, of one task and without an end.
SELECT {jobs} FROM jobs INDEXED BY ix_jobs_task
WHERE status = 'QUEUED' AND lane = 0 AND namespace = ? AND queue = ? AND job_type = ?
  AND (rank, position, created_at, job_id) >= (?, ?, ?, ?)
  AND (? OR limit_key IS NULL OR key_limit > (
    SELECT count(*) FROM jobs AS held
    WHERE held.status = 'RUNNING' AND held.namespace = jobs.namespace AND held.limit_key = jobs.limit_key))
  AND (? OR overlap IS NOT 'queue' OR NOT EXISTS (
    SELECT 1 FROM jobs AS before INDEXED BY ix_jobs_overlap
    WHERE before.status = 'RUNNING' AND before.schedule_id = jobs.schedule_id))
ORDER BY rank, position, created_at, job_id;

-- name: running
-- The running jobs of one queue; the index of all lists is covering, but would pass those of every other queue.
SELECT job_id FROM jobs INDEXED BY ix_jobs_active WHERE status = 'RUNNING' AND namespace = ? AND queue = ?;

-- name: running_with
-- The running jobs of a namespace that carry one limit key.
SELECT job_id FROM jobs WHERE status = 'RUNNING' AND namespace = ? AND limit_key = ?;

-- name: running_of
-- The running jobs of one schedule.
SELECT job_id FROM jobs INDEXED BY ix_jobs_overlap WHERE status = 'RUNNING' AND schedule_id = ?;

-- name: active_of
-- The first job of one schedule, by id, that is queued or runs.
SELECT min(job_id) FROM jobs WHERE (status = 'QUEUED' OR status = 'RUNNING') AND schedule_id = ?;

-- name: starts
-- When executions of one queue started after a time, earliest first; a run that was skipped has no token.
SELECT started_at FROM job_runs
WHERE namespace = ? AND queue = ? AND started_at > ? AND token IS NOT NULL
ORDER BY started_at LIMIT -1 OFFSET ?;

-- name: starts_with
-- The same, of the jobs that carried one limit key.
SELECT started_at FROM job_runs
WHERE namespace = ? AND queue = ? AND limit_key = ? AND started_at > ? AND token IS NOT NULL
ORDER BY started_at LIMIT -1 OFFSET ?;

-- name: queued
-- All queued jobs of one queue, held back or not, in order.
SELECT {jobs} FROM jobs WHERE status = 'QUEUED' AND lane = 0 AND namespace = :namespace AND queue = :queue
UNION ALL
SELECT {jobs} FROM jobs WHERE status = 'QUEUED' AND lane = 1 AND namespace = :namespace AND queue = :queue
ORDER BY rank, position, created_at, job_id;

-- name: band
-- All queued jobs of one band, held back or not, in order.
SELECT {jobs} FROM jobs
WHERE status = 'QUEUED' AND lane = 0 AND namespace = :namespace AND queue = :queue AND rank = :rank
UNION ALL
SELECT {jobs} FROM jobs
WHERE status = 'QUEUED' AND lane = 1 AND namespace = :namespace AND queue = :queue AND rank = :rank
ORDER BY rank, position, created_at, job_id;

-- name: next_band
-- The lowest band of a queue above a given one, held back or not.
SELECT min(rank) FROM (
  SELECT min(rank) AS rank FROM jobs
  WHERE status = 'QUEUED' AND lane = 0 AND namespace = :namespace AND queue = :queue AND rank > :rank
  UNION ALL
  SELECT min(rank) FROM jobs
  WHERE status = 'QUEUED' AND lane = 1 AND namespace = :namespace AND queue = :queue AND rank > :rank
);

-- name: lowest_position
-- The first position of a band, held back or not.
SELECT min(position) FROM (
  SELECT min(position) AS position FROM jobs
  WHERE status = 'QUEUED' AND lane = 0 AND namespace = :namespace AND queue = :queue AND rank = :rank
  UNION ALL
  SELECT min(position) FROM jobs
  WHERE status = 'QUEUED' AND lane = 1 AND namespace = :namespace AND queue = :queue AND rank = :rank
);

-- name: highest_position
-- The last position of a band, held back or not.
SELECT max(position) FROM (
  SELECT max(position) AS position FROM jobs
  WHERE status = 'QUEUED' AND lane = 0 AND namespace = :namespace AND queue = :queue AND rank = :rank
  UNION ALL
  SELECT max(position) FROM jobs
  WHERE status = 'QUEUED' AND lane = 1 AND namespace = :namespace AND queue = :queue AND rank = :rank
);

-- name: job_after
-- The job behind a place in its band, held back or not.
SELECT {jobs} FROM jobs
WHERE status = 'QUEUED' AND lane = 0 AND namespace = :namespace AND queue = :queue AND rank = :rank
  AND (position, created_at, job_id) > (:position, :created_at, :job_id)
UNION ALL
SELECT {jobs} FROM jobs
WHERE status = 'QUEUED' AND lane = 1 AND namespace = :namespace AND queue = :queue AND rank = :rank
  AND (position, created_at, job_id) > (:position, :created_at, :job_id)
ORDER BY rank, position, created_at, job_id LIMIT 1;

-- name: job_before
-- The job ahead of a place in its band, held back or not.
SELECT {jobs} FROM jobs
WHERE status = 'QUEUED' AND lane = 0 AND namespace = :namespace AND queue = :queue AND rank = :rank
  AND (position, created_at, job_id) < (:position, :created_at, :job_id)
UNION ALL
SELECT {jobs} FROM jobs
WHERE status = 'QUEUED' AND lane = 1 AND namespace = :namespace AND queue = :queue AND rank = :rank
  AND (position, created_at, job_id) < (:position, :created_at, :job_id)
ORDER BY rank DESC, position DESC, created_at DESC, job_id DESC LIMIT 1;

-- name: due_leases
-- Running jobs whose lease ends by a time, earliest first.
SELECT {jobs} FROM jobs WHERE status = 'RUNNING' AND lease_expires_at <= ? ORDER BY lease_expires_at, job_id;

-- name: due_ttl
-- Queued jobs whose latest start is by a time, earliest first.
SELECT {jobs} FROM jobs WHERE status = 'QUEUED' AND expires_at <= ? ORDER BY expires_at, job_id;

-- name: due_delayed
-- Queued jobs held back until a time, earliest first.
SELECT {jobs} FROM jobs WHERE status = 'QUEUED' AND lane = 1 AND waits IS NULL AND not_before <= ?
ORDER BY not_before, job_id;

-- name: next_ended_queue
-- The first queue after another one that has ended jobs.
SELECT namespace, queue FROM jobs
WHERE finished_at IS NOT NULL AND group_id IS NULL AND (namespace, queue) > (?, ?)
ORDER BY namespace, queue LIMIT 1;

-- name: ended_done
-- Completed and cancelled jobs of a queue that ended by a time, earliest first; those of groups go with their group.
SELECT {jobs} FROM jobs
WHERE group_id IS NULL AND namespace = ? AND queue = ? AND (status IN ('FAILED', 'DEAD')) = 0
  AND finished_at <= ? ORDER BY finished_at, job_id;

-- name: ended_failed
-- Failed and dead jobs of a queue that ended by a time, earliest first.
SELECT {jobs} FROM jobs
WHERE group_id IS NULL AND namespace = ? AND queue = ? AND (status IN ('FAILED', 'DEAD')) = 1
  AND finished_at <= ? ORDER BY finished_at, job_id;

-- name: done_beyond
-- The newest completed or cancelled job of a queue that is not among so many newest.
SELECT finished_at, job_id FROM jobs
WHERE group_id IS NULL AND namespace = ? AND queue = ? AND (status IN ('FAILED', 'DEAD')) = 0
  AND finished_at IS NOT NULL ORDER BY finished_at DESC, job_id DESC LIMIT 1 OFFSET ?;

-- name: failed_beyond
-- The newest failed or dead job of a queue that is not among so many newest.
SELECT finished_at, job_id FROM jobs
WHERE group_id IS NULL AND namespace = ? AND queue = ? AND (status IN ('FAILED', 'DEAD')) = 1
  AND finished_at IS NOT NULL ORDER BY finished_at DESC, job_id DESC LIMIT 1 OFFSET ?;

-- name: due_commands
-- Remembered commands that were done by a time, earliest first.
SELECT {commands} FROM commands WHERE at <= ? ORDER BY at, cmd;

-- name: due_keys
-- Keys whose window ends by a time, earliest first.
SELECT {job_keys} FROM job_keys
WHERE hold = 'window' AND held_until <= ? ORDER BY held_until, namespace, unique_key;

-- name: due_schedules
-- Schedules that are to fire by a time, earliest first.
SELECT {schedules} FROM schedules
WHERE enabled = 1 AND next_trigger_at <= ? ORDER BY next_trigger_at, schedule_id;

-- name: next_lease
-- When the first lease ends; an index alone answers, as for those below: every lease asks.
SELECT min(lease_expires_at) FROM jobs WHERE status = 'RUNNING';

-- name: next_ttl
-- When the first latest start of a queued job comes.
SELECT min(expires_at) FROM jobs WHERE status = 'QUEUED' AND expires_at IS NOT NULL;

-- name: next_delayed
-- When the first job that is held back may run.
SELECT min(not_before) FROM jobs WHERE status = 'QUEUED' AND lane = 1 AND waits IS NULL;

-- name: next_command
-- When the first remembered command was done.
SELECT min(at) FROM commands;

-- name: next_key
-- When the first window of a key ends.
SELECT min(held_until) FROM job_keys WHERE hold = 'window' AND held_until IS NOT NULL;

-- name: next_schedule
-- When the first schedule is to fire.
SELECT min(next_trigger_at) FROM schedules WHERE enabled = 1 AND next_trigger_at IS NOT NULL;

-- name: jobs_of_status
-- Jobs of one status, newest first, below a place.
SELECT {jobs} FROM jobs
WHERE namespace = :namespace AND status = :status AND (created_at, job_id) < (:created_at, :job_id)
  AND (:queue IS NULL OR queue = :queue) AND (:job_type IS NULL OR job_type = :job_type)
  AND (:submitted_by IS NULL OR submitted_by = :submitted_by)
ORDER BY created_at DESC, job_id DESC LIMIT :limit;

-- name: ids_from
-- Job ids from a text on, in order, and where each lies; those that begin with it come first.
SELECT job_id, namespace FROM jobs WHERE job_id >= ? ORDER BY job_id LIMIT ?;

-- name: ids_within
-- Job ids of one namespace that begin with a text, in order: out of the index alone.
SELECT job_id FROM jobs INDEXED BY ix_jobs_list
WHERE namespace = :namespace AND job_id >= :prefix AND substr(job_id, 1, length(:prefix)) = :prefix
ORDER BY job_id LIMIT :limit;

-- name: group_ids_within
-- The same of groups.
SELECT group_id FROM job_groups INDEXED BY ix_groups_list
WHERE namespace = :namespace AND group_id >= :prefix AND substr(group_id, 1, length(:prefix)) = :prefix
ORDER BY group_id LIMIT :limit;

-- name: counts
-- How many jobs each queue has of each status.
SELECT namespace, queue, status, count(*) FROM jobs GROUP BY namespace, queue, status ORDER BY namespace, queue, status;

-- name: promote
-- Make delayed jobs ready whose time has come; bit 32 of the sum is the lane.
UPDATE jobs SET lane = 0, sum = sum & 4294967295 WHERE row IN (
  SELECT row FROM jobs WHERE status = 'QUEUED' AND lane = 1 AND waits IS NULL AND not_before <= ?
  ORDER BY not_before, job_id LIMIT ?
);

-- name: pass_turn
-- Let the first active member of a sequential group wait no longer; its bits of the sum are 32 (lane) and 33 (waits).
UPDATE jobs SET
  waits = NULL, lane = (not_before IS NOT NULL), sum = (sum & 4294967295) | ((not_before IS NOT NULL) << 32)
WHERE waits = 1 AND row = (
  SELECT row FROM jobs INDEXED BY ix_jobs_turn
  WHERE group_id = ? AND (status = 'QUEUED' OR status = 'RUNNING') AND sequence_number IS NOT NULL
  ORDER BY sequence_number LIMIT 1
);

-- name: turn_of
-- The first active member of a group.
SELECT {jobs} FROM jobs INDEXED BY ix_jobs_turn
WHERE group_id = ? AND (status = 'QUEUED' OR status = 'RUNNING') AND sequence_number IS NOT NULL
ORDER BY sequence_number LIMIT 1;

-- name: misplaced_turns
-- Members that wait although it is their turn, or do not wait although it is another's.
SELECT job_id FROM jobs JOIN job_groups USING (group_id)
WHERE sequence_number IS NOT NULL AND (waits IS NOT NULL) <> (
  jobs.status = 'QUEUED' AND mode = 'sequential' AND EXISTS (
    SELECT 1 FROM jobs AS before INDEXED BY ix_jobs_turn
    WHERE before.group_id = jobs.group_id AND (before.status = 'QUEUED' OR before.status = 'RUNNING')
      AND before.sequence_number IS NOT NULL AND before.sequence_number < jobs.sequence_number));

-- name: insert_plain_job
-- A new job without any of the options that are null by default: most are, and every parameter costs.
INSERT INTO jobs (
  job_id, job_type, params, created_at, namespace, queue, status, priority, position, rank, lease_s, retry_mode,
  max_attempts, max_expiries, backoff, attempts, expiries, snoozes, executions, backfill_id, direct, key_scope,
  key_hold, key_limit, deliveries, result, seq, lane, sum
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_job
-- A new job.
INSERT INTO jobs ({jobs}, lane, waits, sum) VALUES ({jobs?}, ?, ?, ?);

-- name: lease_job
-- What changes when a job is leased.
UPDATE jobs SET
  status = 'RUNNING', not_before = NULL, executions = ?, deliveries = ?, worker_id = ?, token = ?,
  lease_expires_at = ?, deadline_at = ?, session_id = ?, grant_cmd = ?, started_at = ?, seq = ?, lane = ?, sum = ?
WHERE job_id = ?;

-- name: complete_job
-- What changes when a leased job is completed.
UPDATE jobs SET
  status = 'COMPLETED', attempts = ?, worker_id = NULL, token = NULL, lease_expires_at = NULL, deadline_at = NULL,
  session_id = NULL, grant_cmd = NULL, result = ?, error = NULL, finished_at = ?, seq = ?, lane = ?, sum = ?
WHERE job_id = ?;

-- name: update_job
-- What changes when a job is leased, reported, moved or ended; its other columns, and their indexes, are left alone.
UPDATE jobs SET
  status = ?, position = ?, not_before = ?, attempts = ?, expiries = ?, snoozes = ?, executions = ?, deliveries = ?,
  worker_id = ?, token = ?, lease_expires_at = ?, deadline_at = ?, session_id = ?, grant_cmd = ?,
  cancel_requested_at = ?, cancel_reason = ?, result = ?, error = ?, started_at = ?, finished_at = ?, seq = ?,
  lane = ?, waits = ?, sum = ?
WHERE job_id = ?;

-- name: edit_job
-- What a person may change of a queued job, and all that else may change.
UPDATE jobs SET
  params = ?, queue = ?, group_id = ?, sequence_number = ?, priority = ?, rank = ?, expires_at = ?, timeout_s = ?, lease_s = ?, max_attempts = ?,
  max_expiries = ?, backoff = ?, limit_key = ?, key_limit = ?, tags = ?,
  status = ?, position = ?, not_before = ?, attempts = ?, expiries = ?, snoozes = ?, executions = ?, deliveries = ?,
  worker_id = ?, token = ?, lease_expires_at = ?, deadline_at = ?, session_id = ?, grant_cmd = ?,
  cancel_requested_at = ?, cancel_reason = ?, result = ?, error = ?, started_at = ?, finished_at = ?, seq = ?,
  lane = ?, waits = ?, sum = ?
WHERE job_id = ?;

-- name: delete_job
-- Forget a job.
DELETE FROM jobs WHERE job_id = ?;

-- name: insert_open_run
-- A run that begins.
INSERT INTO job_runs (
  run_id, job_id, run_no, started_at, params_snapshot, namespace, queue, worker_id, token, details, artifacts, progress,
  sum
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_run
-- A new run.
INSERT INTO job_runs ({job_runs}, sum) VALUES ({job_runs?}, ?);

-- name: end_run
-- What every run gets at its end.
UPDATE job_runs SET status = ?, finished_at = ?, sum = ? WHERE run_id = ?;

-- name: update_run
-- What may be written while a run is open, and at its end.
UPDATE job_runs SET
  status = ?, finished_at = ?, exit_code = ?, error = ?, error_kind = ?, details = ?, reason = ?, log_path = ?,
  artifacts = ?, progress = ?, sum = ?
WHERE run_id = ?;

-- name: delete_run
-- Forget a run.
DELETE FROM job_runs WHERE run_id = ?;

-- name: save_queue
-- New or changed settings of a queue.
INSERT OR REPLACE INTO queues ({queues}, sum) VALUES ({queues?}, ?);

-- name: delete_queue
-- Forget a queue's settings.
DELETE FROM queues WHERE namespace = ? AND name = ?;

-- name: save_held_key
-- A key's new holder.
INSERT OR REPLACE INTO job_keys ({job_keys}, sum) VALUES ({job_keys?}, ?);

-- name: delete_held_key
-- Free a key.
DELETE FROM job_keys WHERE namespace = ? AND unique_key = ?;

-- name: save_command
-- Remember a command.
INSERT OR REPLACE INTO commands ({commands}, sum) VALUES ({commands?}, ?);

-- name: delete_command
-- Forget a command.
DELETE FROM commands WHERE cmd = ?;

-- name: insert_template
-- A new template.
INSERT INTO job_templates ({job_templates}, sum) VALUES ({job_templates?}, ?);

-- name: update_template
-- What may change of a template.
UPDATE job_templates SET
  name = ?, job_type = ?, default_params = ?, options = ?, description = ?, version = ?, archived_at = ?,
  updated_at = ?, sum = ?
WHERE template_id = ?;

-- name: delete_template
-- Forget a template.
DELETE FROM job_templates WHERE template_id = ?;

-- name: insert_schedule
-- A new schedule.
INSERT INTO schedules ({schedules}, sum) VALUES ({schedules?}, ?);

-- name: fire_schedule
-- What changes when a schedule fires.
UPDATE schedules SET
  last_fire_at = ?, next_fire_at = ?, last_triggered_at = ?, next_trigger_at = ?, fires = ?, missed = ?, sum = ?
WHERE schedule_id = ?;

-- name: update_schedule
-- What else may change of a schedule.
UPDATE schedules SET
  name = ?, template_id = ?, job_type = ?, workflow = ?, cron_expression = ?, interval_s = ?, run_at = ?,
  timezone = ?, enabled = ?, pause_reason = ?, param_overrides = ?, options = ?, priority = ?, queue = ?,
  catch_up = ?, catch_up_window_s = ?, grace_s = ?, overlap = ?, jitter_s = ?, start_at = ?, end_at = ?,
  last_fire_at = ?, next_fire_at = ?, last_triggered_at = ?, next_trigger_at = ?, fires = ?, missed = ?,
  source = ?, version = ?, updated_at = ?, sum = ?
WHERE schedule_id = ?;

-- name: delete_schedule
-- Forget a schedule.
DELETE FROM schedules WHERE schedule_id = ?;

-- name: save_meta
-- What the store as a whole remembers, from now on.
INSERT OR REPLACE INTO meta (row, {meta}, sum) VALUES (1, {meta?}, ?);

-- name: insert_event
-- One event, in the transaction of its effects.
INSERT INTO events (seq, ts, event, sum) VALUES (?, ?, ?, ?);

-- name: events_after
-- Events between two numbers, in order.
SELECT seq, ts, event FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?;

-- name: oldest_events
-- The first events, with the sums of their chain.
SELECT seq, ts, sum FROM events ORDER BY seq LIMIT ?;

-- name: delete_events
-- Forget events up to a number.
DELETE FROM events WHERE seq <= ?;

-- name: last_seq
-- Number of the last durable event.
SELECT seq FROM meta;

-- name: summed_jobs
-- Every job with what its sum covers.
SELECT {jobs}, lane, waits, sum FROM jobs;

-- name: summed_runs
-- Every run with its sum.
SELECT {job_runs}, sum FROM job_runs;

-- name: summed_queues
-- Every queue with its sum.
SELECT {queues}, sum FROM queues;

-- name: summed_held_keys
-- Every held key with its sum.
SELECT {job_keys}, sum FROM job_keys;

-- name: summed_commands
-- Every remembered command with its sum.
SELECT {commands}, sum FROM commands;

-- name: summed_templates
-- Every template with its sum.
SELECT {job_templates}, sum FROM job_templates;

-- name: summed_schedules
-- Every schedule with its sum.
SELECT {schedules}, sum FROM schedules;

-- name: summed_meta
-- The store's own row with its sum.
SELECT {meta}, sum FROM meta;

-- name: chained_events
-- Every event with its sum, in order.
SELECT seq, ts, event, sum FROM events ORDER BY seq;

-- name: blob
-- The content of one blob.
SELECT bytes FROM blobs WHERE sha256 = ?;

-- name: has_blob
-- Whether there is such a blob.
SELECT 1 FROM blobs WHERE sha256 = ?;

-- name: all_blobs
-- Every blob with its name, for checking.
SELECT sha256, bytes FROM blobs ORDER BY sha256;

-- name: insert_blob
-- New content.
INSERT INTO blobs (sha256, size, put_at, bytes) VALUES (?, ?, ?, ?);

-- name: renew_blob
-- Content that is put again is as young as new.
UPDATE blobs SET put_at = ? WHERE sha256 = ?;

-- name: old_blobs
-- Blobs put before a time that no payload names, the oldest first. Artifacts are asked apart.
-- The plus takes away the type of a column, which the index of an expression has not.
SELECT sha256 FROM blobs AS b WHERE put_at < ?
  AND NOT EXISTS (SELECT 1 FROM jobs
    WHERE substr(params, 1, 10) = '{"$blob":"' AND substr(params, 11, 64) = +b.sha256)
  AND NOT EXISTS (SELECT 1 FROM jobs
    WHERE substr(result, 1, 10) = '{"$blob":"' AND substr(result, 11, 64) = +b.sha256)
  AND NOT EXISTS (SELECT 1 FROM job_runs
    WHERE substr(params_snapshot, 1, 10) = '{"$blob":"' AND substr(params_snapshot, 11, 64) = +b.sha256)
  AND NOT EXISTS (SELECT 1 FROM job_runs
    WHERE substr(details, 1, 10) = '{"$blob":"' AND substr(details, 11, 64) = +b.sha256)
  AND NOT EXISTS (SELECT 1 FROM instances WHERE blob = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM executions WHERE blob = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM history WHERE blob = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM orchestrator_queue WHERE blob = b.sha256)
ORDER BY put_at, sha256;

-- name: forget_blob
-- Forget a blob, unless it was put again or a payload names it.
DELETE FROM blobs WHERE sha256 = ? AND put_at < ?
  AND NOT EXISTS (SELECT 1 FROM jobs
    WHERE substr(params, 1, 10) = '{"$blob":"' AND substr(params, 11, 64) = +blobs.sha256)
  AND NOT EXISTS (SELECT 1 FROM jobs
    WHERE substr(result, 1, 10) = '{"$blob":"' AND substr(result, 11, 64) = +blobs.sha256)
  AND NOT EXISTS (SELECT 1 FROM job_runs
    WHERE substr(params_snapshot, 1, 10) = '{"$blob":"' AND substr(params_snapshot, 11, 64) = +blobs.sha256)
  AND NOT EXISTS (SELECT 1 FROM job_runs
    WHERE substr(details, 1, 10) = '{"$blob":"' AND substr(details, 11, 64) = +blobs.sha256)
  AND NOT EXISTS (SELECT 1 FROM instances WHERE blob = blobs.sha256)
  AND NOT EXISTS (SELECT 1 FROM executions WHERE blob = blobs.sha256)
  AND NOT EXISTS (SELECT 1 FROM history WHERE blob = blobs.sha256)
  AND NOT EXISTS (SELECT 1 FROM orchestrator_queue WHERE blob = blobs.sha256);

-- name: all_artifacts
-- The artifacts of every run that has some.
SELECT artifacts FROM job_runs WHERE artifacts <> 'null';

-- name: named_blobs
-- Every blob that a payload names, found without passing the rows that name none.
SELECT substr(params, 11, 64) FROM jobs WHERE substr(params, 1, 10) = '{"$blob":"'
UNION SELECT substr(result, 11, 64) FROM jobs WHERE substr(result, 1, 10) = '{"$blob":"'
UNION SELECT substr(params_snapshot, 11, 64) FROM job_runs WHERE substr(params_snapshot, 1, 10) = '{"$blob":"'
UNION SELECT substr(details, 11, 64) FROM job_runs WHERE substr(details, 1, 10) = '{"$blob":"'
UNION SELECT blob FROM instances WHERE blob IS NOT NULL
UNION SELECT blob FROM executions WHERE blob IS NOT NULL
UNION SELECT blob FROM history WHERE blob IS NOT NULL
UNION SELECT blob FROM orchestrator_queue WHERE blob IS NOT NULL;

-- name: last_line
-- Number of a run's last line.
SELECT max(line_no) FROM run_logs WHERE run_id = ?;

-- name: insert_line
-- One line of a run.
INSERT INTO run_logs (run_id, line_no, at, stream, level, text) VALUES (?, ?, ?, ?, ?, ?);

-- name: lines_of_run
-- Lines of a run behind a number.
SELECT line_no, at, stream, level, text FROM run_logs WHERE run_id = ? AND line_no > ? ORDER BY line_no LIMIT ?;

-- name: has_old_lines
-- Whether there are lines written before a time.
SELECT 1 FROM run_logs WHERE at < ? LIMIT 1;

-- name: forget_lines
-- Forget lines written before a time, the oldest first.
DELETE FROM run_logs WHERE (run_id, line_no) IN (
  SELECT run_id, line_no FROM run_logs WHERE at < ? ORDER BY at LIMIT ?
);

-- name: save_worker
-- A worker as it says it is; a wish left for it stays.
INSERT INTO workers (worker_id, last_seen, worker) VALUES (?, ?, ?)
ON CONFLICT (worker_id) DO UPDATE SET last_seen = excluded.last_seen, worker = excluded.worker;

-- name: forget_workers
-- Forget workers that were last seen before a time.
DELETE FROM workers WHERE last_seen < ?;

-- name: delete_worker
-- Forget a worker.
DELETE FROM workers WHERE worker_id = ?;

-- name: all_workers
-- Every worker, by id.
SELECT worker, wish FROM workers ORDER BY worker_id;

-- name: save_wish
-- Leave a wish for a worker.
UPDATE workers SET wish = ? WHERE worker_id = ?;

-- name: wish
-- The wish left for a worker.
SELECT wish FROM workers WHERE worker_id = ?;

-- name: reservation
-- One reservation by its id.
SELECT {direct_reservations} FROM direct_reservations WHERE reservation_id = ?;

-- name: all_reservations
-- Every reservation, by id.
SELECT {direct_reservations} FROM direct_reservations ORDER BY reservation_id;

-- name: save_reservation
-- A new or changed reservation.
INSERT INTO direct_reservations ({direct_reservations}, sum) VALUES ({direct_reservations?}, ?)
ON CONFLICT (reservation_id) DO UPDATE SET {direct_reservations=}, sum = excluded.sum;

-- name: delete_reservation
-- Forget a reservation.
DELETE FROM direct_reservations WHERE reservation_id = ?;

-- name: summed_reservations
-- Every reservation with its sum.
SELECT {direct_reservations}, sum FROM direct_reservations;

-- name: active_reservation
-- The active reservation of one queue.
SELECT {direct_reservations} FROM direct_reservations WHERE status = 'ACTIVE' AND namespace = ? AND queue = ?;

-- name: due_reservations
-- Active reservations that expire by a time, earliest first.
SELECT {direct_reservations} FROM direct_reservations
WHERE status = 'ACTIVE' AND expires_at <= ? ORDER BY expires_at, reservation_id;

-- name: next_reservation
-- When the first active reservation expires.
SELECT min(expires_at) FROM direct_reservations WHERE status = 'ACTIVE';

-- name: ended_reservations
-- Reservations that ended by a time, earliest first.
SELECT {direct_reservations} FROM direct_reservations WHERE ended_at <= ? ORDER BY ended_at, reservation_id;

-- name: next_ended_reservation
-- When the first reservation ended.
SELECT min(ended_at) FROM direct_reservations WHERE ended_at IS NOT NULL;

-- name: direct
-- The running direct job of one queue.
SELECT job_id FROM jobs INDEXED BY ix_jobs_direct
WHERE status = 'RUNNING' AND direct = 1 AND namespace = ? AND queue = ?;

-- name: group
-- One group by its id.
SELECT {job_groups} FROM job_groups WHERE group_id = ?;

-- name: all_groups
-- Every group, by id.
SELECT {job_groups} FROM job_groups ORDER BY group_id;

-- name: save_group
-- A new or changed group.
INSERT INTO job_groups ({job_groups}, sum) VALUES ({job_groups?}, ?)
ON CONFLICT (group_id) DO UPDATE SET {job_groups=}, sum = excluded.sum;

-- name: delete_group
-- Forget a group.
DELETE FROM job_groups WHERE group_id = ?;

-- name: summed_groups
-- Every group with its sum.
SELECT {job_groups}, sum FROM job_groups;

-- name: ended_groups
-- Groups that ended by a time, or have no members, earliest first.
SELECT {job_groups} FROM job_groups
WHERE (finished_at IS NOT NULL OR members = 0) AND coalesce(finished_at, created_at) <= ?
ORDER BY coalesce(finished_at, created_at), group_id;

-- name: next_ended_group
-- When the first group ended, or was made without members.
SELECT min(coalesce(finished_at, created_at)) FROM job_groups WHERE finished_at IS NOT NULL OR members = 0;

-- name: unfollowed
-- Failed jobs of chains that have attempts left and no automatic successor.
SELECT {jobs} FROM jobs WHERE status = 'FAILED' AND retry_mode = 'chain' AND attempts < max_attempts
  AND NOT EXISTS (SELECT 1 FROM jobs AS heir WHERE heir.retry_of = jobs.job_id AND heir.retry_kind = 'auto')
ORDER BY job_id;

-- name: live_groups
-- The groups that have members and have not ended, by id.
SELECT {job_groups} FROM job_groups INDEXED BY ix_groups_live WHERE finished_at IS NULL AND members > 0 ORDER BY group_id;

-- name: group_ids_from
-- Ids of groups from a text on, in order, and where each lies; those that begin with it come first.
SELECT group_id, namespace FROM job_groups WHERE group_id >= ? ORDER BY group_id LIMIT ?;

-- name: groups_of_namespace
-- The groups of one namespace, newest first, below a place.
SELECT {job_groups} FROM job_groups
WHERE namespace = :namespace AND (created_at, group_id) < (:created_at, :group_id)
  AND (:status IS NULL OR status = :status)
ORDER BY created_at DESC, group_id DESC LIMIT :limit;

-- name: members
-- The members of one group, in order; of one status, or all.
SELECT {jobs} FROM jobs INDEXED BY ix_jobs_group
WHERE group_id = :group_id AND sequence_number IS NOT NULL AND (:status IS NULL OR status = :status)
ORDER BY sequence_number, created_at, job_id;

-- name: webhook
-- One webhook by its id.
SELECT {webhooks} FROM webhooks WHERE webhook_id = ?;

-- name: all_webhooks
-- Every webhook, by id.
SELECT {webhooks} FROM webhooks ORDER BY webhook_id;

-- name: save_webhook
-- A new or changed webhook.
INSERT INTO webhooks ({webhooks}, sum) VALUES ({webhooks?}, ?)
ON CONFLICT (webhook_id) DO UPDATE SET {webhooks=}, sum = excluded.sum;

-- name: delete_webhook
-- Forget a webhook.
DELETE FROM webhooks WHERE webhook_id = ?;

-- name: summed_webhooks
-- Every webhook with its sum.
SELECT {webhooks}, sum FROM webhooks;

-- name: enabled_webhooks
-- The enabled webhooks of one namespace, by id. There are few.
SELECT {webhooks} FROM webhooks WHERE namespace = ? AND enabled = 1 ORDER BY webhook_id;

-- name: delivery
-- One delivery by its id.
SELECT {webhook_deliveries} FROM webhook_deliveries WHERE delivery_id = ?;

-- name: all_deliveries
-- Every delivery, by id.
SELECT {webhook_deliveries} FROM webhook_deliveries ORDER BY delivery_id;

-- name: deliveries_of
-- The deliveries of a webhook, newest first; of one status, or all.
SELECT {webhook_deliveries} FROM webhook_deliveries
WHERE webhook_id = :webhook_id AND (:status IS NULL OR status = :status)
ORDER BY created_at DESC, delivery_id DESC LIMIT :limit;

-- name: save_delivery
-- A new or changed delivery.
INSERT INTO webhook_deliveries ({webhook_deliveries}, sum) VALUES ({webhook_deliveries?}, ?)
ON CONFLICT (delivery_id) DO UPDATE SET {webhook_deliveries=}, sum = excluded.sum;

-- name: delete_delivery
-- Forget a delivery.
DELETE FROM webhook_deliveries WHERE delivery_id = ?;

-- name: summed_deliveries
-- Every delivery with its sum.
SELECT {webhook_deliveries}, sum FROM webhook_deliveries;

-- name: due_deliveries
-- Pending deliveries that are to be tried by a time, earliest first.
SELECT {webhook_deliveries} FROM webhook_deliveries
WHERE status = 'PENDING' AND coalesce(claimed_until, next_attempt_at) <= ?
ORDER BY coalesce(claimed_until, next_attempt_at), delivery_id;

-- name: next_delivery
-- When the first pending delivery is to be tried.
SELECT min(coalesce(claimed_until, next_attempt_at)) FROM webhook_deliveries WHERE status = 'PENDING';

-- name: ended_deliveries
-- Deliveries that ended by a time, earliest first.
SELECT {webhook_deliveries} FROM webhook_deliveries WHERE finished_at <= ? ORDER BY finished_at, delivery_id;

-- name: next_ended_delivery
-- When the first delivery ended.
SELECT min(finished_at) FROM webhook_deliveries WHERE finished_at IS NOT NULL;

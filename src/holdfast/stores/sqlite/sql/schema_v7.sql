-- Schema version 7 of a `sqlite:` store: ready jobs by task, starts by parent. A new file takes the same steps as an old
-- one.

CREATE INDEX ix_jobs_task ON jobs(namespace, queue, job_type, rank, position, created_at, job_id)
  WHERE status = 'QUEUED' AND lane = 0;
CREATE INDEX ix_queue_parent ON orchestrator_queue(parent_instance_id, seq)
  WHERE parent_instance_id IS NOT NULL AND orchestration IS NOT NULL;

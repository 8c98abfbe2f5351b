-- Schema version 6 of a `sqlite:` store: who started an instance. A new file takes the same steps as an old one.

ALTER TABLE instances ADD COLUMN submitted_by TEXT;
ALTER TABLE orchestrator_queue ADD COLUMN submitted_by TEXT;

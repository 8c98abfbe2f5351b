"""For each endpoint that needs one, a body that is taken."""

from __future__ import annotations

BODIES = {
    ("POST", "/jobs"): {"job_type": "t"},
    ("POST", "/jobs/batch"): {"jobs": [{"job_type": "t"}]},
    ("PATCH", "/jobs/{job_id}"): {"priority": 1},
    ("POST", "/jobs/{job_id}/move"): {"to": "last"},
    ("PATCH", "/queues/{queue}"): {"max_running": 1},
    ("POST", "/templates"): {"name": "n", "job_type": "t"},
    ("PATCH", "/templates/{template_id}"): {"description": "d"},
    ("POST", "/schedules"): {"name": "n", "job_type": "t", "interval_s": 60},
    ("PATCH", "/schedules/{schedule_id}"): {"grace_s": 5},
    ("POST", "/schedules/preview"): {"interval_s": 60},
    ("POST", "/schedules/{schedule_id}/backfill"): {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
    ("POST", "/groups"): {"members": [{"job_type": "t"}]},
    ("POST", "/reservations"): {"queue": "q"},
    ("POST", "/direct"): {"reservation_id": "r", "worker_id": "w", "job": {"job_type": "t", "queue": "kept"}},
    ("POST", "/webhooks"): {"url": "https://example.com/"},
    ("PATCH", "/webhooks/{webhook_id}"): {"enabled": True},
    ("POST", "/webhooks/test"): {"webhook_id": "w"},
    ("POST", "/workflows"): {"workflow": "w"},
    ("POST", "/workflows/{instance_id}/signal"): {"name": "n"},
    ("POST", "/decisions/{decision_id}/resolve"): {"chosen": "yes"},
    ("POST", "/explain"): {"job_id": "nobody"},
}

"""Templates and schedules over HTTP."""

from __future__ import annotations


def test_a_template_is_made_used_changed_archived_and_removed(api):
    body = {"name": "mail", "job_type": "send", "default_params": {"a": 1, "b": 1}, "options": {"queue": "q"}}
    made = api.post("/templates", body, 201)
    assert api.post("/templates", {**body, "job_type": "other"}, 409)["code"] in ("id_reused", "invalid_operation")
    (row,) = api.get("/templates")["items"]
    assert (row["name"], row["preview"]) == ("mail", '{"a":1,"b":1}')
    assert "default_params" not in row
    job = api.post("/templates/mail/enqueue", {"params": {"b": 2}}, 201)
    assert api.get(f"/jobs/{job['job_id']}")["params"] == {"a": 1, "b": 2}
    other = api.post("/jobs", {"template": made["id"], "params": {"a": 3}}, 201)
    assert api.get(f"/jobs/{other['job_id']}")["queue"] == "q"
    assert api.post("/jobs", {"template": "mail", "priority": 3}, 422)["facts"]["field"] == "template"
    api.post("/jobs", {"template": "none"}, 404)
    assert api.http.get("/api/v1/templates/mail").headers["etag"] == '"1"'
    api.patch("/templates/mail", {"description": "d"}, headers={"If-Match": '"1"'})
    assert (
        api.patch("/templates/mail", {"description": "e"}, 412, headers={"If-Match": '"1"'})["code"]
        == "version_conflict"
    )
    api.patch("/templates/mail", {"description": "e"}, 422, headers={"If-Match": "old"})
    api.patch("/templates/mail", {"options": {"priority": 2}, "default_params": None})
    whole = api.get(f"/templates/{made['id']}")
    assert (whole["description"], whole["options"], whole["default_params"]) == ("d", {"priority": 2}, None)
    api.patch("/templates/mail", {}, 422)
    api.post("/schedules", {"name": "s", "template_id": made["id"], "interval_s": 60}, 201)
    assert api.delete("/templates/mail", 409)["code"] == "invalid_operation"
    api.delete("/schedules/s")
    api.post("/templates/mail/archive")
    api.post("/templates/mail/enqueue", {}, 409)
    api.delete("/templates/mail")
    api.get("/templates/mail", 404)


def test_a_schedule_is_made_previewed_triggered_and_removed(api):
    body = {"name": "nightly", "job_type": "t", "cron_expression": "30 2 * * *", "timezone": "Europe/Paris"}
    made = api.post("/schedules", {**body, "param_overrides": {"x": 1}}, 201)
    whole = api.get("/schedules/nightly")
    assert whole["schedule_id"] == made["id"]
    assert len(whole["preview"]) == 5
    fires = api.get("/schedules/nightly/preview", params={"n": 2, "after": "2026-03-28T12:00:00Z"})["items"]
    assert [fire["fire_at"] for fire in fires] == ["2026-03-29T01:00:00.000000Z", "2026-03-30T00:30:00.000000Z"]
    assert fires[0]["note"]
    job = api.post("/schedules/nightly/trigger", {"params": {"y": 2}}, 201)
    assert api.get(f"/jobs/{job['job_id']}")["params"] == {"x": 1, "y": 2}
    api.post("/schedules/nightly/pause", {"reason": "holiday"})
    assert api.get("/schedules/nightly")["pause_reason"] == "holiday"
    api.post("/schedules/nightly/resume")
    api.post("/schedules/nightly/reset")
    version = api.get("/schedules/nightly")["version"]
    api.patch("/schedules/nightly", {"grace_s": 5}, headers={"If-Match": str(version)})
    api.patch("/schedules/nightly", {"grace_s": 6}, 412, headers={"If-Match": str(version)})
    api.patch("/schedules/nightly", {"cron_expression": "a b c"}, 422)
    api.patch("/schedules/nightly", {}, 422)
    assert [row["name"] for row in api.pages("/schedules")] == ["nightly"]
    api.delete("/schedules/nightly")
    api.post("/schedules/nightly/trigger", {}, 404)


def test_a_backfill_is_repeatable(api):
    api.post("/schedules", {"name": "s", "job_type": "t", "cron_expression": "* * * * *", "overlap": "allow"}, 201)
    span = {"since": "2025-12-31T00:00:00Z", "until": "2025-12-31T20:00:00Z", "backfill_id": "b"}
    assert api.post("/schedules/s/backfill", span) == {"backfill_id": "b", "count": 1200, "fires": 1200}
    assert api.post("/schedules/s/backfill", span)["count"] == 0
    api.post("/schedules/s/backfill", {**span, "since": "2000-01-01T00:00:00Z"}, 422)
    api.post("/schedules/s/backfill", {**span, "since": "yesterday"}, 422)


def test_a_schedule_is_previewed_before_it_is_made(api):
    fires = api.post("/schedules/preview", {"cron_expression": "0 0 1 * *", "n": 3})["items"]
    assert [fire["fire_at"][:10] for fire in fires] == ["2026-02-01", "2026-03-01", "2026-04-01"]
    assert api.post("/schedules/preview", {"cron_expression": "x"}, 422)["code"] == "invalid_value"
    api.post("/schedules/preview", {}, 422)
    api.post("/schedules/preview", {"interval_s": 1, "n": 1001}, 422)
    # A schedule of that name is found by the other methods.
    api.post("/schedules", {"name": "preview", "job_type": "t", "interval_s": 60}, 201)
    assert api.get("/schedules/preview")["name"] == "preview"


def test_who_reads_in_some_namespaces_may_ask_when_a_schedule_would_fire(api):
    body = {"interval_s": 60, "n": 2}
    assert len(api.post("/schedules/preview", body, role="here")["items"]) == 2
    for role in ("client", "worker"):
        api.post("/schedules/preview", body, 403, role=role)


def test_a_cron_line_that_is_none_is_refused_by_the_name_it_has_in_the_body(api):
    wrong = {"cron_expression": "61 * * * *"}
    api.post("/schedules", {"name": "s", "schedule_id": "s", "job_type": "t", "interval_s": 60}, 201)
    assert api.post("/schedules", {"name": "n", "job_type": "t", **wrong}, 422)["facts"]["field"] == "cron_expression"
    assert api.patch("/schedules/s", {**wrong, "interval_s": None}, 422)["facts"]["field"] == "cron_expression"
    assert api.post("/schedules/preview", wrong, 422)["facts"]["field"] == "cron_expression"

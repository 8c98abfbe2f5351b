"""Webhooks and deliveries over HTTP. Secrets go in, and out once at most."""

from __future__ import annotations

import pytest

from holdfast.model.commands import ClaimDeliveries, EndDelivery


def test_a_webhook_is_made_changed_and_removed(api):
    made = api.post("/webhooks", {"url": "https://example.com/a", "events": ["job.run.failed"]}, 201)
    assert made["secret"]
    path = f"/webhooks/{made['webhook_id']}"
    assert made["secret"] not in str(api.get(path)) + str(api.get("/webhooks"))
    assert "secrets" not in api.get(path)
    given = {"url": "https://example.com/b", "webhook_id": "b", "secret": "long-enough"}
    assert api.post("/webhooks", given, 201) == {"webhook_id": "b", "secret": None}
    key = {"Idempotency-Key": "k"}
    assert api.post("/webhooks", given, 201, headers=key)["webhook_id"] == "b"
    api.post("/webhooks", {**given, "events": ["job.run.lost"]}, 409)
    api.patch(path, {"enabled": False, "queues": ["q"]})
    hook = api.get(path)
    assert (hook["enabled"], hook["queues"]) == (False, ["q"])
    api.patch(path, {}, 422)
    api.patch("/webhooks/none", {"enabled": True}, 404)
    assert len(list(api.pages("/webhooks", limit=1))) == 2
    api.delete(path)
    api.get(path, 404)


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "ftp://example.com", "http://u:p@example.com/", "x"])
def test_an_address_that_is_not_public_is_refused(api, url):
    assert api.post("/webhooks", {"url": url}, 422)["code"] == "invalid_value"


def test_deliveries_are_listed_read_and_sent_again(api):
    api.post("/webhooks", {"url": "https://example.com/a", "webhook_id": "w"}, 201)
    for number in range(5):
        api.clock.advance(1)
        api.post("/jobs", {"job_type": "t", "job_id": f"j{number}"}, 201)
        api.run()
    rows = list(api.pages("/deliveries", webhook_id="w", limit=2))
    assert [row["job_id"] for row in rows] == ["j4", "j3", "j2", "j1", "j0"]
    assert all("body" not in row and len(row["preview"]) <= 120 for row in rows)
    (claim,) = api.engine.ask(ClaimDeliveries(limit=1)).claims
    api.engine.ask(EndDelivery(delivery_id=claim.delivery_id, claimed_until=claim.claimed_until, status=410))
    assert [row["delivery_id"] for row in api.pages("/deliveries", status="FAILED")] == [claim.delivery_id]
    whole = api.get(f"/deliveries/{claim.delivery_id}")
    assert whole["body"]["event"] == "job.run.completed"
    api.post(f"/deliveries/{claim.delivery_id}/redeliver")
    assert api.get(f"/deliveries/{claim.delivery_id}")["status"] == "PENDING"
    api.post("/deliveries/none/redeliver", {}, 404)


def test_a_webhook_is_tried_and_the_failure_told(api):
    # A name that stands for no address, on any machine.
    api.post("/webhooks", {"url": "https://nobody.invalid/", "webhook_id": "w"}, 201)
    told = api.post("/webhooks/w/test")
    assert (told["event"], told["status"]) == ("webhook.test", "FAILED")
    assert told["last_error"]
    api.post("/webhooks/none/test", {}, 404)
    api.post("/webhooks/w/test", {}, 403, role="operator")

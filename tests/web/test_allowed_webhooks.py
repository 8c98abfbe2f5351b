"""Where a coordinator delivers: to public addresses, and to networks its operator names."""

from __future__ import annotations

import httpx2
import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.errors import InvalidValue
from holdfast.testing.receiver import LOOPBACK, Receiver
from holdfast.web.server.serving import Listening, Serving


def test_a_coordinator_delivers_into_a_network_that_is_named_to_it(tmp_path):
    with Receiver() as receiver, running(f"wal:{tmp_path}", webhook_allow=(LOOPBACK,)) as serving:
        made = httpx2.post(f"{serving.url}/api/v1/webhooks", json={"url": receiver.url, "webhook_id": "hook"})
        assert made.status_code == 201, made.text
        with Holdfast(serving.url) as hf:

            @hf.task
            def work() -> int:
                return 7

            work.enqueue()
            hf.work(until_idle=True)
            receiver.wait(1)
        assert b'"completed"' in receiver.received[0].body.lower()


def test_without_a_name_for_it_no_webhook_lies_inside(tmp_path):
    with running(f"wal:{tmp_path}") as serving:
        refused = httpx2.post(f"{serving.url}/api/v1/webhooks", json={"url": "http://127.0.0.1:9/", "webhook_id": "h"})
    assert refused.status_code == 422
    assert "--webhook-allow" in refused.json()["hint"]


def test_what_is_no_network_is_refused_before_anything_is_opened(tmp_path):
    with pytest.raises(InvalidValue, match="no network"):
        Serving(f"wal:{tmp_path / 'store'}", Listening(port=0, webhook_allow=("inside",)))
    assert not (tmp_path / "store").exists()

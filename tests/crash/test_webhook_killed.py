"""`holdfast worker` killed with -9 around a delivery: the next one sends the same, and who deduplicates acts once.

Time is the machine's, moved on by a minute for the second worker, so that the claim of the dead one has lapsed.
"""

import json
import subprocess
import sys

import pytest

from holdfast import Holdfast
from holdfast.testing.receiver import Receiver

LONG = 60
APP = """
import os
from datetime import timedelta
from holdfast import Holdfast
from holdfast.clock import SystemClock

class Ahead(SystemClock):
    def now(self):
        return super().now() + timedelta(seconds=float(os.environ["AHEAD_S"]))

hf = Holdfast("sqlite:jobs.db", clock=Ahead(), webhook_allow=["127.0.0.0/8"])

@hf.task(max_attempts=1)
def double(n: int) -> int:
    return 2 * n
"""
MAIN = "from holdfast.cli import main; main()"
DYING = """
import os, signal, sys
from holdfast.failpoints import listening

with listening(sys.argv.pop(1), lambda: os.kill(os.getpid(), signal.SIGKILL)):
    from holdfast.cli import main
    main()
"""


def worker(place, program, *args, ahead_s=0):
    command = [sys.executable, "-c", program, *args, "worker", "shop:hf", "--until-idle"]
    return subprocess.run(
        command, cwd=place, env={"AHEAD_S": str(ahead_s)}, capture_output=True, text=True, timeout=LONG, check=False
    )


@pytest.mark.parametrize(
    ("point", "sent"), [("webhook.claimed", 1), ("webhook.sending", 1), ("webhook.sent", 2), ("engine.decided", None)]
)
def test_a_delivery_is_resumed_after_kill_nine(tmp_path, point, sent):
    (tmp_path / "shop.py").write_text(APP)
    acted = {}

    def act_once(received):
        acted.setdefault(received.headers["Idempotency-Key"], received.body)
        return 200

    app = Holdfast(f"sqlite:{tmp_path / 'jobs.db'}", webhook_allow=["127.0.0.0/8"])
    with Receiver(act_once) as receiver, app as hf:
        hook = hf.webhook(receiver.url)
        job = hf.task(name="shop.double")(_double).enqueue(21)
        killed = worker(tmp_path, DYING, point)
        assert killed.returncode == -9, killed.stderr
        after = worker(tmp_path, MAIN, ahead_s=61)
        assert after.returncode == 0, after.stderr
        deliveries = {one.run_id: one for one in hook.deliveries()}
        runs = job.runs()
    # Every run that ended owes one delivery, and it has arrived, however often it was sent.
    assert set(deliveries) == set(acted) == {run.run_id for run in runs}
    assert {one.status for one in deliveries.values()} == {"DELIVERED"}
    assert {key: body.decode() for key, body in acted.items()} == {key: one.body for key, one in deliveries.items()}
    assert {received.body for received in receiver.received} == set(acted.values())
    assert runs[-1].status == "COMPLETED"
    if sent is not None:
        assert len(receiver.received) == sent
        assert [json.loads(body)["status"] for body in acted.values()] == ["COMPLETED"]


def _double(n: int) -> int:
    return 2 * n

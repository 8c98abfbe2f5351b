"""What a delivery says, byte for byte: receivers may sign, store and compare it."""

import msgspec

from holdfast.model.jobs import Job, JobStatus, Run, RunStatus
from holdfast.model.webhooks import Webhook
from holdfast.rules.webhooks.body import probe_body, run_body

NOW, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.000000Z"
RAW = msgspec.Raw(b"{}")


def test_all_fields_are_there_in_their_order_whether_they_have_a_value_or_not():
    job = Job("j", "t", RAW, NOW, status=JobStatus.QUEUED, seq=7)
    run = Run("r", "j", 1, NOW, RAW, status=RunStatus.LOST, finished_at=LATER)
    assert run_body("d", "job.run.lost", job, run, has_heir=False) == (
        '{"event":"job.run.lost","delivery_id":"d","run_id":"r","job_id":"j","job_type":"t","namespace":"",'
        '"queue":"default","status":"LOST","job_status":"QUEUED","final":false,"run_no":1,'
        '"started_at":"2026-01-01T00:00:00.000000Z","finished_at":"2026-01-01T00:00:01.000000Z","exit_code":null,'
        '"error":null,"artifacts":[],"template_id":null,"schedule_id":null,"group_id":null,"retry_of":null,"seq":7}'
    )


def test_where_a_job_comes_from_is_told():
    job = Job(
        "j",
        "t",
        RAW,
        NOW,
        namespace="n",
        status=JobStatus.FAILED,
        template_id="tpl",
        schedule_id="s",
        group_id="g",
        retry_of="before",
        finished_at=LATER,
        seq=9,
    )
    run = Run("r", "j", 2, NOW, RAW, queue="q", status=RunStatus.FAILED, finished_at=LATER, exit_code=3, error="ä")
    told = msgspec.json.decode(run_body("d", "job.run.failed", job, run, has_heir=False))
    assert (told["namespace"], told["queue"], told["exit_code"], told["error"]) == ("n", "q", 3, "ä")
    assert [told[name] for name in ("template_id", "schedule_id", "group_id", "retry_of")] == [
        "tpl",
        "s",
        "g",
        "before",
    ]
    assert told["final"] is True
    followed = msgspec.json.decode(run_body("d", "job.run.failed", job, run, has_heir=True))
    assert followed["final"] is False


def test_a_test_says_that_it_is_one_and_no_more():
    told = msgspec.json.decode(probe_body("d", Webhook("w", "u", NOW, namespace="n", secrets=("hush",)), 5))
    assert {name for name, value in told.items() if value} == {"event", "delivery_id", "namespace", "seq"}
    assert (told["event"], told["namespace"], told["seq"]) == ("webhook.test", "n", 5)

"""Tables: every record has one, under one key."""

import msgspec
import pytest

from holdfast.model.jobs import Job, KeyHold, Run
from holdfast.model.records import AUTHORITY, TABLES, Authority, DoneCommand, HeldKey, Queue, Record, key_of, pair
from holdfast.model.schedules import Schedule
from holdfast.model.templates import JobOptions, Template
from holdfast.model.webhooks import Delivery, DeliveryStatus, Webhook

NOW = "2026-01-01T00:00:00.000000Z"
RAW = msgspec.Raw(b"{}")


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (Job("j", "t", RAW, NOW), "j"),
        (Run("r", "j", 1, NOW, RAW), "r"),
        (Queue("n", "q"), "n\0q"),
        (HeldKey("n", "task t k", "j", KeyHold.ACTIVE), "n\0task t k"),
        (DoneCommand("c", "d", RAW, NOW), "c"),
        (Authority(), AUTHORITY),
        (Template("t", "n", "send", NOW, options=JobOptions(tags={"a": "b"})), "t"),
        (Schedule("s", "n", NOW, job_type="send", interval_s=5.0), "s"),
        (Webhook("w", "u", NOW, events=("e",), queues=("q",), secrets=("s",)), "w"),
        (Delivery("d", "w", "r", "j", "e", "{}", NOW, NOW, status=DeliveryStatus.FAILED, last_status=500), "d"),
    ],
)
def test_a_record_is_found_by_its_key_and_survives_encoding(record, key):
    assert key_of(record) == key
    kind = type(record)
    assert msgspec.json.decode(msgspec.json.encode(record), type=kind) == record
    assert kind in TABLES.values()


def test_every_record_has_a_table_and_groups_come_before_jobs_and_jobs_before_their_runs():
    assert set(TABLES.values()) == set(Record.__args__)
    assert list(TABLES)[:3] == ["job_groups", "jobs", "job_runs"]


def test_parts_of_a_pair_cannot_run_into_each_other():
    assert pair("a", "bc") != pair("ab", "c")


def test_a_queue_written_before_it_had_limits_has_none():
    old = b'{"namespace":"n","name":"q","paused":true,"pause_reason":"full"}'
    assert msgspec.json.decode(old, type=Queue) == Queue("n", "q", paused=True, pause_reason="full")

"""`hf.queue(…).set(…)` and the limits of tasks, as an application meets them."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, Retention
from holdfast.errors import InvalidArguments, InvalidValue
from holdfast.model.commands import Lease
from holdfast.model.records import Queue
from holdfast.testing.clock import ManualClock


@pytest.fixture
def hf():
    with Holdfast("memory:", clock=ManualClock()) as app:
        yield app


def test_limits_are_set_by_name_and_what_is_not_named_stays(hf):
    mail = hf.queue("mail")
    mail.set(max_running=4, rate=(100, 60), aging=300)
    assert mail.settings() == Queue("", "mail", max_running=4, rate_count=100, rate_period_s=60, aging_s=300)
    mail.set(rate_scope="key", max_running=None)
    assert mail.settings() == Queue("", "mail", rate_count=100, rate_period_s=60, rate_scope="key", aging_s=300)
    mail.set(rate=None, aging=None)
    assert mail.settings() == Queue("", "mail", rate_scope="key")


def test_durations_may_be_given_as_such(hf):
    hf.queue("mail").set(rate=(5, timedelta(minutes=1)), aging=timedelta(seconds=90))
    found = hf.queue("mail").settings()
    assert (found.rate_count, found.rate_period_s, found.aging_s) == (5, 60, 90)


def test_a_queue_says_how_its_ended_jobs_are_kept(hf):
    mail = hf.queue("mail")
    mail.set(retention=Retention(done_s=60, failed_max=10), max_running=2)
    assert mail.settings() == Queue("", "mail", max_running=2, retention=Retention(done_s=60, failed_max=10))
    mail.set(max_running=None)
    assert mail.settings().retention == Retention(done_s=60, failed_max=10)
    mail.set(retention=None)
    assert mail.settings() == Queue("", "mail")


def test_limits_can_be_awaited(hf):
    asyncio.run(hf.queue("mail").aio.set(max_running=2))
    assert hf.queue("mail").settings().max_running == 2


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"max_running": 0}, "max_running"),
        ({"max_running": 1.5}, "max_running"),
        ({"rate": 100}, "rate"),
        ({"rate": (1, 2, 3)}, "rate"),
        ({"rate": (0, 60)}, "rate_count"),
        ({"rate": (1, 0)}, "rate_period_s"),
        ({"rate": (1, "60")}, "rate_period_s"),
        ({"rate_scope": "task"}, "rate_scope"),
        ({"aging": -1}, "aging_s"),
        ({"aging": float("nan")}, "aging_s"),
        ({"retention": Retention(done_s=-1)}, "retention.done_s"),
        ({"retention": Retention(done_max=1.5)}, "done_max"),
        ({"retention": Retention(feed_s=60)}, "retention.feed_s"),
        ({"retention": 60}, "retention"),
        ({}, "changes"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_its_name(hf, limits, field):
    with pytest.raises(InvalidValue) as caught:
        hf.queue("mail").set(**limits)
    assert caught.value.facts["field"] == field
    assert hf.queue("mail").settings() == Queue("", "mail")


def test_an_unknown_limit_is_refused(hf):
    with pytest.raises(InvalidArguments, match="max_speed"):
        hf.queue("mail").set(max_speed=3)


def test_jobs_of_one_limit_key_wait_for_each_other_and_explain_says_for_whom(hf):
    @hf.task(name="call", limit_key="api", key_limit=1)
    def call() -> None: ...

    first, second = call.enqueue(), call.enqueue()
    other = call.options(limit_key="elsewhere").enqueue()
    leased = hf.engine.ask(Lease(worker_id="w", n=3))
    assert [grant.job.job_id for grant in leased.grants] == [first.id, other.id]
    reason = second.explain()
    assert (reason.code, reason.holder) == ("key_limit", first.id)

"""`hf.schedule`, `@hf.task(schedule=…)` and templates, as an application meets them."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast import Backoff, Holdfast
from holdfast.engine.maintenance import tick
from holdfast.errors import (
    InvalidArguments,
    InvalidOperation,
    InvalidValue,
    ScheduleNotFound,
    TemplateNotFound,
    VersionConflict,
)
from holdfast.model.jobs import JobStatus
from holdfast.model.schedules import CatchUp, Overlap
from holdfast.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def hf(clock):
    with Holdfast("memory:", clock=clock) as app:
        yield app


@pytest.fixture
def send(hf):
    @hf.task(name="send", queue="mail", max_attempts=2, timeout=5, backoff=Backoff(jitter=0), key_hold="active")
    def send(to: str, when: datetime | None = None, size: int = 1) -> str:
        return to

    return send


def pass_time(hf, clock, seconds):
    clock.advance(seconds)
    return tick(hf.engine).fired


# --- by a call --------------------------------------------------------------------------------------------------------


def test_a_task_runs_by_the_clock_with_the_options_it_has(hf, send, clock):
    made = hf.schedule("daily", send, cron="0 9 * * *", timezone="Europe/Berlin", params={"to": "a"}, queue="slow")
    assert made.record().next_fire_at == "2026-01-01T08:00:00.000000Z"
    assert pass_time(hf, clock, 8 * 3600) == 1
    (job,) = hf.jobs(queue="slow")
    record = job.refresh()
    assert (record.job_type, record.max_attempts, record.timeout_s, record.backoff.jitter) == ("send", 2, 5, 0)
    hf.work(queues=["slow"], until_idle=True)
    assert job.result(timeout=0) == "a"


def test_a_worker_fires_what_is_due_before_it_looks_for_work(hf, send, clock):
    hf.schedule("soon", send, every=60, params={"to": "a"})
    clock.advance(60)
    hf.work(until_idle=True)
    assert [job.status for job in hf.jobs()] == [JobStatus.COMPLETED]


def test_every_option_arrives(hf, send):
    made = hf.schedule(
        "all",
        send,
        every=timedelta(minutes=5),
        params={"to": "a", "when": datetime(2026, 1, 1, tzinfo=UTC)},
        catch_up="all",
        catch_up_window=timedelta(hours=2),
        overlap="queue",
        grace=10,
        jitter=timedelta(seconds=3),
        start=datetime(2026, 1, 2, tzinfo=UTC),
        end=datetime(2026, 1, 3, 1, 0),  # noqa: DTZ001 - local to the zone below
        timezone="Europe/Berlin",
        priority=4,
    )
    found = made.record()
    assert (found.interval_s, found.catch_up, found.catch_up_window_s) == (300, CatchUp.ALL, 7200)
    assert (found.overlap, found.grace_s, found.jitter_s, found.priority) == (Overlap.QUEUE, 10, 3, 4)
    assert (found.start_at, found.end_at) == ("2026-01-02T00:00:00.000000Z", "2026-01-03T00:00:00.000000Z")
    assert bytes(found.param_overrides) == b'{"to":"a","when":"2026-01-01T00:00:00Z"}'


def test_a_one_off_without_zone_is_local(hf, send):
    nine = datetime(2026, 7, 1, 9)  # noqa: DTZ001 - that is the point
    made = hf.schedule("once", send, at=nine, timezone="Europe/Berlin", params={"to": "a"})
    assert made.record().next_fire_at == "2026-07-01T07:00:00.000000Z"
    aware = datetime(2026, 7, 1, 9, tzinfo=ZoneInfo("America/New_York"))
    made.update(at=aware)
    assert made.record().next_fire_at == "2026-07-01T13:00:00.000000Z"


def test_declaring_the_same_again_changes_nothing_and_another_content_edits(hf, send):
    first = hf.schedule("s", send, every=60, params={"to": "a"})
    with hf.engine.read() as view:
        seq = view.seq
    assert hf.schedule("s", send, every=60, params={"to": "a"}).id == first.id
    assert first.record().version == 1
    with hf.engine.read() as view:
        assert view.seq == seq
    hf.schedule("s", send, cron="@hourly", params={"to": "b"})
    found = first.record()
    assert (found.version, found.cron_expression, found.interval_s) == (2, "@hourly", None)
    assert [(one.name, one.id) for one in hf.schedules()] == [("s", first.id)]


def test_a_task_of_another_program_is_named(hf):
    made = hf.schedule("s", "elsewhere.task", every=60, params={"n": 1})
    assert made.record().job_type == "elsewhere.task"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cron": "0 0 30 2 *"}, InvalidValue, "30 2"),
        ({"every": -5}, InvalidValue, "interval_s"),
        ({"every": 60, "timezone": "Mars/Olympus"}, InvalidValue, "Mars"),
        ({"every": 60, "cron": "* * * * *"}, InvalidValue, "only one"),
        ({}, InvalidValue, "cron expression"),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, InvalidValue, "never fire"),
        ({"every": 60, "catch_up": "some"}, InvalidValue, "none, latest, all"),
        ({"every": 60, "catch_up": "all"}, InvalidValue, "skip"),
        ({"every": 60, "colour": "red"}, InvalidArguments, "colour"),
        ({"every": "soon"}, InvalidValue, "interval_s"),
        ({"every": 60, "params": {}}, InvalidArguments, "to"),
        ({"every": 60, "params": {"to": "a", "too": 1}}, InvalidArguments, "too"),
        ({"every": 60, "params": {"to": 5}}, InvalidArguments, "send"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(hf, send, options, error, words):
    with pytest.raises(error, match=words):
        hf.schedule("s", send, **{"params": {"to": "a"}} | options)
    assert hf.schedules() == []


def test_what_belongs_to_a_single_call_is_refused(hf, send):
    for chosen in (
        send.options(id="x"),
        send.options(key="k"),
        send.options(not_before=datetime(2027, 1, 1, tzinfo=UTC)),
    ):
        with pytest.raises(InvalidArguments, match="single call"):
            hf.schedule("s", chosen, every=60, params={"to": "a"})
    with pytest.raises(InvalidValue, match="no task"):
        hf.schedule("s", len, every=60)


# --- the handle -------------------------------------------------------------------------------------------------------


def test_preview_shows_local_time_and_what_is_odd(hf, send):
    made = hf.schedule("s", send, cron="30 2 * * *", timezone="Europe/Paris", params={"to": "a"})
    shown = made.preview(3, after=datetime(2026, 3, 28, tzinfo=UTC))
    assert [one.fire_at[5:16] for one in shown] == ["03-28T01:30", "03-29T01:00", "03-30T00:30"]
    assert [f"{one.local:%H:%M}" for one in shown] == ["02:30", "03:00", "02:30"]
    assert ["does not exist" in one.note for one in shown] == [False, True, False]
    with pytest.raises(InvalidValue):
        made.preview(1001)


def test_trigger_lays_its_arguments_over_those_of_the_schedule(hf, send):
    made = hf.schedule("s", send, every=60, params={"to": "a", "size": 3})
    job = made.trigger(to="b")
    assert bytes(job.refresh().params) == b'{"to":"b","size":3}'
    with pytest.raises(InvalidArguments):
        made.trigger(to=5)
    with pytest.raises(InvalidArguments):
        made.trigger(tow="x")
    assert len(hf.jobs()) == 1


def test_arguments_are_those_of_the_task_also_where_a_template_stands_between(hf, send):
    welcome = hf.template("welcome", send, {"size": 2})
    made = hf.schedule("s", welcome, every=60, params={"to": "a"})
    when = datetime(2026, 5, 1, tzinfo=UTC)
    job = made.trigger(when=when)
    assert bytes(job.refresh().params) == b'{"size":2,"to":"a","when":"2026-05-01T00:00:00Z"}'
    for wrong in ({"size": "x"}, {"nobody": 1}):
        with pytest.raises(InvalidArguments):
            made.trigger(**wrong)
        with pytest.raises(InvalidArguments):
            made.update(params={"to": "a", **wrong})
    with pytest.raises(InvalidArguments, match="to"):
        made.update(params={})
    made.update(params={"to": "b", "when": when})
    with pytest.raises(InvalidArguments):
        hf.schedule("t", welcome, every=60)
    assert bytes(made.trigger().refresh().params) == b'{"size":2,"to":"b","when":"2026-05-01T00:00:00Z"}'
    assert len(hf.jobs()) == 2


def test_an_update_gives_no_arguments_that_a_task_does_not_take(hf, send):
    made = hf.schedule("s", send, every=60, params={"to": "a"})
    for wrong in ({"to": 5}, {}, {"to": "a", "nobody": 1}, ["to"], None):
        with pytest.raises(InvalidArguments):
            made.update(params=wrong)
        with pytest.raises(InvalidArguments):
            hf.schedule("t", send, every=60, params=wrong)
    assert bytes(made.record().param_overrides) == b'{"to":"a"}'


def test_times_without_zone_are_local_to_the_schedule(hf, send, clock):
    made = hf.schedule("s", send, cron="0 9 * * *", timezone="Asia/Tokyo", params={"to": "a"})
    shown = made.preview(1, after=datetime(2026, 3, 1, 9))  # noqa: DTZ001 - local
    assert shown[0].fire_at == "2026-03-02T00:00:00.000000Z"
    assert made.count(datetime(2025, 12, 1, 9), datetime(2025, 12, 2, 9)) == 1  # noqa: DTZ001 - local
    with pytest.raises(InvalidValue, match="beyond the calendar"):
        made.preview(1, after=datetime.fromisoformat("0001-01-01T00:00"))
    with pytest.raises(InvalidValue, match="backfill_id"):
        made.backfill(datetime(2025, 12, 1, 9), datetime(2025, 12, 2, 9), id="")  # noqa: DTZ001 - local


def test_backfill_counts_first_and_adds_once(hf, send, clock):
    made = hf.schedule("s", send, cron="0 * * * *", params={"to": "a"})
    clock.advance(60)
    day = (datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
    assert made.count(*day) == 24
    assert made.backfill(*day, id="repair") == 24
    assert made.backfill(*day, id="repair") == 0
    assert len(hf.jobs()) == 24


def test_pause_resume_reset_update_delete(hf, send, clock):
    made = hf.schedule("s", send, every=60, params={"to": "a"})
    made.pause("holiday")
    assert (made.record().enabled, made.record().pause_reason) == (False, "holiday")
    made.resume()
    version = made.record().version
    made.update(version=version, every=120, queue="slow")
    assert (made.record().interval_s, made.record().queue) == (120, "slow")
    with pytest.raises(VersionConflict):
        made.update(version=version, every=180)
    made.update(params={"to": "z"})
    made.reset()
    assert pass_time(hf, clock, 120) == 1
    made.delete()
    with pytest.raises(ScheduleNotFound):
        made.record()
    with pytest.raises(ScheduleNotFound):
        made.pause()


def test_a_schedule_can_be_awaited(hf, send):
    async def story():
        made = await hf.aio.schedule("s", send, every=60, params={"to": "a"})
        await made.aio.pause("r")
        await made.aio.resume()
        await made.aio.update(every=120)
        await made.aio.reset()
        assert len(await made.aio.preview(2)) == 2
        past = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC))
        assert await made.aio.backfill(*past, id="b") == await made.aio.count(*past) == 0
        assert (await made.aio.record()).interval_s == 120
        job = await made.aio.trigger(to="b")
        await made.aio.delete()
        assert await hf.aio.schedules() == []
        return job

    assert asyncio.run(story()).refresh().schedule_id is not None


# --- by a decorator ---------------------------------------------------------------------------------------------------


def test_a_decorated_task_has_its_schedule_once_the_store_is_open(hf, clock):
    @hf.task(name="tidy", schedule="0 9 * * MON-FRI", timezone="Europe/Berlin", max_attempts=1)
    def tidy(deep: bool = False) -> None: ...

    (made,) = hf.schedules()
    found = made.record()
    assert (found.name, found.job_type, found.source) == ("tidy", "tidy", "code")
    assert (found.cron_expression, found.timezone) == ("0 9 * * MON-FRI", "Europe/Berlin")
    assert pass_time(hf, clock, 8 * 3600) == 1
    assert hf.jobs()[0].refresh().max_attempts == 1


def test_one_that_is_wrong_is_refused_where_it_is_written(hf):
    with pytest.raises(InvalidValue, match="fields"):
        hf.task(name="a", schedule="9 o'clock")(lambda: None)
    with pytest.raises(InvalidValue, match="time zone"):
        hf.task(name="b", schedule="@daily", timezone="Berlin")(lambda: None)

    def needs(to: str) -> None: ...

    with pytest.raises(InvalidArguments, match="to"):
        hf.task(name="c", schedule="@daily")(needs)


def test_another_version_of_the_code_edits_it_and_what_it_no_longer_declares_is_reported(tmp_path, caplog):
    def version(declared, url=f"wal:{tmp_path / 'jobs'}"):
        app = Holdfast(url, clock=ManualClock())
        for name, cron in declared.items():
            app.task(name=name, schedule=cron)(lambda: None)
        return app

    with version({"a": "@hourly", "b": "@daily"}) as one:
        assert [(made.name, made.record().version) for made in one.schedules()] == [("a", 1), ("b", 1)]
        one.schedules()[1].pause("not now")
    with version({"a": "@daily"}) as two, caplog.at_level(logging.WARNING):
        assert [(made.name, made.record().cron_expression) for made in two.schedules()] == [
            ("a", "@daily"),
            ("b", "@daily"),
        ]
        two.worker(["default"], 1)
        told = [
            (record.message, record.schedule)
            for record in caplog.records
            if record.name == "holdfast.app.handles.schedule"
        ]
        assert told == [("schedule.undeclared", "b")]
    with version({"b": "@daily"}) as three:
        assert three.schedules()[1].record().pause_reason == "not now"


# --- templates --------------------------------------------------------------------------------------------------------


def test_a_template_makes_jobs_and_edits_reach_none_of_them(hf, send):
    welcome = hf.template("welcome", send, {"size": 2}, queue="slow", priority=3)
    job = welcome.enqueue(to="a")
    record = job.refresh()
    assert (bytes(record.params), record.queue, record.priority, record.max_attempts) == (
        b'{"size":2,"to":"a"}',
        "slow",
        3,
        2,
    )
    version = welcome.record().version
    welcome.update(params={"size": 5}, priority=None)
    assert job.refresh() == record
    assert bytes(welcome.enqueue(to="b").refresh().params) == b'{"size":5,"to":"b"}'
    with pytest.raises(VersionConflict):
        welcome.update(params={}, version=version)
    with pytest.raises(InvalidArguments):
        welcome.enqueue()
    assert [one.name for one in hf.templates()] == ["welcome"]


def test_a_schedule_of_a_template_is_paused_when_that_is_archived(hf, send, clock):
    welcome = hf.template("welcome", send, {"to": "a"})
    made = hf.schedule("s", welcome, every=60, params={"size": 7})
    assert pass_time(hf, clock, 60) == 1
    assert bytes(hf.jobs()[0].refresh().params) == b'{"to":"a","size":7}'
    with pytest.raises(InvalidOperation, match="used by schedule s"):
        welcome.delete()
    welcome.archive()
    assert "archived" in made.record().pause_reason
    with pytest.raises(InvalidOperation, match="archived"):
        welcome.enqueue()
    made.delete()
    welcome.delete()
    with pytest.raises(TemplateNotFound):
        welcome.record()


def test_a_template_can_be_awaited(hf, send):
    async def story():
        welcome = await hf.aio.template("welcome", send, {"to": "a"})
        await welcome.aio.update(params={"to": "b"})
        job = await welcome.aio.enqueue()
        assert (await welcome.aio.record()).version == 2
        assert len(await hf.aio.templates()) == 1
        await welcome.aio.archive()
        await welcome.aio.delete()
        return job

    assert bytes(asyncio.run(story()).refresh().params) == b'{"to":"b"}'

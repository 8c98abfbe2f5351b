"""Django's tasks on a Holdfast store: enqueued on commit, run by a worker, told back in Django's words."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta

import djangosite
import djangosite_app
import msgspec
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import override_settings
from django_tasks import task_backends
from django_tasks.base import TaskResultStatus
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

from holdfast.contrib.django import HoldfastBackend
from holdfast.contrib.django.results import raised_in
from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.testing import ManualClock, drain, inline, use


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def hf(clock):
    """Give the backend's application, on a store of this test."""
    with use(task_backends["default"].hf, clock=clock) as app:
        yield app
    connection.close()


# --- enqueuing and results --------------------------------------------------------------------------------------------


def test_a_task_is_ready_then_running_then_successful(hf):
    result = djangosite.add.enqueue(1, b=2)
    assert result.status == TaskResultStatus.READY
    assert djangosite.add.get_result(result.id).status == TaskResultStatus.READY
    hf.engine.ask(Lease(worker_id="w"))
    result.refresh()
    assert (result.status, result.worker_ids, result.is_finished) == (TaskResultStatus.RUNNING, ["w"], False)
    drain(hf, until="empty")
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 2)
    assert result.finished_at >= result.started_at >= result.enqueued_at


def test_the_job_carries_what_the_task_says(hf, clock):
    after = clock.now() + timedelta(hours=1)
    result = djangosite.mail.using(run_after=after).enqueue("ada")
    record = hf.job(result.id).refresh()
    assert (record.queue, record.priority, record.max_attempts) == ("mail", 7, 1)
    assert record.tags == {"task": "djangosite.mail"}
    assert drain(hf) == []
    clock.advance(3600)
    assert len(drain(hf)) == 1
    back = djangosite.mail.get_result(result.id)
    assert (back.task.priority, back.task.queue_name, back.task.run_after) == (7, "mail", after)
    assert (back.args, back.kwargs, back.backend, back.return_value) == (["ada"], {}, "default", "to ada")


def test_tasks_run_in_order_of_priority(hf):
    with use(hf):
        djangosite.add.using(priority=-5).enqueue(1)
        djangosite.add.using(priority=5).enqueue(2)
        seen = [msgspec.json.decode(run.params_snapshot)["args"] for run in drain(hf)]
    assert seen == [[2], [1]]


def test_coroutines_and_contexts_run(hf):
    with inline(hf):
        assert djangosite.add.get_result(djangosite.add.enqueue(1).id).return_value == 2
        result = djangosite.later.enqueue(4)
        result.refresh()
        assert result.return_value == 8
        result = djangosite.contextual.enqueue("word")
        result.refresh()
        assert result.return_value == ["word", 1, result.id]


def test_everything_can_be_awaited(hf):
    async def story():
        result = await djangosite.later.aenqueue(4)
        await asyncio.to_thread(drain, hf)
        await result.arefresh()
        return result.return_value, (await djangosite.later.aget_result(result.id)).status

    assert asyncio.run(story()) == (8, TaskResultStatus.SUCCESSFUL)


def test_a_task_that_fails_keeps_its_exception_and_is_not_tried_again(hf):
    result = djangosite.fail.enqueue("first line\nSecond: line")
    assert len(drain(hf, until="empty")) == 1
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class is djangosite.Trouble
    assert "Second: line" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_backend_may_try_again(hf):
    result = djangosite.flaky.enqueue()
    drain(hf)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)
    drain(hf, until="empty")
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 3, 3)
    assert hf.job(result.id).refresh().timeout_s == 60


def test_a_result_that_is_no_json_fails_the_task(hf):
    result = djangosite.no_json.enqueue()
    drain(hf)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED


def test_a_task_may_cancel_or_snooze_itself(hf):
    cancelled, snoozed = djangosite.give_up.enqueue("cancel"), djangosite.give_up.enqueue("snooze")
    drain(hf)
    cancelled.refresh()
    snoozed.refresh()
    assert (cancelled.status, snoozed.status) == (TaskResultStatus.FAILED, TaskResultStatus.READY)


def test_large_arguments_and_results_come_back_whole(hf):
    large = "x" * 100_000
    result = djangosite.mail.enqueue(large)
    drain(hf)
    result.refresh()
    assert result.return_value == f"to {large}"
    assert djangosite.mail.get_result(result.id).args == [large]


def test_a_lost_run_is_an_error_of_its_own(hf, clock):
    result = djangosite.add.enqueue(1)
    hf.engine.ask(Lease(worker_id="dead"))
    drain(hf, until="empty")
    result.refresh()
    assert [error.exception_class_path for error in result.errors] == ["holdfast.errors.LeaseLost"]
    assert result.errors[0].exception_class.__name__ == "LeaseLost"
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 2)


def test_what_is_no_result_of_a_task_does_not_exist(hf):
    with pytest.raises(TaskResultDoesNotExist):
        djangosite.add.get_result("nothing")
    job = NewJob(job_id="native", job_type="something.else", params=msgspec.Raw(b"{}"))
    call = {"task": "djangosite.not_a_task", "args": [], "kwargs": {}, "backend": "default"}
    gone = NewJob(job_id="gone", job_type="django.task", params=msgspec.Raw(msgspec.json.encode(call)))
    call["task"] = "no.such.module"
    lost = NewJob(job_id="lost", job_type="django.task", params=msgspec.Raw(msgspec.json.encode(call)))
    hf.engine.ask(Enqueue(jobs=(job, gone, lost)))
    for job_id in ("native", "gone", "lost"):
        with pytest.raises(TaskResultDoesNotExist):
            djangosite.add.get_result(job_id)
    runs = drain(hf)
    assert {run.status for run in runs} == {"FAILED"}
    assert "no task any more" in hf.job("gone").refresh().error
    with pytest.raises(TaskResultMismatch):
        djangosite.add.get_result(djangosite.mail.enqueue("x").id)


def test_what_django_refuses_is_refused_before_anything_is_stored(hf):
    with pytest.raises(InvalidTaskError):
        djangosite.add.using(queue_name="unknown")
    with pytest.raises(TypeError):
        djangosite.add.enqueue(object())
    assert hf.jobs() == []


def test_the_class_of_an_exception_is_read_from_its_traceback():
    assert raised_in("no traceback at all") == "holdfast.errors.JobFailed"
    text = "Traceback (most recent call last):\n  File 'x'\n    raise\nValueError: a\nKeyError: b\n"
    assert raised_in(text) == "builtins.ValueError"
    chained = text + "\nDuring handling:\n\nTraceback (most recent call last):\n  File 'y'\nmy.app.Trouble: c"
    assert raised_in(chained) == "my.app.Trouble"


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_task_is_enqueued_when_its_transaction_has_committed(hf):
    with transaction.atomic():
        result = djangosite.add.enqueue(1)
        assert (hf.jobs(), result.enqueued_at) == ([], None)
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
    assert [job.id for job in hf.jobs()] == [result.id]
    assert result.enqueued_at is not None


def test_a_task_of_a_transaction_that_was_rolled_back_is_not_enqueued(hf):
    with transaction.atomic():
        djangosite.add.enqueue(1)
        transaction.set_rollback(True)
    assert hf.jobs() == []


def test_a_backend_may_enqueue_at_once(hf):
    with transaction.atomic():
        djangosite.flaky.enqueue()
        assert len(hf.jobs()) == 1


# --- signals ----------------------------------------------------------------------------------------------------------


def test_djangos_signals_tell_the_story(hf):
    story = []

    def hear(sender, task_result, signal, **kwargs):
        assert sender is HoldfastBackend
        name = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}[signal]
        story.append((name, str(task_result.status)))

    signals = (task_enqueued, task_started, task_finished)
    for signal in signals:
        signal.connect(hear)
    try:
        with inline(hf):
            djangosite.add.enqueue(1)
            djangosite.fail.enqueue("x")
            djangosite.flaky.enqueue()
    finally:
        for signal in signals:
            signal.disconnect(hear)
    started = ("started", "RUNNING")
    assert [line for line in story if line[0] != "enqueued"] == [
        started,
        ("finished", "SUCCESSFUL"),
        started,
        ("finished", "FAILED"),
        started,  # it will be tried again
    ]
    assert story.count(("enqueued", "READY")) == 3


@pytest.mark.parametrize("how", ["cancel", "snooze", "retry", "fatal"])
def test_the_end_of_a_task_that_chose_its_outcome_is_told_exactly_if_it_has_ended(hf, how):
    ends = []

    def hear(task_result, **kwargs):
        ends.append(str(task_result.status))

    task_finished.connect(hear)
    try:
        with inline(hf):
            result = djangosite.give_up.enqueue(how)
    finally:
        task_finished.disconnect(hear)
    assert ends == ([] if how == "snooze" else ["FAILED"])
    result.refresh()
    assert result.is_finished is bool(ends)


# --- settings ---------------------------------------------------------------------------------------------------------


def checked(**options):
    return [message.id for message in HoldfastBackend("default", {"OPTIONS": options}).check()]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"store": "sqlite:jobs.db"}, []),
        ({"app": "djangosite_app.hf"}, []),
        ({"stroe": "sqlite:jobs.db"}, ["holdfast.E001"]),
        ({"store": "sqlite:jobs.db", "max_attempts": "many"}, ["holdfast.E001"]),
        ({"store": "sqlite:jobs.db", "max_attempts": 0}, ["holdfast.E001"]),
        ({"store": "sqlite:jobs.db", "timeout": 0}, ["holdfast.E001"]),
        ({}, ["holdfast.E002"]),
        ({"store": "sqlite:jobs.db", "app": "x.y"}, ["holdfast.E002"]),
        ({"store": "mysql:jobs"}, ["holdfast.E003"]),
        ({"app": "no.such.app"}, ["holdfast.E004"]),
        ({"app": "djangosite.add"}, ["holdfast.E004"]),
        ({"store": "memory:"}, ["holdfast.W001"]),
        ({"store": "wal:jobs"}, ["holdfast.W002"]),
    ],
)
def test_the_settings_are_checked_without_opening_anything(options, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert checked(**options) == found
    assert not any(tmp_path.iterdir())


def test_wrong_settings_are_named_where_they_are_needed(hf):
    bare = override_settings(TASKS={"default": {"BACKEND": "holdfast.contrib.django.HoldfastBackend"}})
    with bare, pytest.raises(ImproperlyConfigured, match="no store"):
        djangosite.add.enqueue(1)


def test_an_application_of_the_projects_own_may_be_used(hf):
    backend = HoldfastBackend("default", {"OPTIONS": {"app": "djangosite_app.hf"}})
    assert backend.hf is djangosite_app.hf
    with use(backend.hf), inline(backend.hf):
        result = backend.enqueue(djangosite.add, (1,), {})
        assert backend.get_result(result.id).return_value == 2
        assert djangosite_app.native.enqueue().result(0) == "native"


def test_all_threads_share_one_application():
    assert task_backends["default"].hf is HoldfastBackend("default", task_backends.settings["default"]).hf


def test_the_tasks_of_django_itself_are_preferred_where_they_are_built_in():
    source = """
import sys
import django_tasks, django_tasks.base, django_tasks.backends.base, django_tasks.exceptions
from django.conf import settings
settings.configure()
import django_tasks.signals
import types
built_in = types.ModuleType("django.tasks", "as from Django 6 on")
built_in.__dict__.update({k: v for k, v in vars(django_tasks).items() if not k.startswith("__")})
built_in.__path__ = []
built_in.__spec__ = django_tasks.__spec__
for name in list(sys.modules):
    if name.startswith("django_tasks."):
        sys.modules[name.replace("django_tasks", "django.tasks")] = sys.modules[name]
sys.modules["django.tasks"] = built_in
from holdfast.contrib.django import tasks, HoldfastBackend
print(tasks.HOME, HoldfastBackend.supports_defer)
"""
    told = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert told.stdout.split() == ["django.tasks", "True"], told.stderr

"""`manage.py holdfast`: the commands of Holdfast, for the store of a task backend."""

from __future__ import annotations

import os

import djangosite
import pytest
from django.core.management import CommandError, call_command
from django_tasks import task_backends

from holdfast.testing import use


@pytest.fixture
def hf(tmp_path, monkeypatch):
    """Give the backend's application, on a file of this test that the commands find by its URL."""
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    hf = task_backends["default"].hf
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    with use(hf, url):
        monkeypatch.setenv("HOLDFAST_STORE", url)
        yield hf


def run(*words):
    with pytest.raises(SystemExit) as left:
        call_command("holdfast", *words)
    return left.value.code or 0


def test_a_worker_runs_the_tasks_of_all_queues_of_the_backend(hf, capsys):
    results = [djangosite.add.enqueue(1), djangosite.mail.enqueue("ada")]
    assert run("worker", "--until-idle") == 0
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [2, "to ada"]


def test_the_other_commands_look_at_the_same_store(hf, capsys):
    result = djangosite.add.enqueue(1)
    assert run("jobs", "ls", "-o", "ids") == 0
    assert capsys.readouterr().out.split() == [result.id]
    assert run("jobs", "show", "nothing") == 3


def test_the_applications_store_is_the_default(hf, monkeypatch):
    monkeypatch.delenv("HOLDFAST_STORE")
    assert run("jobs", "ls") == 3  # nothing is at sqlite:never-opened.db
    assert os.environ["HOLDFAST_STORE"] == hf.url
    monkeypatch.delenv("HOLDFAST_STORE")


def test_a_backend_of_another_kind_is_refused():
    with pytest.raises(CommandError, match="DummyBackend, not Holdfast's"):
        call_command("holdfast", "--backend", "other", "worker")

"""How long a coordinator keeps what has ended: as it was told at its start, in the words of `Retention`."""

from __future__ import annotations

import math

import msgspec
import pytest
from click.testing import CliRunner
from coordinators import running

from holdfast import Retention
from holdfast.errors import InvalidValue
from holdfast.model.commands import Complete, Enqueue, Lease
from holdfast.model.jobs import Job
from holdfast.stores.http.store import HttpStore
from holdfast.testing.conformance.harness import new_job
from holdfast.web.server.retention_options import NAMES, retention_of
from holdfast.web.server.serve_command import serve
from holdfast.web.server.serving import Listening, Serving


def has(url, job_id):
    store = HttpStore.open(url)
    with store.read() as view:
        found = view.get(Job, job_id)
    store.close()
    return found is not None


def test_what_has_ended_goes_as_the_start_said(tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    with running(url) as serving:
        store = HttpStore.open(serving.url)
        store.decide([Enqueue(jobs=(new_job("a"),))])
        (leased,) = store.decide([Lease(worker_id="w")])
        store.decide([Complete(job_id="a", token=leased.grants[0].token)])
        store.close()
    with running(url, retention=Retention(failed_s=0.0)) as serving:
        assert has(serving.url, "a")
    with running(url, retention=Retention(done_s=0.0)) as serving:
        store = HttpStore.open(serving.url)
        try:
            while True:
                with store.read() as view:
                    if view.get(Job, "a") is None:
                        break
                assert store.wait(view.seq, 30), "nothing was removed"
        finally:
            store.close()


def test_every_field_of_retention_that_a_coordinator_sees_to_can_be_said():
    fields = {field.name for field in msgspec.structs.fields(Retention)}
    assert set(NAMES) == fields - {"executions_max"}
    words = [f"{name}=7" for name in NAMES]
    assert retention_of(words) == Retention(**dict.fromkeys(NAMES, 7))


def test_times_are_said_as_people_say_them():
    said = retention_of(["done_s=2d", " failed_s = 90m", "workflows_s=inf", "feed_max=1000"])
    assert said == Retention(done_s=172_800.0, failed_s=5400.0, workflows_s=math.inf, feed_max=1000)
    assert retention_of([]) == Retention()


@pytest.mark.parametrize(
    "words",
    [["done=2d"], ["done_s"], ["done_s="], ["done_s=-1"], ["done_s=soon"], ["done_max=1.5"], ["done_max=2d"],
     ["executions_max=3"], ["done_s=1", "done_s=2"], ["done_max=" + "9" * 30]],
)  # fmt: skip
def test_what_is_no_retention_is_refused_before_anything_is_opened(words, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(InvalidValue, match="retention"):
        retention_of(words)
    given = [part for word in words for part in ("--retention", word)]
    ended = CliRunner().invoke(serve, ["--store", f"wal:{tmp_path / 'jobs'}", *given])
    assert isinstance(ended.exception, InvalidValue)
    assert not (tmp_path / "jobs").exists()


def test_what_a_program_says_is_checked_too(tmp_path):
    with pytest.raises(InvalidValue, match="retention"):
        Serving(f"wal:{tmp_path / 'jobs'}", Listening(port=0, retention=Retention(done_s=-1.0)))
    assert not (tmp_path / "jobs").exists()


def test_the_command_line_hands_on_what_it_was_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STATE_DIR", str(tmp_path))
    given = []

    class Told(Exception):
        pass

    def serving(_url, listening):
        given.append(listening.retention)
        raise Told

    monkeypatch.setattr("holdfast.web.server.serve_command.Serving", serving)
    CliRunner().invoke(serve, ["--retention", "done_s=1h", "--retention", "feed_max=5"])
    assert given == [Retention(done_s=3600.0, feed_max=5)]

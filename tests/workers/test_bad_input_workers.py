"""Jobs and tasks that do not fit each other any more: nothing is lost, and what is wrong is told where one looks."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.errors import InvalidArguments, InvalidValue, JobFailed
from holdfast.model.commands import Enqueue, NewJob, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.jobs import Backoff

NO_WAIT = Backoff(base_s=0.0, factor=1.0, cap_s=0.0, jitter=0.0)


@pytest.fixture(params=["wal", "sqlite"])
def url(request, tmp_path):
    return f"{request.param}:{tmp_path / 'jobs'}"


@pytest.fixture
def app(url):
    """Make the application anew, as a later version of its code would; one at a time."""
    made = []

    def make():
        for old in made:
            old.close()
        made.append(Holdfast(url))
        return made[-1]

    yield make
    for old in made:
        old.close()


def test_a_job_of_a_task_nobody_knows_waits_and_says_so_while_others_run(app):
    hf = app()
    double = hf.task(name="shop.double")(lambda n: 2 * n)
    stranger = NewJob(job_id="stranger", job_type="shop.gone", params=msgspec.Raw(b'{"n":1}'), priority=100)
    hf.engine.ask(Enqueue(jobs=(stranger,)))
    hired = hf.worker()
    hired.start()
    try:
        assert double.enqueue(4).result(30) == 8
        assert double.enqueue(5).result(30) == 10
        reason = hf.job("stranger").explain()
        assert (reason.code, reason.holder) == ("no_worker", "shop.gone")
        assert "no live worker knows task shop.gone" in reason.sentence
    finally:
        hired.stop()
        assert hired.join(30)
    assert hf.job("stranger").status == "QUEUED"
    assert not hf.job("stranger").runs()


def test_a_task_that_was_renamed_finds_its_jobs_again_by_keeping_the_name_they_carry(app):
    hf = app()

    @hf.task(name="shop.send_mail")
    def send_mail(to: str) -> str:
        return f"sent to {to}"

    waiting = send_mail.enqueue("ada").id

    # The function is renamed, and with it what its task is called: the job stays, and waits.
    hf = app()

    @hf.task(name="shop.deliver")
    def deliver(to: str) -> str:
        return f"delivered to {to}"

    hf.work(until_idle=True)
    assert hf.job(waiting).status == "QUEUED"
    assert hf.job(waiting).explain().code == "no_worker"

    # With the name that the jobs carry it takes them.
    hf = app()

    @hf.task(name="shop.send_mail")
    def deliver_again(to: str) -> str:
        return f"delivered to {to}"

    hf.work(until_idle=True)
    assert hf.job(waiting).result(0) == "delivered to ada"


def test_arguments_that_no_longer_fit_fail_the_run_and_a_retry_takes_better_ones(app):
    hf = app()
    old = hf.task(name="shop.add", max_attempts=2, backoff=NO_WAIT)(lambda n: n)
    job = old.enqueue("three").id

    hf = app()
    called = []

    @hf.task(name="shop.add")
    def add(n: int, to: int = 1) -> int:
        called.append(n)
        return n + to

    hf.work(until_idle=True)
    found = hf.job(job)
    assert found.status == "FAILED"
    assert [(run.status, run.error_kind) for run in found.runs()] == [("FAILED", "bad_params")] * 2
    assert called == [], "the handler never saw them"
    with pytest.raises(JobFailed, match=r"n.*int"):
        found.result(0)
    hf.engine.ask(Retry(job_id=job, new_job_id="again", params=msgspec.Raw(b'{"n":3}')))
    hf.work(until_idle=True)
    assert hf.job("again").result(0) == 4


def test_a_later_version_that_takes_them_finishes_the_job_that_backs_off(app):
    hf = app()
    slow = Backoff(base_s=3600.0)
    job = hf.task(name="shop.add", max_attempts=2, backoff=slow)(lambda n: n).enqueue("three").id
    hf = app()

    @hf.task(name="shop.add")
    def add(n: int) -> int:
        return n

    hf.work(until_idle=True)
    reason = hf.job(job).explain()
    assert reason.code == "delayed"
    assert "attempt 2 of 2" in reason.sentence
    hf = app()
    hf.task(name="shop.add")(lambda n: n)
    hf.engine.ask(Update(job_id=job, changes=JobChanges(not_before=None)))
    hf.work(until_idle=True)
    assert hf.job(job).result(0) == "three"
    assert [run.error_kind for run in hf.job(job).runs()] == ["bad_params", None]


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, float("nan"), 2**70, "\ud800", {"deep": [object()]}], ids=lambda value: str(type(value))
)
def test_a_result_that_is_no_json_fails_the_run_as_such_and_the_worker_goes_on(app, value):
    hf = app()

    @hf.task(name="shop.odd", max_attempts=1)
    def odd():
        return value

    double = hf.task(name="shop.double")(lambda n: 2 * n)
    bad, good = odd.enqueue(), double.enqueue(2)
    hf.work(until_idle=True)
    (run,) = bad.runs()
    assert (bad.status, run.status, run.error_kind) == ("FAILED", "FAILED", "bad_result")
    assert run.error
    assert good.result(0) == 4


@pytest.mark.parametrize("name", ["two words", "", "a\nb", "ü", "x" * 129])
def test_a_queue_with_a_strange_name_is_refused_where_it_is_named(app, name):
    hf = app()
    double = hf.task(name="shop.double")(lambda n: 2 * n)
    with pytest.raises(InvalidValue, match="is not a name"):
        double.options(queue=name).enqueue(1)
    with pytest.raises(InvalidValue, match="is not a name"):
        hf.worker([name])
    assert hf.jobs() == []


def test_a_call_that_does_not_fit_stores_nothing(app):
    hf = app()

    @hf.task(name="shop.add")
    def add(n: int) -> int:
        return n

    for call in ((), ("three",), (1, 2)):
        with pytest.raises(InvalidArguments):
            add.enqueue(*call)
    assert hf.jobs() == []


def test_a_worker_of_a_log_that_another_process_holds_exits_6_and_names_it(tmp_path):
    (tmp_path / "shop.py").write_text("from holdfast import Holdfast\nhf = Holdfast('wal:jobs')\n")
    hf = Holdfast(f"wal:{tmp_path / 'jobs'}")
    job = hf.task(name="shop.double")(lambda n: 2 * n).enqueue(2)
    command = [sys.executable, "-B", "-c", "from holdfast.cli import main; main()", "worker", "shop:hf"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 6
    assert "process" in told.stderr
    hf.work(until_idle=True)
    assert job.result(0) == 4
    hf.close()

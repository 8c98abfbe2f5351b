"""A handle shows what a job says and leaves behind, and why it waits; large values come back whole."""

import sqlite3
import subprocess
import sys
import threading

import pytest

from holdfast import Holdfast, Retry
from holdfast.errors import InvalidOperation, InvalidValue, PayloadTooLarge, RunNotFound
from holdfast.failpoints import listening
from holdfast.model.commands import Lease, Release
from holdfast.model.payloads import ref_in
from holdfast.model.workers import LiveRun, Progress, WorkerInfo

LARGE = 5 << 20


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:
        yield app


def texts(lines):
    return [line.text for line in lines if line.stream == "log"]


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_lines_of_the_last_run_and_of_any_other_are_read(hf):
    @hf.task
    def talk() -> None:
        hf.current.log.info("run %d", hf.current.run_no)
        if hf.current.run_no == 1:
            raise Retry(after=0)

    job = talk.enqueue()
    assert list(job.log()) == []
    hf.work(until_idle=True)
    hf.work(until_idle=True)
    assert texts(job.log()) == ["run 2"]
    assert texts(job.log(1)) == ["run 1"]
    with pytest.raises(RunNotFound):
        list(job.log(3))


def test_lines_are_followed_through_every_run_until_the_job_has_ended(hf):
    @hf.task
    def talk() -> None:
        hf.current.log.info("run %d", hf.current.run_no)
        if hf.current.run_no == 1:
            raise Retry(after=0)

    job, got = talk.enqueue(), []
    follower = threading.Thread(target=lambda: got.extend(texts(job.log(follow=True))))
    follower.start()
    worker = hf.worker()
    worker.start()
    follower.join(30)
    worker.drain()
    assert worker.join(30)
    # The first run may be over before anybody looks; the last one is always seen.
    assert got in (["run 1", "run 2"], ["run 2"])


def test_progress_is_live_while_a_job_runs_and_kept_when_it_has_ended(hf, monkeypatch):
    said, go_on = threading.Event(), threading.Event()

    @hf.task
    def slow() -> None:
        hf.current.progress(3, 10, "a third, nearly")
        said.set()
        assert go_on.wait(30)

    job = slow.enqueue()
    assert job.progress is None
    noted = threading.Event()
    roster = hf.engine.store.workers
    note = roster.note

    def listen(worker):
        note(worker)
        if any(run.progress for run in worker.runs):
            noted.set()

    monkeypatch.setattr(roster, "note", listen)
    worker = hf.worker()
    worker.start()
    try:
        assert said.wait(30)
        assert noted.wait(30)
        assert (job.progress.fraction, job.progress.message) == (0.3, "a third, nearly")
    finally:
        go_on.set()
        worker.drain()
        assert worker.join(30)
    assert job.status == "COMPLETED"
    assert (job.progress.done, job.progress.total, job.progress.message) == (3, 10, "a third, nearly")


def test_what_a_worker_said_of_a_run_is_not_the_progress_of_the_next_one(hf):
    job = hf.task(name="t")(lambda: None).enqueue()
    engine = hf.engine
    (grant,) = engine.ask(Lease(worker_id="first")).grants
    at = engine.look().now
    live = LiveRun(job.id, grant.run_id, "t", at, Progress(0.5, message="half"))
    about = {"name": "", "host": "far", "pid": 7, "version": "0", "started_at": at, "last_seen": at}
    engine.store.workers.note(WorkerInfo(worker_id="first", runs=(live,), **about))
    assert job.progress.message == "half"
    engine.ask(Release(job_id=job.id, token=grant.token, begun=True))
    engine.ask(Lease(worker_id="second"))
    assert job.progress is None


# --- what it left behind ----------------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.csv"
    path.write_bytes(b"a,b\n1,2\n")
    return path


def test_artifacts_are_read_and_saved(hf, report, tmp_path):
    @hf.task
    def make() -> None:
        hf.current.artifact(report)
        hf.current.artifact(report, name="other.txt", media_type="text/plain")

    job = make.enqueue()
    assert job.artifacts() == []
    hf.work(until_idle=True)
    report.unlink()  # the store has a copy
    first, second = job.artifacts(1)
    assert (first.name, first.size, first.media_type, first.path) == ("report.csv", 8, "text/csv", None)
    assert (second.name, second.media_type, second.sha256) == ("other.txt", "text/plain", first.sha256)
    assert first.read() == b"a,b\n1,2\n"
    target = tmp_path / "saved"
    target.write_bytes(b"older")
    first.save(target)
    assert target.read_bytes() == b"a,b\n1,2\n"
    with pytest.raises(RunNotFound):
        job.artifacts(2)


def test_a_large_artifact_stays_where_it_is_and_is_checked(hf, tmp_path):
    path = tmp_path / "large.bin"
    path.write_bytes(b"x" * (17 << 20))

    @hf.task
    def make() -> None:
        hf.current.artifact(path)

    job = make.enqueue()
    hf.work(until_idle=True)
    (artifact,) = job.artifacts()
    assert artifact.path == str(path)
    assert artifact.read() == path.read_bytes()
    path.write_bytes(b"changed")
    target = tmp_path / "saved"
    with pytest.raises(InvalidOperation, match="changed"):
        artifact.save(target)
    path.unlink()
    with pytest.raises(InvalidOperation, match="cannot be read"):
        artifact.save(target)
    assert [found.name for found in tmp_path.iterdir() if "saved" in found.name] == []


# --- why it waits -----------------------------------------------------------------------------------------------------


def test_a_wait_that_ran_out_says_what_the_job_waits_for(hf):
    job = hf.task(name="t")(lambda: None).enqueue()
    with pytest.raises(TimeoutError, match="is QUEUED after 0 s: no live worker knows task t on queue default"):
        job.result(timeout=0)
    hf.dispatch.pause("inventory")
    with pytest.raises(TimeoutError, match="dispatch is paused: inventory"):
        job.wait(timeout=0)
    assert job.explain().code == "dispatch_paused"
    assert job.refresh().executions == 0


def test_a_worker_is_listed_while_it_works_and_its_job_is_explained_by_it(hf):
    started, go_on = threading.Event(), threading.Event()

    @hf.task
    def slow() -> None:
        started.set()
        assert go_on.wait(30)

    job, next_one = slow.enqueue(), slow.enqueue()
    worker = hf.worker(concurrency=1)
    worker.start()
    try:
        assert started.wait(30)
        (known,) = [found for found in hf.workers() if found.state == "ready"]
        assert (known.slots, known.job_types) == (1, (slow.name,))
        assert (job.explain().code, job.explain().holder) == ("running", known.worker_id)
        assert next_one.explain().code in ("ready", "running")
    finally:
        go_on.set()
        worker.drain()
        assert worker.join(30)


# --- large values -----------------------------------------------------------------------------------------------------


def test_large_arguments_and_results_come_back_whole(hf):
    @hf.task
    def double(text: str, *, raw: bytes) -> bytes:
        return raw + text.encode()

    job = double.enqueue("x" * LARGE, raw=b"y" * LARGE)
    record = job.refresh()
    assert ref_in(record.params).size > 2 * LARGE
    hf.work(until_idle=True)
    assert job.result(timeout=0) == b"y" * LARGE + b"x" * LARGE
    assert ref_in(job.refresh().result).size > 2 * LARGE
    assert hf.engine.store.check() == []


def test_large_values_reach_a_process_of_their_own(tmp_path):
    """The child gets the content, not the reference."""
    program = tmp_path / "largeapp.py"
    program.write_text(
        "from holdfast import Holdfast\n"
        f"hf = Holdfast('sqlite:{tmp_path / 'jobs.db'}')\n"
        "@hf.task(isolation='process')\n"
        "def double(text: str) -> str:\n    return text * 2\n"
        "if __name__ == '__main__':\n"
        f"    job = double.enqueue('x' * {LARGE})\n"
        "    hf.work(until_idle=True)\n"
        f"    assert job.result(timeout=0) == 'x' * {2 * LARGE}\n"
    )
    subprocess.run([sys.executable, str(program)], check=True, timeout=120)


def test_a_retry_of_a_job_with_large_arguments_has_them_too(hf):
    @hf.task
    def size(text: str) -> int:
        return len(text)

    job = size.enqueue("x" * LARGE)
    job.cancel()
    again = job.retry()
    hf.work(until_idle=True)
    assert again.result(timeout=0) == LARGE


def test_a_payload_beyond_the_limit_is_refused_before_anything_is_stored(tmp_path):
    written = []
    with Holdfast(f"wal:{tmp_path / 'journal'}") as hf:
        size = hf.open().task(name="size")(_size)
        with (
            listening("blobs.written", lambda: written.append(1)),
            pytest.raises(PayloadTooLarge, match=r"300,0\d\d,\d\d\d bytes.*Nothing was stored"),
        ):
            size.enqueue("x" * 300_000_000)
        assert (hf.jobs(), written) == ([], [])
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 1 << 20


def test_content_that_looks_like_a_reference_is_refused(hf):
    @hf.task
    def echo() -> dict[str, str | int]:
        return {"$blob": "0" * 64, "size": 1}

    @hf.task
    def take(**names: str | int) -> None:
        return None

    job = echo.options(max_attempts=1).enqueue()
    hf.work(until_idle=True)
    assert (job.status, job.runs()[0].error_kind) == ("FAILED", "bad_result")
    take.enqueue(**{"$blob": "0" * 64, "size": 1})  # inside other names it is content


def test_large_arguments_join_the_users_transaction(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        size = hf.task(name="size")(_size)
        hf.open()
        db = sqlite3.connect(tmp_path / "jobs.db")
        for ending in (db.rollback, db.commit):
            db.execute("BEGIN IMMEDIATE")
            job = size.options(connection=db).enqueue("x" * LARGE)
            ending()
        db.close()
        assert len(hf.jobs()) == 1
        hf.work(until_idle=True)
        assert job.result(timeout=0) == LARGE
        assert hf.engine.store.check() == []


def _size(text: str) -> int:
    return len(text)


def test_a_run_is_found_by_its_id(hf):
    job = hf.task(name="t")(lambda: None).enqueue()
    hf.work(until_idle=True)
    (run,) = job.runs()
    assert hf.run(run.run_id) == run
    with pytest.raises(RunNotFound, match="nothing"):
        hf.run("nothing")


def test_a_queue_is_counted_paused_and_resumed(hf):
    task = hf.task(name="t", queue="mail")(lambda: None)
    done, _ = task.enqueue(), hf.queue("mail").pause("relay down")
    waiting = task.enqueue()
    assert hf.queue("mail").counts() == {"QUEUED": 2}
    assert (hf.queue("mail").settings().paused, hf.queue("other").settings().paused) == (True, False)
    assert (waiting.explain().code, waiting.explain().holder) == ("queue_paused", "mail")
    hf.queue("mail").resume()
    hf.queue("mail").normalize()
    hf.work(until_idle=True)
    assert hf.queue("mail").counts() == {"COMPLETED": 2}
    assert done.status == "COMPLETED"
    with pytest.raises(InvalidValue):
        hf.queue("no spaces")

"""The face: tasks stay functions, calls are checked where they are made, and nothing touches a disk before it must."""

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, Holdfast, Task, failpoints
from holdfast.app import store_connection
from holdfast.errors import (
    InvalidArguments,
    InvalidOperation,
    InvalidValue,
    JobCancelled,
    JobDead,
    JobNotFound,
    StoreBusy,
    UnknownTask,
)
from holdfast.failpoints import listening
from holdfast.model.times import later, stamp
from holdfast.stores.protocol import Durability
from holdfast.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path, clock):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param], clock=clock) as app:
        yield app


@pytest.fixture
def send(hf):
    @hf.task(queue="mail", max_attempts=3, timeout=30)
    def send(to: str, copies: int = 1) -> str:
        return to * copies

    return send


def work(hf):
    hf.work(until_idle=True)


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_a_task_is_still_a_function(send):
    assert isinstance(send, Task)
    assert send("ab", copies=2) == "abab"
    assert send.__name__ == "send"


def test_a_task_is_named_by_its_module_and_function(hf, send):
    assert send.name == "test_application.send.send"
    assert hf.tasks.names() == (send.name,)


def test_two_tasks_cannot_have_one_name(hf):
    hf.task(name="one")(lambda: None)
    with pytest.raises(InvalidValue, match="taken"):
        hf.task(name="one")(lambda: None)


def test_a_name_that_is_none_is_refused(hf):
    with pytest.raises(InvalidValue):
        hf.task(name="no spaces")(lambda: None)
    with pytest.raises(InvalidValue, match="lambda"):
        hf.task(lambda: None)


def test_an_unknown_option_is_refused_where_it_is_written(hf, send):
    with pytest.raises(InvalidArguments, match="piority"):
        hf.task(name="t", piority=3)(lambda: None)
    with pytest.raises(InvalidArguments, match="piority"):
        send.options(piority=3)


def test_a_memory_limit_needs_a_process_to_be_kept(hf):
    with pytest.raises(InvalidValue, match="process"):
        hf.task(name="t", memory_limit=1 << 30)(lambda: None)


def test_a_task_is_enqueued_with_its_own_options(send):
    record = send.enqueue("a").refresh()
    assert (record.queue, record.max_attempts, record.timeout_s, record.job_type) == ("mail", 3, 30, send.name)


def test_options_of_a_call_win_and_leave_the_task_alone(send, clock):
    record = send.options(queue="fast", priority=9, delay=timedelta(minutes=1), id="mine", tags={"a": "b"}).enqueue("a")
    record = record.refresh()
    assert (record.job_id, record.queue, record.priority, record.tags) == ("mine", "fast", 9, {"a": "b"})
    assert record.not_before == later(stamp(clock.now()), 60)
    assert send.enqueue("b").refresh().queue == "mail"


def test_every_option_reaches_the_job(send, clock):
    at = datetime(2026, 3, 1, tzinfo=UTC)
    record = (
        send.options(
            max_expiries=2, retry="chain", backoff=Backoff(base_s=1, jitter=0), lease=timedelta(seconds=60), ttl=90,
            not_before=at, key="k", key_scope="queue", key_hold="window", key_window=60,
        )
        .enqueue("a")
        .refresh()
    )  # fmt: skip
    assert (record.max_expiries, record.retry_mode, record.lease_s) == (2, "chain", 60)
    assert (record.backoff.base_s, record.expires_at) == (1, later(stamp(clock.now()), 90))
    assert (record.not_before, record.key, record.key_hold) == (stamp(at), "k", "window")


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 101},
        {"queue": "a b"},
        {"retry": "never"},
        {"not_before": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is refused
        {"max_attempts": 0},
    ],
)
def test_an_option_out_of_range_stores_nothing(hf, send, options):
    with pytest.raises(InvalidValue):
        send.options(**options).enqueue("a")
    assert hf.jobs() == []


@pytest.mark.parametrize(
    "options",
    [{"queue": "a b"}, {"queue": ""}, {"priority": 101}, {"priority": "high"}, {"max_attempts": 0}, {"timeout": -1},
     {"lease": 0.1}, {"backoff": Backoff(base_s=-1)}, {"key_limit": 0}, {"tags": {"a": 1}}, {"retry": "never"}],
)  # fmt: skip
def test_an_option_out_of_range_is_refused_where_the_task_is_written(hf, options):
    with pytest.raises(InvalidValue):
        hf.task(name="t", **options)(_nothing)
    assert hf.tasks.names() == ()
    assert not hf.is_open


@pytest.mark.parametrize("query", [{"status": "ASLEEP"}, {"limit": 0}, {"limit": -3}])
def test_a_list_that_makes_no_sense_is_refused(hf, query):
    with pytest.raises(InvalidValue, match=next(iter(query))):
        hf.jobs(**query)


def test_wrong_arguments_store_nothing(hf, send):
    for args, kwargs in [((), {}), ((1,), {}), (("a",), {"copies": "x"}), (("a",), {"x": 1}), (("a", 1, 2), {})]:
        with pytest.raises(InvalidArguments):
            send.enqueue(*args, **kwargs)
    assert hf.jobs() == []


def test_many_jobs_are_enqueued_in_order_from_every_form(hf, send):
    jobs = send.enqueue_many([("a",), {"to": "b", "copies": 2}, send.options(priority=5).job("c")])
    work(hf)
    assert [job.result(timeout=0) for job in jobs] == ["a", "bb", "c"]
    assert jobs[2].refresh().priority == 5


def test_more_than_a_thousand_jobs_are_enqueued(hf, send):
    assert len({job.id for job in send.enqueue_many([("a",)] * 1001)}) == 1001


def test_a_key_makes_a_job_unique(send):
    first, second = (send.options(key="welcome-42").enqueue("a") for _ in range(2))
    assert (first.created, second.created, second.id) == (True, False, first.id)


# --- handles ----------------------------------------------------------------------------------------------------------


def test_a_result_is_typed_from_another_handle_too(hf, send):
    job = send.enqueue("a")
    work(hf)
    assert hf.job(job.id).result(timeout=0) == "a"


def test_a_handle_on_nothing_is_refused(hf):
    with pytest.raises(JobNotFound):
        hf.job("nobody")


def test_waiting_for_a_job_ends_with_a_timeout_and_changes_nothing(send):
    job = send.enqueue("a")
    with pytest.raises(TimeoutError, match="QUEUED"):
        job.result(timeout=0)
    assert job.status == "QUEUED"


def test_a_result_is_waited_for(hf, send):
    job, got = send.enqueue("a"), []
    thread = threading.Thread(target=lambda: got.append(job.result()))
    thread.start()
    work(hf)
    thread.join(20)
    assert got == ["a"]


def test_the_result_of_a_chain_is_that_of_its_last_job(hf, clock):
    calls = []

    @hf.task(retry="chain", backoff=Backoff(base_s=1, jitter=0))
    def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError
        return len(calls)

    job = flaky.enqueue()
    for _ in range(3):
        work(hf)
        clock.advance(10)
    assert (job.status, job.result(timeout=0)) == ("FAILED", 3)


def test_a_waiting_job_is_cancelled_moved_updated_buried_and_retried(hf, send):
    first, second, third = send.enqueue_many([("a",), ("b",), ("c",)])
    assert first.cancel("changed my mind") == "cancelled"
    with pytest.raises(JobCancelled, match="changed my mind"):
        first.result(timeout=0)
    third.move(before=second.id)
    assert third.refresh().position < second.refresh().position
    third.update(priority=7, timeout=timedelta(seconds=5))
    assert (third.refresh().priority, third.refresh().timeout_s) == (7, 5)
    second.bury("poison")
    with pytest.raises(JobDead, match="poison"):
        second.result(timeout=0)
    again = first.retry()
    work(hf)
    assert (again.result(timeout=0), third.status, second.status) == ("a", "COMPLETED", "DEAD")


def test_the_result_of_a_task_nobody_registered_cannot_be_typed(hf, send, tmp_path):
    job = send.enqueue("a")
    work(hf)
    hf.codecs.clear()
    with pytest.raises(UnknownTask):
        hf.job(job.id).result(timeout=0)


def test_jobs_are_listed_by_status_queue_and_task(hf, send):
    done, waiting = send.enqueue("a"), send.options(queue="other").enqueue("b")
    hf.work(queues=["mail"], until_idle=True)
    assert [job.id for job in hf.jobs(status="COMPLETED")] == [done.id]
    assert [job.id for job in hf.jobs(queue="other")] == [waiting.id]
    assert len(hf.jobs(task=send.name)) == 2
    assert len(hf.jobs(limit=1)) == 1


def test_dispatch_is_paused_and_resumed(hf, send):
    job = send.enqueue("a")
    hf.dispatch.pause("inventory")
    work(hf)
    assert job.status == "QUEUED"
    hf.dispatch.resume()
    work(hf)
    assert job.status == "COMPLETED"


def test_namespaces_do_not_see_each_other(tmp_path):
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    with Holdfast(url, namespace="a") as a, Holdfast(url, namespace="b") as b:
        here = a.task(name="t")(_nothing)
        b.task(name="t")(_nothing)
        job = here.enqueue()
        work(b)
        assert (job.status, b.jobs()) == ("QUEUED", [])
        work(a)
        assert job.status == "COMPLETED"


def _nothing() -> None:
    return None


# --- stores, forks and imports ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "jobs.db", "mongo:x", "memory:x", "sqlite:", "sqlite:x?fast=yes"])
def test_a_url_that_is_none_is_refused_at_once(url):
    with pytest.raises(InvalidValue):
        Holdfast(url)


def test_a_namespace_that_is_no_name_is_refused():
    with pytest.raises(InvalidValue):
        Holdfast("memory:", namespace="a b")


def test_relaxed_durability_is_asked_for_by_name_and_refused_where_the_store_has_none(tmp_path):
    with Holdfast(f"wal:{tmp_path / 'jobs'}?network=allow", durability="relaxed") as hf:
        assert hf.engine.store.promises.durability is Durability.RELAXED
    with Holdfast(f"wal:{tmp_path / 'jobs'}") as hf:
        assert hf.engine.store.promises.durability is Durability.SYNC
    with pytest.raises(InvalidValue, match="no option durability=relaxed"):
        Holdfast(f"sqlite:{tmp_path / 'jobs.db'}", durability="relaxed")


def test_defining_tasks_touches_no_disk(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(
        "from holdfast import Holdfast\nhf = Holdfast('sqlite:jobs.db')\n"
        "@hf.task\ndef send(to: str) -> None: ...\nurgent = send.options(priority=9)\n"
    )
    code = [sys.executable, "-B", "-c", "import app"]
    subprocess.run(code, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert list(tmp_path.iterdir()) == [program]


def test_a_closed_application_opens_its_store_again(tmp_path, clock):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}", clock=clock) as hf:
        task = hf.task(name="t")(_nothing)
        job = task.enqueue()
        hf.close()
        assert job.status == "QUEUED"


def test_a_forked_child_opens_its_own_store(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        task = hf.task(name="t")(_nothing)
        task.options(id="parent").enqueue()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                task.options(id="child").enqueue()
                code = 0 if hf.job("parent").status == "QUEUED" else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert {job.id for job in hf.jobs()} == {"parent", "child"}
        work(hf)
        assert {job.status for job in hf.jobs()} == {"COMPLETED"}


def in_child(action):
    """Run something in a forked child; give its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = action()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_forked_while_another_thread_opens_the_store_opens_its_own(tmp_path):
    """The parent's lock is held by a thread that does not exist in the child."""
    reached, go_on = threading.Event(), threading.Event()

    def hold():
        reached.set()
        assert go_on.wait(20)

    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        task = hf.task(name="t")(_nothing)
        opening = threading.Thread(target=hf.open)
        with listening("sqlite.built", hold):
            opening.start()
            assert reached.wait(20)

            def enqueue():
                failpoints._listeners.clear()
                task.options(id="child").enqueue()
                return 0

            assert in_child(enqueue) == 0
            go_on.set()
            opening.join(20)
        assert hf.job("child").status == "QUEUED"


def test_a_child_forked_in_the_middle_of_a_commit_is_not_harmed(tmp_path):
    reached, go_on = threading.Event(), threading.Event()

    def hold():
        reached.set()
        assert go_on.wait(20)

    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        task = hf.open().task(name="t")(_nothing)
        sending = threading.Thread(target=lambda: task.options(id="parent").enqueue())
        with listening("engine.decided", hold):
            sending.start()
            assert reached.wait(20)

            def enqueue():
                failpoints._listeners.clear()
                task.options(id="child").enqueue()  # behind the parent's commit
                return 0

            # Forking waits for the commit: SQLite would tell the child for ever that the database is locked.
            with listening("sqlite.forking", go_on.set):
                assert in_child(enqueue) == 0
            sending.join(20)
        assert {job.id for job in hf.jobs()} == {"parent", "child"}


def test_engine_is_not_handed_out_before_its_store_is_recovered(tmp_path, monkeypatch):
    seen = []

    def recover(engine):
        seen.append(hf.is_open)  # what other threads go by, without waiting for the lock
        return real(engine)

    real = store_connection.recover
    monkeypatch.setattr(store_connection, "recover", recover)
    with Holdfast(f"wal:{tmp_path / 'jobs'}") as hf:
        hf.open()
        assert (seen, hf.is_open) == ([False], True)


def test_store_that_could_not_be_recovered_is_closed_and_opened_again_by_the_next_call(tmp_path, monkeypatch):
    recovered = []

    def recover(engine):
        recovered.append(engine)
        if len(recovered) == 1:
            raise StoreBusy("the store is busy.")
        return real(engine)

    real = store_connection.recover
    monkeypatch.setattr(store_connection, "recover", recover)
    with Holdfast(f"wal:{tmp_path / 'jobs'}") as hf:
        with pytest.raises(StoreBusy):
            hf.open()
        assert not hf.is_open
        assert hf.engine is recovered[1]


def test_many_threads_share_one_application(hf, send):
    start = threading.Barrier(8)
    jobs: list[list[str]] = [[] for _ in range(8)]

    def enqueue(number):
        start.wait(20)
        jobs[number] = [send.enqueue(f"{number}-{n}").id for n in range(20)]

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({job for found in jobs for job in found}) == 160
    assert len(hf.jobs(limit=1000)) == 160
    work(hf)
    assert hf.queue("mail").counts() == {"COMPLETED": 160}


def test_importing_an_application_and_looking_at_its_tasks_touches_no_disk(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(
        "from holdfast import Holdfast\nfrom holdfast.model.commands import Retention\n"
        "hf = Holdfast('wal:journal', namespace='n', retention=Retention(done_s=60))\n"
        "@hf.task(queue='mail')\nasync def send(to: str) -> None: ...\n"
        "queue = hf.queue('mail')\naio = (hf.aio, send.aio, queue.aio)\n"
        "assert hf.tasks.names() == ('app.send',)\nassert not hf.is_open\nhf.close()\n"
    )
    code = [sys.executable, "-B", "-c", "import app, threading; assert threading.active_count() == 1"]
    subprocess.run(code, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert list(tmp_path.iterdir()) == [program]


@pytest.mark.parametrize("make", ["method", "bound", "generator", "asynchronous", "object"])
def test_what_no_worker_could_call_or_what_gives_no_result_is_refused(hf, make):
    class Mailer:
        def send(self, to: str) -> None: ...

    def rows():
        yield 1

    async def more_rows():
        yield 1

    found = {
        "method": Mailer.send,
        "bound": Mailer().send,
        "generator": rows,
        "asynchronous": more_rows,
        "object": Mailer(),
    }[make]
    with pytest.raises(InvalidValue):
        hf.task(found)
    assert hf.tasks.names() == ()


def test_a_job_of_another_task_is_refused(hf, send):
    other = hf.task(name="other")(_nothing)
    with pytest.raises(InvalidArguments, match="other"):
        send.enqueue_many([("a",), other.job()])
    assert hf.jobs() == []


def test_options_of_one_call_are_none_of_a_task_and_a_key_never_changes(hf, send):
    for option in ({"id": "mine"}, {"key": "k"}, {"not_before": datetime(2026, 1, 1, tzinfo=UTC)}):
        with pytest.raises(InvalidArguments, match="no option"):
            hf.task(name="t", **option)(_nothing)
    job = send.enqueue("a")
    with pytest.raises(InvalidArguments, match="no option"):
        job.update(key="k")
    job.update(timeout=None, not_before=None, limit_key="x", key_limit=3, tags={"a": "b"})
    record = job.refresh()
    assert (record.timeout_s, record.limit_key, record.key_limit, record.tags) == (None, "x", 3, {"a": "b"})


def test_outside_a_handler_there_is_no_current_execution(hf):
    with pytest.raises(InvalidOperation):
        _ = hf.current

"""With an access token that shows only some of a store, the command line shows that much, and says what is left out."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager

import httpx2
import msgspec
import pytest

from conftest import worker
from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.model.access import Access, Role
from holdfast.model.commands import CreateGroup, Enqueue, Lease, NewJob
from holdfast.stores.http.store import HttpStore
from holdfast.web.server.serving import Listening, Serving

LEFT_OUT = "holdfast: left out, because this access token may not see it: "


@pytest.fixture
def place(tmp_path):
    return f"wal:{tmp_path / 'jobs'}"


@pytest.fixture
def served(place):
    """A coordinator where a client has jobs, a group and an instance, and another one has some, too."""
    told = {
        "shop": ((Role.CLIENT,), None),
        "rival": ((Role.CLIENT,), None),
        "both": ((Role.CLIENT, Role.WORKER), None),
        "worker": ((Role.WORKER,), None),
        "near": ((Role.READER,), ("a",)),
        "reader": ((Role.READER,), None),
        "admin": ((Role.ADMIN,), None),
    }
    accesses = [
        Access(name=name, roles=roles, digest=hashlib.sha256(name.encode()).hexdigest(), namespaces=spaces)
        for name, (roles, spaces) in told.items()
    ]
    with _running(place, accesses) as url:
        for name in ("rival", "shop", "both"):
            app = Holdfast(url, access_token=name)
            task = app.task(name="send")(lambda number: number)
            task.options(id=f"of-{name}").enqueue(1)
            task.options(id=f"of-{name}-2").enqueue(2)
            app.workflow(name="order")(_order).start(1, id=f"order-{name}")
            app.close()
        with _engine(url, "shop") as engine:
            engine.ask(CreateGroup(group_id="group", members=(_new("member"),)))
        with _engine(url, "admin") as engine:
            engine.ask(_job("near-job", "a"))
            engine.ask(_job("far-job", "b"))
        yield url


@contextmanager
def _running(place, accesses):
    serving = Serving(place, Listening(port=0, accesses=accesses))
    thread = threading.Thread(target=serving.run)
    thread.start()
    serving.ready.wait()
    try:
        yield serving.url
    finally:
        serving.stop()
        thread.join()


async def _order(number: int) -> int:
    return number


def _new(job_id, namespace=""):
    return NewJob(job_id=job_id, job_type="send", namespace=namespace, params=msgspec.Raw(b"{}"))


def _job(job_id, namespace):
    return Enqueue(jobs=(_new(job_id, namespace),))


@contextmanager
def _engine(url, token):
    engine = Engine(HttpStore.open(url, access_token=token))
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def by(served, holdfast):
    """Run a command with one of the access tokens."""

    def run(token, *args):
        return holdfast(*args, env={"HOLDFAST_STORE": served, "HOLDFAST_ACCESS_TOKEN": token})

    return run


@pytest.fixture
def rows_of(by):
    def run(token, *args):
        told = by(token, *args, "-o", "json")
        assert told.exit_code == 0, told.stderr
        return msgspec.json.decode(told.stdout)

    return run


def test_a_client_lists_its_own_jobs_each_with_the_reason_that_a_reader_is_given(rows_of):
    own = {row["job_id"]: row["reason"]["code"] for row in rows_of("shop", "jobs", "ls")}
    assert set(own) == {"of-shop", "of-shop-2", "member"}
    all_of_them = {row["job_id"]: row["reason"]["code"] for row in rows_of("reader", "jobs", "ls")}
    assert own == {job_id: all_of_them[job_id] for job_id in own}


def test_a_client_is_told_no_name_of_others_in_a_reason(by):
    for command in (("jobs", "ls"), ("jobs", "show", "of-shop"), ("explain", "of-shop")):
        told = by("shop", *command, "-o", "json")
        assert (told.exit_code, "of-rival" in told.stdout) == (0, False), told.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("jobs", "show", "of-shop"),
        ("explain", "of-shop"),
        ("groups", "show", "group"),
        ("workflows", "show", "order-shop"),
        ("explain", "order-shop"),
    ],
)
def test_a_client_looks_at_what_it_submitted(by, command):
    told = by("shop", *command)
    assert (told.exit_code, told.stderr) == (0, "")
    assert "no live worker" in told.stdout or "no worker" in told.stdout


def test_a_client_that_works_too_is_told_reasons_by_the_coordinator_where_it_may_not_see_what_they_are_made_of(
    by, served
):
    with _engine(served, "worker") as engine:
        engine.store.workers.note(worker("w", queues=("default",)))
    told = by("both", "jobs", "ls")
    assert (told.exit_code, told.stderr) == (0, "")
    assert "ahead in queue default" in told.stdout


def test_how_far_a_run_is_is_left_out_for_a_client_and_that_is_said(by, served):
    with _engine(served, "worker") as engine:
        engine.ask(Lease(worker_id="w", queues=("default",), n=100))
    told = by("shop", "jobs", "show", "of-shop", "member")
    assert told.exit_code == 0, told.stderr
    assert "leased by w" in told.stdout
    assert told.stderr == f"{LEFT_OUT}how far a run is\n"
    assert by("reader", "jobs", "show", "of-shop").stderr == ""


def test_instances_that_nobody_has_begun_are_in_the_list_of_who_started_them(by, served):
    for _ in range(2):
        for who, others in (("shop", "order-rival"), ("rival", "order-shop")):
            told = by(who, "workflows", "ls")
            assert (told.exit_code, told.stderr) == (0, "")
            assert (f"order-{who}" in told.stdout, others in told.stdout) == (True, False)
        listed = by("reader", "workflows", "ls").stdout
        assert ("order-shop" in listed, "order-rival" in listed) == (True, True)
        # And so it is once they have begun.
        worker = Holdfast(served, access_token="admin")
        worker.workflow(name="order")(_order)
        worker.work(until_idle=True)
        worker.close()


def test_a_job_that_is_not_there_for_a_client_is_not_found(by):
    for command in (("jobs", "show", "of-rival"), ("jobs", "show", "of-"), ("groups", "show", "nothing")):
        told = by("shop", *command)
        assert (told.exit_code, told.stdout) == (3, ""), told.stderr


def test_a_reader_of_a_namespace_looks_at_what_lies_there(by, rows_of):
    (row,) = rows_of("near", "jobs", "ls", "--namespace", "a")
    assert (row["job_id"], row["reason"]["code"]) == ("near-job", "no_worker")
    for command in (
        ("jobs", "show", "near-job"),
        ("explain", "near"),
        ("queues", "show", "default", "--namespace", "a"),
    ):
        told = by("near", *command)
        assert (told.exit_code, told.stderr) == (0, ""), told.stderr
    assert by("near", "jobs", "show", "far-job").exit_code == 3


@pytest.mark.parametrize("command", ["status", "top"])
def test_the_page_of_a_store_leaves_out_what_a_reader_of_a_namespace_may_not_see_and_says_so(by, rows_of, command):
    told = by("near", command)
    assert told.exit_code == 0, told.stderr
    assert told.stderr == f"{LEFT_OUT}whether work is dispatched, workers, what happened lately, workflows\n"
    assert "a/default" in told.stdout
    seen = rows_of("near", command)
    assert [row["namespace"] for row in seen["queues"]] == ["a"]
    hidden = ("workers", "dispatching", "dispatch_reason", "running_instances", "open_decisions", "taken_back")
    assert {name: seen[name] for name in hidden} == dict.fromkeys(hidden)
    whole = rows_of("reader", command)
    assert (whole["dispatching"], whole["workers"]["ready"], whole["running_instances"]) == (True, 0, 0)


@pytest.mark.parametrize(
    ("command", "what"),
    [("queues", "queues"), ("schedules", "schedules"), ("reservations", "what is due (reservation)")],
)
def test_who_may_not_see_a_list_is_told_which_one(by, command, what):
    told = by("shop", command, "ls")
    assert told.exit_code == 6
    assert told.stderr.startswith(f"holdfast: shop may not look up {what} there. That takes an access token")


def test_the_status_of_a_coordinator_is_what_it_says_of_itself(served, by, rows_of):
    told, shown = httpx2.get(f"{served}/api/v1/status").json(), rows_of("reader", "status")
    assert told["open_decisions"] == told["running_instances"] == 0
    assert told["oldest_due"] is not None
    # But for when each was asked, and what only one who looks from outside can say.
    outside = ("now", "store", "set_aside", "adopted", "taken_back")
    mine = {name: value for name, value in shown.items() if name not in outside}
    assert mine == {name: value for name, value in told.items() if name != "now"}
    assert mine["clock_steps"] == {"forward": 0, "back": 0}
    hidden = rows_of("near", "status")
    assert [hidden[name] for name in ("last_recovery", "replay", "clock_steps")] == [None] * 3


@pytest.mark.parametrize(
    ("token", "command"),
    [
        ("shop", ("workers", "ls")),
        ("shop", ("status",)),
        ("near", ("jobs", "ls", "--namespace", "b")),
        ("near", ("workflows", "ls")),
        ("shop", ("jobs", "cancel", "of-shop")),
    ],
)
def test_what_a_token_may_not_do_at_all_is_still_refused(by, token, command):
    told = by(token, *command)
    assert (told.exit_code, told.stdout) == (6, "")
    assert token in told.stderr
    assert "left out" not in told.stderr

"""A store with a few jobs, and the command line run on it."""

from __future__ import annotations

from contextlib import contextmanager

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Engine, open_store
from holdfast.cli.root import cli
from holdfast.cli.store_access.target import now
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.workers import WorkerInfo


@pytest.fixture(params=["wal", "sqlite"])
def place(request, tmp_path):
    """The URL of a store that does not exist yet."""
    return f"{request.param}:{tmp_path / 'jobs'}"


@pytest.fixture
def opened(place):
    """Open the store as a program would, for as long as the block lasts."""

    @contextmanager
    def opening():
        engine = Engine(open_store(place))
        try:
            yield engine
        finally:
            engine.close()

    return opening


@pytest.fixture
def filled(opened):
    """Put jobs into the store."""

    def fill(*ids, task="work", **options):
        with opened() as engine:
            for job_id in ids:
                job = NewJob(**{"job_id": job_id, "job_type": task, "params": msgspec.Raw(b"{}"), **options})
                engine.ask(Enqueue(jobs=(job,)))

    return fill


def worker(worker_id="w", **known):
    """A worker as it describes itself: of another machine, so nobody can tell that its process is not there."""
    told = {"name": "", "host": "far", "pid": 7, "version": "0.1.0", "queues": ("default",), "slots": 4}
    return WorkerInfo(**{"worker_id": worker_id, "started_at": now(), "last_seen": now(), **told, **known})


@pytest.fixture
def hire(opened):
    """Put a worker into the roster."""

    def note(worker_id="w", **known):
        with opened() as engine:
            engine.store.workers.note(worker(worker_id, **known))

    return note


@pytest.fixture
def holdfast(place):
    """Run a command on the store; nobody watches, so it is as in a pipe."""

    def run(*args, stdin=None, env=None):
        return CliRunner().invoke(cli, args, input=stdin, env={"HOLDFAST_STORE": place, **(env or {})})

    return run


@pytest.fixture
def rows(holdfast):
    """Run a command with `-o json` and give what it says."""

    def run(*args, **given):
        told = holdfast(*args, "-o", "json", **given)
        assert told.exit_code == 0, told.stderr
        return msgspec.json.decode(told.stdout)

    return run

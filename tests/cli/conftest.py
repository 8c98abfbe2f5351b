"""A store with a few jobs, and the command line run on it."""

from __future__ import annotations

from contextlib import contextmanager

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Engine, open_store
from holdfast.cli.root import cli
from holdfast.model.commands import Enqueue, NewJob


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

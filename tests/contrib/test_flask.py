"""Flask: requests enqueue, handlers see the application, commands come along, and a fork shares nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings

import flask
import pytest

from holdfast import Holdfast
from holdfast.contrib.flask import init_app
from holdfast.errors import InvalidOperation, InvalidValue
from holdfast.testing import drain, inline, use

SITE = """
from flask import Flask, current_app
from holdfast import Holdfast
from holdfast.contrib.flask import init_app

hf = Holdfast("sqlite:jobs.db")

@hf.task(name="greet", queue="greetings")
def greet(name: str) -> str:
    return f"{current_app.config['GREETING']}, {name}"

@hf.task(name="apart", queue="greetings", isolation="process")
def apart(name: str) -> str:
    return greet(name)

app = Flask(__name__)
app.config["GREETING"] = "Hello"
init_app(app, hf)
"""


@pytest.fixture
def hf(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        yield app


@pytest.fixture
def app(hf):
    app = flask.Flask("site")
    app.config["GREETING"] = "Hello"
    init_app(app, hf)
    greet = hf.task(name="greet")(lambda name: f"{flask.current_app.config['GREETING']}, {name}")

    @app.post("/greetings/<name>")
    def post(name):
        return {"id": greet.enqueue(name).id}

    return app


def test_a_request_enqueues_and_the_handler_sees_its_application(app, hf):
    job_id = app.test_client().post("/greetings/Ada").json["id"]
    hf.work(until_idle=True)
    assert hf.job(job_id).result(0) == "Hello, Ada"


def test_handlers_see_the_application_in_tests_too_also_coroutines(app, hf):
    @hf.task(name="later")
    async def later() -> str:
        return flask.current_app.name

    with use(hf), inline(hf):
        assert later.enqueue().result(0) == "site"


def test_of_several_applications_the_newest_counts(app, hf):
    other = flask.Flask("other")
    other.config["GREETING"] = "Goodbye"
    init_app(other, hf)
    with use(hf):
        job_id = app.test_client().post("/greetings/Ada").json["id"]
        drain(hf)
        assert hf.job(job_id).result(0) == "Goodbye, Ada"


def test_connecting_opens_nothing(app, tmp_path):
    assert app.extensions["holdfast"].url.endswith("jobs.db")
    assert not any(tmp_path.iterdir())


def test_the_configuration_names_the_store(tmp_path):
    hf = Holdfast("sqlite:nowhere.db")
    app = flask.Flask("site")
    app.config["HOLDFAST_STORE"] = f"sqlite:{tmp_path / 'configured.db'}"
    init_app(app, hf)
    assert hf.jobs() == []
    assert (tmp_path / "configured.db").exists()
    hf.close()


def test_a_store_in_use_is_not_changed_by_the_configuration(hf):
    app = flask.Flask("site")
    app.config["HOLDFAST_STORE"] = "nonsense"
    with pytest.raises(InvalidValue):
        init_app(app, hf)
    before = hf.url
    assert hf.jobs() == []
    app.config["HOLDFAST_STORE"] = "memory:"
    with pytest.raises(InvalidOperation, match="in use"):
        init_app(app, hf)
    assert hf.url == before
    app.config["HOLDFAST_STORE"] = before
    init_app(app, hf)


def flask_command(where, *words):
    return subprocess.run(
        [sys.executable, "-m", "flask", "--app", "site_app", "holdfast", *words],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands_work_for_the_application(tmp_path):
    (tmp_path / "site_app.py").write_text(SITE)
    told = flask_command(tmp_path, "worker", "--until-idle")
    assert told.returncode == 0, told.stderr
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        job = hf.task(name="greet", queue="greetings")(lambda name: name).enqueue(name="Ada")
        apart = hf.task(name="apart", queue="greetings")(lambda name: name).enqueue(name="Bob")
    told = flask_command(tmp_path, "worker", "--until-idle")
    assert told.returncode == 0, told.stderr
    told = flask_command(tmp_path, "jobs", "ls", "-o", "ids", "--status", "completed")
    assert set(told.stdout.split()) == {job.id, apart.id}, told.stderr
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        hf.task(name="apart")(lambda name: name)
        assert hf.job(apart.id).result(0) == "Hello, Bob"  # its own process has the application's context, too
    told = flask_command(tmp_path, "jobs", "show", "nothing")
    assert told.returncode == 3
    assert "flask holdfast" in flask_command(tmp_path, "--help").stdout


def test_a_server_that_forks_after_loading_shares_nothing(app, hf, tmp_path):
    # As a preforking server does: the parent has used the store, children take the requests, the parent lives on.
    client = app.test_client()
    client.post("/greetings/parent")
    before = threading.active_count()
    children = []
    for number in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons, about threads of the test run
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                served = client.post(f"/greetings/child-{number}").json["id"]
                drain(hf)
                code = 0 if hf.job(served).wait(60).status == "COMPLETED" else 2  # whoever ran it
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]
    client.post("/greetings/parent-again")
    drain(hf)
    assert {job.status for job in hf.jobs()} == {"COMPLETED"}
    assert len(hf.jobs()) == 5
    assert hf.engine.store.check() == []
    assert threading.active_count() == before

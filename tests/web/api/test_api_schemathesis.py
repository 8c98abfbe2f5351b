"""What the description of the API allows is tried on a real coordinator.

Nothing breaks, nothing is answered that the description does not name, and what it forbids is refused. A third of what
fits the description is as wild as it comes; the others are tamed: ids of things that are there, and bodies that are
taken but for one field.
"""

from __future__ import annotations

import os
from itertools import count

import httpx2
import pytest
import schemathesis
from apibodies import BODIES
from coordinators import running
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from holdfast import Holdfast
from holdfast.web.api.endpoint_table import TABLE
from holdfast.web.api.openapi import document

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
]
#: A stream does not end.
ENDLESS = "/feed$"

schema = schemathesis.openapi.from_dict(document(TABLE)).exclude(path_regex=ENDLESS)
# On a loopback address no access token is asked for; a wrong one would be all that is seen of the rest.
schema.config.generation.update(with_security_parameters=False)
# Its pytest plugin, which would do the same, costs every test of every other file a thousandth of a second.
OPERATIONS = [found.ok() for found in schema.get_all_operations()]


@pytest.fixture(scope="module")
def coordinator():
    with running("memory:") as serving, httpx2.Client(base_url=f"{serving.url}/api/v1", trust_env=False) as http:
        yield serving.url, http, _asked(serving.url), count()


def _asked(url):
    """Have a workflow ask, and a job end."""
    app = Holdfast(url)

    @app.workflow
    async def ask():
        return await app.decision("Go on?", options=["yes", "no"])

    @app.task
    def good():
        return 1

    ask.start(id="asking")
    good.options(id="ended").enqueue()
    app.work(until_idle=True)
    app.close()


@pytest.fixture
def place(coordinator):
    """Some of everything, made for one endpoint; ids by the names of parameters."""
    url, http, _, numbers = coordinator
    name = f"made-{next(numbers)}"

    def post(path, **body):
        return http.post(path, json=body).raise_for_status().json()

    def listed(path):
        return http.get(path).raise_for_status().json()["items"]

    post("/jobs", job_type="t", job_id=name, params={"a": 1})
    post("/jobs", job_type="t", job_id=f"{name}-dead")
    post(f"/jobs/{name}-dead/bury")
    post("/templates", name=name, job_type="t")
    post("/schedules", name=name, job_type="t", interval_s=3600)
    post("/groups", group_id=name, members=[{"job_type": "t"}])
    post("/reservations", reservation_id=name, queue=name, ttl_s=3600)
    post("/webhooks", url="https://nobody.invalid/", webhook_id=name, events=["job.run.lost"])
    post("/workflows", workflow="unknown", id=name)
    return url, {
        "job_id": [name, f"{name}-dead", "ended"],
        "run_id": [run["run_id"] for run in listed("/runs")],
        "queue": ["default", name],
        "template_id": [name],
        "schedule_id": [name],
        "group_id": [name],
        "reservation_id": [name],
        "webhook_id": [name],
        "instance_id": [name, "asking"],
        "decision_id": [one["decision_id"] for one in listed("/decisions")],
        "number": ["0"],
    }


def _tame(case, things, turn):
    for name, ids in things.items():
        if name in (case.path_parameters or {}) and ids:
            case.path_parameters[name] = ids[turn % len(ids)]
    taken = BODIES.get((case.method, case.operation.path.removeprefix("/api/v1")), {})
    if isinstance(case.body, dict):
        other = sorted(case.body)[turn % len(case.body)] if case.body else None
        case.body = {**({} if other is None else {other: case.body[other]}), **taken}


def _is_wait(value):
    return isinstance(value, int | float) and 0 <= value <= 30


@pytest.mark.timeout(7200 if SOAK else 60)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
@given(drawn=st.data())
@settings(
    max_examples=300 if SOAK else 4,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_breaks_and_nothing_is_answered_that_is_not_described(operation, drawn, place):
    url, things = place
    case = drawn.draw(st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
    if case.meta.generation.mode.is_positive:
        turn = len(str(case.body)) + sum(map(len, map(str, (case.path_parameters or {}).values())))
        if turn % 3:
            _tame(case, things, turn)
    # Nobody waits here.
    for place_of_wait, name in ((case.body, "wait_s"), (case.query, "wait")):
        if isinstance(place_of_wait, dict) and _is_wait(place_of_wait.get(name)):
            place_of_wait[name] = 0
    # The tag of a command may be left out where nothing but that command could stand. Of a batch each one is refused by
    # its own outcome.
    is_lenient = case.operation.path.endswith(("/lease", "/commands"))
    answer = case.call_and_validate(
        base_url=url, checks=[one for one in CHECKS if not (is_lenient and one is negative_data_rejection)]
    )
    is_bad = case.meta.generation.mode.is_negative
    if is_bad and case.operation.path.endswith("/commands") and answer.status_code == 200:
        assert any(outcome["answer"] == "refused" for outcome in answer.json()["outcomes"])

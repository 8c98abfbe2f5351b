"""What the description of the API allows is tried on a real coordinator.

Nothing breaks, and nothing is answered that the description does not name. Of what fits the description, half is tamed:
names that are names, and ids of things that are there; the rest is as wild as it comes.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
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
from holdfast.web.api.openapi import document
from holdfast.web.api.table import TABLE

sys.path.insert(0, str(Path(__file__).parents[1]))
from coordinators import running

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
#: Fields that hold names; what no name holds.
NAMED = {"job_type", "queue", "workflow", "name", "worker_id", "job_id", "group_id", "template_id", "schedule_id"}
STRANGE = re.compile(r"[^\w.:-]", re.ASCII)

schema = schemathesis.openapi.from_dict(document(TABLE)).exclude(path_regex=ENDLESS)
schema.config.phases.update(phases=["fuzzing"])
# On a loopback address no access token is asked for; a wrong one would be all that is seen of the rest.
schema.config.generation.update(with_security_parameters=False)


@pytest.fixture(scope="module")
def place():
    with running("memory:") as serving:
        yield serving.url, _things(serving.url)


def _things(url):
    """Make some of everything; give the ids by the names of parameters."""
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
    with httpx2.Client(base_url=f"{url}/api/v1", trust_env=False) as http:

        def post(path, **body):
            return http.post(path, json=body).raise_for_status().json()

        post("/jobs", job_type="t", job_id="waiting", params={"a": 1})
        post("/jobs", job_type="t", job_id="dead")
        post("/jobs/dead/bury")
        post("/templates", name="template", job_type="t")
        post("/schedules", name="schedule", job_type="t", interval_s=3600)
        post("/groups", group_id="group", members=[{"job_type": "t"}])
        post("/reservations", reservation_id="held", queue="kept", ttl_s=3600)
        hook = post("/webhooks", url="https://example.com/hook", webhook_id="hook", events=["job.run.lost"])
        post("/workflows", workflow="unknown", id="unbegun")
        runs = [run["run_id"] for run in http.get("/runs").json()["items"]]
        asked = [one["decision_id"] for one in http.get("/decisions").json()["items"]]
    app.close()
    return {
        "job_id": ["waiting", "dead", "ended"],
        "run_id": runs,
        "queue": ["default", "kept"],
        "template_id": ["template"],
        "schedule_id": ["schedule"],
        "group_id": ["group"],
        "reservation_id": ["held"],
        "webhook_id": [hook["webhook_id"]],
        "instance_id": ["asking", "unbegun"],
        "decision_id": asked,
        "number": ["0"],
    }


def _tame(case, things, turn):
    for name, ids in things.items():
        if name in (case.path_parameters or {}) and ids:
            case.path_parameters[name] = ids[turn % len(ids)]
    if isinstance(case.body, dict):
        for name in NAMED & set(case.body):
            if isinstance(case.body[name], str):
                case.body[name] = STRANGE.sub("x", case.body[name])[:100] or "x"


@pytest.mark.timeout(3600 if SOAK else 60)
@schema.parametrize()
@settings(
    max_examples=int(os.environ.get("N", "300")) if SOAK else 6,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_breaks_and_nothing_is_answered_that_is_not_described(case, place):
    url, things = place
    is_right = case.meta.generation.mode.is_positive
    turn = len(str(case.body)) + sum(map(len, map(str, (case.path_parameters or {}).values())))
    if is_right and turn % 2:
        _tame(case, things, turn)
    if isinstance(case.body, dict) and "wait_s" in case.body and is_right:
        case.body["wait_s"] = 0
    if case.query and "wait" in case.query and is_right:
        case.query["wait"] = 0
    case.call_and_validate(base_url=url, checks=CHECKS)

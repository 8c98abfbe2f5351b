"""Whoever asks at `/` is told where to go on, in words that any program reads; behind the same door as the rest."""

from __future__ import annotations

import hashlib

import httpx2
import pytest
from coordinators import running

from holdfast.model.access import Access, Role
from holdfast.version import __version__

READER = Access(name="reader", roles=(Role.READER,), digest=hashlib.sha256(b"reader").hexdigest())
WITH = {"Authorization": "Bearer reader"}


@pytest.fixture(scope="module")
def client():
    with running("memory:", accesses=[READER]) as serving, httpx2.Client(base_url=serving.url) as made:
        yield made


def test_the_root_names_what_answers_and_where(client):
    answer = client.get("/", headers=WITH)
    assert answer.status_code == 200
    said = answer.json()
    assert (said.pop("name"), said.pop("version")) == ("holdfast", __version__)
    api = said.pop("api")
    assert all(client.get(path, headers=WITH).status_code == 200 for path in said.values()), said
    assert all(path.startswith((api, "/")) for path in said.values())
    assert client.head("/", headers=WITH).content == b""


@pytest.mark.parametrize("path", ["/", "/nothing"])
def test_it_lies_behind_the_same_door(client, path):
    for headers in (
        {"Authorization": "Bearer other"},
        {**WITH, "Host": "evil.example"},
        {"Origin": "http://evil.example"},
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code in (401, 403)
        assert "holdfast" not in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/index.html",
        "/api",
        "/api/v1",
        "/api/v2/jobs",
        "/healthz/",
        "/healthz/x",
    ],
)
def test_a_path_that_nobody_has_is_a_problem_that_says_where_to_look(client, path):
    answer = client.get(path, headers=WITH)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json()["code"], answer.json()["hint"]) == ("not_found", "See / for what there is.")


@pytest.mark.parametrize("path", ["/api/v1/", "/api/v1/jobs/", "/api/v1/feed/", "/api/v1/lines/"])
def test_a_slash_too_many_leads_nowhere(client, path):
    answer = client.get(path, headers=WITH)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/api/v1/commands", "/api/v1/jobs"])
def test_a_method_that_a_path_does_not_know_is_a_problem_that_names_those_it_does(client, path):
    answer = client.put(path, headers=WITH)
    assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
    assert answer.json()["code"] == "invalid_operation"
    assert answer.json()["hint"] == f"There are: {answer.headers['allow']}."
    assert all(
        client.request(one, path, headers=WITH).status_code != 405 for one in answer.headers["allow"].split(", ")
    )

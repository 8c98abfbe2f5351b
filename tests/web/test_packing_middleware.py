"""A coordinator packs what it answers and unpacks what it is sent, within its limits."""

from __future__ import annotations

import gzip

import httpx2
import msgspec
import pytest
from coordinators import running

from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue
from holdfast.stores.http.compression import packed
from holdfast.stores.http.store import HttpStore
from holdfast.stores.protocol import JobQuery
from holdfast.testing.conformance.harness import new_job


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running(f"wal:{tmp_path_factory.mktemp('packing') / 'jobs'}") as serving:
        yield serving.url


def commands(count, first=0):
    jobs = [{"job_id": f"p{first + n}", "job_type": "t", "params": {}} for n in range(count)]
    return msgspec.json.encode({"commands": [{"command": "enqueue", "jobs": [job]} for job in jobs]})


@pytest.mark.parametrize(("encoding", "pack"), [("zstd", packed), ("gzip", gzip.compress)])
def test_a_packed_request_is_read_and_a_long_answer_is_packed(url, encoding, pack):
    body = commands(100, first=0 if encoding == "zstd" else 100)
    headers = {"Content-Encoding": encoding, "Accept-Encoding": encoding}
    answer = httpx2.post(f"{url}/api/v1/commands", content=pack(body), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == encoding
    assert "accept-encoding" in answer.headers["vary"].lower()
    assert int(answer.headers["content-length"]) < len(answer.content) / 3
    assert sum(one["jobs"][0]["created"] for one in answer.json()["outcomes"]) == 100


def test_short_answers_and_those_for_who_does_not_ask_are_left_alone(url):
    short = httpx2.get(f"{url}/api/v1/facing", headers={"Accept-Encoding": "zstd"})
    assert "content-encoding" not in short.headers
    plain = httpx2.get(f"{url}/api/v1/openapi.json", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert len(plain.content) > 4096


def test_a_bomb_is_refused_and_the_connection_goes_on(url):
    with httpx2.Client() as client:
        bomb = packed(b" " * 50_000_000)
        answer = client.post(f"{url}/api/v1/commands", content=bomb, headers={"Content-Encoding": "zstd"})
        assert answer.status_code == 413
        answer = client.post(f"{url}/api/v1/commands", content=b"no zstd", headers={"Content-Encoding": "zstd"})
        assert answer.status_code == 422
        assert client.get(f"{url}/api/v1/facing").status_code == 200


def test_a_client_far_away_packs_and_unpacks_by_itself(url):
    store = HttpStore.open(url)
    store._channel.packs = True
    store._channel._client.headers["Accept-Encoding"] = "zstd, gzip"
    jobs = tuple(new_job(f"far{n}", params={"text": "the same again"}) for n in range(200))
    sent = []
    with listening("http.sending", lambda: sent.append(1)):
        (enqueued,) = store.decide([Enqueue(jobs=jobs)])
    assert all(one.created for one in enqueued.jobs)
    assert len(sent) == 1
    with store.read() as view:
        assert len(view.jobs(JobQuery(limit=150))) == 150
    store.close()

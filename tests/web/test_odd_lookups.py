"""Look-ups that make no sense are refused; they break neither the coordinator nor its store."""

from __future__ import annotations

import random

import httpx2
import pytest
from coordinators import running

from holdfast.model.records import TABLES
from holdfast.stores.http.lookups import LOOK_UPS

#: Of each type something that no caller of ours would send.
ODD = (-1, 2**64, 1e308, "", "a\0b", "no time", "9999-12-31T23:59:59.999999Z", [], ["a"], True, None,
       {"namespace": "", "limit": -1}, {"namespace": "", "limit": 2**64})  # fmt: skip
TRIES = 5


@pytest.fixture(params=["wal", "sqlite"])
def client(request, tmp_path):
    with running(f"{request.param}:{tmp_path / 'jobs'}") as serving, httpx2.Client(base_url=serving.url) as made:
        yield made


def look(client, name, given, skip=0):
    return client.post("/api/v1/look", json={"look": name, "given": given, "skip": skip})


def test_half_a_key_finds_nothing(client):
    for table in TABLES:
        answer = look(client, "get", {"kind": table, "key": "half"})
        assert answer.status_code in {200, 422}, (table, answer.text)
    assert client.get("/readyz").status_code == 200


def test_no_look_up_breaks_a_coordinator_whatever_it_is_given(client):
    chance = random.Random(7)
    for name, what in LOOK_UPS.items():
        names = [one for one in what.signature.parameters if one != "self"]
        for _ in range(TRIES if names else 1):
            given = {one: chance.choice(list(TABLES) if one in what.kinds else ODD) for one in names}
            skip = chance.choice((0, 0, -1, 2**64))
            answer = look(client, name, given, skip)
            assert answer.status_code in {200, 422}, (name, given, skip, answer.text)
    assert client.get("/readyz").status_code == 200

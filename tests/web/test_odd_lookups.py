"""Look-ups that make no sense are refused before anything is looked up; what passes never stumbles.

What comes of it would be a 500, ours to mend: no arguments of right or wrong types lead there, on any store.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack
from enum import Enum
from types import NoneType, UnionType
from typing import TypeVar, get_args, get_origin, get_type_hints

import httpx2
import msgspec
import pytest
from coordinators import running
from everycommand import HISTORY
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.access import Access, Role
from holdfast.model.jobs import Job
from holdfast.model.records import TABLES
from holdfast.model.times import Timestamp
from holdfast.stores.http.lookups import LOOK_UPS
from holdfast.stores.http.store import HttpStore
from holdfast.stores.protocol import View
from holdfast.testing import ManualClock
from holdfast.web.server.limits import Limits

BACKINGS = ("memory", "sqlite", "wal", "dir")
ROLES = {"admin": None, "within": ("home", ""), "client": None}
ACCESSES = [
    Access(
        name=name,
        roles=(Role.CLIENT if name == "client" else Role.ADMIN,),
        namespaces=spaces,
        digest=hashlib.sha256(name.encode()).hexdigest(),
    )
    for name, spaces in ROLES.items()
]
EXAMPLES = 2000 if os.environ.get("HOLDFAST_SOAK") else 80
WELL = {200, 403, 422}

#: Keys of all forms, some of what is there.
KEYS = [
    "a",
    "i",
    "s",
    "t",
    "w",
    "many",
    "",
    "half",
    "\0",
    "a\0b",
    "i\0001",
    "i\000x",
    "0000000000000001\0001",
    "x\0" * 9,
]
NUMBERS = (
    st.sampled_from([0, 1, -1, 2, 50, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**70]) | st.integers()
)
TEXTS = st.sampled_from([*KEYS, "default", "9" * 400, "%", "🙂"]) | st.text(st.characters(codec="utf-8"), max_size=20)
TIMES = st.sampled_from(
    ["2026-01-01T00:00:00.000000Z", "0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z", "", "no time"]
)
WRONG = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def fitting(hint):
    """Give values that a type allows, sensible or not."""
    if get_origin(hint) is type:
        return st.sampled_from(list(TABLES))
    if get_origin(hint) is UnionType:
        return st.one_of(*map(fitting, get_args(hint)))
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        return st.tuples(*map(fitting, get_args(hint)))
    if get_args(hint):
        return st.lists(fitting(get_args(hint)[0]), max_size=3)
    if hint is Timestamp:
        return TIMES
    hint = getattr(hint, "__supertype__", hint)
    if hint is NoneType:
        return st.none()
    if hint is Job:
        return st.builds(lambda one, at: {"job_id": one, "job_type": "t", "params": {}, "created_at": at}, TEXTS, TIMES)
    if issubclass(hint, msgspec.Struct):
        return st.fixed_dictionaries({}, optional={name: fitting(one) for name, one in get_type_hints(hint).items()})
    if issubclass(hint, Enum):
        return st.sampled_from([one.value for one in hint])
    return {int: NUMBERS, str: TEXTS, bool: st.booleans()}[hint]


def arguments(name):
    """Give all arguments of a look-up; now and then one of them is of another type, or there are others."""
    hints = {one: hint for one, hint in get_type_hints(getattr(View, name)).items() if one != "return"}
    assert not any(isinstance(hint, TypeVar) for hint in hints.values())
    right = {one: fitting(hint) for one, hint in hints.items()}
    wrong = {one: values | WRONG for one, values in right.items()}
    return st.fixed_dictionaries(right) | st.fixed_dictionaries({}, optional=wrong)


LOOKS = st.sampled_from(sorted(LOOK_UPS)).flatmap(lambda name: st.tuples(st.just(name), arguments(name)))


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """A coordinator over each kind of store, with everything in it that there can be."""
    with ExitStack() as stack:
        found = {}
        for backing in BACKINGS:
            url = "memory:" if backing == "memory" else f"{backing}:{tmp_path_factory.mktemp(backing) / 'jobs'}"
            clock = ManualClock()
            serving = stack.enter_context(running(url, clock=clock, accesses=ACCESSES, limits=Limits(rate=1e9)))
            store = HttpStore.open(serving.url, access_token="admin", clock=clock)
            for command in HISTORY:
                store.decide([command])
            store.close()
            found[backing] = stack.enter_context(httpx2.Client(base_url=serving.url))
        yield found


def look(client, name, given, skip=0, *, role="admin"):
    return client.post(
        "/api/v1/look",
        content=msgspec.json.encode({"look": name, "given": given, "skip": skip}),
        headers={"Authorization": f"Bearer {role}", "Content-Type": "application/json"},
    )


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(what=LOOKS, skip=st.just(0) | NUMBERS, role=st.sampled_from(sorted(ROLES)))
def test_no_look_up_stumbles_whatever_it_is_given(clients, what, skip, role):
    for backing, client in clients.items():
        answer = look(client, *what, skip, role=role)
        assert answer.status_code in WELL, (backing, answer.text)


@pytest.mark.parametrize("name", sorted(LOOK_UPS))
def test_each_look_up_is_tried_with_the_oddest_there_is(clients, name):
    odd = {"int": -(2**63), "str": "a\0b", "bool": True}
    hints = {one: hint for one, hint in get_type_hints(getattr(View, name)).items() if one != "return"}
    given = {
        one: "instances" if get_origin(hint) is type else odd.get(getattr(hint, "__name__", ""), [])
        for one, hint in hints.items()
    }
    for backing, client in clients.items():
        assert look(client, name, given).status_code in WELL, backing


def test_behind_more_than_there_can_be_is_nothing(clients):
    for backing, client in clients.items():
        answer = look(client, "all", {"kind": "jobs"}, 2**63 - 1)
        assert (answer.status_code, answer.json()["found"]) == (200, []), backing


def test_half_a_key_finds_nothing(clients):
    for backing, client in clients.items():
        for table in sorted(set(TABLES) - {"meta"}):
            for key in ("half", "half\0", "\0half", "half\0x", "", "1" * 5000):
                answer = look(client, "get", {"kind": table, "key": key})
                assert (answer.status_code, answer.json()["found"]) == (200, None), (backing, table, key)


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("jobs", {"query": {"limit": -1}}, "limit"),
        ("jobs", {"query": {"before": ["yesterday", "a"]}}, "before"),
        ("ids_with_prefix", {"prefix": "a", "limit": 2**63}, "limit"),
        ("ids_with_prefix", {"prefix": "a", "limit": 5, "kind": "schedules"}, "kind"),
        ("by_name", {"kind": "jobs", "namespace": "", "name": "a"}, "kind"),
        ("get", {"kind": "nothing", "key": "a"}, "kind"),
        ("history", {"history_id": 2**64}, "history_id"),
        ("due", {"lane": "lease", "until": "2026-01-01"}, "until"),
        ("candidates", {"now": ""}, "now"),
        (
            "beside",
            {"job": {"job_id": "a", "job_type": "t", "params": {}, "created_at": "x"}, "after": True},
            "created_at",
        ),
        ("counts", {"more": 1}, "given"),
    ],
)
def test_what_makes_no_sense_is_named(clients, name, given, field):
    answer = look(clients["memory"], name, given)
    assert (answer.status_code, answer.json()["facts"]["field"]) == (422, field), answer.text


def test_a_stumble_of_ours_is_a_500_that_tells_nothing_and_is_logged(clients, monkeypatch, caplog):
    """It is no fault of who asked, and must not look like one."""

    def broken(*_):
        message = "ours"
        raise KeyError(message)

    monkeypatch.setattr("holdfast.web.remote_store.lookups.shown", broken)
    answer = look(clients["memory"], "counts", {})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["code"] == "holdfast_error"
    assert not any(word in answer.text for word in ("ours", "KeyError", "Traceback", "looking"))
    assert clients["memory"].get("/healthz").status_code == 200  # heard after all of the request before is over
    assert any(record.exc_info and record.exc_info[0] is KeyError for record in caplog.records)

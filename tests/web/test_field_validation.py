"""Fields of bodies and names in queries: whatever is not known, or said twice, is refused, and nothing was done."""

from __future__ import annotations

import json
from typing import get_args

import httpx2
import msgspec
import pytest
from coordinators import running
from everycommand import HISTORY, LAST

from holdfast.errors import InvalidValue
from holdfast.model.commands import Command
from holdfast.stores.http.wire import Commands, Heartbeat, LeaseWish, Lines, Look, encode
from holdfast.web.api.worker_endpoints import ENDPOINTS
from holdfast.web.field_validation import demand_fields

JOB = '{"job_id":"a","job_type":"t","params":{"x":1,"x":2},"tags":{"y":"1"},"backoff":{"base_s":1}}'


def field_of(body, kind=Commands):
    """Give the path that is refused."""
    with pytest.raises(InvalidValue) as refused:
        demand_fields(body.encode(), kind)
    assert "Nothing was done." in str(refused.value)
    return refused.value.facts["field"]


def spaced(text):
    """Give the same with spaces wherever they may be."""
    return json.dumps(json.loads(text), indent=3)


@pytest.mark.parametrize("command", [*HISTORY, LAST], ids=lambda one: type(one).__name__)
def test_whatever_a_command_may_say_is_taken_in_any_hand(command):
    whole = {name: getattr(command, name) for name in command.__struct_fields__}
    tag = {"command": command.__struct_config__.tag}
    for one in (command, {**tag, **whole}):
        body = encode({"commands": [one]})
        assert msgspec.json.decode(body, type=Commands).commands == [command]
        demand_fields(body, Commands)
        demand_fields(spaced(body).encode(), Commands)
        demand_fields(body.replace(b'"command"', b'"\\u0063ommand"'), Commands)


@pytest.mark.parametrize("kind", get_args(Command), ids=lambda one: one.__name__)
def test_a_misspelt_field_of_any_command_is_named(kind):
    body = f'{{"commands":[{{"command":"{kind.__struct_config__.tag}","raeson":"x"}}]}}'
    assert field_of(body) == "commands[0].raeson"


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        ('{"commands":[],"x":1}', Commands, "x"),
        ('{"commands":[{"command":"enqueue","jobs":[JOB,{"prio":1}]}]}', Commands, "commands[0].jobs[1].prio"),
        (
            '{"commands":[{"command":"enqueue","jobs":[{"backoff":{"base":1}}]}]}',
            Commands,
            "commands[0].jobs[0].backoff.base",
        ),
        ('{"commands":[{"command":"create_group","members":["a",{"idd":1}]}]}', Commands, "commands[0].members[1].idd"),
        ('{"commands":[{"command":"set_queue","changes":{"max":1}}]}', Commands, "commands[0].changes.max"),
        ('{"lease":{"command":"lease"},"wait":1}', LeaseWish, "wait"),
        ('{"lease":{"command":"lease","count":1}}', LeaseWish, "lease.count"),
        ('{"look":"get","skipp":1}', Look, "skipp"),
        ('{"leases":[{"job":"a"}]}', Heartbeat, "leases[0].job"),
        ('{"worker":{"runs":[{"progres":1}]}}', Heartbeat, "worker.runs[0].progres"),
        ('{"lines":[["r",{"txt":"a"}]]}', Lines, "lines[0][1].txt"),
    ],
)
def test_what_is_not_known_is_refused_with_its_path(body, kind, field):
    assert field_of(body.replace("JOB", JOB), kind) == field


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        ('{"commands":[],"commands":[]}', Commands, "commands"),
        ('{"commands":[{"command":"cancel","command":"bury","job_id":"a"}]}', Commands, "commands[0].command"),
        ('{"commands":[{"command":"cancel","job_id":"a","job_id":"b"}]}', Commands, "commands[0].job_id"),
        ('{"commands":[{"command":"cancel","job_id":"a","job\\u005fid":"b"}]}', Commands, "commands[0].job_id"),
        (
            '{"commands":[{"command":"enqueue","jobs":[JOB,{"backoff":{"base_s":1,"base_s":2}}]}]}',
            Commands,
            "commands[0].jobs[1].backoff.base_s",
        ),
        (
            '{"commands":[{"command":"create_group","members":["a",{"job_id":"a","job_id":"b"}]}]}',
            Commands,
            "commands[0].members[1].job_id",
        ),
        ('{"lease":{"command":"lease","n":1,"n":2}}', LeaseWish, "lease.n"),
        # Without its kind, which need not be said here: as long as one that says it, and another thing once.
        ('{"lease":{"worker_id":"abc","worker_id":"xyz"}}', LeaseWish, "lease.worker_id"),
        # As long as what a lease would say of itself in its place, if it did.
        ('{"lease":{"worker_id":"xxx","worker_id":"a"}}', LeaseWish, "lease.worker_id"),
        ('{"lease":{"worker_id":"a","n":1,"n":2}}', LeaseWish, "lease.n"),
        ('{"lines":[["r",{"text":"a","text":"b"}]]}', Lines, "lines[0][1].text"),
    ],
)
def test_what_is_said_twice_is_refused_with_its_path(body, kind, field):
    body = body.replace("JOB", JOB)
    assert field_of(body, kind) == field
    assert field_of(body.replace(",", " , "), kind) == field


def test_what_a_payload_says_is_its_owners():
    body = f'{{"commands":[{{"command":"enqueue","jobs":[{JOB}]}}]}}'
    demand_fields(body.encode(), Commands)
    demand_fields(body.replace(":", " : ").encode(), Commands)
    demand_fields(body.replace('"job_id"', '"job\\u005fid"').encode(), Commands)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"commands":[],"\xff":1}', ""),
        (
            b'{"commands":[{"command":"cancel","job_id":"a","job_id":"b"},{"command":"enqueue","jobs":[JOB]}]}',
            "commands[0].job_id",
        ),
    ],
)
def test_what_is_no_text_is_refused_as_anything_else(body, field):
    job = b'{"job_id":"a","job_type":"t","params":{"x":"\xff"}}'
    with pytest.raises(InvalidValue, match="Nothing was done") as refused:
        demand_fields(body.replace(b"JOB", job), Commands)
    assert refused.value.facts["field"] == field


def test_what_a_payload_says_is_not_read_here_though_it_is_no_text():
    demand_fields(b'{"commands":[{"command":"enqueue","jobs":[{"job\\u005fid":"a","params":{"x":"\xff"}}]}]}', Commands)


@pytest.mark.parametrize(
    "member",
    [
        "a\\/b",
        "\\u00e9\\ud83d\\ude00",
        "\\\\u0061",
        '\\"',
        "\\n\\u0000\\\\",
        "é\\u0022\\u005C\\u001f\\u0100",
        "\\ud800\\udc00😀\\u007f",
    ],
)
def test_escapes_in_a_text_beside_structs_hide_nothing_and_are_no_second_field(member, monkeypatch):
    body = f'{{"commands":[{{"comman\\u0064":"create_group","members":["{member}",{JOB}]}}]}}'
    msgspec.json.decode(body.replace(JOB, "null").encode())
    demand_fields(body.encode(), Commands)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.web.field_validation.json", None)  # nor is it looked for in vain
        demand_fields(body.encode(), Commands)
    assert field_of(body.replace('"tags"', '"job\\u005Fid"')) == "commands[0].members[1].job_id"


def test_a_large_body_is_not_taken_apart_in_python_by_the_loop_that_everybody_waits_for(monkeypatch):
    monkeypatch.setattr("holdfast.web.field_validation.json", None)
    text = f'{{"commands":[{{"command":"create_group","members":["a\\/b",{JOB}]}}]}}'
    body = text.replace('"x":1', f'"x":[{"{},[]," * 100_000}"\\u0062\\n"]').replace("job_id", "job\\u005fid")
    demand_fields(body.encode(), Commands)
    assert field_of(body.replace('"tags"', '"job_type"')) == ""
    assert field_of(body.replace('"tags"', '"tgas"')) == "commands[0].members[1].tgas"


@pytest.mark.parametrize(
    "body", ['{"NAME":1}', '{"commands":[{"command":"NAME"}]}', '{"commands":[{"command":"lease","NAME":1}]}']
)
def test_a_refusal_is_short_however_long_a_name_was_sent(body):
    with pytest.raises(InvalidValue) as refused:
        demand_fields(body.replace("NAME", "x" * 100_000).encode(), Commands)
    assert len(str(refused.value)) < 1000
    assert 0 < len(refused.value.facts["field"]) <= 200


# --- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coordinator():
    with running("memory:") as serving:
        yield serving


def test_a_misspelt_field_refuses_the_whole_batch_before_anything_is_done(store, coordinator):
    good = {"command": "enqueue", "jobs": [{"job_id": "good", "job_type": "t", "params": {}}]}
    bad = {"command": "enqueue", "jobs": [{"job_id": "bad", "job_type": "t", "params": {}, "priorty": 5}]}
    answer = post(coordinator, "/commands", {"commands": [good, bad]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")
    assert answer.json()["facts"]["field"] == "commands[1].jobs[0].priorty"
    assert "newer" in answer.json()["hint"]
    assert list(store.feed(0)) == []


def post(coordinator, path, body):
    return httpx2.post(f"{coordinator.url}/api/v1{path}", json=body)


BODIES = {
    "/commands": {"commands": []},
    "/lease": {"lease": {"command": "lease", "worker_id": "w"}},
    "/look": {"look": "all", "given": {"kind": "jobs"}},
    "/lines": {"lines": []},
    "/workers/w/heartbeat": {},
}


@pytest.mark.parametrize("path", BODIES)
def test_every_endpoint_of_workers_refuses_a_field_that_it_does_not_know(coordinator, path):
    assert post(coordinator, path, BODIES[path]).status_code in (200, 204)
    answer = post(coordinator, path, {**BODIES[path], "nonsense": 1})
    assert (answer.status_code, answer.json()["facts"]["field"]) == (422, "nonsense")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
def test_every_endpoint_of_workers_refuses_a_query_that_it_does_not_know_and_one_asked_twice(coordinator, endpoint):
    path = endpoint.path.replace("{sha256}", "0" * 64).replace("{worker}", "w")
    known = [field.encode_name for field in msgspec.structs.fields(endpoint.query)]
    url = f"{coordinator.url}/api/v1{path}"
    for query, field in [("nonsense=1", "nonsense"), *((f"{name}=1&{name}=1", name) for name in known)]:
        answer = httpx2.request(endpoint.method, f"{url}?{query}", json=BODIES.get(path))
        assert (answer.status_code, answer.json()["facts"]["field"]) == (422, field)


def test_what_is_said_twice_to_any_other_endpoint_is_refused_too(coordinator, store):
    body = b'{"job_type": "t", "backoff": {"base_s": 1, "base_s": 2}}'
    answer = httpx2.post(f"{coordinator.url}/api/v1/jobs", content=body)
    assert (answer.status_code, answer.json()["facts"]["field"]) == (422, "backoff.base_s")
    assert list(store.feed(0)) == []


def test_what_a_look_up_is_given_is_said_once_too(coordinator):
    sent = b'{"look": "get", "given": {"kind": "jobs", "key": "a", "key": "b"}}'
    answer = httpx2.post(f"{coordinator.url}/api/v1/look", content=sent)
    assert (answer.status_code, answer.json()["facts"]["field"]) == (422, "key")


@pytest.mark.parametrize("given", [b'{"kind": "jobs", "key": "\xff"}', b'{"kind": "jobs", "key": "a", "\xff": 1}'])
def test_what_a_look_up_is_given_that_is_no_text_is_refused(coordinator, given):
    answer = httpx2.post(f"{coordinator.url}/api/v1/look", content=b'{"look": "get", "given": ' + given + b"}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")

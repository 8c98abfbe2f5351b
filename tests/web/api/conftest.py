"""The API of a coordinator in this process, on a clock under the test's hand, and people with roles who ask it."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager

import msgspec
import pytest
from starlette.testclient import TestClient

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.model.access import Access, Role
from holdfast.model.commands import Complete, Lease
from holdfast.stores.opening import open_store
from holdfast.testing import ManualClock
from holdfast.web.coordinator.access_tokens import Keyring
from holdfast.web.middleware.auth import Door
from holdfast.web.routes import application

ROLES = [role.value for role in Role]


class Api:
    """Asks, as somebody of this machine or as who has a role."""

    def __init__(self, http, engine, clock):
        self.http = http
        self.engine = engine
        self.clock = clock

    def ask(self, method, path, status=200, *, role=None, headers=None, **given):
        """Give what is answered, demanding its status; of an error the whole problem."""
        sent = {**(headers or {}), **({} if role is None else {"Authorization": f"Bearer {role}"})}
        answer = self.http.request(method, f"/api/v1{path}", headers=sent, **given)
        assert answer.status_code == status, answer.text
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.content

    def get(self, path, status=200, **given):
        return self.ask("GET", path, status, **given)

    def post(self, path, body=None, status=200, **given):
        return self.ask("POST", path, status, json={} if body is None else body, **given)

    def patch(self, path, body, status=200, **given):
        return self.ask("PATCH", path, status, json=body, **given)

    def delete(self, path, status=204, **given):
        return self.ask("DELETE", path, status, **given)

    def pages(self, path, **query):
        """Walk all items of a list."""
        cursor = None
        while True:
            page = self.get(path, params={**query, **({} if cursor is None else {"cursor": cursor})})
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def lease(self, worker="w", n=1, queues=("default",)):
        """Lease as a worker does."""
        return self.engine.ask(Lease(worker_id=worker, n=n, queues=queues)).grants

    def run(self, result=b"null", **reported):
        """Lease the next job and complete it."""
        (grant,) = self.lease()
        self.engine.ask(Complete(job_id=grant.job.job_id, token=grant.token, result=msgspec.Raw(result), **reported))
        return grant


@contextmanager
def serving(is_local=True):
    clock = ManualClock()
    engine = Engine(open_store("memory:", clock=clock), clock=clock)
    recover(engine)
    accesses = [
        Access(name=role, roles=(Role(role),), digest=hashlib.sha256(role.encode()).hexdigest()) for role in ROLES
    ]
    here = Access(name="here", roles=tuple(Role), namespaces=("mine",), digest=hashlib.sha256(b"here").hexdigest())
    door = Door(is_local=is_local, keyring=Keyring([*accesses, here]))
    app = application(engine, door, keeps=False)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as http:
        yield Api(http, engine, clock)
    engine.close()


@pytest.fixture
def api(monkeypatch):
    # Else each test would wait that long for its end.
    monkeypatch.setattr("holdfast.web.coordinator.event_notifier.PAUSE_S", 0.01)
    with serving() as found:
        yield found

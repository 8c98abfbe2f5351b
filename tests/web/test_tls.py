"""A coordinator beyond this machine is reached with TLS, its own or a proxy's, and believed only with a certificate."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from coordinators import running
from rawhttp import head, say
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.errors import InvalidOperation, InvalidValue, StoreBusy
from holdfast.model.access import Role
from holdfast.stores import access_file
from holdfast.stores.http.store import HttpStore
from holdfast.stores.memory.store import MemoryStore
from holdfast.web.coordinator.access_tokens import Keyring
from holdfast.web.middleware.auth import Door, Guard
from holdfast.web.routes import application
from holdfast.web.server.serving import Listening, Serving, _networks

NOW = "2026-01-06T10:15:30.000000Z"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "access.json"


def test_a_worker_works_over_tls_for_who_shows_the_right_certificate(tmp_path, file, pair, monkeypatch):
    token = access_file.add(file, "ci", (Role.ADMIN,), None, NOW)
    tls = {"tls_cert": pair[0], "tls_key": pair[1], "access_file": file, "host": "0.0.0.0"}
    with running(f"wal:{tmp_path / 'jobs'}", **tls) as serving:
        url = f"https://localhost:{serving.url.rpartition(':')[2]}"
        assert serving.url.startswith("https://")
        monkeypatch.setenv("SSL_CERT_FILE", pair[0])
        with Holdfast(url, access_token=token) as hf:

            @hf.task
            def double(number: int) -> int:
                return 2 * number

            job = double.enqueue(4)
            hf.worker(until_idle=True).run()
            assert job.result(timeout=20) == 8
        # Nobody is believed without it, and nobody is answered in the clear.
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(StoreBusy, match=r"(?i)certificate") as told:  # at once: waiting would not help
            HttpStore.open(url, access_token=token)
        assert "SSL_CERT_FILE" in told.value.hint
        assert say(f"http://localhost:{serving.url.rpartition(':')[2]}", head()) is None
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
    with pytest.raises(InvalidValue, match=r"nothing\.pem"):
        HttpStore.open(url, access_token=token)


def test_what_is_not_safe_is_not_started(tmp_path, file, pair):
    store = f"wal:{tmp_path / 'jobs'}"
    cert, key = pair
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(InvalidOperation, match="no access token"):
            Serving(store, Listening(host=host, port=0, access_file=file, tls_cert=cert, tls_key=key))
    with pytest.raises(InvalidOperation, match="no access token"):
        Serving(store, Listening(port=0, behind_proxy=("127.0.0.1",)))
    access_file.add(file, "ci", (Role.ADMIN,), None, NOW)
    with pytest.raises(InvalidOperation, match="in the clear"):
        Serving(store, Listening(host="0.0.0.0", port=0, access_file=file))
    with pytest.raises(InvalidValue, match="belong together"):
        Serving(store, Listening(port=0, tls_cert=cert))
    with pytest.raises(InvalidValue, match="cannot be used"):
        Serving(store, Listening(port=0, tls_cert=key, tls_key=cert))
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "ec", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked],
        check=True,
        capture_output=True,
    )
    with pytest.raises(InvalidValue, match="without a password"):
        Serving(store, Listening(port=0, tls_cert=cert, tls_key=str(locked)))
    with pytest.raises(InvalidValue, match="behind_proxy"):
        Serving(store, Listening(port=0, access_file=file, behind_proxy=("proxy.example",)))
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("10.0.0.7", {}, 401),
        ("10.0.0.7", {"token": True}, 200),
        ("10.0.0.7", {"token": True, "Host": "jobs.example.org", "X-Forwarded-For": "203.0.113.5"}, 200),
        ("10.0.0.8", {"token": True}, 403),
        ("10.0.0.8", {"token": True, "X-Forwarded-For": "10.0.0.7"}, 403),
        ("127.0.0.1", {"token": True}, 200),
        ("127.0.0.1", {}, 401),
        ("unix", {"token": True}, 403),
    ],
)
def test_behind_a_proxy_only_it_is_heard_and_everybody_needs_a_token(file, peer, headers, status):
    token = access_file.add(file, "ci", (Role.ADMIN,), None, NOW)
    door = Door(is_local=False, keyring=Keyring(file=file), proxies=_networks(["10.0.0.7"]))
    asked = {name: value for name, value in headers.items() if name != "token"}
    if headers.get("token"):
        asked["Authorization"] = f"Bearer {token}"
    app = application(Engine(MemoryStore()), door)
    with TestClient(app, client=(peer, 1234), base_url="http://jobs.example.org") as client:
        assert client.get("/api/v1/facing", headers=asked).status_code == status


def test_only_the_proxy_is_believed_whom_it_speaks_for(file):
    seen = []

    async def app(scope, receive, send):
        del receive, send
        seen.append((scope["client"], scope["scheme"]))

    guard = Guard(app, Door(is_local=False, keyring=Keyring(file=file), proxies=_networks(["10.0.0.0/24"])))
    told = [(b"host", b"h"), (b"x-forwarded-for", b"198.51.100.9, 203.0.113.5"), (b"x-forwarded-proto", b"https")]
    for peer in ("10.0.0.7", "127.0.0.1"):
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": "/healthz", "query_string": b"",
            "headers": told, "client": (peer, 1), "scheme": "http",
        }  # fmt: skip
        asyncio.run(guard(scope, None, None))
    assert seen == [(("203.0.113.5", 0), "https"), (("127.0.0.1", 1), "http")]

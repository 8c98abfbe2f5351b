"""What most tests of the coordinator stand on: one on a fresh store, a store of it, and a proxy that breaks things."""

from __future__ import annotations

import subprocess

import pytest
from coordinators import running

from holdfast.stores.http import channel
from holdfast.stores.http.store import HttpStore
from support.faultproxy import FaultProxy


@pytest.fixture
def coordinator(tmp_path):
    with running(f"wal:{tmp_path / 'jobs'}") as serving:
        yield serving


@pytest.fixture
def store(coordinator):
    opened = HttpStore.open(coordinator.url)
    yield opened
    opened.close()


@pytest.fixture
def proxy(coordinator):
    with FaultProxy(coordinator.url) as made:
        yield made


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Make a certificate for this machine, signed by itself, and its key."""
    place = tmp_path_factory.mktemp("tls")
    cert, key = place / "cert.pem", place / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, "-out", cert, "-keyout", key], check=True, capture_output=True)
    return str(cert), str(key)


@pytest.fixture
def brief_pauses(monkeypatch):
    """Whoever sends again does so at once."""
    monkeypatch.setattr(channel, "FIRST_S", 0.001)
    monkeypatch.setattr(channel, "LONGEST_S", 0.01)

"""What strangers send to a real port is refused or harmless, and never heard by anybody else."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from coordinators import running
from rawhttp import dial, head, hear, say

from holdfast.errors import PayloadTooLarge, StoreBusy, Unauthorized
from holdfast.model.access import Access, Role
from holdfast.model.commands import Enqueue
from holdfast.stores import access_file
from holdfast.stores.http.store import HttpStore
from holdfast.stores.http.wire import Commands, encode
from holdfast.testing.conformance.harness import new_job
from holdfast.web.server.limits import Limits

NOW = "2026-01-06T10:15:30.000000Z"
NASTY = "<script>alert(1)</script>"


def access(name, *roles):
    return Access(name=name, roles=roles, digest=hashlib.sha256(name.encode()).hexdigest())


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    with running(f"wal:{tmp_path_factory.mktemp('local') / 'jobs'}") as serving:
        yield serving


@pytest.fixture
def tight(tmp_path):
    """Give a coordinator that takes little."""
    limits = Limits(body=2000, blob=300_000, long_polls=3, long_polls_each=2)
    accesses = [access("one", Role.ADMIN), access("two", Role.ADMIN)]
    with running(f"wal:{tmp_path / 'jobs'}", limits=limits, accesses=accesses) as serving:
        yield serving


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head(), 200),
        (head(host="127.0.0.1:8480"), 200),
        (head(host="[::1]:8480"), 200),
        (head(version="1.0"), 200),
        (head(host=None, version="1.0"), 403),
        (head(host=None), 400),
        (head(host="evil.example"), 403),
        (head(host="127.0.0.1.evil.example"), 403),
        (head(host="evil.example:8480@localhost"), 403),
        (head(host="localhost\r\nHost: evil.example"), 400),
        (head(Origin="http://evil.example"), 403),
        (head(Origin="null"), 403),
        (head(Origin="http://["), 403),
        (head(Origin="http://localhost"), 200),
        (head(Sec_Fetch_Site="cross-site"), 403),
        (head(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate"), 200),
        (head(Sec_Fetch_Site="same-origin"), 200),
        (head(Origin="http://localhost\r\nOrigin: http://evil.example"), 400),
        (head(Authorization="Bearer a\r\nAuthorization: Bearer b"), 400),
        (head(Authorization="Basic YTpi"), 401),
        (head(Authorization="Bearer"), 401),
        (head(Authorization="Bearer \xe9"), 401),
        (head("/nothing"), 404),
        (head("/../etc/passwd"), 400),
        (head("/api/v1/%2e%2e/%2e%2e/etc/passwd"), 400),
        (head("/api/v1/jobs/%2E."), 400),
        (head("/api/v1/jobs/./x"), 400),
        (head("/api/v1/jobs/a%2f..%2fb/../c"), 400),
        # Dots beside an encoded slash are part of an id, which is no path.
        (head("/api/v1/jobs/..%2f..%2f..%2fetc%2fpasswd"), 404),
        (head("/api/v1/blobs/..%2f..%2f..%2fetc%2fpasswd"), 404),
        (head("//evil.example/healthz"), 400),
        (head("/healthz%00"), 400),
        (head("/healthz%0d%0aX:%20y"), 400),
        (head("/api/v1/%c0%ae%c0%ae/x"), 400),
        (head("/api/v1/jobs/" + "a" * 5000), 414),
        (head("http://localhost/healthz"), 400),
        (head("http://evil.example/healthz"), 400),
        (head("localhost:80", method="CONNECT"), 400),
        (head("*", method="OPTIONS"), 400),
        (head(method="TRACE"), 405),
        (head(method="POST", Content_Length="0"), 405),
        (head("/api/v1/commands", method="DELETE"), 405),
        (head("/api/v1/commands", method="POST", Content_Length="3", Transfer_Encoding="chunked") + b"0\r\n\r\n", 400),
        (head("/api/v1/commands", method="POST", Content_Length="3\r\nContent-Length: 4") + b"{}", 400),
        (head("/api/v1/commands", method="POST", Content_Length="-1"), 400),
        (head("/api/v1/commands", method="POST", Transfer_Encoding="gzip, chunked"), 501),
        (head("/api/v1/commands", method="POST", Transfer_Encoding="chunked") + b"zz\r\n", 400),
        (head(X="a" * 17_000), 431),
        (head(**{f"x{n}": "a" * 1000 for n in range(17)}), 431),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", 400),
        (b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_each_head_gets_the_answer_it_deserves_in_safe_headers(local, sent, status):
    said = say(local.url, sent.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    assert said.status == status, said
    assert said.headers["x-content-type-options"] == "nosniff"
    assert said.headers["cache-control"] == "no-store"
    assert said.headers["referrer-policy"] == "no-referrer"
    assert "html" not in said.headers.get("content-type", "")
    assert "access-control-allow-origin" not in said.headers


@pytest.mark.parametrize("path", ["/jobs/{}", "/workers/{}", "/blobs/{}"])
@pytest.mark.parametrize("nasty", [NASTY, "a\r\nSet-Cookie: x=1", "\x1b]0;title\x07", "\u202egnp", "'; DROP TABLE --"])
def test_what_is_echoed_is_json_and_no_page_no_header_no_command(local, path, nasty):
    quoted = "".join(f"%{byte:02x}" for byte in nasty.encode())
    said = say(local.url, head("/api/v1" + path.format(quoted), Connection="close"))
    assert 400 <= said.status < 500
    assert "set-cookie" not in said.headers
    assert "html" not in said.headers.get("content-type", "")
    assert not any(byte < 32 and byte != 10 for byte in said.body)


def test_ids_with_html_come_back_as_they_are_and_only_inside_json(local):
    store = HttpStore.open(local.url)
    (refused, kept) = store.decide([Enqueue(jobs=(new_job("a\nb"),)), Enqueue(jobs=(new_job(NASTY),))])
    assert refused.code == "invalid_value"
    assert kept.jobs[0].job_id == NASTY
    store.close()
    found = httpx2.get(f"{local.url}/api/v1/feed", headers={"Accept": "application/json"})
    assert found.headers["content-type"] == "application/json"
    assert NASTY in json.dumps(found.json(), ensure_ascii=False)


def test_what_follows_a_refused_body_is_never_read_as_a_request(local):
    smuggled = head("/api/v1/jobs", method="DELETE")
    sent = head("/api/v1/commands", method="POST", host="evil.example", Content_Length=len(smuggled)) + smuggled
    with dial(local.url) as line:
        line.sendall(sent + head())
        assert hear(line).status == 403
        assert hear(line) is None


def test_requests_in_one_go_are_answered_one_after_the_other(local):
    with dial(local.url) as line:
        line.sendall(head() + head("/readyz") + head(Connection="close"))
        text = b""
        while more := line.recv(65536):
            text += more
    assert text.count(b"HTTP/1.1 200") == 3
    assert text.index(b"ok\n") < text.index(b"ready\n") < text.rindex(b"ok\n")


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(tight):
    said = say(tight.url, head("/api/v1/commands", method="POST", Content_Length=2001))
    assert (said.status, said.headers["connection"]) == (413, "close")


def test_a_body_in_chunks_is_refused_once_it_is_too_large(tight):
    with dial(tight.url) as line:
        line.sendall(head("/api/v1/commands", method="POST", Transfer_Encoding="chunked"))
        line.sendall(b"7d0\r\n" + b" " * 2000 + b"\r\n1\r\n \r\n")
        assert hear(line).status == 413


def test_a_client_that_sends_too_much_learns_why(tight):
    store = HttpStore.open(tight.url, patience_s=0)
    with pytest.raises(PayloadTooLarge):
        store.decide([Enqueue(jobs=(new_job("large", params={"text": "x" * 9_000}),))])
    with pytest.raises(PayloadTooLarge):
        store.blobs.put(b"x" * 20_000_000)
    store.close()


def test_a_batch_of_too_many_commands_does_nothing(local):
    commands = Commands([Enqueue(jobs=(new_job(f"many{n}"),)) for n in range(257)])
    found = httpx2.post(f"{local.url}/api/v1/commands", content=encode(commands))
    assert found.status_code == 413
    store = HttpStore.open(local.url)
    (made,) = store.decide([Enqueue(jobs=(new_job("many0"),))])
    assert made.jobs[0].created
    store.close()


# --- time -------------------------------------------------------------------------------------------------------------


def test_whoever_stops_in_the_middle_is_cut(tmp_path):
    posted = head("/api/v1/commands", method="POST", Transfer_Encoding="chunked")
    sent = {
        b"": None,
        b"GET /heal": None,
        head("/api/v1/commands", method="POST", Content_Length=100) + b"{": 408,
        posted + b"1\r\n{\r\n": 408,
        head(f"/api/v1/blobs/{'a' * 64}", method="PUT", Content_Length=100) + b"{": 408,
    }
    limits = Limits(request_s=0.5, head_s=1.0)
    with running(f"wal:{tmp_path / 'jobs'}", limits=limits) as serving, ExitStack() as opened:
        again = opened.enter_context(dial(serving.url))
        again.sendall(head())
        assert hear(again).status == 200
        again.sendall(b"GET ")  # the next head, of which no more comes
        lines = [opened.enter_context(dial(serving.url)) for _ in sent]
        for line, text in zip(lines, sent, strict=True):
            line.sendall(text)
        assert [said and said.status for said in map(hear, lines)] == list(sent.values())
        assert hear(again) is None


# --- how much at once -------------------------------------------------------------------------------------------------


def test_long_polls_are_counted_for_each_access_token_and_altogether(tight):
    seen = []
    arrived = threading.Semaphore(0)

    def wait(name):
        with dial(tight.url) as line:
            line.sendall(head("/api/v1/feed?after=999999", Authorization=f"Bearer {name}"))
            seen.append(line.recv(10))
            arrived.release()
            gate.wait()

    gate = threading.Event()
    threads = [threading.Thread(target=wait, args=(name,)) for name in ("one", "one", "two")]
    for thread in threads[:2]:
        thread.start()
        assert arrived.acquire(timeout=20)
    said = say(tight.url, head("/api/v1/changes?wait=30", Authorization="Bearer one"))
    assert (said.status, said.headers["retry-after"]) == (429, "1")
    assert b"of one wait" in said.body
    threads[2].start()
    assert arrived.acquire(timeout=20)
    assert b"wait already" in say(tight.url, head("/api/v1/changes?wait=30", Authorization="Bearer two")).body
    assert say(tight.url, head("/api/v1/facing", Authorization="Bearer one")).status == 200
    gate.set()
    for thread in threads:
        thread.join()


def test_requests_beyond_the_rate_are_told_when_to_come_again(tmp_path):
    limits = Limits(rate=0.01)
    with running(f"wal:{tmp_path / 'jobs'}", limits=limits, accesses=[access("one", Role.ADMIN)]) as serving:
        HttpStore.open(serving.url, access_token="one").close()
        said = say(serving.url, head("/api/v1/facing", Authorization="Bearer one"))
        assert (said.status, said.headers["retry-after"], json.loads(said.body)["code"]) == (
            429,
            "1",
            "too_many_requests",
        )
        with pytest.raises(StoreBusy, match="requests a second"):
            HttpStore.open(serving.url, access_token="one", patience_s=0)
        assert say(serving.url, head("/api/v1/facing")).status == 200


@pytest.mark.parametrize(("descriptors", "idle"), [(None, 10_000), (300, 600)])
def test_thousands_of_idle_connections_keep_nobody_out(tmp_path, descriptors, idle):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle = min(idle, hard - 500)  # as many as this system lets a test have

    def confine():
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [
        Path(sys.executable).with_name("holdfast"),
        "serve",
        "--store",
        f"wal:{tmp_path / 'jobs'}",
        "--port",
        "0",
    ]
    env = {**os.environ, "HOLDFAST_STATE_DIR": str(tmp_path / "state")}
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=confine) as process,  # noqa: PLW1509 - no thread of ours runs here
        ExitStack() as opened,
    ):
        opened.callback(process.send_signal, signal.SIGTERM)
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        url = process.stderr.readline().split()[0]
        for number in range(idle):
            opened.enter_context(dial(url))
            if number % 500 == 0:  # the ones before have been taken in when this is answered
                assert say(url, head(Connection="close")).status == 200
        held = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        assert held <= min(descriptors or hard, 4096 + 256)
        for _ in range(5):
            assert say(url, head("/readyz", Connection="close")).status == 200
    assert process.returncode == 0


# --- access tokens ----------------------------------------------------------------------------------------------------


def test_a_revoked_token_is_refused_at_the_next_request_and_its_streams_end(tmp_path):
    file = tmp_path / "access.json"
    token = access_file.add(file, "ci", (Role.ADMIN,), None, NOW)
    with running(f"wal:{tmp_path / 'jobs'}", access_file=file) as serving:
        store = HttpStore.open(serving.url, access_token=token)
        # The stream shows what has happened, then waits.
        asked = {"Authorization": f"Bearer {token}"}
        with httpx2.stream("GET", f"{serving.url}/api/v1/feed?after=0", headers=asked, timeout=20) as stream:
            access_file.revoke(file, "ci")
            with pytest.raises(Unauthorized, match="not known"):
                store.decide([Enqueue(jobs=(new_job("late"),))])
            other = HttpStore.open(serving.url, access_token=access_file.add(file, "new", (Role.CLIENT,), None, NOW))
            other.decide([Enqueue(jobs=(new_job("next"),))])
            assert b"next" not in b"".join(stream.iter_bytes())
        store.close()
        other.close()


def test_revoking_the_last_token_lets_nobody_in(tmp_path):
    file = tmp_path / "access.json"
    token = access_file.add(file, "ci", (Role.ADMIN,), None, NOW)
    listening = {"host": "0.0.0.0", "access_file": file, "behind_proxy": ("127.0.0.1",)}
    with running(f"wal:{tmp_path / 'jobs'}", **listening) as serving:
        assert say(serving.url, head("/api/v1/facing", Authorization=f"Bearer {token}")).status == 200
        access_file.revoke(file, "ci")
        assert say(serving.url, head("/api/v1/facing", Authorization=f"Bearer {token}")).status == 401
        assert say(serving.url, head("/api/v1/facing")).status == 401
        assert say(serving.url, head("/healthz")).status == 200

"""One try of a delivery, over real sockets, to receivers that behave and to all that do not."""

import hashlib
import hmac
import json
import socket
import ssl
import struct
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.rules.webhooks.addresses import parse_networks
from holdfast.rules.webhooks.signatures import HEADER, signature
from holdfast.testing.receiver import LOOPBACK, Receiver
from holdfast.workers.webhooks.send import MAX_REPLY, Reply, Sender

HERE = parse_networks([LOOPBACK])
SENDER = Sender(allow=HERE)
TLS = Path(__file__).parent / "tls"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
LONG_S = 30
#: Time enough for anything that is going to happen; and so little that nobody waits for what is not.
SHORT_S = 0.05


def read_request(line):
    """Read one request whole; give its first line, its headers and its body."""
    stream = line.makefile("rb")
    first = stream.readline().decode().strip()
    headers = {}
    while text := stream.readline().decode().strip():
        name, _, value = text.partition(": ")
        headers[name] = value
    return first, headers, stream.read(int(headers["Content-Length"]))


@contextmanager
def server(serve, *, wrap=lambda line: line, host="127.0.0.1"):
    """Listen, and let `serve` talk to whoever connects; give the port and the list of what it returned."""
    heard = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family)
    listening.settimeout(LONG_S)

    def run():
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            try:
                with line, wrap(line) as talking:
                    heard.append(serve(talking))
            except (ConnectionError, ssl.SSLError) as problem:
                heard.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1], heard
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(LONG_S)


def answering(answer):
    def serve(line):
        request = read_request(line)
        line.sendall(answer)
        return request

    return serve


def test_what_arrives_is_the_body_with_its_headers_and_a_signature_that_another_implementation_accepts():
    body = json.dumps({"event": "job.run.failed", "error": "ä"}).encode()
    signed = signature(["first-secret", "other-secret"], body, 1_767_225_600)
    with Receiver() as receiver:
        reply = SENDER.send(receiver.url + "?a=b", {"Idempotency-Key": "run-1", HEADER: signed}, body)
        (received,) = receiver.wait(1)
    assert reply == Reply(200)
    assert received.path == "/hook?a=b"
    assert received.body == body
    assert received.headers["Content-Type"] == "application/json"
    assert received.headers["Idempotency-Key"] == "run-1"
    assert received.headers["Host"] == receiver.url.split("/")[2]
    stamped, *proofs = received.headers["Holdfast-Signature"].split(",")
    for secret, proof in zip(["first-secret", "other-secret"], proofs, strict=True):
        base = stamped.removeprefix("t=").encode() + b"." + received.body
        assert hmac.compare_digest(proof, "v1=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest())


@pytest.mark.parametrize("status", [200, 201, 204, 299, 301, 302, 307, 400, 410, 429, 500, 503])
def test_the_status_is_told_as_it_is(status):
    with Receiver(lambda _received: status) as receiver:
        assert SENDER.send(receiver.url, {}, b"{}") == Reply(status)


def test_a_redirect_is_not_followed():
    with Receiver() as elsewhere:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
        with server(answering(moved)) as (port, heard):
            assert SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}") == Reply(307)
        assert len(heard) == 1
        assert not elsewhere.received


def test_proxies_of_the_environment_are_not_asked(monkeypatch):
    with Receiver() as receiver, server(answering(OK)) as (port, heard):
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        assert SENDER.send(receiver.url, {}, b"{}") == Reply(200)
        assert len(receiver.wait(1)) == 1
    assert heard == []


def test_of_a_huge_answer_a_little_is_read_and_its_status_counts():
    sent = []

    def endless(line):
        read_request(line)
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        line.settimeout(LONG_S)
        while True:
            sent.append(line.send(b"x" * 65536))

    with server(endless) as (port, heard):
        assert SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}") == Reply(200)
    assert isinstance(heard[0], ConnectionError)  # the line was closed on it
    assert sum(sent) < 64 * MAX_REPLY  # what the buffers of two sockets hold


def test_endless_headers_end():
    def chatter(line):
        read_request(line)
        line.sendall(b"HTTP/1.1 500 Oops\r\n")
        while True:
            line.sendall(b"X-More: " + b"y" * 1000 + b"\r\n")

    with server(chatter) as (port, _):
        reply = SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert reply.status == 500 or "HTTP" in reply.error  # never a success, and over


@pytest.mark.parametrize("answer", [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_an_answer_that_drips_is_cut_off_when_the_time_is_up(answer):
    looks = []
    may_drip = threading.Semaphore(0)

    def look():
        # Each look at the clock finds a second gone, and lets one more byte come.
        looks.append(len(looks))
        may_drip.release()
        return float(len(looks))

    def drip(line):
        read_request(line)
        for byte in answer + b"x" * 100:
            assert may_drip.acquire(timeout=LONG_S)
            line.sendall(bytes([byte]))

    with server(drip) as (port, _):
        reply = SENDER._replace(monotonic=look).send(f"http://127.0.0.1:{port}/", {}, b"{}")
        for _ in range(200):
            may_drip.release()
    assert reply == Reply(None, "the answer took too long")
    assert len(looks) <= 15


def test_a_body_that_drips_after_a_success_is_a_success_and_over_in_time():
    looks = []
    may_drip = threading.Semaphore(0)

    def look():
        looks.append(len(looks))
        may_drip.release()
        return float(len(looks))

    def drip(line):
        read_request(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            assert may_drip.acquire(timeout=LONG_S)
            line.sendall(b"x")

    with server(drip) as (port, _):
        assert SENDER._replace(monotonic=look).send(f"http://127.0.0.1:{port}/", {}, b"{}") == Reply(200)
        for _ in range(200):
            may_drip.release()
    assert len(looks) <= 15


def test_a_receiver_that_never_answers_is_given_up():
    over = threading.Event()

    def silent(line):
        read_request(line)
        over.wait(LONG_S)

    with server(silent) as (port, _):
        reply = SENDER._replace(total_s=SHORT_S).send(f"http://127.0.0.1:{port}/", {}, b"{}")
        over.set()
    assert reply.status is None
    assert "timed out" in reply.error


def test_a_receiver_that_reads_nothing_is_given_up():
    over = threading.Event()
    with server(lambda _line: over.wait(LONG_S)) as (port, _):
        body = b"x" * 50_000_000  # more than all buffers hold
        reply = SENDER._replace(total_s=SHORT_S).send(f"http://127.0.0.1:{port}/", {}, body)
        over.set()
    assert reply.status is None
    assert "timed out" in reply.error or "too long" in reply.error


def test_a_receiver_that_dies_after_receiving_is_no_success():
    def die(line):
        request = read_request(line)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
        return request

    with server(die) as (port, heard):
        reply = SENDER.send(f"http://127.0.0.1:{port}/", {}, b'{"a":1}')
    assert reply.status is None
    assert heard[0][2] == b'{"a":1}'


def test_a_receiver_that_hangs_up_without_a_word_is_no_success():
    with server(read_request) as (port, _):
        reply = SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert reply.status is None
    assert "HTTP" in reply.error


@pytest.mark.parametrize("interim", [b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </a>"])
def test_an_interim_answer_is_not_the_answer(interim):
    with server(answering(b"HTTP/1.1 " + interim + b"\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")) as (port, _):
        assert SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}") == Reply(204)


def test_interim_answers_without_end_are_no_success():
    with server(answering(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000)) as (port, _):
        assert SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}").status is None


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH\r\n", b"\x00\xff" * 40 + b"\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_not_http_is_no_success(garbage):
    with server(answering(garbage)) as (port, _):
        reply = SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert reply == Reply(None, "the answer is not HTTP: BadStatusLine")


def test_where_nobody_listens_there_is_no_success():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    reply = SENDER.send(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert reply.status is None
    assert "ConnectionRefusedError" in reply.error


# --- addresses --------------------------------------------------------------------------------------------------------


def test_an_address_that_is_not_public_is_never_connected_to():
    with Receiver() as receiver:
        reply = Sender().send(receiver.url, {}, b"{}")
    assert reply == Reply(None, "url: 127.0.0.1 is not a public address.")
    assert receiver.received == []


@pytest.mark.parametrize("hidden", ["127.0.0.1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "fd00:ec2::254"])
def test_a_name_one_of_whose_addresses_is_not_public_is_not_connected_to_at_all(hidden):
    with Receiver() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        sender = Sender(resolve=lambda _name: ["93.184.216.34", hidden])
        reply = sender.send(f"http://receiver.example:{port}/", {}, b"{}")
    assert reply.status is None
    assert "which is not a public address" in reply.error
    assert receiver.received == []


def test_a_name_that_stands_for_another_address_a_moment_later_leads_nowhere_else():
    asked = []

    def rebinding(name):
        asked.append(name)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    with server(answering(OK)) as (port, heard):
        reply = Sender(allow=parse_networks(["127.0.0.1"]), resolve=rebinding).send(
            f"http://receiver.example:{port}/", {}, b"{}"
        )
        assert reply == Reply(200)
        again = Sender(allow=parse_networks(["127.0.0.1"]), resolve=rebinding).send(
            f"http://receiver.example:{port}/", {}, b"{}"
        )
    assert again == Reply(None, "url: receiver.example is 127.0.0.2, which is not a public address.")
    assert asked == ["receiver.example"] * 2  # once for each try: what was checked is what was connected to
    assert len(heard) == 1
    assert heard[0][1]["Host"] == f"receiver.example:{port}"


def test_if_one_address_does_not_answer_the_next_one_is_tried():
    with server(answering(OK)) as (port, heard):
        sender = SENDER._replace(resolve=lambda _name: ["127.0.0.99", "127.0.0.1"])
        assert sender.send(f"http://receiver.example:{port}/", {}, b"{}") == Reply(200)
    assert len(heard) == 1


def test_a_resolver_that_hangs_is_given_up():
    over = threading.Event()
    sender = SENDER._replace(resolve=lambda _name: [str(over.wait(LONG_S))], connect_s=SHORT_S)
    reply = sender.send("http://receiver.example/", {}, b"{}")
    over.set()
    assert reply == Reply(None, "resolving receiver.example took too long")


def test_a_name_that_nobody_knows_is_no_success():
    def unknown(_name):
        raise socket.gaierror(-2, "Name or service not known")

    reply = SENDER._replace(resolve=unknown).send("http://receiver.example/", {}, b"{}")
    assert reply.status is None
    assert "not known" in reply.error
    assert SENDER._replace(resolve=lambda _name: []).send("http://receiver.example/", {}, b"{}") == Reply(
        None, "OSError: receiver.example has no address"
    )


def test_a_url_that_is_none_is_told_not_raised():
    assert SENDER.send("file:///etc/passwd", {}, b"{}") == Reply(None, "url: it has the scheme 'file'.")


def test_ipv6_works_where_there_is_any():
    if not socket.has_ipv6:
        pytest.fail("this Python has no IPv6")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with server(answering(OK), host="::1") as (port, heard):
        sender = Sender(allow=parse_networks(["::1"]))
        assert sender.send(f"http://[::1]:{port}/x", {}, b"{}") == Reply(200)
    assert heard[0][1]["Host"] == f"[::1]:{port}"


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    names = []
    context.sni_callback = lambda _line, name, _context: names.append(name)

    @contextmanager
    def serve():
        wrap = lambda line: context.wrap_socket(line, server_side=True)  # noqa: E731 - one expression, used once
        with server(answering(OK), wrap=wrap) as (port, heard):
            yield port, heard, names

    return serve


def trusting():
    return ssl.create_default_context(cafile=TLS / "certificate.pem")


def test_tls_speaks_to_the_name_although_it_dials_the_address(tls):
    with tls() as (port, heard, names):
        sender = SENDER._replace(tls=trusting, resolve=lambda _name: ["127.0.0.1"])
        assert sender.send(f"https://receiver.example:{port}/x", {}, b"{}") == Reply(200)
    assert names == ["receiver.example"]
    assert heard[0][1]["Host"] == f"receiver.example:{port}"


def test_a_certificate_for_another_name_is_refused(tls):
    with tls() as (port, heard, _):
        sender = SENDER._replace(tls=trusting, resolve=lambda _name: ["127.0.0.1"])
        reply = sender.send(f"https://other.example:{port}/", {}, b"{}")
    assert reply.status is None
    assert "CERTIFICATE_VERIFY_FAILED" in reply.error
    assert not [one for one in heard if isinstance(one, tuple)]


def test_a_certificate_that_nobody_vouches_for_is_refused(tls):
    with tls() as (port, _, _):
        reply = SENDER._replace(resolve=lambda _name: ["127.0.0.1"]).send(
            f"https://receiver.example:{port}/", {}, b"{}"
        )
    assert reply.status is None
    assert "CERTIFICATE_VERIFY_FAILED" in reply.error


def test_a_receiver_that_never_finishes_the_handshake_is_given_up():
    over = threading.Event()
    with server(lambda _line: over.wait(LONG_S)) as (port, _):
        sender = SENDER._replace(connect_s=SHORT_S)
        reply = sender.send(f"https://127.0.0.1:{port}/", {}, b"{}")
        over.set()
    assert reply.status is None
    assert "timed out" in reply.error

"""Answers that do not come, come late, come twice or come from somebody else."""

from __future__ import annotations

import itertools
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from holdfast.errors import JobNotFound, StoreBusy, StoreClosed, StoreFailed
from holdfast.failpoints import listening
from holdfast.stores.deadline import keeping_to
from holdfast.stores.http import channel as calling
from holdfast.stores.http.channel import Channel, Request
from holdfast.stores.http.wire import NOW_HEADER, Problem, encode
from holdfast.testing import ManualClock
from support.faultproxy import Fault, FaultProxy, Weather

OURS = {NOW_HEADER: "2026-01-01T00:00:00.000000+00:00"}
WANTED = Request("POST", "/commands", b'{"commands":[]}')
DELICATE = WANTED._replace(is_repeatable=False)


class Told(ThreadingHTTPServer):
    """A server that answers what it is told to, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = itertools.chain(answers, itertools.repeat((200, OURS, b"fine")))
        self.asked = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, *_):
        """Say nothing: connections are cut here."""

    def __exit__(self, *error):
        self.shutdown()
        super().__exit__(*error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, body))
        status, headers, content = next(self.server.answers)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def _brief_pauses(monkeypatch):
    monkeypatch.setattr(calling, "FIRST_S", 0.001)
    monkeypatch.setattr(calling, "LONGEST_S", 0.01)


@pytest.fixture
def channel():
    made = []

    def make(url, patience_s=10.0, clock=None):
        made.append(Channel(url, None, clock or ManualClock(), patience_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_the_same_bytes_are_sent_again_when_it_says_not_now(channel, status):
    with Told((status, OURS, b""), (status, {}, b"<html>a proxy</html>")) as server:
        assert channel(server.url).send(WANTED) == b"fine"
        assert server.asked == [("/api/v1/commands", WANTED.body)] * 3


def test_a_refusal_is_final(channel):
    problem = encode(Problem(type="", title="", status=404, detail="gone", code="job_not_found"))
    with Told((404, OURS, problem)) as server, pytest.raises(JobNotFound):
        channel(server.url).send(WANTED)
    assert len(server.asked) == 1


def test_whoever_finds_something_else_at_the_address_is_told_at_once(channel):
    with Told((404, {}, b"<html>")) as server, pytest.raises(StoreFailed, match="no answer of a coordinator"):
        channel(server.url).send(WANTED)
    assert len(server.asked) == 1


@pytest.mark.parametrize("foreign", [(200, {}, b"<html>Welcome to our hotel"), (500, {}, b"oops"), (302, {}, b"")])
def test_what_somebody_in_between_says_is_not_taken_for_the_coordinators_word(channel, foreign):
    with Told((200, OURS, b"met"), foreign) as server:
        mine = channel(server.url)
        assert [mine.send(WANTED), mine.send(WANTED)] == [b"met", b"fine"]
        assert len(server.asked) == 3


def test_nothing_is_sent_before_retry_after_has_passed_and_nobody_waits_longer_than_he_will(channel):
    later = (503, {**OURS, "Retry-After": "20"}, b"")
    with Told(later) as server, pytest.raises(StoreBusy) as told:
        channel(server.url, patience_s=5.0).send(WANTED)
    assert len(server.asked) == 1
    assert told.value.facts["retry_after_s"] == 20


def test_one_attempt_is_one_attempt(channel):
    with Told((503, OURS, b"")) as server, pytest.raises(StoreBusy):
        channel(server.url, patience_s=1000).send(WANTED, attempt_s=5.0)
    assert len(server.asked) == 1


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.CUT_REQUEST, Fault.CUT_ANSWER])
def test_whoever_runs_out_of_patience_learns_what_is_unknown_and_what_to_do(channel, fault):
    with Told() as server, FaultProxy(server.url, lambda *_: Weather(fault)) as proxy:
        mine = channel(proxy.url, patience_s=0)
        with pytest.raises(StoreFailed, match="not known") as told:
            mine.send(DELICATE)
        assert "same ids" in told.value.hint
        with pytest.raises(StoreBusy, match="asking again does no harm"):
            mine.send(WANTED)


def test_nobody_at_the_port_leaves_nothing_unknown(channel):
    with pytest.raises(StoreBusy, match="Nothing was acknowledged"):
        channel("http://127.0.0.1:1", patience_s=0).send(DELICATE)


@pytest.mark.parametrize("fault", sorted(set(Fault) - {Fault.HOLE_ANSWER, Fault.HOLE_REQUEST}))
def test_one_fault_of_the_channel_is_not_noticed(channel, fault):
    fares = iter([Weather(fault)])
    with Told() as server, FaultProxy(server.url, lambda *_: next(fares, Weather())) as proxy:
        assert channel(proxy.url).send(DELICATE) == b"fine"
        assert set(server.asked) == {("/api/v1/commands", WANTED.body)}


@pytest.mark.parametrize("hole", [Fault.HOLE_ANSWER, Fault.HOLE_REQUEST])
def test_silence_ends_an_attempt(channel, hole):
    with Told() as server, FaultProxy(server.url) as proxy:
        mine = channel(proxy.url)
        proxy.partition(hole)
        with pytest.raises(StoreBusy):
            mine.send(WANTED, attempt_s=0.05)
        proxy.heal()
        assert mine.send(WANTED, attempt_s=5.0) == b"fine"


def test_an_answer_that_never_ends_is_given_up(channel):
    clock = ManualClock()

    def slowly(*_):
        clock.advance(calling.WHOLE_S + 1)
        return Weather()

    with Told() as server, FaultProxy(server.url, slowly) as proxy, pytest.raises(StoreBusy, match="too slowly"):
        channel(proxy.url, patience_s=0, clock=clock).send(WANTED)


def test_whoever_waits_for_a_limited_time_is_told_when_it_is_over(channel):
    clock = ManualClock()
    mine = channel("http://127.0.0.1:1", patience_s=1000, clock=clock)
    tries = []

    def go_on():
        tries.append(clock.monotonic())
        clock.advance(0.5)

    with (
        listening("http.again", go_on),
        keeping_to(clock.monotonic() + 2),
        pytest.raises(StoreBusy, match=r"no answer in 2\.0 s"),
    ):
        mine.send(WANTED)
    assert len(tries) == 4


@pytest.mark.parametrize(("left_s", "silent_s"), [(3.0, 5.0), (-1.0, 2.0), (float("inf"), 10.0)])
def test_an_answer_may_be_late_by_a_moment_and_no_more(channel, monkeypatch, left_s, silent_s):
    clock = ManualClock()
    with Told() as server, keeping_to(clock.monotonic() + left_s):
        mine = channel(server.url, clock=clock)
        asked = []
        stream = mine._client.stream
        monkeypatch.setattr(mine._client, "stream", lambda *a, **b: (asked.append(b["timeout"]), stream(*a, **b))[1])
        mine.send(WANTED)
        # A long poll is asked to end by then; it has no longer either.
        mine.send(WANTED._replace(wait_s=max(0.0, min(3.0, left_s))))
    assert asked[0].read == silent_s
    assert asked[0].connect == min(calling.CONNECT_S, silent_s)
    assert asked[1].read == (silent_s if left_s < 10 else 13.0)


def test_closing_lets_go_who_waits_to_send_again(channel, monkeypatch):
    monkeypatch.setattr(calling, "FIRST_S", 1000.0)
    mine = channel("http://127.0.0.1:1", patience_s=10_000)
    with listening("http.again", mine.close), pytest.raises(StoreClosed):
        mine.send(WANTED)


def test_a_connection_that_is_made_while_the_channel_is_closed_is_closed_with_it(channel, monkeypatch):
    connect = socket.create_connection
    made = []

    def closing(*where, **how):
        mine.close()
        made.append(connect(*where, **how))
        return made[0]

    with Told() as server:
        mine = channel(server.url)
        monkeypatch.setattr(socket, "create_connection", closing)
        assert mine.send(WANTED) == b"fine"
        assert made[0].fileno() == -1
        with pytest.raises(StoreClosed):
            mine.send(WANTED)


def test_an_answer_that_is_under_way_when_the_channel_is_closed_still_arrives(channel):
    with Told() as server, FaultProxy(server.url) as proxy:
        mine = channel(proxy.url)

        def close(*_):
            mine.close()
            return Weather()

        proxy.script = close
        assert mine.send(WANTED) == b"fine"
        assert mine._client.is_closed


def test_an_error_that_is_no_error_of_the_channel_is_not_hidden(channel):
    def strike():
        raise httpx2.InvalidURL("broken")

    with Told() as server, listening("http.sending", strike), pytest.raises(httpx2.InvalidURL):
        channel(server.url).send(WANTED)

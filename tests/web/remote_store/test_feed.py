"""The feed of a coordinator: whoever is cut and resumes sees every event once, in order."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import msgspec
import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.errors import InvalidValue, StoreBusy
from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue
from holdfast.model.times import later
from holdfast.stores.http.store import HttpStore
from holdfast.testing.conformance.harness import new_job
from holdfast.web.remote_store import feed as feeding
from holdfast.web.remote_store import feed_pages
from holdfast.web.server.write_buffer import HELD
from support.faultproxy import Fault, FaultProxy, Weather

pytestmark = pytest.mark.usefixtures("brief_pauses")

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 20
#: Characters of one, two, three and four bytes.
WORDS = "aé日🜂"


def enqueue(store, first, count, words=WORDS * 3):
    told = {"words": words}
    store.decide([Enqueue(jobs=(new_job(f"{n:04}", params=told),)) for n in range(first, first + count)])


class Reader:
    """Reads a stream as browsers do: what a blank line has not ended did not happen."""

    def __init__(self, url):
        self._client = httpx2.Client(base_url=url, verify=False, timeout=LONG)
        self.events = []
        self.comments = 0
        self.cuts = 0

    @property
    def last(self):
        return self.events[-1]["seq"] if self.events else 0

    def read(self, is_enough):
        """Read until it is enough, resuming as often as it takes."""
        with self._client as client:
            while not is_enough(self):
                headers = {"Last-Event-ID": str(self.last)} if self.events else {}
                try:
                    with client.stream("GET", "/api/v1/feed", headers=headers) as answer:
                        assert answer.status_code == 200
                        assert answer.headers["content-type"].startswith("text/event-stream")
                        self._take(answer.iter_bytes(), is_enough)
                except httpx2.TransportError:
                    self.cuts += 1
        return self

    def _take(self, chunks, is_enough):
        text = b""
        for chunk in chunks:
            *whole, text = (text + chunk).split(b"\n\n")
            for one in whole:
                self._event(one.decode())
            if is_enough(self):
                return

    def _event(self, text):
        if text.startswith(":"):
            self.comments += 1
            return
        fields = dict(line.split(": ", 1) for line in text.split("\n"))
        event = msgspec.json.decode(fields["data"])
        assert event["seq"] == int(fields["id"])
        self.events.append(event)


def test_a_stream_cut_anywhere_is_resumed_without_a_gap_or_a_repeat_while_events_come(coordinator, store):
    enqueue(store, 0, 3)
    whole = httpx2.get(f"{coordinator.url}/api/v1/feed", headers={"Accept": "application/json"}).content
    size = len(whole) // 3
    # Within the head, between events, inside an event, inside a character: at every byte of one event, and around it.
    places = [*range(150, 150 + 2 * size, 11), *range(2 * size, 2 * size + 60)]
    cuts = iter(places)

    def script(_number, request):
        after = next(cuts, None) if b"/feed" in request else None
        return Weather() if after is None else Weather(Fault.CUT_ANSWER, after=after)

    enough = threading.Event()

    def write():
        for first in itertools.count(3, 2):
            enqueue(store, first, 2)
            if enough.wait(0.01):
                return

    writer = threading.Thread(target=write)
    with FaultProxy(coordinator.url, script) as proxy:
        writer.start()
        try:
            reader = Reader(proxy.url).read(lambda reader: reader.cuts >= len(places))
        finally:
            enough.set()
            writer.join()
    assert [event["seq"] for event in reader.events] == list(range(1, reader.last + 1))
    assert [msgspec.json.decode(entry.event)["type"] for entry in store.feed(0)][: reader.last] == [
        event["event"]["type"] for event in reader.events
    ]
    assert all(event["event"]["job"]["params"]["words"] == WORDS * 3 for event in reader.events[:3])


def test_a_silent_stream_says_that_it_lives(coordinator, store, monkeypatch):
    monkeypatch.setattr(feeding, "ALIVE_S", 0.01)
    enqueue(store, 0, 1)
    reader = Reader(coordinator.url).read(lambda reader: reader.comments > 2)
    assert len(reader.events) == 1


def test_what_was_pruned_is_gone_in_streams_in_pages_and_for_stores(tmp_path):
    with running(f"sqlite:{tmp_path / 'jobs.db'}") as serving:
        store = HttpStore.open(serving.url)
        enqueue(store, 0, 5)
        engine = serving._engine
        assert engine.store.trim(later(engine.look().now, 10), 3) == 3
        for headers in ({}, {"Accept": "application/json"}):
            answer = httpx2.get(f"{serving.url}/api/v1/feed?after=1", headers=headers)
            assert answer.status_code == 410
            assert answer.json()["code"] == "invalid_value"
        with pytest.raises(InvalidValue):
            list(store.feed(1))
        assert [entry.seq for entry in store.feed(3)] == [4, 5]
        store.close()


def test_pages_are_bounded_by_their_bytes_and_lead_on(coordinator, store, monkeypatch):
    monkeypatch.setattr(feed_pages, "PAGE_BYTES", 2_000)
    enqueue(store, 0, 40)
    page = httpx2.get(f"{coordinator.url}/api/v1/feed", headers={"Accept": "application/json"}).json()
    assert page["more"]
    assert 1 < len(page["entries"]) < 10
    assert [entry.seq for entry in store.feed(0)] == list(range(1, 41))


def unread(url):
    """Ask for a stream, with as little room for it here as the system gives; when closed it is thrown away."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    slow.settimeout(LONG)
    host, _, port = url.removeprefix("http://").partition(":")
    slow.connect((host, int(port)))
    slow.sendall(b"GET /api/v1/feed HTTP/1.1\r\nHost: %s:%s\r\n\r\n" % (host.encode(), port.encode()))
    return slow


def test_streams_that_nobody_reads_are_not_read_ahead_for_and_hold_little(coordinator, store):
    # As little room on the way as the system gives.
    coordinator._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    long = {"text": "x" * 1_000}
    store.decide([Enqueue(jobs=(new_job(f"{n:04}", params=long),)) for n in range(400)])
    streams, told = 20, []
    with listening("feed.told", lambda: told.append(1)), ExitStack() as stack:
        for _ in range(streams):
            assert stack.enter_context(unread(coordinator.url)).recv(100).startswith(b"HTTP/1.1 200")
        held = []
        while sum(size > 0 for size in held) < streams:  # until all of them stand still
            # Others are served meanwhile, and read all that there is.
            assert len(list(store.feed(0))) == 400
            held = [one._transport.get_write_buffer_size() for one in coordinator._server.server_state.connections]
    # What a connection may hold, and one more piece. Of 400 KB each, a few went into what the system holds.
    assert max(held) <= HELD + feed_pages.PIECE_BYTES + 2_000
    assert len(told) * feed_pages.PIECE_BYTES < streams * (HELD + 50_000)


@pytest.mark.skipif(os.environ.get("HOLDFAST_SOAK") != "1", reason="a thousand streams are a long form")
def test_a_thousand_streams_that_nobody_reads_take_less_than_40_kilobytes_each(tmp_path):
    """Of a process of its own, in bytes that are resident. Most of it is what an idle connection costs."""
    program = Path(sys.executable).with_name("holdfast")
    words = ["serve", "--store", f"wal:{tmp_path / 'jobs'}", "--port", "0", "--limit", "long_polls_each=1000"]
    env = {**os.environ, "HOLDFAST_STATE_DIR": str(tmp_path / "state")}
    with subprocess.Popen([program, *words], env=env, stderr=subprocess.PIPE, text=True) as serve, ExitStack() as stack:
        stack.callback(serve.terminate)
        url = re.search(r"http://127\.0\.0\.1:\d+", serve.stderr.readline()).group()
        store = stack.enter_context(closing(HttpStore.open(url)))
        for first in range(0, 3_000, 100):
            enqueue(store, first, 100, "x" * 2_000)

        def resident():
            pages_of_it = Path(f"/proc/{serve.pid}/statm").read_text(encoding="ascii").split()[1]
            return int(pages_of_it) * os.sysconf("SC_PAGE_SIZE")

        def grown(streams):
            before = resident()
            for _ in range(streams):
                stack.enter_context(unread(url))
            last = -1
            while last != (last := resident()):  # until nothing moves any more
                threading.Event().wait(2)
            return last - before

        grown(20)  # whatever is made only once
        each = grown(900) / 900
    print(f"{each / 1024:.1f} KB a stream")
    assert each < 40_000


def test_an_application_reads_the_feed_once_and_in_order_whatever_happens_to_the_line(coordinator, store, monkeypatch):
    monkeypatch.setattr(feed_pages, "PAGE_BYTES", 1_000)
    enqueue(store, 0, 30)
    faults = itertools.cycle([Fault.CUT_ANSWER, Fault.LOSE_ANSWER, Fault.NONE, Fault.TWICE, Fault.LOSE_REQUEST])
    with FaultProxy(coordinator.url) as proxy, Holdfast(proxy.url) as hf:
        assert hf.engine.store.promises.name == "http"
        proxy.script = lambda *_: Weather(next(faults))
        events = list(hf.feed(after=4))
        assert [event.seq for event in events] == list(range(5, 31))
        assert {event.type for event in events} == {"job:created"}
        assert events[0].facts["job"]["params"]["words"] == WORDS * 3


def test_a_feed_that_is_followed_goes_on_when_the_coordinator_is_back(tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    away = threading.Event()
    with running(url) as serving:
        port = int(serving.url.rpartition(":")[2])
        hf = Holdfast(serving.url)
        hf.engine.store._channel._patience_s = 0.0
        enqueue(hf.engine.store, 0, 2)
        events = hf.feed(follow=True)
        assert [next(events).seq, next(events).seq] == [1, 2]
    with pytest.raises(StoreBusy):
        list(hf.feed())
    seen = []
    with listening("http.sending", away.set):
        reading = threading.Thread(target=lambda: seen.append(next(events).seq))
        reading.start()
        assert away.wait(LONG)
    with running(url, port=port):
        store = HttpStore.open(serving.url)
        enqueue(store, 2, 1)
        reading.join(LONG)
        assert seen == [entry.seq for entry in store.feed(2)]
        store.close()
        hf.close()


def test_a_feed_begins_at_the_number_of_an_event(tmp_path):
    with Holdfast("memory:") as hf, pytest.raises(InvalidValue, match="after"):
        hf.feed(-1)


@pytest.mark.parametrize("kind", ["wal", "sqlite"])
def test_what_is_no_number_of_an_event_is_refused_to_who_resumes(tmp_path, kind):
    with running(f"{kind}:{tmp_path / 'jobs'}") as serving:
        for last in ("9" * 5000, "9" * 19, "-1", "1.5", "", "x"):
            answer = httpx2.get(f"{serving.url}/api/v1/feed", headers={"Last-Event-ID": last})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")


def test_the_head_of_a_stream_ends_at_once(coordinator):
    answer = httpx2.head(f"{coordinator.url}/api/v1/feed", timeout=LONG)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, feeding.STREAM)


def test_a_stream_that_is_read_fast_lets_others_have_their_turn(coordinator, store):
    """Many pieces that are at hand are not told in one go: whoever comes is heard in between."""
    enqueue(store, 0, 200, "x" * 1_000)
    told, others = [], []

    def tell():
        told.append(1)
        asyncio.get_running_loop().call_soon(lambda: others.append(len(told)))

    with listening("feed.told", tell):
        Reader(coordinator.url).read(lambda reader: len(reader.events) == 200)
    assert len(told) > 20
    assert others[: len(told) - 1] == list(range(1, len(told)))

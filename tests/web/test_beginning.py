"""A coordinator begins in order, tells who has its store, and stops where its disk fails."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from coordinators import running
from rawhttp import dial, head, say

from holdfast.errors import StoreFailed, StoreLocked
from holdfast.failpoints import listening
from holdfast.journal.filesystem import OsFS
from holdfast.model.commands import Enqueue
from holdfast.stores.http.store import HttpStore
from holdfast.stores.opening import open_store
from holdfast.stores.wal import WalStore
from holdfast.testing.conformance.harness import new_job
from holdfast.web.server import serving as serving_module
from holdfast.web.server.serving import Listening, Serving

HOLDFAST = Path(sys.executable).with_name("holdfast")


@pytest.fixture
def held():
    """Hold a recovery at its beginning until it is let go."""
    arrived, gate = threading.Event(), threading.Event()

    def wait():
        arrived.set()
        assert gate.wait(30)

    with listening("serve.opening", wait):
        yield arrived, gate
        gate.set()


def test_while_the_store_is_recovered_the_port_says_only_that_it_lives(tmp_path, held):
    arrived, gate = held
    serving = Serving(f"wal:{tmp_path / 'jobs'}", Listening(port=0))
    thread = threading.Thread(target=serving.run)
    thread.start()
    assert arrived.wait(30)
    assert say(serving.url, head("/healthz")).status == 200
    for path in ("/readyz", "/api/v1/facing", "/nothing"):
        said = say(serving.url, head(path))
        assert (said.status, said.headers["retry-after"]) == (503, "1")
        assert said.headers["x-content-type-options"] == "nosniff"
    assert not serving.ready.is_set()
    gate.set()
    assert serving.ready.wait(30)
    assert say(serving.url, head("/readyz", Connection="close")).status == 200
    serving.stop()
    thread.join()


def test_what_recovery_found_is_logged_and_shown(tmp_path, caplog):
    store = open_store(f"wal:{tmp_path}")
    store.close()
    (log,) = (tmp_path / "log").iterdir()
    torn = b'{"torn'
    with log.open("ab") as file:
        file.write(torn)
    with caplog.at_level("INFO", "holdfast.serve"), running(f"wal:{tmp_path}") as serving:
        shown = httpx2.get(f"{serving.url}/api/v1/status").json()
    (told,) = (record for record in caplog.records if record.message == "serve.recovered")
    assert shown["replay"]["cut_bytes"] == told.cut_bytes == len(torn)


def test_a_wish_to_end_during_recovery_is_granted_when_the_store_can_be_closed(tmp_path, held):
    arrived, gate = held
    serving = Serving(f"wal:{tmp_path / 'jobs'}", Listening(port=0))
    thread = threading.Thread(target=serving.run)
    thread.start()
    assert arrived.wait(30)
    serving.stop()
    gate.set()
    thread.join(30)
    assert not thread.is_alive()
    open_store(f"wal:{tmp_path / 'jobs'}").close()  # it was let go


def test_a_store_that_cannot_be_opened_ends_the_server_with_its_reason(tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    store = open_store(url)
    serving = Serving(url, Listening(port=0))
    with pytest.raises(StoreLocked, match=f"pid {os.getpid()}"):
        serving.run()
    store.close()


@pytest.mark.parametrize("kind", ["wal", "dir"])
def test_whoever_opens_a_store_that_is_served_is_told_where(tmp_path, kind):
    url = f"{kind}:{tmp_path / 'jobs'}"
    with running(url) as serving:
        with pytest.raises(StoreLocked) as caught:
            open_store(url)
        assert f"pid {os.getpid()}" in caught.value.message
        assert serving.url in caught.value.hint
        # The same port, too: the store is what matters.
        port = int(serving.url.rpartition(":")[2])
        with pytest.raises(StoreLocked, match="since 20"):
            Serving(url, Listening(port=port))
    open_store(url).close()


class FailingDisk(OsFS):
    """A disk whose syncs fail once it is told to."""

    fails = False

    def sync(self, handle, *, metadata):
        if self.fails:
            raise OSError(errno.EIO, "the disk is broken")
        super().sync(handle, metadata=metadata)


def test_a_sync_that_fails_stops_the_coordinator_with_503_and_its_error(tmp_path, monkeypatch):
    disk = FailingDisk(tmp_path / "jobs", create=True)
    monkeypatch.setattr(
        serving_module, "open_store", lambda _url, clock: WalStore.open(tmp_path / "jobs", fs=disk, clock=clock)
    )
    serving = Serving("wal:jobs", Listening(port=0))
    ended = []

    def run():
        try:
            serving.run()
        except StoreFailed as problem:
            ended.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    assert serving.ready.wait(30)
    store = HttpStore.open(serving.url, patience_s=0)
    store.decide([Enqueue(jobs=(new_job("kept"),))])
    disk.fails = True
    with pytest.raises(StoreFailed):
        store.decide([Enqueue(jobs=(new_job("unknown"),))])
    thread.join(30)
    store.close()
    assert [problem.exit_code for problem in ended] == [7]
    monkeypatch.undo()
    with running(f"wal:{tmp_path / 'jobs'}") as again:
        store = HttpStore.open(again.url)
        (known, settled) = store.decide([Enqueue(jobs=(new_job("kept"),)), Enqueue(jobs=(new_job("unknown"),))])
        assert not known.jobs[0].created
        assert settled.jobs[0].job_id == "unknown"
        store.close()


def test_the_command_serves_by_default_in_the_state_directory_and_a_second_one_exits_6(tmp_path):
    env = {key: value for key, value in os.environ.items() if key != "HOLDFAST_STORE"}
    env["HOLDFAST_STATE_DIR"] = str(tmp_path / "state")
    command = [HOLDFAST, "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        url, _, store = process.stderr.readline().split()
        assert store == f"wal:{tmp_path / 'state' / 'serve'}"
        second = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 6
        assert f"pid {process.pid} (holdfast) on host" in second.stderr
        assert url in second.stderr
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_a_second_signal_ends_it_at_once_and_loses_nothing(tmp_path):
    env = {**os.environ, "HOLDFAST_STATE_DIR": str(tmp_path / "state")}
    command = [HOLDFAST, "serve", "--port", "0", "--store", f"wal:{tmp_path / 'jobs'}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        url = process.stderr.readline().split()[0]
        store = HttpStore.open(url)
        store.decide([Enqueue(jobs=(new_job("kept"),))])
        store.close()
        # A request that does not end holds the first wish up.
        with dial(url) as line:
            line.sendall(head("/api/v1/commands", method="POST", Content_Length=10) + b"{")
            while process.poll() is None:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
    reopened = open_store(f"wal:{tmp_path / 'jobs'}")
    assert [entry for entry in reopened.feed(0) if b'"kept"' in bytes(entry.event)]
    reopened.close()


RECOVERS_FOR_EVER = """
import os, sys, threading
from holdfast.failpoints import listening
from holdfast.web.server.serving import Listening, Serving

def hold():
    os.write(1, serving.url.encode() + b"\\n")
    threading.Event().wait()

serving = Serving(sys.argv[1], Listening(port=0))
with listening("serve.opening", hold):
    serving.run()
"""


def test_a_signal_during_recovery_waits_for_its_end_and_the_second_one_does_not(tmp_path):
    command = [sys.executable, "-c", RECOVERS_FOR_EVER, f"wal:{tmp_path / 'jobs'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        assert httpx2.get(f"{url}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        with suppress(OSError):  # the first one was heard: nobody is let in any more
            while True:
                dial(url).close()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM

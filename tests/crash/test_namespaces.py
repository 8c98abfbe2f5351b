"""A worker and its coordinator on two hosts that are none: network namespaces, joined by a cable that can be pulled.

What a proxy cannot do: packets vanish, and nobody is told. Needs the right to make namespaces; otherwise it is skipped,
visibly. Whatever happens, namespaces and cable are removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.model.jobs import Job, JobStatus

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
#: How often the cable is pulled; every second time for longer than a lease lasts. Seconds of a lease.
PULLS = 10 if SOAK else 1
LEASE_S = 2.0
PATIENCE_S = 60
HERE = Path(__file__).parent


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def has_right():
    """Try it: being root is neither needed everywhere nor enough."""
    if shutil.which("ip") is None:
        return False
    name = f"hf-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode == 0
    if made:
        ip("netns", "del", name)
    return made


@contextmanager
def two_hosts():
    """Give two namespaces, `10.77.0.1` in the first and `10.77.0.2` in the second, and the name of the cable's end."""
    number = os.getpid() % 100_000
    here, there = f"hf-a-{number}", f"hf-b-{number}"
    one, other = f"hfa{number}", f"hfb{number}"
    try:
        for name in (here, there):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", one, "netns", here, "type", "veth", "peer", "name", other, "netns", there)
        for name, end, address in ((here, one, "10.77.0.1/24"), (there, other, "10.77.0.2/24")):
            ip("-n", name, "addr", "add", address, "dev", end)
            ip("-n", name, "link", "set", end, "up")
        yield here, there, other
    finally:
        for name in (here, there):  # the cable goes with them
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Heard:
    """A process in a namespace, and what it says."""

    def __init__(self, namespace, words, place, stream):
        env = {**os.environ, "HOLDFAST_STATE_DIR": str(place / "state")}
        streams = {stream: subprocess.PIPE}
        command = ["ip", "netns", "exec", namespace, *map(str, words)]
        self.process = subprocess.Popen(command, env=env, text=True, **streams)
        self.lines = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(getattr(self.process, stream),))
        self._reader.start()

    def _read(self, stream):
        with stream:
            for line in stream:
                with self._heard:
                    self.lines.append(line.strip())
                    self._heard.notify_all()

    def count(self, word):
        return sum(word in line for line in self.lines)

    def wait_for(self, word, times=1):
        with self._heard:
            assert self._heard.wait_for(lambda: self.count(word) >= times, PATIENCE_S), (word, self.lines)

    def end(self):
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(PATIENCE_S)


def program(here, url, enqueued):
    """Enqueue beside the coordinator, inside its namespace: this process has no way there."""
    code = f"""
from holdfast import Holdfast
with Holdfast({url!r}) as hf:
    @hf.task(name="step", max_expiries=100, lease={LEASE_S})
    def step(n: int, linger_s: float) -> int: ...
    print(*[job.id for job in step.enqueue_many([(n, 0.05) for n in range({enqueued})])])
"""
    words = ["ip", "netns", "exec", here, sys.executable, "-c", code]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.skipif(not has_right(), reason="no right to make network namespaces here")
def test_a_pulled_cable_loses_no_job_and_the_worker_comes_back_by_itself(tmp_path):
    store = f"wal:{tmp_path / 'jobs'}"
    with two_hosts() as (here, there, cable):
        holdfast = Path(sys.executable).with_name("holdfast")
        # Behind a proxy: so it may be reached from elsewhere. The worker's own host stands for it.
        token = subprocess.run(
            [holdfast, "access", "add", "--name", "far", "--role", "admin"],
            env={**os.environ, "HOLDFAST_STATE_DIR": str(tmp_path / "state")},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()[-1]
        os.environ["HOLDFAST_ACCESS_TOKEN"] = token
        url = "http://10.77.0.1:8480"
        serve = [holdfast, "serve", "--store", store, "--host", "10.77.0.1", "--behind-proxy", "10.77.0.0/24"]
        coordinator = Heard(here, serve, tmp_path, "stderr")
        crew = None
        try:
            coordinator.wait_for(url)
            acknowledged = program(here, url, 40)
            crew = Heard(there, [sys.executable, HERE / "remoteworkers.py", url, 2, LEASE_S], tmp_path, "stdout")
            crew.wait_for("began", 5)
            for pull in range(PULLS):
                ip("-n", there, "link", "set", cable, "down")
                crew.wait_for("store.away", 2 * pull + 1)
                acknowledged += program(here, url, 20)
                if pull % 2:
                    threading.Event().wait(LEASE_S + 1)  # longer than any lease lasts
                began = crew.count("began")
                ip("-n", there, "link", "set", cable, "up")
                crew.wait_for("store.back", 2 * pull + 1)
                crew.wait_for("began", began + 5)
            waited = "from holdfast import Holdfast; import sys; hf = Holdfast(sys.argv[1]); "
            waited += "[hf.job(one).wait(60) for one in sys.argv[2:]]"
            words = ["ip", "netns", "exec", here, sys.executable, "-c", waited, url, *acknowledged]
            subprocess.run(words, check=True, timeout=PATIENCE_S)
            assert crew.end() == 0
            assert coordinator.end() == 0
        finally:
            del os.environ["HOLDFAST_ACCESS_TOKEN"]
            for one in (crew, coordinator):
                if one is not None:
                    one.end()
    with Holdfast(store) as hf, hf.engine.read() as view:
        jobs = {job.job_id: job.status for job in view.all(Job)}
    assert jobs == dict.fromkeys(acknowledged, JobStatus.COMPLETED)

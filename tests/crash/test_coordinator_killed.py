"""A coordinator killed -9 and started again under eight remote workers with load; and workers of it killed, or frozen.

What was acknowledged is known outside: the client's own list of what it was answered, and what handlers say themselves
through pipes. Everything acknowledged must have ended, once; what ran twice must have lost its lease in between.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.model.jobs import Job, JobStatus, Run, RunStatus

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
WORKERS = 8
KILLS = 20 if SOAK else 2
#: Jobs of one burst of load, and executions that begin between two kills.
BURST, BETWEEN = (50, 100) if SOAK else (20, 25)
#: Seconds of a lease: short, so that others take over soon.
LEASE_S = 2.0
PATIENCE_S = 120
HERE = Path(__file__).parent

pytestmark = pytest.mark.timeout(3600 if SOAK else 180)


class Coordinator:
    """A coordinator as a process, which can be killed and comes again at the same port."""

    def __init__(self, store: str, place: Path) -> None:
        # Kept, though never listened to: while the coordinator is dead nobody else is given its port, and no worker
        # that calls it there happens to call from there.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self._port = self._place.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        program = Path(sys.executable).with_name("holdfast")
        self._command = [program, "serve", "--store", store, "--port", str(self._port), "--limit", "rate=100000"]
        self._env = {**os.environ, "HOLDFAST_STATE_DIR": str(place / "state")}
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._env, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        assert self.url in said, said

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def end(self) -> None:
        self.kill()
        self._place.close()

    def stop(self) -> None:
        self._process.terminate()
        _, said = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, said


class Crew:
    """Remote workers, and all they said."""

    def __init__(self, url: str, count: int) -> None:
        command = [sys.executable, str(HERE / "remoteworkers.py"), url, str(count), str(LEASE_S)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._heard = threading.Condition()
        self.pids: list[int] = []
        #: (job, token, worker) of every execution that began.
        self.begun: list[tuple[str, int, int]] = []
        self.said: list[tuple[int, str]] = []
        self.ended: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                kind, *words = line.split(maxsplit=2) if line.startswith("log") else line.split()
                with self._heard:
                    match kind:
                        case "worker":
                            self.pids.append(int(words[0]))
                        case "began":
                            self.begun.append((words[0], int(words[1]), int(words[2])))
                        case "log":
                            self.said.append((int(words[0]), words[1].strip()))
                        case "ended":
                            self.ended[int(words[0])] = int(words[1])
                    self._heard.notify_all()

    def wait_until(self, is_so) -> None:
        with self._heard:
            assert self._heard.wait_for(is_so, PATIENCE_S), "the workers came to a halt"

    def wait_for(self, more: int) -> None:
        goal = len(self.begun) + more
        self.wait_until(lambda: len(self.begun) >= goal)

    def count(self, event: str) -> int:
        return sum(said == event for _, said in self.said)

    def dismiss(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def end(self) -> None:
        for pid in self.pids:
            if pid not in self.ended and self._process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE_S)


class Client(threading.Thread):
    """Puts load on a coordinator until told to stop, and remembers every yes."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._enough = threading.Event()
        self.jobs: dict[str, int] = {}
        self.instances: dict[str, int] = {}
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with Holdfast(self._url) as hf:

                @hf.task(name="step", max_expiries=100, lease=LEASE_S)
                def step(n: int, linger_s: float) -> int: ...

                @hf.workflow(name="total")
                async def total(n: int) -> int: ...

                first = 0
                while not self._enough.is_set():
                    made = step.enqueue_many([(first + at, 0.01) for at in range(BURST)])
                    self.jobs |= {job.id: first + at for at, job in enumerate(made)}
                    instance = total.start(first, id=f"sum-{first}")
                    self.instances[instance.id] = first
                    first += BURST
                    # Not faster than the work is done, or the end is long in coming.
                    made[0].wait(PATIENCE_S)
                for job_id in self.jobs:
                    hf.job(job_id).wait(PATIENCE_S)
                for instance_id, n in self.instances.items():
                    assert hf.instance(instance_id).result(timeout=PATIENCE_S) == 2 * n + 1
        except BaseException as problem:  # noqa: BLE001 - raised again by who waits
            self.problem = problem

    def finish(self) -> None:
        self._enough.set()
        self.join()
        if self.problem is not None:
            raise self.problem


def examine(store: str, client: Client, crew: Crew) -> list[Run]:
    """Compare what is there with what was answered and with what handlers said; give all runs."""
    with Holdfast(store) as hf:
        with hf.engine.read() as view:
            jobs, runs = {job.job_id: job for job in view.all(Job)}, list(view.all(Run))
        assert hf.engine.store.check() == []
    # Activities of workflows are jobs, too.
    assert client.jobs.keys() <= jobs.keys()
    assert Counter(job.status for job in jobs.values()) == {JobStatus.COMPLETED: len(jobs)}
    assert len(jobs) == len(client.jobs) + 2 * len(client.instances)
    completed = Counter(run.job_id for run in runs if run.status is RunStatus.COMPLETED)
    assert completed == dict.fromkeys(jobs, 1)
    # Each token was granted once, and what began had been granted.
    by_token = {(run.job_id, run.token): run for run in runs}
    assert len(by_token) == len(runs)
    began = Counter((job_id, token) for job_id, token, _ in crew.begun)
    assert began.keys() <= by_token.keys()
    assert set(began.values()) == {1}
    # What ran more than once had lost a lease, or was given back.
    again = {job_id for job_id, times in Counter(job_id for job_id, _ in began).items() if times > 1}
    unlucky = {run.job_id for run in runs if run.status in {RunStatus.LOST, RunStatus.CANCELLED}}
    assert again <= unlucky
    return runs


@pytest.mark.parametrize("scheme", ["wal", "sqlite"])
def test_nothing_acknowledged_is_lost_when_the_coordinator_is_killed_under_load(tmp_path, scheme):
    store = f"{scheme}:{tmp_path / 'jobs'}"
    kills = KILLS if scheme == "wal" else KILLS // 2
    coordinator = Coordinator(store, tmp_path)
    crew = Crew(coordinator.url, WORKERS)
    client = Client(coordinator.url)
    try:
        client.start()
        for _ in range(kills):
            crew.wait_for(BETWEEN)
            coordinator.kill()
            coordinator.start()
        crew.wait_for(BETWEEN)
        # Others may have done all that, while one still pauses between two calls.
        crew.wait_until(lambda: crew.count("store.away") == crew.count("store.back"))
        client.finish()
        crew.dismiss()
        coordinator.stop()
    finally:
        crew.end()
        coordinator.end()
    assert crew.ended == dict.fromkeys(crew.pids, 0)
    runs = examine(store, client, crew)
    said = Counter(event for _, event in crew.said)
    assert said["store.away"] == said["store.back"] > 0
    print(f"{scheme}: {kills} kills, {len(client.jobs)} jobs, {len(crew.begun)} executions, {len(runs)} runs, {said}")


def test_a_remote_worker_that_is_killed_is_replaced_and_one_that_was_frozen_is_refused(tmp_path):
    store = f"wal:{tmp_path / 'jobs'}"
    coordinator = Coordinator(store, tmp_path)
    crew = Crew(coordinator.url, 3)
    try:
        with Holdfast(coordinator.url) as hf:

            @hf.task(name="step", max_expiries=100, lease=LEASE_S)
            def step(n: int, linger_s: float) -> int: ...

            def began(job):
                return [pid for job_id, _, pid in crew.begun if job_id == job.id]

            dying = step.enqueue(1, 0.5)
            crew.wait_until(lambda: began(dying))
            os.kill(began(dying)[0], signal.SIGKILL)
            frozen = step.enqueue(2, 0.5)
            crew.wait_until(lambda: began(frozen))
            sleeper = began(frozen)[0]
            os.kill(sleeper, signal.SIGSTOP)
            assert (dying.result(timeout=PATIENCE_S), frozen.result(timeout=PATIENCE_S)) == (1, 2)
            os.kill(sleeper, signal.SIGCONT)
            crew.wait_until(lambda: (sleeper, "lease.lost") in crew.said)
            for job in (dying, frozen):
                assert [run.status for run in job.runs()] == ["LOST", "COMPLETED"]
        crew.dismiss()
        coordinator.stop()
    finally:
        crew.end()
        coordinator.end()
    assert sorted(crew.ended.values()) == [-signal.SIGKILL, 0, 0]


def test_workers_that_are_told_to_stop_end_although_their_coordinator_was_killed(tmp_path):
    coordinator = Coordinator(f"wal:{tmp_path / 'jobs'}", tmp_path)
    crew = Crew(coordinator.url, 2)
    try:
        with Holdfast(coordinator.url) as hf:

            @hf.task(name="step", max_expiries=100, lease=LEASE_S)
            def step(n: int, linger_s: float) -> int: ...

            step.enqueue_many([(n, 0.05) for n in range(300)])
        crew.wait_until(lambda: len({pid for _, _, pid in crew.begun}) == 2)
        coordinator.kill()
        crew.wait_until(lambda: {pid for pid, event in crew.said if event == "store.away"} == set(crew.pids))
        crew.dismiss()
    finally:
        crew.end()
        coordinator.end()
    # Those that could not report what they had done say so by their exit.
    assert crew.ended.keys() == set(crew.pids)
    assert set(crew.ended.values()) <= {0, 1}

"""Four workers on one SQLite file, one of them killed again and again under load: every job ends, none is lost.

Leases have their full 30 s, so the story only gets to its end because the dead are noticed as processes. What really
ran is told by the handlers themselves, through pipes, outside the store that is judged.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from holdfast import Holdfast
from holdfast.model.jobs import Job, JobStatus, Run, RunStatus

pytestmark = pytest.mark.disk

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
WORKERS = 4
#: How many are killed, and how many executions begin between two kills. The long form waits a second between them.
KILLS = 30 if SOAK else 6
BETWEEN = 40
PATIENCE_S = 120
SEED = 7

PROGRAM = """
import os, sys
from holdfast import Holdfast

hf = Holdfast("sqlite:" + sys.argv[1])

@hf.task(name="step", max_expiries=100)
def step(n: int, linger_s: float) -> int:
    at = hf.current
    os.write(1, f"{at.job.job_id} {at.token}\\n".encode())
    at.wait_cancelled(linger_s)
    return n

hf.work(concurrency=3)
"""


class Crew:
    """Four workers, the one who kills them, and all they said."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._heard = threading.Condition()
        self._readers: list[threading.Thread] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        #: (job id, token) of every execution that began.
        self.begun: list[tuple[str, int]] = []
        #: Processes that were heard of; the others may not even have begun to listen for signals.
        self._at_work: set[int] = set()

    def hire(self) -> None:
        program = [sys.executable, str(self._place / "program.py"), str(self._place / "jobs.db")]
        worker = subprocess.Popen(program, stdout=subprocess.PIPE)
        self.workers.append(worker)
        reader = threading.Thread(target=self._read, args=(worker,))
        reader.start()
        self._readers.append(reader)

    def _read(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdout is not None
        with worker.stdout:
            for line in worker.stdout:
                job_id, token = line.split()
                with self._heard:
                    self.begun.append((job_id.decode(), int(token)))
                    self._at_work.add(worker.pid)
                    self._heard.notify_all()

    def wait_for(self, more: int) -> None:
        with self._heard:
            goal = len(self.begun) + more
            assert self._heard.wait_for(lambda: len(self.begun) >= goal, PATIENCE_S), "the workers came to a halt"

    def kill(self, which: int) -> None:
        worker = self.workers.pop(which)
        worker.kill()
        worker.wait()

    def dismiss(self) -> set[int]:
        """Ask all to end, and give the exit codes of those that were at work."""
        for worker in self.workers:
            worker.terminate()
        codes = {worker.wait(PATIENCE_S) for worker in self.workers if worker.pid in self._at_work}
        for worker in self.workers:
            worker.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return codes


def test_workers_killed_again_and_again_lose_no_job_and_repeat_only_what_a_lost_run_explains(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    dice = Random(SEED)
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:

        @hf.task(name="step", max_expiries=100)
        def step(n: int, linger_s: float) -> int:
            return n

        acknowledged = [job.id for job in step.enqueue_many([(n, 0.02) for n in range(200)])]
        crew = Crew(tmp_path)
        try:
            for _ in range(WORKERS):
                crew.hire()
            for kill in range(KILLS):
                crew.wait_for(BETWEEN)
                if SOAK:
                    threading.Event().wait(1)
                crew.kill(dice.randrange(WORKERS))
                crew.hire()
                n = 1000 * (kill + 1)
                more = step.enqueue_many([(n + at, dice.choice((0, 0.01, 0.05))) for at in range(150 if SOAK else 50)])
                acknowledged += [job.id for job in more]
            for job_id in acknowledged:
                hf.job(job_id).wait(PATIENCE_S)
            codes = crew.dismiss()
        finally:
            for worker in crew.workers:
                worker.kill()
        assert codes == {0}
        with hf.engine.read() as view:
            jobs, runs = list(view.all(Job)), list(view.all(Run))
        findings = hf.engine.store.check()

    assert {job.job_id for job in jobs} == set(acknowledged)
    assert Counter(job.status for job in jobs) == {JobStatus.COMPLETED: len(acknowledged)}
    assert findings == []
    # Each token was granted once, and each execution that began has its run.
    by_token = {(run.job_id, run.token): run for run in runs}
    assert len(by_token) == len(runs)
    assert Counter(crew.begun).most_common(1)[0][1] == 1
    assert set(crew.begun) <= by_token.keys()
    # What ran more than once did so because a run before it was lost with its worker.
    completed = Counter(run.job_id for run in runs if run.status is RunStatus.COMPLETED)
    assert set(completed.values()) == {1}
    lost = [run for run in runs if run.status is RunStatus.LOST]
    others = {run.status for run in runs} - {RunStatus.COMPLETED, RunStatus.LOST, RunStatus.CANCELLED}
    assert others == set()
    assert all(run.reason == "released" for run in runs if run.status is RunStatus.CANCELLED)
    assert {run.reason for run in lost} <= {"restart", "not_begun"}
    assert not {(run.job_id, run.token) for run in lost if run.reason == "not_begun"} & set(crew.begun)
    repeated = {job_id for job_id, times in Counter(job_id for job_id, _ in crew.begun).items() if times > 1}
    assert repeated <= {run.job_id for run in lost}
    print(f"{KILLS} kills, {len(jobs)} jobs, {len(crew.begun)} executions, {len(lost)} runs lost")
    assert lost

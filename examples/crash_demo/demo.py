"""A worker is killed with SIGKILL in the middle of its jobs; another one finishes them; nothing is lost.

    python demo.py [STORE_URL]

Runs on the kernel's own commands: `Enqueue`, `Lease`, `Complete`. Exits 1 if an acknowledged job is missing at the end.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec

from holdfast import Engine, open_store
from holdfast.engine.maintenance import recover, tick
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.jobs import JobStatus, RunStatus

JOBS = 300
#: In the middle of the ten jobs the worker leases at a time.
KILL_AFTER = 95
LEASE_S = 2.0


def work(url: str, name: str) -> None:
    """Lease jobs, pretend to work on them, report; for ever."""
    engine = Engine(open_store(url))
    pretend = threading.Event()
    while True:
        tick(engine)
        with engine.read() as view:
            seen = view.seq
        leased = engine.ask(Lease(worker_id=name, n=10, lease_s=LEASE_S, session_id=engine.session_id))
        for grant in leased.grants:
            pretend.wait(0.005)
            engine.submit(Complete(job_id=grant.job.job_id, token=grant.token, result=msgspec.Raw(b'"done"')))
        if not leased.grants:
            engine.store.wait(seen, timeout=0.2)


def start_worker(url: str, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--worker", url, name])


def completed(engine: Engine) -> int:
    with engine.read() as view:
        return sum(count.count for count in view.counts() if count.status is JobStatus.COMPLETED)


def watch(engine: Engine, goal: int, label: str) -> None:
    """Show a bar until so many jobs are COMPLETED."""
    shown = -1
    while shown < goal:
        with engine.read() as view:
            seen = view.seq
        done = completed(engine)
        if done != shown:
            shown = done
            bar = "#" * (30 * done // JOBS)
            end = "\r" if sys.stderr.isatty() else "\n"
            if sys.stderr.isatty() or done >= goal:
                print(f"  {label:<28} [{bar:<30}] {done:>4}/{JOBS}", end=end, file=sys.stderr, flush=True)
        if done < goal and not engine.store.wait(seen, timeout=30):
            sys.exit("nothing happened for 30 s")
    if sys.stderr.isatty():
        print(file=sys.stderr)


def main(url: str) -> int:
    print(f"store: {url}")
    engine = Engine(open_store(url))
    recover(engine)
    acknowledged = []
    for number in range(JOBS):
        params = msgspec.Raw(msgspec.json.encode({"picture": number}))
        answer = engine.ask(Enqueue(jobs=(NewJob(job_id=engine.new_id(), job_type="thumbnail", params=params),)))
        acknowledged.append(answer.jobs[0].job_id)
    print(f"{len(acknowledged)} jobs acknowledged, each of them durable before its call returned")

    first = start_worker(url, "worker-1")
    watch(engine, KILL_AFTER, "worker-1 at work")
    first.send_signal(signal.SIGKILL)
    first.wait()
    with engine.read() as view:
        held = [count.count for count in view.counts() if count.status is JobStatus.RUNNING]
    print(f"worker-1 (pid {first.pid}) killed with SIGKILL; it held {sum(held)} jobs")

    second = start_worker(url, "worker-2")
    try:
        watch(engine, JOBS, "worker-2 took over")
    finally:
        second.terminate()
        second.wait()

    with engine.read() as view:
        runs = [run for job_id in acknowledged for run in view.runs(job_id)]
    missing = [job_id for job_id in acknowledged if engine.job(job_id).status is not JobStatus.COMPLETED]
    lost_runs = sum(run.status is RunStatus.LOST for run in runs)
    findings = engine.store.check()
    engine.close()
    print(f"acknowledged {len(acknowledged)}, completed {len(acknowledged) - len(missing)}, missing {len(missing)}")
    print(f"runs {len(runs)}: {len(runs) - lost_runs} completed, {lost_runs} lost with worker-1 and run again")
    print(f"store check: {f'{len(findings)} findings' if findings else 'well'}")
    return 1 if missing or findings or len(runs) - lost_runs != JOBS else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:4])
    elif len(sys.argv) > 1:
        sys.exit(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            sys.exit(main(f"sqlite:{Path(place) / 'jobs.db'}"))

"""A dispatcher in a process of its own, for the limits of `sqlite:`. Run as a script: verb, path, what the verb takes.

`asks` leases whenever it is told to and tells what it got. `crowds` works until nothing is left; while it works on a
job, a file of that job's name lies in a directory, and it tells whenever there are more of them than it was told.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.engine import Engine
from holdfast.model.commands import Complete, Lease
from holdfast.model.jobs import JobStatus
from holdfast.model.outcomes import Leased
from holdfast.stores.sqlite import SqliteStore


def asks(path: str, name: str) -> None:
    engine = Engine(SqliteStore.open(path))
    print("open", flush=True)
    for _ in sys.stdin:
        outcome = engine.ask(Lease(worker_id=name, n=9))
        assert isinstance(outcome, Leased)
        print(*(f"{grant.job.job_id}:{grant.token}" for grant in outcome.grants), flush=True)
    engine.close()


def crowds(path: str, name: str, place: str, most: str) -> None:
    engine = Engine(SqliteStore.open(path))
    print("open", flush=True)
    sys.stdin.readline()
    while True:
        with engine.read() as view:
            seq = view.seq
            left = sum(count.count for count in view.counts() if count.status is JobStatus.QUEUED)
        if not left:
            break
        outcome = engine.ask(Lease(worker_id=name, n=2))
        assert isinstance(outcome, Leased)
        for grant in outcome.grants:
            mark = Path(place, grant.job.job_id)
            mark.touch()
            crowd = len(list(Path(place).iterdir()))
            if crowd > int(most):
                print(f"crowd {crowd}", flush=True)
            mark.unlink()
            engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
            print(grant.job.job_id, flush=True)
        if not outcome.grants:
            engine.store.wait(seq, 1.0)
    engine.close()


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    {"asks": asks, "crowds": crowds}[verb](*rest)

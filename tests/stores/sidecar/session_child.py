"""Another process that opens a store and takes a job, for the tests of sessions. Run as a script: verb, url."""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from holdfast.engine import Engine
from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.model.ids import JobId
from holdfast.stores.opening import open_store


def holds(url: str) -> None:
    """Take a job, tell the session, and stay until told to go."""
    engine = Engine(open_store(url))
    (grant,) = engine.ask(Lease(worker_id="child", session_id=engine.session_id, lease_s=3600)).grants
    print(engine.session_id, grant.job.job_id, flush=True)
    sys.stdin.readline()
    engine.close()


def forks(url: str) -> None:
    """Hold a session, and leave a child behind that has inherited everything."""
    engine = Engine(open_store(url))
    child = os.fork()
    if not child:
        sys.stdin.readline()
        os._exit(0)
    print(engine.session_id, child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def dies(url: str) -> None:
    """Enqueue a small job and a large one, and be killed when the content of the large one has been put."""
    engine = Engine(open_store(url))
    for job_id, size in (("small", 10), ("told", 100_000), ("cut", 200_000)):
        params = msgspec.Raw(b'{"pad":"%s"}' % (b"x" * size))
        command = Enqueue(jobs=(NewJob(job_id=JobId(job_id), job_type="work", params=params),))
        if job_id == "cut":
            with listening("blobs.written", lambda: os.kill(os.getpid(), signal.SIGKILL)):
                engine.ask(command)
        engine.ask(command)
        print(job_id, flush=True)


if __name__ == "__main__":
    {"holds": holds, "forks": forks, "dies": dies}[sys.argv[1]](sys.argv[2])

"""Another process on the same database, for the tests of `sqlite:`. Run as a script: verb, path, what the verb takes.

It tells what it has done line by line on its standard output, and waits for a line on its standard input where a test
must be able to say when it goes on.
"""

from __future__ import annotations

import sys

import msgspec

from holdfast.engine import Engine
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Leased
from holdfast.stores.sqlite import SqliteStore


def say(line: str) -> None:
    print(line, flush=True)


def heard() -> str:
    return sys.stdin.readline().strip()


def enqueue(engine: Engine, job_id: str) -> None:
    engine.ask(Enqueue(jobs=(NewJob(job_id=JobId(job_id), job_type="work", params=msgspec.Raw(b"{}")),)))


def enqueues(path: str, name: str, count: str) -> None:
    """Create jobs, one commit each, once told to; tell each when it is durable."""
    with_engine = Engine(SqliteStore.open(path))
    say("open")
    heard()
    for number in range(int(count)):
        enqueue(with_engine, f"{name}-{number}")
        say(f"{name}-{number}")
    with_engine.close()


def works(path: str, name: str) -> None:
    """Lease and complete jobs until there are none, telling each."""
    engine = Engine(SqliteStore.open(path))
    say("open")
    heard()
    while True:
        outcome = engine.submit(Lease(worker_id=name, n=3))
        assert isinstance(outcome, Leased)
        if not outcome.grants:
            break
        for grant in outcome.grants:
            engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
            say(f"{grant.job.job_id} {grant.token}")
    engine.close()


def opens(path: str) -> None:
    """Open the store as soon as told to, and tell its id."""
    say("ready")
    heard()
    store = SqliteStore.open(path)
    with store.read() as view:
        say(view._meta.store_id)
    store.close()


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    {"enqueues": enqueues, "works": works, "opens": opens}[verb](*rest)

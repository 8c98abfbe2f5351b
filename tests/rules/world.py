"""One authority without engine or store: tables, the rules, and a clock under the test's hand."""

import msgspec

from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.model.events import decode_event, encode_event
from holdfast.model.jobs import Backoff, Job, KeyHold, KeyScope, RetryMode
from holdfast.model.outcomes import Refusal
from holdfast.model.times import Timestamp, later
from holdfast.rules.decide import decide
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.invariants import violations
from holdfast.rules.random_source import Draws
from holdfast.stores.memory.batch import BatchTables

START = Timestamp("2026-01-01T00:00:00.000000Z")
STEADY = Backoff(jitter=0)


def new(job_id="j", params=b"{}", **options):
    for name, kind in (("retry_mode", RetryMode), ("key_scope", KeyScope), ("key_hold", KeyHold)):
        if name in options:
            options[name] = kind(options[name])
    return NewJob(**{"job_id": job_id, "job_type": "t", "params": msgspec.Raw(params), "backoff": STEADY} | options)


def content(tables):
    """Everything the records say, for comparing two states."""
    return {kind.__name__: dict(table) for kind, table in tables.records.items()}


def replay(groups):
    """Fold a log from nothing, through its bytes."""
    tables = BatchTables()
    for first, ts, events in groups:
        for seq, event in enumerate(events, start=first):
            tables.replay(decode_event(encode_event(event), seq=seq, file="log"), Stamp(seq, ts))
    return tables


class World:
    def __init__(self):
        self.tables = BatchTables()
        #: (number of the first event, time, events) of each command that wrote something.
        self.groups = []
        self.tables.begin(lambda events, first, ts: self.groups.append((first, ts, tuple(events))))
        self.now = START
        self.draws = 0
        self.jump = None

    def wait(self, seconds):
        self.now = later(self.now, seconds)

    def decide(self, command):
        self.draws += 1
        self.tables.promote(self.now, 500)
        return decide(self.tables, command, self.now, Draws(self.now, self.draws), self.jump)

    def tell(self, command):
        """Decide, fold, check; give the answer."""
        decision = self.decide(command)
        if decision.events:
            self.tables.add(decision.events, self.now)
        assert list(violations(self.tables)) == []
        return decision.outcome

    def do(self, command):
        """Tell, and expect no refusal."""
        outcome = self.tell(command)
        assert not isinstance(outcome, Refusal), outcome
        return outcome

    def refused(self, command):
        """Tell, expect a refusal that writes nothing, and give its code."""
        before, length = content(self.tables), len(self.groups)
        outcome = self.tell(command)
        assert isinstance(outcome, Refusal), outcome
        assert content(self.tables) == before
        assert len(self.groups) == length
        return outcome.code

    def enqueue(self, job_id="j", **options):
        return self.do(Enqueue(jobs=(new(job_id, **options),))).jobs[0]

    def lease(self, n=1, **options):
        return self.do(Lease(**{"worker_id": "w", "n": n} | options)).grants

    def start(self, job_id="j", **options):
        """Enqueue a job and lease it; give its token."""
        self.enqueue(job_id, **options)
        (grant,) = self.lease(queues=(options.get("queue", "default"),), job_types=(options.get("job_type", "t"),))
        assert grant.job.job_id == job_id
        return grant.token

    def job(self, job_id="j"):
        return self.tables.get(Job, job_id)

    def run(self, job_id="j"):
        return self.tables.last_run(job_id)

    def events(self):
        return [event for _, _, events in self.groups for event in events]

    @property
    def last(self):
        """The events of the last command that wrote something."""
        return self.groups[-1][2]

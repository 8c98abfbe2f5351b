"""What tests of the parts of the tables in memory stand on: records that change, batch by batch, and batches undone."""

from collections import defaultdict

import msgspec
from hypothesis import strategies as st

from holdfast.model.jobs import Job, JobStatus
from holdfast.model.records import key_of
from holdfast.model.times import later

START = "2026-01-01T00:00:00.000000Z"
RAW = msgspec.Raw(b"{}")
TIMES = st.integers(0, 3).map(lambda seconds: later(START, seconds))
STATUSES = st.sampled_from([JobStatus.QUEUED, JobStatus.QUEUED, JobStatus.RUNNING, *JobStatus])


def batches(records):
    """Draw batches of changes, each of a record and whether it is removed, and whether the batch is undone."""
    changes = st.lists(st.tuples(records, st.sampled_from([False, False, False, True])), min_size=3, max_size=8)
    return st.lists(st.tuples(changes, st.sampled_from([False, False, True])), min_size=2, max_size=6)


class Told:
    """The records of a store, of which a part is told as the tables tell it: what was there, and what is."""

    def __init__(self):
        self.records = defaultdict(dict)

    def run(self, follow, drawn):
        """Do the batches, and undo those that are to be undone: the last change first."""
        for changes, is_undone in drawn:
            done = [self._put(follow, record, None if removes else record) for record, removes in changes]
            if is_undone:
                for record, before in reversed(done):
                    self._put(follow, record, before)

    def _put(self, follow, record, after):
        table, key = self.records[type(record)], key_of(record)
        before = table.get(key)
        if after is not None:
            table[key] = after
        else:
            table.pop(key, None)
        if before is not None or after is not None:
            follow(before, after)
        return record, before


def job(name, **fields):
    return Job(name, "a", RAW, START, **fields)

"""The oracle of the crash tests: what was sent and what was answered, kept outside the journal it judges.

A workload tells the witness what it sends and which answers came. After a fault, `examine` reopens the journal and
demands: every yes is there; nothing is there that was not sent, or was refused; what is there is a prefix in whole
groups, each event once and in order; snapshots and log tell the same state; a new append survives another reopening.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.errors import StoreError
from holdfast.journal import Journal, JournalOptions
from holdfast.testing import ManualClock, SimFS
from holdfast.testing.simdisk import disk_of

#: Segments so small that a few appends roll them; no thread flushes on its own, so that every run makes the same calls.
TINY = JournalOptions(segment_bytes=1500, flush_after_s=None, full_retry_s=0.0, full_retries=3)

#: Power cuts: what becomes of bytes, of names, and the seed. Junk has its own test, for its answer is a refusal.
CUTS = [
    ("lose", "lose", 0),
    ("lose", "keep", 0),
    ("keep", "lose", 0),
    ("keep", "keep", 0),
    ("lose", "mixed", 1),
    ("keep", "mixed", 2),
    ("blocks", "keep", 3),
    ("blocks", "mixed", 4),
    ("blocks", "mixed", 5),
]


def opened(fs: SimFS, **more) -> Journal:
    return Journal.open("store", fs=fs, clock=ManualClock(), options=TINY, **more)


class State:
    """What a store on top would keep: every event, by its own number, with the record that brought it."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, int]] = {}
        self.applied = 0

    def apply(self, record) -> None:
        assert record.seq == self.applied + 1, f"record {record.seq} after {self.applied}"
        self.applied = record.seq
        event = msgspec.json.decode(record.event)
        if event["type"] == "t:put":
            assert str(event["n"]) not in self.seen, f"event {event['n']} is there twice"
            self.seen[str(event["n"])] = {"n": event["n"], "seq": record.seq}

    def order(self) -> list[int]:
        return [entry["n"] for entry in sorted(self.seen.values(), key=lambda entry: entry["seq"])]


def recovered(journal: Journal) -> State:
    """Rebuild the state as a store does: the snapshot, then every record after it."""
    state = State()
    loaded = journal.load()
    for table, raw in loaded.records:
        assert table == "seen"
        entry = msgspec.json.decode(raw)
        state.seen[str(entry["n"])] = entry
    state.applied = loaded.seq
    for record in journal.read(after=loaded.seq):
        state.apply(record)
    return state


class Witness:
    """Sent, yes, no, maybe."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.answers: list[str] = []
        self.clock = ManualClock()
        self._next = 0

    def copy(self) -> Witness:
        twin = Witness()
        twin.sent, twin.answers, twin._next = list(self.sent), list(self.answers), self._next
        return twin

    # --- what a workload does -----------------------------------------------------------------------------------------

    def send(self, journal: Journal, *pads: int):
        """Append one group, an event for each pad, `pad` bytes long."""
        events = [{"type": "t:put", "n": self._next + at, "pad": "x" * pad} for at, pad in enumerate(pads)]
        self.sent.append([event["n"] for event in events])
        self.answers.append("maybe")
        self._next += len(events)
        self.clock.advance(1)
        try:
            return len(self.sent) - 1, journal.append(events, ts=self.clock.now())
        except StoreError:
            self.answers[-1] = "no"  # refused before it was buffered
            raise

    def hear(self, fs: SimFS, index: int, ticket) -> None:
        """Wait for the answer; a yes must have an earlier sync that covers it."""
        ticket.wait()
        assert_synced(fs, ticket.last_seq)
        self.answers[index] = "yes"

    def commit(self, fs: SimFS, journal: Journal, *pads: int) -> None:
        self.hear(fs, *self.send(journal, *pads))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def judge(self, order: list[int]) -> None:
        """Compare what is there with what was sent and answered."""
        must = [n for group, answer in zip(self.sent, self.answers, strict=True) if answer == "yes" for n in group]
        lost = sorted(set(must) - set(order))
        assert not lost, f"acknowledged, and lost: {lost} of {order}"
        prefixes, could = [[]], []
        for group, answer in zip(self.sent, self.answers, strict=True):
            if answer != "no":
                could = could + group
                prefixes.append(could)
        assert order in prefixes, f"no prefix in whole groups: {order} of {could}"

    def examine(self, fs: SimFS, *, fallback: bool = False, seen: set | None = None) -> None:
        """Reopen after a fault and check everything; a disk that was `seen` before, with the same book, is as good."""
        if seen is not None:
            key = (disk_of(fs._root), str(self.sent), str(self.answers))
            if (key, fallback) in seen:
                return
            seen |= {(key, False), (key, fallback)}
        spare = fs.image() if fallback else None
        journal = opened(fs)
        state = recovered(journal)
        order = state.order()
        self.judge(order)
        # Once found, it stays: the same after the worst cut that can follow, together with what is appended now.
        twin = self.copy()
        twin.sent, twin.answers = [order], ["yes"]
        twin.commit(fs, journal, 10, 700)
        twin.commit(fs, journal, 20)
        again = fs.power_loss("lose", names="lose")
        twin.judge(recovered(opened(again)).order())
        if spare is not None:
            self._damage_newest_snapshot(spare, order)

    def _damage_newest_snapshot(self, fs: SimFS, order: list[int]) -> None:
        """The previous snapshot, or the whole log, must give the identical state."""
        snapshots = sorted(path for path in fs.tree() if re.fullmatch(r"snapshots/\d{20}\.json\.zst", path))
        if snapshots:
            fs.put(snapshots[-1], b"rot" + fs.tree()[snapshots[-1]][3:])
            assert recovered(opened(fs)).order() == order


def assert_synced(fs: SimFS, seq: int) -> None:
    """Find in the list of calls: the write of this record, then a sync of that file, and its name synced as well."""
    line = b'{"seq":%d,' % seq
    calls = fs.calls
    wrote = next(at for at in reversed(range(len(calls))) if calls[at].kind == "write" and line in calls[at].data)
    path = calls[wrote].path
    assert any(call.kind == "sync" and call.path == path for call in calls[wrote:]), f"no sync covers record {seq}"
    named = [at for at, call in enumerate(calls) if (call.kind, call.path) == ("create", path) or call.dst == path]
    for at in named[-1:]:
        assert any(call.kind == "sync_dir" and call.path == "log" for call in calls[at:]), f"{path} has no durable name"

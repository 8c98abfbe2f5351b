"""The journal as a whole: random lives against a plain list, and a process killed again and again on a real disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
from journal_kit import numbers, opened, put, snapshots

from holdfast.journal import Journal, JournalOptions
from holdfast.testing import SimFS

TINY = JournalOptions(flush_after_s=None, segment_bytes=700)


def folded(journal: Journal) -> list[int]:
    """The state as a store builds it: snapshot, then the records after it."""
    loaded = journal.load()
    return [json.loads(row)["n"] for _, row in loaded.records] + numbers(journal, loaded.seq)


steps = st.lists(
    st.one_of(
        st.integers(1, 4),  # a group of so many events
        st.sampled_from(["checkpoint", "close", "crash", "power", "lose newest"]),
    ),
    max_size=25,
)


@settings(max_examples=80)
@given(steps)
def test_snapshot_and_tail_fold_to_what_the_whole_log_does(life):
    fs = SimFS()
    journal = opened(fs, TINY)
    model: list[int] = []
    for step in life:
        if isinstance(step, int):
            group = [len(model) + at for at in range(step)]
            put(journal, *group)
            model += group
        elif step == "checkpoint":
            copy = SimpleNamespace(applied_seq=journal.durable_seq, tables={"rows": [{"n": n} for n in model]})
            journal.checkpoint(lambda copy=copy: copy, wait=True)
        else:
            if step == "close":
                journal.close()
            fs = fs.power_loss("lose", names="lose") if step == "power" else fs.reboot()
            # One snapshot may be lost as long as another, or the whole log, is there.
            if step == "lose newest" and (len(snapshots(fs)) == 2 or (snapshots(fs) and journal.first_seq == 1)):
                path = snapshots(fs)[-1]
                fs.put(path, fs.tree()[path][:-1])
            journal = opened(fs, TINY)
            assert folded(journal) == model
        assert journal.verify() == []
    assert folded(opened(fs.reboot(), TINY)) == model


CHILD = """
import sys
from datetime import UTC, datetime
from threading import Thread
from types import SimpleNamespace
from holdfast.journal import Journal, JournalOptions

journal = Journal.open(sys.argv[1], options=JournalOptions(segment_bytes=20_000))
start = journal.durable_seq

def produce(who):
    n = 0
    while True:
        n += 1
        events = [{"type": "t:put", "who": who, "n": n, "part": part} for part in range(3)]
        ticket = journal.append(events, ts=datetime(2026, 2, 5, tzinfo=UTC))
        ticket.wait()
        sys.stdout.write(f"{ticket.last_seq}\\n")
        sys.stdout.flush()
        if who == 0 and n % 20 == 0:
            journal.checkpoint(lambda: SimpleNamespace(applied_seq=journal.durable_seq, tables={}))

for who in range(4):
    Thread(target=produce, args=(who,), daemon=True).start()
Thread(target=lambda: sys.stdin.read()).run()
"""


def test_a_process_killed_again_and_again_loses_nothing_it_acknowledged(tmp_path):
    acknowledged = 0
    for round_ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(30 + 17 * round_):
            acknowledged = max(acknowledged, int(child.stdout.readline()))
        os.kill(child.pid, signal.SIGKILL)
        rest, _ = child.communicate()
        heard = [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        acknowledged = max([acknowledged, *heard])
        with Journal.open(tmp_path / "store", readonly=True) as journal:
            assert journal.durable_seq >= acknowledged
            found = list(journal.read(journal.first_seq - 1))
        assert [record.seq for record in found] == list(range(found[0].seq, found[-1].seq + 1))
        assert not found[-1].more
        groups = [json.loads(record.event) for record in found if b"t:put" in record.event]
        whole = groups[next(at for at, event in enumerate(groups) if event["part"] == 0) :]
        assert [event["part"] for event in whole] == [0, 1, 2] * (len(whole) // 3)
    assert acknowledged > 180

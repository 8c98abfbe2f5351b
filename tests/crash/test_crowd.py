"""Many threads at once, checkpoints beside them, and a fault at some call: group commit under the same oracle.

Which call is the k-th depends on the threads here, so there is no list of places: seeds choose where it happens, and
each run is judged by what its own callers sent and heard.
"""

from __future__ import annotations

import errno
import os
import threading
from random import Random

import pytest
from stories import checkpoint, refresh
from witness import State, assert_synced, opened, recovered

from holdfast.errors import StoreError
from holdfast.journal import Journal
from holdfast.testing import ManualClock, SimCrash, SimFS

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
SEEDS = range(2000 if SOAK else 25)
CALLERS = 6


class Crowd:
    """Callers that each send groups and wait for their answer, until the journal has ended for them."""

    def __init__(self, fs: SimFS, journal: Journal, seed: int) -> None:
        self.fs = fs
        self.journal = journal
        self.seed = seed
        #: First record → the group's events, once it has numbers; and those acknowledged.
        self.sent: dict[int, list[int]] = {}
        self.acknowledged: set[int] = set()
        self.strangers: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._guarded, args=(self._call, n)) for n in range(CALLERS)]
        threads.append(threading.Thread(target=self._guarded, args=(self._snapshot, 0)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "a caller was stranded"
        assert not self.strangers, self.strangers

    def _guarded(self, action, n: int) -> None:
        try:
            action(n)
        except (StoreError, SimCrash):
            pass
        except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
            self.strangers.append(error)

    def _call(self, n: int) -> None:
        dice = Random(self.seed * 100 + n)
        clock = ManualClock()
        for turn in range(12):
            numbers = [n * 1000 + turn * 10 + at for at in range(dice.randint(1, 3))]
            events = [{"type": "t:put", "n": number, "pad": "x" * dice.choice((1, 60, 600))} for number in numbers]
            ticket = self.journal.append(events, ts=clock.now())
            self.sent[ticket.first_seq] = numbers
            if dice.random() < 0.8:
                ticket.wait()
                assert_synced(self.fs, ticket.last_seq)
                self.acknowledged.add(ticket.first_seq)

    def _snapshot(self, _: int) -> None:
        state = State()
        for _ in range(4):
            checkpoint(self.journal, refresh(self.journal, state))

    def judge(self, state: State) -> None:
        """Every yes is there, at its number; every group is there whole, or not at all."""
        there = {entry["seq"]: entry["n"] for entry in state.seen.values()}
        for first, numbers in self.sent.items():
            found = [there.get(first + at) for at in range(len(numbers))]
            assert found in (numbers, [None] * len(numbers)), f"group {first}: {numbers}, found {found}"
            assert first not in self.acknowledged or found == numbers, f"acknowledged, and lost: {numbers}"


@pytest.mark.parametrize("fault", ["crash", "sync", "write", "full", "none"])
def test_a_crowd_of_callers_loses_nothing_acknowledged_and_nobody_is_stranded(fault):
    acknowledged = 0
    for seed in SEEDS:
        fs = SimFS()
        journal = opened(fs)
        nth = Random(seed).randint(1, 60)
        if fault == "crash":
            fs.crash(nth, when=("before", "during", "after")[seed % 3])
        elif fault == "full":
            fs.fail("write", nth, errno.ENOSPC, times=2)
        elif fault != "none":
            fs.fail(fault, nth, errno.EIO)
        crowd = Crowd(fs, journal, seed)
        crowd.run()
        if fault in {"full", "none"}:
            journal.flush()
        fs.heal()
        acknowledged += len(crowd.acknowledged)
        crowd.judge(recovered(opened(fs.image().power_loss("lose", seed))))
        crowd.judge(recovered(opened(fs.image().power_loss("blocks", seed))))
        crowd.judge(recovered(opened(fs.reboot())))
    assert acknowledged > 5 * len(SEEDS)

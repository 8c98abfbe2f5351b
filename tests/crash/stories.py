"""Workloads for the crash tests, and the ways to run them into a fault.

Each makes the same calls every time it runs, so that "the k-th call" means something. A story ends early, like a
program would, at the first answer that says the journal is done for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from witness import State, Witness, opened, recovered

from holdfast.errors import StoreError
from holdfast.journal import Journal
from holdfast.testing import SimCrash, SimFS
from holdfast.testing.simfs import CHANGES, Call

Story = Callable[[SimFS, Witness], None]


class Taken(NamedTuple):
    """The copy a checkpoint asks for."""

    applied_seq: int
    tables: dict


def checkpoint(journal: Journal, state: State) -> bool:
    """Take a snapshot and wait for it; a failed one leaves the journal as it was, and is told by name."""
    try:
        journal.checkpoint(lambda: Taken(state.applied, {"seen": list(state.seen.values())}), wait=True)
    except (StoreError, OSError):
        return False
    return True


def refresh(journal: Journal, state: State) -> State:
    """Apply what has become durable since, as a store does before it answers."""
    for record in journal.read(after=state.applied):
        state.apply(record)
    return state


def life(fs: SimFS, witness: Witness) -> None:
    """Appends alone, in groups and in batches; rolls; checkpoints, also within a segment; closings; later lives."""
    journal = opened(fs)
    state = State()
    witness.commit(fs, journal, 10)
    witness.commit(fs, journal, 5, 600, 5)
    first, second = witness.send(journal, 30), witness.send(journal, 1, 2)
    witness.hear(fs, *second)
    witness.hear(fs, *first)
    checkpoint(journal, refresh(journal, state))
    witness.commit(fs, journal, 1100)
    witness.commit(fs, journal, 40, 700)
    witness.commit(fs, journal, 300)
    refresh(journal, state)
    witness.commit(fs, journal, 8)  # after the copy: the snapshot ends within a segment, which is rewritten later
    checkpoint(journal, state)
    witness.commit(fs, journal, 900)
    checkpoint(journal, refresh(journal, state))
    waiting = [witness.send(journal, 400) for _ in range(4)]
    journal.flush()
    for one in waiting:
        witness.hear(fs, *one)
    journal.close()

    journal = opened(fs)
    state = recovered(journal)
    witness.judge(state.order())
    witness.commit(fs, journal, 50)
    witness.commit(fs, journal, 2000, 10)
    witness.commit(fs, journal, 200, 300)
    refresh(journal, state)
    witness.commit(fs, journal, 60)
    checkpoint(journal, state)
    witness.commit(fs, journal, 7, 7)
    checkpoint(journal, refresh(journal, state))
    journal.close()

    journal = opened(fs)
    state = recovered(journal)
    witness.judge(state.order())
    for pad in (100, 200, 300, 1400, 5):
        witness.commit(fs, journal, pad)
    checkpoint(journal, refresh(journal, state))
    witness.commit(fs, journal, 1, 1, 1)
    witness.send(journal, 9)
    journal.close()


def run(story: Story, fs: SimFS) -> Witness:
    """Run a story into whatever waits for it; a typed error ends it, a crash ends it, anything else is a bug."""
    witness = Witness()
    with suppress(StoreError, SimCrash):
        story(fs, witness)
    return witness


def rehearse(story: Story) -> list[Call]:
    """Run a story undisturbed; gives its calls."""
    fs = SimFS()
    story(fs, Witness())
    return fs.calls


def images(story: Story, fs: SimFS | None = None) -> list[tuple[SimFS, Witness]]:
    """Run a story once and keep the disk, with the witness's book, as they stood before each call that changes it."""
    fs, witness, kept = fs or SimFS(), Witness(), []

    def keep(call) -> None:
        if call.kind in CHANGES:
            kept.append((fs.image(), witness.copy()))

    fs.before = keep
    story(fs, witness)
    fs.before = None
    kept.append((fs.image(), witness.copy()))
    return kept

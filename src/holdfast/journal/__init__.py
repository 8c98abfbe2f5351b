"""The journal: bytes that survive power loss. It knows no job, no rule and no store.

Files, below one directory:

    journal.json                               which journal this is; written once, last of all that makes a journal
    LOCK                                       who may write; one process at a time
    log/00000000000000000001-7759b50e.jsonl    segments: first record, chain value before it; the last is open
    snapshots/00000000000000041200.json.zst    the whole state at a record
    log.bak … snapshot.bak …                   what repairs removed, three of each at most

A record is one line of JSON with a number (1, 2, 3, … without gap), an event, a time, and a checksum that continues
the line before (`records`). The events of one `append` are a group: after a crash all are there or none. A batch is
what one sync makes durable (`group_commit`).

The legal order of calls:

    journal = Journal.open(path)               lock, survey, recover
    state = journal.load()                     newest usable snapshot, or nothing
    for record in journal.read(state.seq): …   what happened since; verified
    ticket = journal.append(events, ts=now)    numbered and buffered, not durable
    ticket.wait()                              durable; only now may anybody be told
    journal.checkpoint(copy)                   snapshot in the background, then the log may get shorter
    journal.close()                            idempotent; everything after it raises

What is acknowledged is never lost, damage is never skipped, and nothing here has a clock, randomness or order of its
own in what it gives back: the same files give the same records.
"""

from holdfast.journal.checkpoints import Checkpoint
from holdfast.journal.journal import Journal, Loaded
from holdfast.journal.options import JournalOptions
from holdfast.journal.records import Record
from holdfast.journal.repair import Plan, Problem
from holdfast.journal.stats import JournalStats
from holdfast.journal.tickets import Ticket

__all__ = ["Checkpoint", "Journal", "JournalOptions", "JournalStats", "Loaded", "Plan", "Problem", "Record", "Ticket"]

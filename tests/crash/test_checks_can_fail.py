"""The checks, checked: take one guard out of the journal, and the oracle must go red. A survivor is a missing test."""

from __future__ import annotations

import errno

import pytest
from stories import Story, images, life
from test_damage import look, planted, small
from witness import CUTS, Witness, opened

from holdfast.errors import StoreError
from holdfast.journal import checkpoints, compaction, inspection, opening, scan
from holdfast.journal.group_commit import Ticket
from holdfast.journal.log_tail import Tail
from holdfast.journal.segments import Mark
from holdfast.testing import SimFS


class Careless(SimFS):
    """A disk whose syncs of some files or directories are left out, as if the journal did not ask for them."""

    def __init__(self, *, skip) -> None:
        super().__init__()
        self.skip = skip

    def sync(self, h, *, metadata):
        if not self.skip("sync", h.path):
            super().sync(h, metadata=metadata)

    def sync_dir(self, path):
        if not self.skip("sync_dir", path):
            super().sync_dir(path)


def power_cuts(story: Story = life, fs: SimFS | None = None, *, fallback: bool = False, every: int = 1) -> None:
    """The exhaustive test of power cuts, in short."""
    for disk, witness in images(story, fs)[::every]:
        for mode, names, seed in CUTS:
            witness.examine(disk.image().power_loss(mode, seed, names), fallback=fallback)


def flips() -> None:
    """The test of flipped bytes, in short: everything, or a refusal."""
    fs, path, witness = small(closed=False)
    data = fs.tree()[path]
    for at in range(len(data)):
        try:
            order = look(planted(fs, path, data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]))
        except StoreError:
            continue
        assert order == [n for group in witness.sent for n in group]


def is_red(check, *args, **more) -> bool:
    try:
        check(*args, **more)
    except (AssertionError, StoreError, StopIteration):
        return True
    return False


def test_with_every_guard_in_place_the_short_checks_are_green():
    power_cuts(fallback=True, every=4)
    flips()


MISSING = {
    "the sync of a batch": lambda kind, path: kind == "sync" and path.endswith(".jsonl"),
    "the sync of log/": lambda kind, path: (kind, path) == ("sync_dir", "log"),
    "the sync of a snapshot": lambda kind, path: kind == "sync" and path.startswith("snapshots/"),
    "the sync of snapshots/": lambda kind, path: (kind, path) == ("sync_dir", "snapshots"),
    "the sync of the root": lambda kind, path: (kind, path) == ("sync_dir", ""),
    "the sync of journal.json": lambda kind, path: kind == "sync" and path.startswith("journal.json"),
    "the sync of a rewritten segment": lambda kind, path: kind == "sync" and path.endswith(".jsonl.tmp"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_missing_sync_is_found(what, monkeypatch):
    # Without the assertion on the list of calls: the power cuts alone must find it.
    monkeypatch.setattr("witness.assert_synced", lambda fs, seq: None)
    assert is_red(power_cuts, fs=Careless(skip=MISSING[what])), f"nothing missed {what}"


def test_an_acknowledgement_before_the_sync_is_found_by_the_list_of_calls(monkeypatch):
    monkeypatch.setattr(Ticket, "wait", lambda self, timeout=None: None)
    fs, witness = SimFS(), Witness()
    with pytest.raises((AssertionError, StopIteration)):
        witness.commit(fs, opened(fs), 1)


def test_an_acknowledgement_before_the_sync_is_found_by_the_power_cuts(monkeypatch):
    monkeypatch.setattr("witness.assert_synced", lambda fs, seq: None)
    monkeypatch.setattr(Ticket, "wait", lambda self, timeout=None: None)
    assert is_red(power_cuts)


def test_a_checksum_that_is_not_compared_is_found(monkeypatch):
    def believing(start, lines):
        end = Mark(start.seq + len(lines), start.offset + sum(map(len, lines)) + len(lines), 0)
        return scan.Run(start, lines, end)

    monkeypatch.setattr(scan, "_verified", believing)
    assert is_red(flips)


def test_calling_every_bad_tail_torn_is_found(monkeypatch):
    monkeypatch.setattr(inspection, "is_torn", lambda fs, bad: True)
    assert is_red(flips)


def test_refusing_every_torn_tail_is_found(monkeypatch):
    monkeypatch.setattr(inspection, "is_torn", lambda fs, bad: False)
    assert is_red(power_cuts)


def test_a_log_shortened_past_the_previous_snapshot_is_found(monkeypatch):
    def greedy(fs, log, seq):
        return compaction.drop_before(fs, log, log.last.first)

    monkeypatch.setattr(checkpoints, "drop_before", greedy)
    assert is_red(power_cuts, fallback=True)


def test_a_group_that_is_not_kept_whole_is_found(monkeypatch):
    monkeypatch.setattr(inspection, "has_more", lambda line: False)
    assert is_red(power_cuts)


def test_half_a_batch_left_in_the_file_is_found(monkeypatch):
    monkeypatch.setattr(Tail, "cut_back", lambda self: None)

    def full_for_a_while():
        fs, witness = SimFS(), Witness()
        journal = opened(fs)
        fs.shorten("write", 1, 50)
        fs.fail("write", 2, errno.ENOSPC)
        witness.commit(fs, journal, 100)
        witness.examine(fs.reboot())

    assert is_red(full_for_a_while)


def test_a_recovery_that_trusts_the_cache_is_found(monkeypatch):
    """Without the rewrite, what a process that died had not synced is served, and then lost."""

    def trusting(fs, found, notes, now):
        return None

    monkeypatch.setattr(opening, "rewrite", trusting)

    def deaths():
        for disk, witness in images(life):
            witness.examine(disk.reboot())

    assert is_red(deaths)

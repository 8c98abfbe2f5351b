"""A small log cut at every byte and with every byte flipped, then snapshots and the file that names the journal.

The answer is the whole state, a clean prefix where a power cut can explain it, or a refusal that names file, line and
offset and changes no byte; by request a repair that keeps the original. Never a wrong state, never a foreign exception.
"""

from __future__ import annotations

import os
import re

import pytest
from stories import checkpoint, refresh
from witness import TINY, State, Witness, opened, recovered

from holdfast.errors import HoldfastError, JournalDamaged, LogMissing, SnapshotDamaged, StoreDamaged, StoreError, TooNew
from holdfast.journal import repair
from holdfast.testing import ManualClock, SimFS

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
#: What a byte is combined with: each single bit in the long form.
FLIPS = [1 << bit for bit in range(8)] if SOAK else [0x01, 0x20, 0x80]


def small(*, closed: bool) -> tuple[SimFS, str, Witness]:
    """A log of one segment: single events, groups, a batch of two groups, text beyond ASCII."""
    fs, witness = SimFS(), Witness()
    journal = opened(fs)
    witness.commit(fs, journal, 3)
    witness.commit(fs, journal, 2, 2)
    first, second = witness.send(journal, 1), witness.send(journal, 4, 1)
    witness.hear(fs, *second)
    witness.hear(fs, *first)
    journal.append([{"type": "x:other", "text": "grün@ 猫"}], ts=witness.clock.now()).wait()
    witness.commit(fs, journal, 300)
    if closed:
        journal.close()
    fs = fs.reboot()
    (path,) = [name for name in fs.tree() if name.startswith("log/")]
    return fs, path, witness


def with_snapshots() -> tuple[SimFS, list[str], Witness]:
    """Two snapshots, several segments, closed."""
    fs, witness = SimFS(), Witness()
    journal, state = opened(fs), State()
    for _ in range(3):
        witness.commit(fs, journal, 2, 3)
        witness.commit(fs, journal, 40)
        assert checkpoint(journal, refresh(journal, state))
    witness.commit(fs, journal, 5)
    journal.close()
    fs = fs.reboot()
    return fs, sorted(path for path in fs.tree() if path.startswith("snapshots/")), witness


def planted(fs: SimFS, path: str, data: bytes | None) -> SimFS:
    twin = fs.image()
    if data is None:
        twin.unlink(path)
        twin.sync_dir(path.rpartition("/")[0])
    else:
        twin.put(path, data)
    return twin


def files(fs: SimFS) -> dict[str, bytes]:
    return {path: data for path, data in fs.tree().items() if path != "LOCK"}


def look(fs: SimFS) -> list[int]:
    """Open and read all; a refusal must have changed nothing."""
    before = files(fs)
    try:
        return recovered(opened(fs)).order()
    except StoreError:
        assert files(fs) == before
        raise


def outcome(fs: SimFS, *refusals: type[StoreError]) -> list[int] | StoreError:
    """Look; one of these refusals is an answer too."""
    try:
        return look(fs)
    except refusals as error:
        return error


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [False, True])
def test_a_log_cut_at_any_byte_is_read_as_the_whole_groups_before_the_cut(closed):
    """In the short form at every third, and at all where a line ends."""
    fs, path, _ = small(closed=closed)
    data = files(fs)[path]
    lines = data.split(b"\n")[:-1]
    ends = [sum(len(line) + 1 for line in lines[: at + 1]) for at in range(len(lines))]
    near = {end + beside for end in (0, *ends) for beside in range(-3, 3) if 0 <= end + beside <= len(data)}
    for cut in range(len(data) + 1) if SOAK else sorted({*near, *range(0, len(data), 3)}):
        kept = [at for at, end in enumerate(ends) if end - 1 <= cut and b',"more":true' not in lines[at]]
        whole = ends[kept[-1]] if kept else 0
        torn = planted(fs, path, data[:cut])
        before = files(torn)
        numbers = [int(n) for n in re.findall(rb'"type":"t:put","n":(\d+)', data[:whole])]
        assert recovered(opened(torn.image(), readonly=True)).order() == numbers
        assert files(torn) == before
        assert look(torn) == numbers
        assert files(torn).get("log.bak", b"") == data[whole:cut]
        assert look(torn.reboot()) == numbers


@pytest.mark.parametrize("closed", [False, True])
def test_a_flipped_byte_anywhere_in_the_log_is_harmless_or_refused_with_its_place(closed):
    fs, path, witness = small(closed=closed)
    data = files(fs)[path]
    whole = [n for group in witness.sent for n in group]
    refused = 0
    for at in range(len(data)):
        for flip in FLIPS:
            bent = planted(fs, path, data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
            found = outcome(bent, JournalDamaged)
            if isinstance(found, JournalDamaged):
                refused += 1
                assert found.facts["file"] == path
                assert found.facts["line"] == data.count(b"\n", 0, at) + 1
                assert found.facts["offset"] == data.rfind(b"\n", 0, at) + 1
                assert "holdfast store repair" in found.hint
            else:
                assert found == whole
    assert refused > len(data) * len(FLIPS) * 0.99


def test_a_repair_asked_for_keeps_the_valid_groups_and_the_original():
    fs, path, witness = small(closed=True)
    data = files(fs)[path]
    for at in range(0, len(data), 1 if SOAK else 5):
        bent = planted(fs, path, data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :])
        damaged = files(bent)[path]
        with pytest.raises(JournalDamaged):
            opened(bent)
        plan = repair.plan(bent, "store", TINY)
        assert plan.is_needed
        assert plan.lines
        assert files(bent)[path] == damaged
        plan.apply(ManualClock())
        assert files(bent)["log.bak"] == damaged
        order = look(bent)
        lines = data[:at].count(b"\n")
        kept = [int(n) for n in re.findall(rb'"type":"t:put","n":(\d+)', b"\n".join(data.split(b"\n")[:lines]))]
        assert order == [n for group in witness.sent for n in group if set(group) <= set(kept)]
        assert repair.check(bent, "store", TINY) == []


def test_a_repair_can_be_interrupted_anywhere_and_run_again():
    fs, path, _ = small(closed=False)
    data = files(fs)[path]
    at = data.index(b'"pad":"xxxx"')
    bent = planted(fs, path, data[:at] + b"#" + data[at + 1 :])
    twin = bent.image()
    repair.plan(twin, "store", TINY).apply(ManualClock())
    expected = look(twin)
    faults = 0
    for when in ("before", "during", "after"):
        for k in range(1, 100):
            twin = bent.image()
            twin.crash(k, when=when)
            try:
                repair.plan(twin, "store", TINY).apply(ManualClock())
            except BaseException as error:
                if type(error).__name__ != "SimCrash":
                    raise
            if not twin.injected:
                break
            for after in (twin.image().power_loss("blocks", k), twin.image().power_loss("lose", k), twin.reboot()):
                faults += 1
                again = repair.plan(after, "store", TINY)
                if again.is_needed:
                    again.apply(ManualClock())
                assert look(after) == expected
                backups = [value for name, value in files(after).items() if name.startswith("log.bak")]
                assert files(bent)[path] in backups
    print(f"\n{faults} crashes within a repair")
    assert faults >= 60


@pytest.mark.parametrize("closed", [False, True])
def test_lost_doubled_swapped_foreign_blank_and_altered_lines_are_refused(closed):
    fs, path, _ = small(closed=closed)
    data = files(fs)[path]
    lines = data.splitlines(keepends=True)
    other, other_path, _ = small(closed=closed)
    foreign = files(other)[other_path].splitlines(keepends=True)
    bad = []
    for at in range(len(lines) - 1):
        before, line, after = lines[:at], lines[at], lines[at + 1 :]
        bad += [
            [*before, *after],
            [*before, line, line, *after],
            [*before, after[0], line, *after[1:]],
            [*before, foreign[at], *after],
            [*before, b"\n", line, *after],
            [*before, line[:-1] + b"\r\n", *after],
            [*before, line[:-1] + b" \n", *after],
            [*before, b"\xef\xbb\xbf" + line, *after],
            [*before, b"\xff\xfe" + line, *after],
            [*before, b"null\n", *after],
            [*before, b"[" * 5000 + b"\n", *after],
        ]
    for text in bad:
        with pytest.raises(JournalDamaged) as caught:
            look(planted(fs, path, b"".join(text)))
        assert {"file", "line", "offset"} <= set(caught.value.facts)
    for junk in (b"\n", b"{}\n", b"null\n", lines[0], foreign[-1], b"\xff\n"):
        with pytest.raises(JournalDamaged):
            look(planted(fs, path, data + junk))


def test_nul_sectors_in_the_last_batch_are_a_torn_tail_and_elsewhere_damage():
    fs, witness = SimFS(), Witness()
    journal = opened(fs)
    witness.commit(fs, journal, 700, 700)
    (path,) = [name for name in fs.tree() if name.startswith("log/")]
    synced = len(fs.tree()[path])
    witness.commit(fs, journal, 1300, 900)
    data = fs.reboot().tree()[path]
    for start in range(0, len(data), 512):
        end = min(start + 512, len(data))
        holed = planted(fs.image(), path, data[:start] + bytes(end - start) + data[end:])
        if start >= synced:
            assert look(holed) == [0, 1]
            assert files(holed)["log.bak"]
        else:
            with pytest.raises(JournalDamaged):
                look(holed)


# --- the other files --------------------------------------------------------------------------------------------------


def test_a_damaged_newest_snapshot_costs_nothing_but_replay():
    fs, (_, newest), witness = with_snapshots()
    data, whole = files(fs)[newest], [n for group in witness.sent for n in group]
    texts = [data[:cut] for cut in range(0, len(data), 1 if SOAK else 3)]
    texts += [data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :] for at in range(len(data)) for flip in FLIPS]
    texts += [data + b"\0", data + data, b"junk" + data]
    set_aside = 0
    for text in texts:
        bent = planted(fs, newest, text)
        assert look(bent) == whole
        kept = files(bent)
        if newest not in kept:
            set_aside += 1
            assert kept["snapshot.bak"] == text
        assert look(bent.reboot()) == whole
    assert set_aside > len(texts) * 0.95


def test_two_damaged_snapshots_are_refused_by_both_names_and_never_an_empty_start():
    fs, (older, newest), _ = with_snapshots()
    bent = planted(planted(fs, newest, b"junk"), older, files(fs)[older][:-9])
    with pytest.raises(SnapshotDamaged) as caught:
        look(bent)
    assert older in str(caught.value)
    assert newest in str(caught.value)


def test_a_snapshot_of_another_journal_is_not_believed():
    fs, (_, newest), witness = with_snapshots()
    other, _, _ = with_snapshots()
    bent = planted(fs, newest, files(other)[newest])
    assert look(bent) == [n for group in witness.sent for n in group]


def test_any_missing_or_shortened_file_is_noticed():
    fs, snapshots, witness = with_snapshots()
    whole = [n for group in witness.sent for n in group]
    for path, data in files(fs).items():
        is_last = path == max(name for name in files(fs) if name.startswith("log/"))
        for text in (None, b"", data[: len(data) // 2], data[:-1], bytes(len(data))):
            bent = planted(fs, path, text)
            found = outcome(bent, StoreDamaged)
            if isinstance(found, StoreDamaged):
                assert "Nothing was changed" in str(found)
            elif is_last:
                # A power cut could have left this end; and no trace tells a last segment that is gone from none made.
                assert found == whole[: len(found)]
            else:
                assert found == whole
                assert path in snapshots or text == data[:-1] or path.startswith("log/")


def test_a_flipped_byte_in_the_file_that_names_the_journal_is_harmless_or_refused():
    fs, _, witness = small(closed=True)
    whole = [n for group in witness.sent for n in group]
    for name in ("journal.json", "LOCK"):
        data = fs.tree()[name]
        for at in range(len(data)):
            for flip in [1 << bit for bit in range(8)]:
                bent = planted(fs, name, data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
                found = outcome(bent, StoreDamaged, TooNew)
                assert found == whole or (name == "journal.json" and isinstance(found, StoreError))
    for text in (None, b"", b"{}", b"null", b"\xff", b"[" * 9000):
        with pytest.raises(JournalDamaged):
            look(planted(fs, "journal.json", text))


def test_an_emptied_or_missing_log_beside_a_snapshot_is_refused_and_accepted_only_on_request():
    fs, snapshots, _ = with_snapshots()
    bent = fs.image()
    for path in files(fs):
        if path.startswith("log/"):
            bent = planted(bent, path, None)
    with pytest.raises(LogMissing):
        look(bent)
    repair.plan(bent, "store", TINY, accept_snapshot=True).apply(ManualClock())
    seq = int(re.findall(r"\d{20}", snapshots[-1])[0])
    journal = opened(bent)
    twin = Witness()
    twin.sent, twin.answers, twin._next = [recovered(journal).order()], ["yes"], 1000
    index, ticket = twin.send(journal, 1)
    ticket.wait()
    assert ticket.first_seq > seq
    twin.answers[index] = "yes"
    twin.judge(recovered(opened(bent.power_loss("lose", names="lose"))).order())


def test_every_refusal_is_an_error_of_ours():
    """Whatever stands in any file, opening raises nothing foreign (the fuzzer goes further)."""
    fs, _, _ = with_snapshots()
    texts = (b"\0" * 600, b"\n" * 50, b'{"seq":1,"event":{"type":"a:b"', b'{"v":99}', b"\x28\xb5\x2f\xfd")
    refused = 0
    for path in files(fs):
        for text in texts:
            try:
                look(planted(fs, path, text))
            except HoldfastError:
                refused += 1
    assert refused

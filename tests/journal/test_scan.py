"""Torn or damaged: every row of the contract's table that concerns a line of the log."""

from __future__ import annotations

import pytest
from journal_kit import chained, crashed, events, kinds, line, numbers, opened, put, segments, start_of

from holdfast.errors import JournalDamaged
from holdfast.journal import scan
from holdfast.journal.records import MAX_LINE
from holdfast.journal.scan import BadRecord, is_torn, runs
from holdfast.journal.segments import Segment
from holdfast.testing import SimFS

PUT = b'{"type":"t:put","n":%d}'


def log_with(text_of) -> SimFS:
    """A crashed journal whose only segment holds what `text_of(chain before record 1)` gives."""
    fs = crashed()
    fs.put(segments(fs)[0], text_of(start_of(fs)))
    return fs


def three(chain: int) -> bytes:
    return chained(chain, *((n, PUT % n) for n in (1, 2, 3)))


def refused(fs: SimFS) -> JournalDamaged:
    """Open, demand a refusal that names the place and changes nothing, and give it."""
    before = fs.tree()
    with pytest.raises(JournalDamaged) as caught:
        opened(fs)
    after = fs.tree()
    assert {path: data for path, data in after.items() if path != "LOCK"} == {
        path: data for path, data in before.items() if path != "LOCK"
    }
    facts = caught.value.facts
    assert facts["file"] == segments(fs)[-1]
    assert isinstance(facts["line"], int)
    assert isinstance(facts["offset"], int)
    assert "holdfast store repair wal:store" in caught.value.hint
    return caught.value


def test_what_a_crash_left_whole_is_all_there():
    fs = log_with(three)
    assert numbers(opened(fs)) == [1, 2, 3]


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_last_line_cut_short_is_a_torn_tail(cut):
    fs = log_with(lambda chain: three(chain)[:-cut])
    journal = opened(fs)
    assert numbers(journal) == ([1, 2, 3] if cut == 1 else [1, 2])
    assert kinds(journal).count("journal:repaired") == (0 if cut == 1 else 1)


def test_a_torn_tail_is_cut_at_its_group_and_its_bytes_are_kept():
    def text(chain: int) -> bytes:
        more = {"b": 2, "tail": b',"more":true'}
        return chained(chain, (1, PUT % 1), (2, PUT % 2, more), (3, PUT % 3, more), (4, PUT % 4, {"b": 2}))[:-30]

    fs = log_with(text)
    whole = fs.tree()[segments(fs)[0]]
    journal = opened(fs)
    assert numbers(journal) == [1]
    assert fs.tree()["log.bak"] == whole[whole.index(b'{"seq":2,') :]
    seq, note = events(journal)[-1]
    assert seq == 2
    assert b'"journal:repaired"' in note
    assert b'"offset":%d' % whole.index(b'{"seq":2,') in note
    assert b'"bytes":%d' % len(fs.tree()["log.bak"]) in note
    assert put(journal, 9).first_seq == 3
    assert numbers(opened(fs.reboot())) == [1, 9]


def test_a_group_whose_end_never_came_is_a_torn_tail():
    def text(chain: int) -> bytes:
        more = {"b": 2, "tail": b',"more":true'}
        return chained(chain, (1, PUT % 1), (2, PUT % 2, more), (3, PUT % 3, more))

    fs = log_with(text)
    journal = opened(fs)
    assert numbers(journal) == [1]
    assert b"not complete" in events(journal)[-1][1]


def test_a_last_line_without_newline_is_kept_and_healed_and_what_follows_survives():
    fs = log_with(lambda chain: three(chain)[:-1])
    journal = opened(fs)
    assert numbers(journal) == [1, 2, 3]
    put(journal, 4)
    assert numbers(opened(fs.reboot())) == [1, 2, 3, 4]


def test_a_last_line_followed_by_nothing_but_nuls_is_kept():
    fs = log_with(lambda chain: three(chain)[:-1] + bytes(700))
    journal = opened(fs)
    assert numbers(journal) == [1, 2, 3]
    put(journal, 4)
    assert numbers(opened(fs.reboot())) == [1, 2, 3, 4]


@pytest.mark.parametrize("length", [1, 511, 512, 5000])
def test_nuls_behind_the_last_newline_are_a_torn_tail(length):
    fs = log_with(lambda chain: three(chain) + bytes(length))
    assert numbers(opened(fs)) == [1, 2, 3]


def padded(chain: int, size: int = 2000) -> tuple[bytes, bytes]:
    """Two acknowledged lines, and a long third one of a later batch."""
    return three(chain)[: len(three(chain)) // 3 * 2], b'{"type":"t:put","n":3,"pad":"' + b"x" * size + b'"}'


def test_a_sector_of_nuls_in_the_last_batch_is_a_torn_tail_even_if_the_line_is_complete():
    def text(chain: int) -> bytes:
        made = chained(chain, (1, PUT % 1), (2, PUT % 2), (3, padded(chain)[1]))
        return made[:512] + bytes(512) + made[1024:]

    fs = log_with(text)
    assert numbers(opened(fs)) == [1, 2]


def test_a_sector_of_nuls_that_a_later_record_proves_synced_is_damage():
    def text(chain: int) -> bytes:
        made = chained(chain, (1, PUT % 1), (2, PUT % 2), (3, padded(chain)[1]), (4, PUT % 4))
        return made[:512] + bytes(512) + made[1024:]

    assert refused(log_with(text)).facts["line"] == 3


def test_later_records_of_the_same_batch_prove_nothing():
    def text(chain: int) -> bytes:
        made = chained(chain, (1, PUT % 1), (2, PUT % 2), (3, padded(chain)[1]), (4, PUT % 4, {"b": 3}))
        return made[:512] + bytes(512) + made[1024:]

    assert numbers(opened(log_with(text))) == [1, 2]


def test_nuls_that_fill_no_piece_between_sectors_are_damage():
    def text(chain: int) -> bytes:
        made = chained(chain, (1, PUT % 1), (2, PUT % 2), (3, padded(chain)[1]))
        return made[:600] + bytes(100) + made[700:]

    assert refused(log_with(text)).facts["line"] == 3


@pytest.mark.parametrize("other", [0x0B, 0x08, 0x0E, 0x02, 0x1A, 0x2A, 0x4A, 0x8A])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_flipped_newline_is_damage_even_at_the_very_end(which, other):
    def text(chain: int) -> bytes:
        made = bytearray(three(chain))
        made[[at for at, byte in enumerate(made) if byte == 10][which]] = other
        return bytes(made)

    assert refused(log_with(text)).facts["line"] == which + 1


def test_a_whole_record_behind_which_its_sector_ends_and_nuls_begin_was_never_acknowledged():
    def text(chain: int) -> bytes:
        two = chained(chain, (1, PUT % 1), (2, PUT % 2))
        empty = len(chained(chain, (1, PUT % 1), (2, PUT % 2), (3, b'{"type":"t:put","n":3,"pad":""}'))) - 1
        event = b'{"type":"t:put","n":3,"pad":"' + b"x" * (1024 - empty) + b'"}'
        made = chained(chain, (1, PUT % 1), (2, PUT % 2), (3, event), (4, padded(chain)[1], {"b": 3}))
        assert made[1024:1025] == b"\n"
        assert len(two) < 512
        return made[:1024] + bytes(512) + made[1536:]

    assert numbers(opened(log_with(text))) == [1, 2]


@pytest.mark.parametrize(
    ("change", "bad_line", "reason"),
    [
        (lambda t: t.replace(b'"n":2', b'"n":7'), 2, "checksum"),
        (lambda t: t.replace(b'"n":3', b'"n":7'), 3, "checksum"),
        (lambda t: t.replace(b'{"type":"t:put","n":2}', b"nonsense"), 2, "not a record"),
        (lambda t: t + b"\n", 4, "blank"),
        (lambda t: b"\n" + t, 1, "blank"),
        (lambda t: t.replace(b"\n", b"\n\n", 1), 2, "blank"),
        (lambda t: t.replace(b"\n", b"\r\n"), 1, "checksum"),
        (lambda t: b"\xef\xbb\xbf" + t, 1, "not a record"),
        (lambda t: t.replace(b'"n":2', b'"\xff":2'), 2, "UTF-8"),
        (lambda t: t + b"junk\n", 4, "not a record"),
        (lambda t: b"".join(t.splitlines(keepends=True)[:1]) + t, 2, "expected seq 2, found 1"),
        (lambda t: b"".join(t.splitlines(keepends=True)[::2]), 2, "expected seq 2, found 3"),
        (lambda t: b"".join(reversed(t.splitlines(keepends=True))), 1, "expected seq 1, found 3"),
        (lambda t: t[len(t) // 3 :], 1, "expected seq 1, found 2"),
    ],
)
def test_a_complete_line_that_is_wrong_is_damage_even_in_the_last_batch(change, bad_line, reason):
    error = refused(log_with(lambda chain: change(three(chain))))
    assert error.facts["line"] == bad_line
    assert error.facts["seq"] == bad_line
    assert reason in error.message


def test_a_wrong_number_is_damage_though_its_sum_is_right():
    error = refused(log_with(lambda chain: chained(chain, (1, PUT % 1), (3, PUT % 3), (4, PUT % 4))))
    assert "expected seq 2, found 3" in error.message


def test_other_alphabets_are_kept_and_bytes_that_are_none_are_damage_though_their_sum_is_right():
    fs = log_with(lambda chain: line(1, chain, '{"type":"t:put","s":"Zürich"}'.encode()))
    assert "Zürich".encode() in events(opened(fs))[0][1]
    bad = log_with(lambda chain: chained(chain, (1, PUT % 1), (2, b'{"type":"t:put","s":"\xfc"}'), (3, PUT % 3)))
    assert "UTF-8" in refused(bad).message


def test_a_line_without_end_is_refused_without_being_buffered_whole():
    fs = log_with(lambda chain: three(chain) + b"x" * (MAX_LINE + 2 * scan.CHUNK) + b"\n")
    error = refused(fs)
    assert "over" in error.message
    assert error.facts["line"] == 4


def test_a_run_of_nuls_longer_than_any_line_is_still_a_torn_tail():
    fs = log_with(lambda chain: three(chain) + bytes(MAX_LINE + 5000))
    assert numbers(opened(fs)) == [1, 2, 3]


def test_a_number_that_grows_by_a_digit_within_a_run_is_read():
    fs = log_with(lambda chain: chained(chain, *((n, PUT % n) for n in range(1, 1200))))
    assert numbers(opened(fs)) == list(range(1, 1200))


@pytest.mark.parametrize("chunk", [1, 7, 64, 300])
def test_how_much_is_read_at_once_changes_nothing(monkeypatch, chunk):
    monkeypatch.setattr(scan, "CHUNK", chunk)
    fs = log_with(lambda chain: three(chain)[:-9])
    assert numbers(opened(fs)) == [1, 2]
    bad = log_with(lambda chain: three(chain).replace(b'"n":2', b'"n":7'))
    assert refused(bad).facts["line"] == 2


def test_a_short_read_is_continued():
    fs = log_with(three)
    fs.shorten("read", 2, 5, times=200)
    assert numbers(opened(fs)) == [1, 2, 3]


def test_runs_begin_at_any_mark_and_end_at_the_given_byte():
    fs = log_with(three)
    segment = Segment(1, start_of(fs))
    whole = next(iter(runs(fs, segment, segment.marks[0])))
    second = whole.mark(1)
    part = next(iter(runs(fs, segment, second, whole.mark(2).offset)))
    assert (part.start, len(part.lines), part.end) == (second, 1, whole.mark(2))


def test_a_file_that_ends_before_its_durable_end_is_bad_not_over():
    fs = log_with(three)
    segment = Segment(1, start_of(fs))
    with pytest.raises(BadRecord, match="ends at byte"):
        list(runs(fs, segment, segment.marks[0], 10_000))


def test_the_judge_looks_at_pieces_between_multiples_of_the_sector():
    fs = log_with(lambda chain: three(chain) + b"x" * 100 + bytes(1024) + b"y\n")
    segment = Segment(1, start_of(fs))
    with pytest.raises(BadRecord) as caught:
        list(runs(fs, segment, segment.marks[0], last=True))
    assert is_torn(fs, caught.value)


def test_later_lines_too_long_to_be_records_prove_nothing_and_hide_nothing():
    def text(chain: int, *behind: tuple) -> bytes:
        made = chained(chain, (1, PUT % 1), (2, PUT % 2), (3, padded(chain)[1]))
        return made[:512] + bytes(512) + made[1024:] + b"y" * (MAX_LINE + 2 * scan.CHUNK) + b"\n" + chained(5, *behind)

    assert numbers(opened(log_with(text))) == [1, 2]
    assert refused(log_with(lambda chain: text(chain, (9, PUT % 9)))).facts["line"] == 3


def test_a_later_record_without_newline_proves_as_much():
    def text(chain: int) -> bytes:
        made = chained(chain, (1, PUT % 1), (2, PUT % 2), (3, padded(chain)[1]), (4, PUT % 4))
        return made[:512] + bytes(512) + made[1024:-1]

    assert refused(log_with(text)).facts["line"] == 3

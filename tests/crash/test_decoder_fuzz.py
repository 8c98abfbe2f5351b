"""Arbitrary bytes where a segment or a snapshot should be: a clean prefix or a typed refusal, and nothing else."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_damage import files, look, planted, small, with_snapshots
from witness import TINY, opened, recovered

from holdfast.errors import HoldfastError, StoreError
from holdfast.journal import repair, snapshots
from holdfast.journal.snapshots import BadSnapshot
from holdfast.journal.zstd import compressor

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
fuzzed = settings(
    max_examples=20_000 if SOAK else 250,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

FS, PATH, WITNESS = small(closed=False)
LOG = files(FS)[PATH]
LINES = LOG.splitlines(keepends=True)
WHOLE = [n for group in WITNESS.sent for n in group]
SNAP_FS, SNAPSHOTS, SNAP_WITNESS = with_snapshots()
PACKED = files(SNAP_FS)[SNAPSHOTS[-1]]
SNAP_SEQ = int(SNAPSHOTS[-1][10:30])
PLAIN = b"".join(snapshots.unpack(SNAP_FS, SNAPSHOTS[-1]))

#: Bytes with a taste for what a journal is made of.
PIECES = (
    *(b"\n", b"\0", b"\0" * 512, b"\r\n", b"\xff", b"\xef\xbb\xbf", b"{}\n", b"null", b"1e999", b"[" * 2000),
    *(b'{"seq":1,"event":{"type":"', b'"b":99', b',"more":true', b',"v":7', b',"sum":"00000000"}\n'),
)
tokens = st.sampled_from([*LINES, *(line[:-1] for line in LINES), *PIECES])
texts = st.lists(st.one_of(tokens, st.binary(max_size=40)), max_size=14).map(b"".join)


def prefixes() -> list[list[int]]:
    found = [[]]
    for group in WITNESS.sent:
        found.append(found[-1] + group)
    return found


def answer(fs) -> list[int] | None:
    """Open, read, check and plan a repair; None for a refusal."""
    repair.check(fs.image(), "store", TINY)
    with suppress(HoldfastError):
        recovered(opened(fs.image(), readonly=True))
    try:
        return look(fs)
    except StoreError:
        twin = fs.image()
        try:
            plan = repair.plan(twin, "store", TINY)
        except StoreError:
            return None
        plan.apply()
        assert look(twin) in prefixes()
        return None


@fuzzed
@given(texts)
@example(LOG)
@example(b"")
@example(LOG + LOG)
@example(LOG[:-1] + b"\0" * 600)
def test_any_bytes_as_a_segment_are_a_prefix_or_a_refusal(data):
    order = answer(planted(FS, PATH, data))
    assert order is None or order in prefixes()


@fuzzed
@given(texts)
@example(b"\0" * 4096)
@example(b"{")
def test_any_bytes_behind_a_good_log_are_cut_or_refused_and_cost_nothing_before_them(tail):
    order = answer(planted(FS, PATH, LOG + tail))
    assert order is None or order == WHOLE


@fuzzed
@given(st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_several_changed_bytes_never_give_a_wrong_state(changes):
    data = bytearray(LOG)
    for at, flip in changes:
        data[at] ^= flip
    order = answer(planted(FS, PATH, bytes(data)))
    assert order is None or order in prefixes()


@fuzzed
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda tail: PACKED[:-20] + tail)))
@example(b"")
@example(PACKED + PACKED)
def test_any_bytes_as_the_newest_snapshot_cost_nothing_but_replay(data):
    order = look(planted(SNAP_FS, SNAPSHOTS[-1], data))
    assert order == [n for group in SNAP_WITNESS.sent for n in group]


snapshot_lines = PLAIN.splitlines(keepends=True)
ENDS = (b"\n", b"]\n", b"],\n", b'"t":[\n', b"{}\n", b"{},\n", b'},"records":1}\n', b"[" * 5000)
rows = st.one_of(st.sampled_from([*snapshot_lines, *ENDS]), st.binary(max_size=20))
documents = st.lists(rows, max_size=12).map(b"".join)


@fuzzed
@given(documents)
@example(PLAIN)
@example(b"")
def test_any_text_in_a_snapshot_that_unpacks_well_is_whole_or_refused(text):
    """A right checksum does not make a document: its own count, order and end do."""
    packer = compressor()
    fs = planted(SNAP_FS, SNAPSHOTS[-1], packer.compress(text) + packer.flush())
    try:
        header, slices = snapshots.read(fs, SNAP_SEQ)
        rows = [row for _, part in slices for row in part]
    except BadSnapshot:
        return
    assert header.seq == SNAP_SEQ
    assert text.endswith(b'"records":%d}\n' % len(rows))


def test_a_frame_that_unpacks_without_end_is_refused_in_bounded_memory():
    packer = compressor()
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    assert len(bomb) < 100_000
    fs = planted(SNAP_FS, SNAPSHOTS[-1], bomb)
    _, slices = snapshots.read(SNAP_FS, SNAP_SEQ)
    assert list(slices)
    with pytest.raises(BadSnapshot, match="longer than"):
        snapshots.read(fs, SNAP_SEQ)

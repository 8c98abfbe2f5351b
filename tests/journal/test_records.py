from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from journal_kit import NOW, STAMP

from holdfast.errors import InvalidValue, RecordTooLarge
from holdfast.journal.records import (
    MAX_LINE,
    bodies,
    decode,
    encode_events,
    explain,
    first_chain,
    has_more,
    is_closing,
    is_good,
    seal,
    stamp,
    sum_of,
    tails,
    version_of,
    whole_records,
)


def build(groups, first: int, chain: int) -> tuple[bytes, int]:
    """A batch of groups: events, time, version."""
    lines: list[bytes] = []
    for events, ts, v in groups:
        lines += bodies(events, first + len(lines), tails(ts, first, v))
    return seal(lines, chain)


ID = "0123456789abcdef0123456789abcdef"
#: The contract's own three lines.
VECTOR = (
    b'{"seq":1,"event":{"type":"job:created","id":"p1","kind":"build"},"ts":"2026-02-05T10:11:12.000123Z","b":1,"more":true,"sum":"9b2e8fa0"}\n'
    b'{"seq":2,"event":{"type":"step:started","job_id":"p1","step":"build"},"ts":"2026-02-05T10:11:12.000123Z","b":1,"sum":"9da080dd"}\n'
    b'{"seq":3,"event":{"type":"step:completed","job_id":"p1","step":"build"},"ts":"2026-02-05T10:11:14.500000Z","b":3,"sum":"afeccd14"}\n'
)


def test_the_contracts_test_vector_is_what_we_write():
    first, chain = build(
        [
            (
                [
                    b'{"type":"job:created","id":"p1","kind":"build"}',
                    b'{"type":"step:started","job_id":"p1","step":"build"}',
                ],
                b"2026-02-05T10:11:12.000123Z",
                1,
            )
        ],
        1,
        first_chain(ID),
    )
    event = b'{"type":"step:completed","job_id":"p1","step":"build"}'
    second, chain = build([([event], b"2026-02-05T10:11:14.500000Z", 1)], 3, chain)
    assert first_chain(ID) == 0x7759B50E
    assert first + second == VECTOR
    assert chain == 0xAFECCD14


def test_the_contracts_test_vector_verifies_line_by_line():
    chain = 0x7759B50E
    for seq, line in enumerate(VECTOR.splitlines(), 1):
        assert is_good(line, seq, chain)
        chain = sum_of(line)
    assert [has_more(line) for line in VECTOR.splitlines()] == [True, False, False]


def test_a_reader_that_knows_only_seq_and_event_can_read_a_line():
    assert [(json.loads(line)["seq"], json.loads(line)["event"]["type"]) for line in VECTOR.splitlines()] == [
        (1, "job:created"),
        (2, "step:started"),
        (3, "step:completed"),
    ]


def test_keys_come_in_the_contracts_order_and_rare_ones_only_when_needed():
    text, _ = build([([b'{"type":"a:b"}'] * 2, STAMP, 7)], 40, 5)
    first, second = (list(json.loads(line)) for line in text.splitlines())
    assert first == ["seq", "event", "ts", "b", "more", "v", "sum"]
    assert second == ["seq", "event", "ts", "b", "v", "sum"]
    assert [version_of(line) for line in text.splitlines()] == [7, 7]
    assert has_more(text.splitlines()[0])
    assert version_of(VECTOR.splitlines()[0]) == 1


def test_what_an_event_says_is_not_taken_for_what_its_line_says():
    event = b'{"type":"a:b","more":true,"v":9,"x":{"a":1,"more":true,"v":9,"sum":"00000000"}}'
    text, _ = build([([event], STAMP, 1)], 1, 5)
    line = text[:-1]
    assert not has_more(line)
    assert version_of(line) == 1
    assert not is_closing(build([([b'{"type":"a:b","x":"journal:closed"}'], STAMP, 1)], 1, 5)[0][:-1])
    assert is_closing(build([([b'{"type":"journal:closed"}'], STAMP, 1)], 1, 5)[0][:-1])


def test_every_bit_of_a_line_is_covered():
    line = VECTOR.splitlines()[1]
    for at in range(len(line)):
        for bit in range(8):
            flipped = bytearray(line)
            flipped[at] ^= 1 << bit
            assert not is_good(bytes(flipped), 2, 0x9B2E8FA0), (at, bit)


def test_a_decoded_record_gives_number_time_version_and_raw_event():
    record = decode(VECTOR.splitlines()[2])
    assert (record.seq, record.v, record.more) == (3, 1, False)
    assert record.ts == datetime(2026, 2, 5, 10, 11, 14, 500000, tzinfo=UTC)
    assert record.event == b'{"type":"step:completed","job_id":"p1","step":"build"}'
    assert msgspec.json.decode(record.raw)["job_id"] == "p1"


def test_time_is_written_in_one_width_whatever_the_zone():
    assert stamp(NOW) == STAMP
    assert stamp(NOW.replace(microsecond=0)) == b"2026-02-05T10:11:12.000000Z"
    assert stamp(NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))) == STAMP


def test_a_time_without_zone_is_refused():
    with pytest.raises(InvalidValue, match="no time zone"):
        stamp(NOW.replace(tzinfo=None))


class Created(msgspec.Struct, tag="job:created", tag_field="type"):
    id: str


def test_structs_mappings_and_encoded_objects_give_the_same_bytes():
    raw = b'{"type":"job:created","id":"p1"}'
    assert encode_events([Created("p1"), {"type": "job:created", "id": "p1"}, raw]) == [raw, raw, raw]


@pytest.mark.parametrize(
    "bad",
    [
        {"id": "p1", "type": "a:b"},
        {"type": "nocolon"},
        {"type": "A:b"},
        {"type": 5},
        b"[1]",
        b"",
        b"{}",
        b'{"type":"a:b"',
        b'{"type":"a:b","x":1}\n',
        b'{"type":"a:b",\n"x":1}',
        b'"type"',
        msgspec.Raw(b'{"type":"a:b",\n"x":1}'),
    ],
)
def test_what_is_not_an_event_on_one_line_is_refused(bad):
    with pytest.raises(InvalidValue):
        encode_events([{"type": "a:b"}, bad])


def test_an_empty_group_is_refused():
    with pytest.raises(InvalidValue, match="at least one"):
        encode_events([])


def test_a_record_that_fits_no_line_is_refused_before_anything_is_buffered():
    with pytest.raises(RecordTooLarge) as caught:
        encode_events([b'{"type":"a:b","x":"' + b"y" * MAX_LINE + b'"}'])
    assert caught.value.facts["limit"] == MAX_LINE


def test_the_largest_event_accepted_makes_a_line_the_reader_accepts():
    event = b'{"type":"a:b","x":"' + b"y" * (MAX_LINE - 256 - 21) + b'"}'
    assert len(event) == MAX_LINE - 256
    assert encode_events([event]) == [event]
    text, _ = build([([event, event], STAMP, 10**9)], 10**19, 5)
    assert max(map(len, text.splitlines(keepends=True))) <= MAX_LINE


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank"),
        (b"\0\0\0", "NUL"),
        (b"\xff\xfe", "UTF-8"),
        (b"nonsense", "not a record"),
        (b'{"seq":2}', "not a record"),
        (b"[" * 5000, "not a record"),
        (VECTOR.splitlines()[0], "expected seq 2, found 1"),
        (VECTOR.splitlines()[1].replace(b"p1", b"p2"), "checksum"),
        (VECTOR.splitlines()[1] + b" ", "checksum"),
    ],
)
def test_a_bad_line_is_explained(line, reason):
    assert reason in explain(line, 2, 0x9B2E8FA0)


def test_whole_records_are_found_at_the_start_of_a_longer_text():
    line = VECTOR.splitlines()[1]
    assert list(whole_records(line + b"\x0b" + line, 2, 0x9B2E8FA0)) == [len(line)]
    assert list(whole_records(line[:-1], 2, 0x9B2E8FA0)) == []

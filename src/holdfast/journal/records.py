"""One record, one line: how it is built, checked and decoded.

Knows bytes and the chain of sums; no file, no thread, no clock. A line is

    {"seq":7,"event":{"type":"ns:name",…},"ts":"…Z","b":5,"more":true,"v":2,"sum":"9b2e8fa0"}

with `more` only inside a group and `v` only when it is not 1. The sum covers everything before it and continues the
sum of the line before, so a changed, missing, doubled, moved or foreign line breaks the chain from there on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NoReturn
from zlib import crc32

import msgspec

from holdfast.errors import InvalidValue, RecordTooLarge

#: Bytes of the longest line, newline included. A reader buffers no more than this before it calls a line bad.
MAX_LINE = 16 * 1024 * 1024
#: Everything in a line but the event: numbers of 20 digits, time, keys.
_ENVELOPE = 256
_MAX_EVENT = MAX_LINE - _ENVELOPE
_BRACE = ord("}")
#: `,"sum":"xxxxxxxx"}`
SUM_SIZE = 18
#: The shortest text between event and sum has 41 bytes; `more` and `v` are looked for in its last 40 only.
_TAIL = slice(-SUM_SIZE - 40, -SUM_SIZE)

_TYPE = re.compile(rb'\{"type":"[a-z][a-z0-9_.-]*:[a-z][a-z0-9_.-]*"[,}]')
#: Beginnings of events that fit `_TYPE`; the types of a program are few, and a look-up is cheaper than a match.
_known: set[bytes] = set()
_KNOWN_MAX = 4096
#: Structs whose tag is such a beginning, so that each of their events has it.
_kinds: set[type] = set()

_encode = msgspec.json.Encoder().encode


class Record(msgspec.Struct, frozen=True, gc=False, rename={"raw": "event"}):
    """One verified record. What serves recovery only, the batch and the sum, stays in the line."""

    seq: int
    #: The event's JSON where it lies in the line; `event` gives it as bytes. Decoders take either.
    raw: msgspec.Raw
    #: UTC; never lower than that of the record before.
    ts: datetime
    #: The next record belongs to the same group.
    more: bool = False
    #: Schema version of the event.
    v: int = 1

    @property
    def event(self) -> bytes:
        """The event as JSON."""
        return bytes(self.raw)


decode = msgspec.json.Decoder(Record).decode


class Batch(msgspec.Struct, gc=False):
    """What a line says about the batch it was written in, readable even where its sum is wrong."""

    #: The first record of the batch: every record below it had been synced.
    b: int


decode_batch = msgspec.json.Decoder(Batch).decode


def first_chain(journal_id: str) -> int:
    """Give the value before record 1."""
    return crc32(journal_id.encode("ascii"))


def stamp(ts: datetime) -> bytes:
    """Write a time in the journal's fixed width: UTC, microseconds, `Z`."""
    if ts.tzinfo is not UTC:
        if ts.tzinfo is None:
            raise InvalidValue(f"ts={ts!r} has no time zone. Nothing was stored.", hint="Use an aware UTC datetime.")
        ts = ts.astimezone(UTC)
    return ts.isoformat(timespec="microseconds")[:26].encode() + b"Z"


def encode_events(events: Iterable[object]) -> list[bytes]:
    """Encode the events of a group and check each: an object, its type first, one line, not too long.

    Bytes are taken as the JSON they are. What they hold beyond that is the business of whoever encoded them.
    """
    encoded: list[bytes] = []
    for event in events:
        raw = event if type(event) is bytes else _encode(event)
        if type(event) not in _kinds and raw[: raw.find(b'"', 9)] not in _known:
            _learn(event, raw)
        if b"\n" in raw or raw[-1] != _BRACE or len(raw) > _MAX_EVENT:
            _refuse(raw)
        encoded.append(raw)
    if not encoded:
        raise InvalidValue("A group needs at least one event. Nothing was stored.")
    return encoded


def _refuse(event: bytes) -> NoReturn:
    if len(event) > _MAX_EVENT:
        raise RecordTooLarge(
            f"An event of {len(event):,} bytes does not fit a line of {MAX_LINE:,}. Nothing was stored.",
            hint="Keep large payloads as blobs and refer to them.",
            size=len(event),
            limit=MAX_LINE,
        )
    raise InvalidValue("An event must be one JSON object on one line. Nothing was stored.")


def _learn(event: object, raw: bytes) -> None:
    """Look at the beginning of an event, and remember it if it is right."""
    if _TYPE.match(raw) is None:
        raise InvalidValue(f'An event must begin {{"type":"ns:name"; this one begins {raw[:40]!r}. Nothing was stored.')
    if isinstance(event, msgspec.Struct) and event.__struct_config__.tag_field == "type":
        _kinds.add(type(event))
    elif len(_known) < _KNOWN_MAX:
        _known.add(raw[: raw.find(b'"', 9)])


def tails(ts: bytes, first: int, v: int) -> tuple[bytes, bytes]:
    """Give what follows the events of a group in a batch that begins with record `first`: within it, and at its end."""
    version = b"" if v == 1 else b',"v":%d' % v
    stem = b',"ts":"%b","b":%d' % (ts, first)
    return stem + b',"more":true' + version, stem + version


def bodies(events: list[bytes], seq: int, tail: tuple[bytes, bytes]) -> list[bytes]:
    """Write the lines of a group whose first record has number `seq`, up to their sums."""
    inner, last = tail
    made = [b'{"seq":%d,"event":%b%b' % (n, event, inner) for n, event in enumerate(events[:-1], seq)]
    made.append(b'{"seq":%d,"event":%b%b' % (seq + len(made), events[-1], last))
    return made


def seal(batch: list[bytes], chain: int) -> tuple[bytes, int]:
    """Add the sums to the lines of a batch; gives its bytes and the sum of its last line."""
    parts: list[bytes] = []
    add = parts.append
    for body in batch:
        chain = crc32(body, chain)
        add(body)
        add(b',"sum":"%08x"}\n' % chain)
    return b"".join(parts), chain


def is_good(line: bytes, seq: int, chain: int) -> bool:
    """Tell whether a line without its newline is record `seq` after a record whose sum is `chain`."""
    return line.startswith(b'{"seq":%d,"event":{"type":"' % seq) and line[-SUM_SIZE:] == b',"sum":"%08x"}' % crc32(
        line[:-SUM_SIZE], chain
    )


def sum_of(line: bytes) -> int:
    """Read the sum of a good line."""
    return int(line[-10:-2], 16)


def has_more(line: bytes) -> bool:
    """Tell whether the next line belongs to the same group."""
    return b',"more":true' in line[_TAIL]


def version_of(line: bytes) -> int:
    """Read the schema version of a good line's event."""
    _, found, digits = line[_TAIL].rpartition(b',"v":')
    return int(digits) if found else 1


def is_closing(line: bytes) -> bool:
    """Tell whether this line says that the journal was closed in order."""
    return line[: line.find(b'"', line.find(b'"type":"') + 8)].endswith(b'"type":"journal:closed')


def whole_records(text: bytes, seq: int, chain: int) -> Iterator[int]:
    """Find where record `seq` might be whole at the start of a bad line; gives the length of each that verifies."""
    for match in re.finditer(rb',"sum":"[0-9a-f]{8}"\}', text):
        if is_good(text[: match.end()], seq, chain):
            yield match.end()


def explain(line: bytes, seq: int, chain: int) -> str:
    """Say what is wrong with a bad line."""
    if not line:
        return "a blank line"
    if not line.strip(b"\0"):
        return "nothing but NUL bytes"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start} of the line"
    try:
        found = decode(line)
    except (ValueError, RecursionError) as error:
        return f"not a record ({error})"
    if found.seq != seq:
        return f"expected seq {seq}, found {found.seq}"
    if line[-SUM_SIZE:] != b',"sum":"%08x"}' % crc32(line[:-SUM_SIZE], chain):
        return "checksum differs"
    return "not in the form the journal writes"

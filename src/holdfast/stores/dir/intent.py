"""The intent: one commit as a file. Its rename, with the sync of its directory, is the commit.

It holds the events and what they make of the files, told absolutely: the same intent applied twice gives the same
files. A wrong sum cannot be a torn write, since the file was synced before it got its name; it is damage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from holdfast.errors import StoreDamaged
from holdfast.model.times import Timestamp
from holdfast.stores.dir.format.record_files import INTENT, STATES

FORMAT = 1
_NAME = re.compile(r"[0-9]{16}")
#: Where effects may write: a directory of records, below it one of its shares; or one of an instance.
_SHELF = r"(?:[a-z]+(?:/[a-z]+)?(?:/[0-9a-f]{2})?)?"
_INSTANCE = r"instances/[a-z0-9%_~-][a-z0-9._%~-]*"
_EXECUTION = _INSTANCE + r"/executions/[0-9]+"
_FOLDER = re.compile(f"{_SHELF}|{_INSTANCE}|{_EXECUTION}")
#: What may be moved to the trash, and have a history.
_WHOLE = re.compile(f"{_INSTANCE}|{_EXECUTION}")
_HISTORY = re.compile(_EXECUTION)


class Image(msgspec.Struct, frozen=True, tag_field="do", tag="put", gc=False):
    """A file that is to be there with this content."""

    folder: str
    name: str
    #: Never put over a file with a higher one.
    seq: int
    record: msgspec.Raw


class Drop(msgspec.Struct, frozen=True, tag_field="do", tag="drop", gc=False):
    """A file that is to be gone."""

    folder: str
    name: str


class Append(msgspec.Struct, frozen=True, tag_field="do", tag="append", gc=False):
    """Lines that are to be the end of a history, behind so many bytes."""

    #: Of the execution.
    folder: str
    #: Not done again where the execution's own file has this number already.
    seq: int
    offset: int
    lines: list[msgspec.Raw]


class Trash(msgspec.Struct, frozen=True, tag_field="do", tag="trash", gc=False):
    """A directory that is to be gone, with all in it: moved to the trash under this name, and swept later."""

    folder: str
    name: str


Effect = Image | Drop | Append | Trash


class Told(msgspec.Struct, frozen=True, gc=False):
    """One event, as the feed will have it."""

    seq: int
    ts: Timestamp
    event: msgspec.Raw


class Body(msgspec.Struct, frozen=True, gc=False):
    """What a commit does, and what it tells."""

    effects: list[Effect]
    events: list[Told]


class _File(msgspec.Struct, frozen=True):
    format: int
    first: int
    last: int
    #: CRC-32 of the body as it stands in the file, eight hex digits.
    crc: str
    body: msgspec.Raw


class Intent(NamedTuple):
    """A commit and its numbers."""

    first: int
    last: int
    body: Body

    @property
    def name(self) -> str:
        """Its name, without the ending."""
        return f"{self.last:016}"


_encode = msgspec.json.Encoder().encode
_file = msgspec.json.Decoder(_File)
_body = msgspec.json.Decoder(Body)


def intent_of(events: Sequence[Told], effects: list[Effect]) -> Intent:
    """Make the intent of a batch."""
    return Intent(events[0].seq, events[-1].seq, Body(effects, list(events)))


def written(intent: Intent) -> bytes:
    """Give the bytes of an intent's file."""
    body = _encode(intent.body)
    return _encode(_File(FORMAT, intent.first, intent.last, f"{crc32(body):08x}", msgspec.Raw(body))) + b"\n"


def is_intent(stem: str) -> bool:
    """Tell whether a stem is the name of an intent."""
    return _NAME.fullmatch(stem) is not None


def read(root: str, stem: str, text: bytes) -> Intent:
    """Read an intent. Raises StoreDamaged, naming the file and the way out."""
    try:
        found = _file.decode(text)
        if found.format != FORMAT:
            raise _damaged(root, stem, f"format {found.format} is not known")
        if f"{crc32(found.body):08x}" != found.crc:
            raise _damaged(root, stem, "its checksum differs")
        body = _body.decode(found.body)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise _damaged(root, stem, str(problem)) from None
    intent = Intent(found.first, found.last, body)
    numbers = [told.seq for told in body.events]
    if intent.name != stem or numbers != list(range(intent.first, intent.last + 1)):
        raise _damaged(root, stem, "its numbers do not fit")
    if not all(_is_ours(effect) for effect in body.effects):
        raise _damaged(root, stem, "it names a place that is none of a record's")
    return intent


def _is_ours(effect: Effect) -> bool:
    if isinstance(effect, Append):
        return _HISTORY.fullmatch(effect.folder) is not None and effect.offset >= 0
    where = _WHOLE if isinstance(effect, Trash) else _FOLDER
    return where.fullmatch(effect.folder) is not None and "/" not in effect.name and effect.name[:1] != "."


def _damaged(root: str, stem: str, reason: str) -> StoreDamaged:
    file = f"{root}/data/{INTENT}/{stem}.json"
    return StoreDamaged(
        f"{file}: {reason}. Nothing was changed.",
        hint=f"Run `holdfast store repair dir:{root}`, which sets it aside, or restore it from a copy of the store.",
        file=file,
        reason=reason,
    )


def is_state(folder: str) -> bool:
    """Tell whether a directory holds jobs."""
    return any(folder == state or folder.startswith(f"{state}/") for state in STATES)

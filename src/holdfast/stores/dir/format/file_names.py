"""Names of files: how an id becomes one, and back. Knows no file and no record.

Lower-case letters, digits and `. _ -` stay; every other byte of the id, capitals included, becomes `%xx`. So different
ids never share a name, also where the file system knows no case or normalises what it is given, and no id can leave its
directory. What would be too long ends in the id's hash, and the id is then read from inside the file.
"""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import unquote_to_bytes

#: Bytes of a name without its ending; longer ones are cut to `CUT` and end in the hash.
LONGEST, CUT = 200, 120
#: Ends every record's name.
ENDING = ".json"
#: Begins the name of a file that is being written. A comma follows in those of this store: no job's name has one, so
#: a producer that writes `.tmp-<id>.json` beside its file, as document 000 does, keeps its draft.
DRAFT = ".tmp-"
OWN_DRAFT = f"{DRAFT},"
#: Stands between the parts of a key of two parts.
COMMA = ","

_ODD = re.compile(r"[^a-z0-9._-]")
#: What Windows takes for a device, with whatever ending.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)")
#: Names that are their ids.
_PLAIN = re.compile(r"[a-z0-9_-](?:[a-z0-9._-]*[a-z0-9_-])?")
_SHARED = re.compile(r"[0-9a-f]{2}")


def encoded(text: str) -> str:
    """Write an id with the characters that are safe in every name; however long."""
    name = _ODD.sub(_escaped, text)
    if name.endswith("."):
        name = f"{name[:-1]}%2e"
    if name.startswith(".") or _DEVICE.match(name):
        name = f"%{ord(name[0]):02x}{name[1:]}"
    return name


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode())


def name_of(key: str) -> str:
    """Give the name of the record with that key; its parts, if it has several, are joined by U+0000 in the key."""
    name = COMMA.join(map(encoded, key.split("\0"))) if "\0" in key else encoded(key)
    if len(name) <= LONGEST:
        return name
    head = name[:CUT]
    if "%" in head[-2:]:  # half an escape
        head = head[: head.rindex("%")]
    return f"{head}~{sha256(key.encode()).hexdigest()}"


def id_in(stem: str) -> str | None:
    """Read a stem as an id, whoever wrote it; None if it is none, or does not tell it."""
    if "~" in stem:
        return None
    try:
        return unquote_to_bytes(stem).decode()
    except UnicodeError:
        return None


def is_canonical(stem: str) -> bool:
    """Tell whether a stem may be a name of ours."""
    if _PLAIN.fullmatch(stem) and not _DEVICE.match(stem):  # nearly all are
        return len(stem) <= LONGEST
    text = id_in(stem)
    return "~" in stem if text is None else name_of(text) == stem


def share_of(job_id: str) -> str:
    """Give the directory below a crowded one that a job's file belongs to."""
    return sha256(job_id.encode()).hexdigest()[:2]


def is_share(name: str) -> bool:
    """Tell whether a name is that of such a directory."""
    return _SHARED.fullmatch(name) is not None


def no_text(name: str) -> str | None:
    """Give, in a form that can be shown, the name of a file that would be a record's if it were text; else None."""
    if name.startswith(".") or not name.endswith(ENDING):
        return None
    shown = name.encode(errors="backslashreplace").decode()
    return None if shown == name else shown


def is_draft(name: str, *, shared: bool) -> bool:
    """Tell whether a name is that of a draft this store may remove; in a `shared` directory others have drafts, too."""
    return name.startswith(OWN_DRAFT if shared else DRAFT)


def stem_of(name: str) -> str | None:
    """Give the stem of a record's file; None for what is none: drafts, editors' leftovers, names that are no text."""
    if name.startswith(".") or not name.endswith(ENDING) or len(name) == len(ENDING):
        return None
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    return name[: -len(ENDING)]

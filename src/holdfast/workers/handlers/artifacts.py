"""Taking an artifact: look at a file once, hash it, and copy it while it is small enough.

What is recorded is what was read: the name, size and hash of one pass over the file, whatever happens to it later.
"""

from __future__ import annotations

import mimetypes
import os
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from holdfast.errors import InvalidValue
from holdfast.model.artifacts import Artifact

#: Bytes up to which a file is copied into the store; a larger one stays where it is.
MAX_COPIED = 16 << 20
#: Artifacts of one run.
MAX_ARTIFACTS = 200
#: Characters of a name, and of a media type.
MAX_NAME = 200
_STEP = 1 << 20


def take(path: str, name: str | None, media_type: str | None, put: Callable[[bytes], str]) -> Artifact:
    """Read the file at `path`; `put` keeps its content if it is small. Raises InvalidValue for what is no file."""
    title = Path(path).name if name is None else name
    kind = media_type or mimetypes.guess_type(title)[0] or "application/octet-stream"
    for field, text in (("name", title), ("media_type", kind)):
        if not 0 < len(text) <= MAX_NAME or not text.isprintable():
            raise InvalidValue(f"artifact: the {field} {text!r:.80} cannot be kept.", field=field)
    if "/" in title or title in (".", ".."):
        raise InvalidValue(
            f"artifact: the name {title!r:.80} is a path; it was not kept.",
            hint="Name it as a file in any folder could be.",
            field="name",
        )
    if not path.isprintable():
        # Undecodable bytes, too: no record could hold them.
        raise InvalidValue(f"artifact: {path!r:.200} is no path that can be recorded.", field="path")
    try:
        # Not blocking: a pipe nobody writes to would hold the handler for good.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as problem:
        raise InvalidValue(f"artifact: {path!r:.200} cannot be read: {problem}.", field="path") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise InvalidValue(f"artifact: {path!r:.200} is not a file.", field="path")
    with os.fdopen(fd, "rb") as file:
        content = file.read(MAX_COPIED + 1)
        if len(content) <= MAX_COPIED:
            return Artifact(title, len(content), put(content), kind)
        size, sums = len(content), sha256(content)
        while chunk := file.read(_STEP):
            size += len(chunk)
            sums.update(chunk)
    return Artifact(title, size, sums.hexdigest(), kind, str(Path(path).absolute()))

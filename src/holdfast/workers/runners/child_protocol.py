"""What a worker and its child process say to each other: one JSON object a line, each way."""

from __future__ import annotations

import msgspec

from holdfast.model.artifacts import Artifact
from holdfast.model.logs import Stream
from holdfast.model.outcomes import Grant
from holdfast.model.workers import Progress
from holdfast.workers.handlers.outcome import Outcome
from holdfast.workers.task_registry import Origin


class Request(msgspec.Struct, frozen=True):
    """To the child: a handler to run."""

    origin: Origin
    grant: Grant
    memory_limit: int | None


class Reply(msgspec.Struct, frozen=True, tag=True):
    """From the child: what became of it."""

    outcome: Outcome
    #: The process should not be used again: it was told to end, or the handler left children behind.
    spent: bool


class Said(msgspec.Struct, frozen=True, tag=True):
    """From the child: lines of the handler."""

    stream: Stream
    level: str
    text: str


class Advanced(msgspec.Struct, frozen=True, tag=True):
    """From the child: how far the handler is."""

    progress: Progress


class Keep(msgspec.Struct, frozen=True, tag=True):
    """From the child: a file to keep. The handler waits for the answer, as it may then remove the file."""

    path: str
    name: str | None
    media_type: str | None


class Kept(msgspec.Struct, frozen=True, tag=True):
    """To the child: the file is kept."""

    artifact: Artifact


class NotKept(msgspec.Struct, frozen=True, tag=True):
    """To the child: it is not, and why; `code` names an exception of the error tree."""

    code: str
    message: str


Message = Reply | Said | Advanced | Keep

"""Failures as data: what travels, is stored and is shown when the work of a workflow did not succeed.

Knows no exception class: names and texts only. `holdfast.workflows.api.error_conversion` turns exceptions into these
and back.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Category(StrEnum):
    """Whose trouble it is."""

    #: The user's code raised.
    APPLICATION = "Application"
    #: The world failed.
    INFRASTRUCTURE = "Infrastructure"
    #: Code and history, or code and registration, do not fit.
    CONFIGURATION = "Configuration"
    #: It was delivered too often without ever being answered.
    POISON = "Poison"


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One failure."""

    category: Category
    #: What kind of failure, in one word: `Error`, `Encoding`, `Cancelled`, `Timeout`, `Dead`, …
    kind: str
    message: str
    retryable: bool = False
    #: The exception's class, `module.Name`; a builtin one by its bare name.
    type_name: str | None = None
    #: The classes above it, nearest first, by the same names.
    type_bases: tuple[str, ...] = ()
    #: JSON text: the list of the exception's arguments; one that is not JSON stands there as the text of its repr.
    args: str | None = None
    #: The exception as Python shows it, if some of its arguments are not JSON.
    repr: str | None = None
    traceback: str | None = None
    #: What was being done, and to what.
    operation: str | None = None
    resource: str | None = None
    attempt_count: int | None = None
    max_attempts: int | None = None
    #: JSON text with more facts. Of an exception group: `{"members": […]}`, each an ErrorDetails.
    data: str | None = None
    cause: ErrorDetails | None = None


#: Words for `kind` that the runtime itself gives a meaning.
ERROR = "Error"
ENCODING = "Encoding"
CANCELLED = "Cancelled"
TIMEOUT = "Timeout"
DEAD = "Dead"
EXISTS = "AlreadyExists"
INPUT = "Input"
NONDETERMINISM = "Nondeterminism"
CODE_ERROR = "CodeError"
CORRUPT = "HistoryCorrupt"

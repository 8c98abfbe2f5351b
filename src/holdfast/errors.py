"""Every error Holdfast raises, in one tree. A leaf: it imports no room.

    HoldfastError          .code: its name in snake_case, the same word in HTTP, CLI and replies; .hint: the next step
    ├─ UsageError          yours to fix; nothing was stored                                          exit 2
    │  ├─ InvalidValue (a ValueError too) · InvalidArguments (a TypeError too) · AmbiguousId · MissingExtra
    │  ├─ PayloadTooLarge ─ RecordTooLarge
    │  └─ UnknownTask · WorkflowNotAllowed · NondeterminismError · WorkflowCodeError · TurnTimeout
    ├─ Refused             understood, but not so, not now or not you; nothing changed               exit 6
    │  ├─ NotFound                                                                                   exit 3
    │  │    ─ JobNotFound · RunNotFound · QueueNotFound · TemplateNotFound · ScheduleNotFound · GroupNotFound
    │  │      · ReservationNotFound · WebhookNotFound · DeliveryNotFound · WorkerNotFound · WorkflowNotFound
    │  │      · DecisionNotFound
    │  ├─ InvalidOperation · VersionConflict · DuplicateKey · IdReused
    │  ├─ LeaseLost · UnknownLease · AlreadyReported
    │  ├─ ReservationConflict · ReservationTimeout (a TimeoutError too)
    │  ├─ WorkflowAlreadyStarted · WorkflowFinished · DecisionClosed
    │  └─ Unauthorized · Forbidden · TooManyRequests
    ├─ StoreError          the world failed; what was acknowledged is safe                           exit 7
    │  ├─ StoreLocked      another process has it                                                    exit 6
    │  ├─ StoreBusy · StoreFull · StoreFailed · StoreReadOnly · StoreClosed · ShuttingDown · WouldLoseData
    │  ├─ TooNew · NoPath · MigrationFailed
    │  ├─ StoreDamaged ─ JournalDamaged · SnapshotDamaged · LogMissing · BlobMissing · UnknownEvent · BadEvent
    │  │                 · CorruptState · HistoryCorrupt
    │  └─ ProviderError    all that the provider face raises; .retryable; its cause is one of the names above
    └─ WorkFailed          from `.result()`, and inside workflows                                    exit 1
       ├─ JobFailed · JobDead · JobCancelled (exit 4)
       ├─ ActivityError ─ ActivityTimeout (a TimeoutError too) · ActivityCancelled · ActivityDead
       ├─ StepError · ChildError ─ ChildCancelled
       └─ WorkflowFailed · WorkflowCancelled (exit 4)

A message says what happened, to which thing, what did not happen, and the next step. `facts` carries the ids and places
by name, so that no caller ever reads them out of the text.
"""

from __future__ import annotations

import re
from typing import ClassVar

#: code → class, for turning a refusal that travelled as data back into its exception.
BY_CODE: dict[str, type[HoldfastError]] = {}


class HoldfastError(Exception):
    """Any error of Holdfast."""

    #: The class name in snake_case; the word used in HTTP, CLI and replies.
    code: ClassVar[str] = "holdfast_error"
    #: What the command line exits with.
    exit_code: ClassVar[int] = 70
    #: What to do when the raiser did not say anything better.
    default_hint: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Name the class for the outside and make it findable by that name."""
        super().__init_subclass__(**kwargs)
        cls.code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        BY_CODE[cls.code] = cls

    def __init__(self, message: str, *, hint: str | None = None, **facts: object) -> None:
        """Say what happened; `facts` are the ids and places the message names."""
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.facts = facts

    def __str__(self) -> str:
        """Give the message, then the next step."""
        return f"{self.message} {self.hint}".rstrip()


def class_name(kind: type) -> str:
    """Give the name by which records speak of an exception class: builtin ones bare, others with their module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- yours to fix; nothing was stored ---------------------------------------------------------------------------------


class UsageError(HoldfastError):
    """The call itself is wrong; nothing was stored."""

    exit_code = 2


class InvalidValue(UsageError, ValueError):
    """A value is outside what its field accepts."""


class InvalidArguments(UsageError, TypeError):
    """The arguments do not fit the task's signature."""


class AmbiguousId(UsageError):
    """An id prefix fits more than one record."""


class MissingExtra(UsageError):
    """The command needs an optional dependency that is not installed."""


class PayloadTooLarge(UsageError):
    """A payload is larger than the store takes."""


class RecordTooLarge(PayloadTooLarge):
    """One record would not fit a line of the journal."""


class UnknownTask(UsageError):
    """No task of that name is registered."""


class WorkflowNotAllowed(UsageError):
    """A workflow did something that cannot be replayed."""


class NondeterminismError(UsageError):
    """A workflow's code no longer does what its history says it did.

    Its facts: instance, execution_id, event_id, recorded, found, location.
    """

    default_hint = 'If the change is meant, guard it with hf.patched("…") or register a new version.'

    def __init__(self, message: str, *, hint: str | None = None, **facts: object) -> None:
        """Say what differs; the facts can be read by name, too."""
        super().__init__(message, hint=hint, **facts)
        self.instance = str(facts.get("instance", ""))
        self.execution_id = int(str(facts.get("execution_id", 0)))
        #: The first event that differs.
        self.event_id = int(str(facts.get("event_id", 0)))
        self.recorded = str(facts.get("recorded", ""))
        self.found = str(facts.get("found", ""))
        #: Where in the code, if that is known.
        self.location = str(facts.get("location", ""))

    def __str__(self) -> str:
        """Give both sides, each on its line, then the next step on its own."""
        return f"{self.message}\n  {self.hint}" if "\n" in self.message else super().__str__()


class WorkflowCodeError(UsageError):
    """A workflow's code has an error, such as a NameError; its run is blocked until other code gets further.

    Its facts: instance, execution_id, type_name.
    """

    default_hint = "Deploy code that gets further, or end the run with `holdfast workflows fail`."

    def __str__(self) -> str:
        """Give the message with its traceback, then the next step on its own line."""
        return f"{self.message}\n  {self.hint}" if "\n" in self.message else super().__str__()


class TurnTimeout(UsageError):
    """A workflow turn ran too long without giving up control."""

    def __init__(
        self,
        message: str = "the turn took too long without a running step; it is broken off.",
        *,
        hint: str | None = None,
        **facts: object,
    ) -> None:
        """Say what happened; without words where it is raised in the thread of a turn, as nobody can give any there."""
        super().__init__(message, hint=hint, **facts)


# --- understood, but not so, not now or not you; nothing changed ------------------------------------------------------


class Refused(HoldfastError):
    """Understood, but refused; nothing changed."""

    exit_code = 6


class NotFound(Refused):
    """The thing named does not exist."""

    exit_code = 3


class JobNotFound(NotFound):
    """No job has that id."""


class RunNotFound(NotFound):
    """No run has that id."""


class QueueNotFound(NotFound):
    """No queue has that name."""


class TemplateNotFound(NotFound):
    """No template has that name or id."""


class ScheduleNotFound(NotFound):
    """No schedule has that name or id."""


class GroupNotFound(NotFound):
    """No group has that id."""


class ReservationNotFound(NotFound):
    """No reservation has that id."""


class WebhookNotFound(NotFound):
    """No webhook has that id."""


class DeliveryNotFound(NotFound):
    """No webhook delivery has that id."""


class WorkerNotFound(NotFound):
    """No worker has that id."""


class WorkflowNotFound(NotFound):
    """No workflow instance has that id."""


class DecisionNotFound(NotFound):
    """No decision has that id."""


class InvalidOperation(Refused):
    """The thing is not in a state that allows this."""


class VersionConflict(Refused):
    """The record was changed since it was read."""


class DuplicateKey(Refused):
    """Another job holds the key."""


class IdReused(Refused):
    """The id was used before, with other content."""

    default_hint = "Use a new id, or send exactly what was sent the first time."


class LeaseLost(Refused):
    """The lease is no longer this worker's; the work must be discarded."""

    default_hint = "Discard the work; another run owns the job now."


class UnknownLease(Refused):
    """The token was never granted for this job."""


class AlreadyReported(Refused):
    """This lease already ended with another outcome."""


class ReservationConflict(Refused):
    """The queue is reserved by someone else."""


class ReservationTimeout(Refused, TimeoutError):
    """The queue did not become free in time."""


class WorkflowAlreadyStarted(Refused):
    """An instance with this id exists, with other input."""


class WorkflowFinished(Refused):
    """The instance has ended."""


class DecisionClosed(Refused):
    """The decision was answered or has expired."""


class Unauthorized(Refused):
    """No access token, or one that is not known."""


class Forbidden(Refused):
    """The access token's roles do not allow this."""


class TooManyRequests(Refused):
    """The access token sent more than its share."""


# --- the world failed; what was acknowledged is safe ------------------------------------------------------------------


class StoreError(HoldfastError):
    """The store could not do its part; what was acknowledged is safe."""

    exit_code = 7


class StoreLocked(StoreError):
    """Another process holds the store."""

    exit_code = 6


class StoreBusy(StoreError):
    """The store stayed busy for too long; nothing was written."""


class StoreFull(StoreError):
    """The disk is full; nothing more is acknowledged until there is space."""


class StoreFailed(StoreError):
    """A write or sync failed; the outcome of what was in flight is unknown until the store is reopened."""

    default_hint = "Reopen the store, then send the same command again: it gives the first outcome."


class StoreReadOnly(StoreError):
    """The store was opened for reading, or lies on a read-only file system."""


class StoreClosed(StoreError):
    """The store was closed."""


class ShuttingDown(StoreError):
    """The process is stopping and takes no more work."""


class WouldLoseData(StoreError):
    """The step would remove what no verified snapshot covers."""


class TooNew(StoreError):
    """The store was written by a newer version."""


class NoPath(StoreError):
    """No migration leads from the store's version to this one."""


class MigrationFailed(StoreError):
    """A migration raised; no byte was changed."""


class StoreDamaged(StoreError):
    """Acknowledged data is damaged; it is named, never skipped."""


class JournalDamaged(StoreDamaged):
    """The log is damaged where it had been acknowledged."""


class SnapshotDamaged(StoreDamaged):
    """No snapshot can be read that the log reaches back to."""


class LogMissing(StoreDamaged):
    """The log ends before its snapshot, or is gone."""


class BlobMissing(StoreDamaged):
    """Content that was named by its hash is not there."""

    default_hint = "Run `holdfast store check`; restore the content from a copy of the store."


class UnknownEvent(StoreDamaged):
    """The log holds an event of a type this version does not know."""


class BadEvent(StoreDamaged):
    """The log holds an event that lacks a required field."""


class CorruptState(StoreDamaged):
    """Two facts contradict each other; only damage or a bug can cause this."""


class HistoryCorrupt(StoreDamaged):
    """One workflow instance's history cannot be read."""


class ProviderError(StoreError):
    """What the provider face raises. Whoever may try again later is told so by `retryable`."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        operation: str = "",
        retryable: bool = False,
        **facts: object,
    ) -> None:
        """Say what went wrong in which method; use `transient` or `permanent`."""
        super().__init__(message, hint=hint, **facts)
        self._operation = operation
        self._retryable = retryable

    @classmethod
    def transient(cls, operation: str, message: str, **facts: str) -> ProviderError:
        """Make one that may go away by itself: busy, out of time, connection lost."""
        return cls(message, operation=operation, retryable=True, hint=None, **facts)

    @classmethod
    def permanent(cls, operation: str, message: str, **facts: str) -> ProviderError:
        """Make one that stays: bad token, bad input, not found, damage."""
        return cls(message, operation=operation, retryable=False, hint=None, **facts)

    @property
    def message(self) -> str:
        """What went wrong. Set when the error is made, and never again."""
        return self._message

    @message.setter
    def message(self, message: str) -> None:
        if hasattr(self, "_message"):
            raise AttributeError("the message of a ProviderError cannot be changed")
        self._message = message

    @property
    def operation(self) -> str:
        """The method that was called."""
        return self._operation

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self._retryable

    def __str__(self) -> str:
        """Give the method and the message."""
        return f"{self._operation}: {self.message}" if self._operation else super().__str__()


# --- from `.result()`, and inside workflows ---------------------------------------------------------------------------


class WorkFailed(HoldfastError):
    """The awaited work did not succeed. What is known of the original exception can be read by name."""

    exit_code = 1
    #: The original class, `module.Name`; a builtin one by its bare name.
    type_name: str = ""
    #: The classes above it, by the same names.
    type_bases: tuple[str, ...] = ()
    traceback_text: str = ""
    #: The original as Python shows it.
    repr_text: str = ""
    #: How often it was tried, if that is known.
    attempts: int | None = None
    #: All of it, as it was recorded (`ErrorDetails`).
    details: object = None

    def is_a(self, kind: type[BaseException]) -> bool:
        """Tell whether the original exception was of this class, or of one below it."""
        name = class_name(kind)
        return name == self.type_name or name in self.type_bases


class JobFailed(WorkFailed):
    """The job ran, reported failure, and its attempts are used up."""


class JobDead(WorkFailed):
    """The job never reported, or an operator buried it."""


class JobCancelled(WorkFailed):
    """The job was cancelled."""

    exit_code = 4


class ActivityError(WorkFailed):
    """An activity of a workflow failed."""


class ActivityTimeout(ActivityError, TimeoutError):
    """An activity ran out of time."""


class ActivityCancelled(ActivityError):
    """An activity was cancelled."""


class ActivityDead(ActivityError):
    """An activity lost its lease too often."""


class StepError(WorkFailed):
    """An inline step of a workflow failed."""


class ChildError(WorkFailed):
    """A child workflow failed."""


class ChildCancelled(ChildError):
    """A child workflow was cancelled."""


class WorkflowFailed(WorkFailed):
    """The workflow ended with an error."""


class WorkflowCancelled(WorkFailed):
    """The workflow was cancelled."""

    exit_code = 4

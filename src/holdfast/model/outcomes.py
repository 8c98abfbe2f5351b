"""Outcomes: what the engine answers to a command. A closed set; a refusal is data until the last hop.

Every answer but `Refusal` means COMMITTED: accepted and durable. A refusal with the code `lease_lost` means CANCELLED
(authority lost), any other means REJECTED; nothing was changed, except that a lapsed lease may have been ended.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.errors import BY_CODE, HoldfastError, Refused
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.reservations import ReservationStatus
from holdfast.model.times import Timestamp


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="answer", gc=False):
    """What all answers have in common."""


class Submitted(msgspec.Struct, frozen=True):
    """What became of one job of an Enqueue."""

    #: The new job, or the one that was there before.
    job_id: JobId
    created: bool


class Enqueued(Answer, frozen=True, kw_only=True, tag="enqueued"):
    """The jobs are durable, in the order they were given."""

    jobs: tuple[Submitted, ...]


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's right to finish one job."""

    job: Job
    run_id: RunId
    token: Token
    #: Seconds left; worker clocks decide nothing.
    lease_s: float
    #: How many leases in a row were lost before this one.
    lost: int = 0


class Leased(Answer, frozen=True, kw_only=True, tag="leased"):
    """The jobs that were granted, maybe none."""

    grants: tuple[Grant, ...] = ()
    #: Jobs were left out because of what the worker holds, which were lost with other workers.
    held_back: bool = False
    #: One of them must run alone and waits until this worker holds nothing; nothing behind it was granted.
    alone_next: JobId | None = None


class Extended(Answer, frozen=True, kw_only=True, tag="extended"):
    """The lease lives."""

    lease_s: float
    #: Someone asked for the job to be cancelled.
    cancel: bool = False


class Reported(Answer, frozen=True, kw_only=True, tag="reported"):
    """The execution is over and its report durable."""

    job_status: JobStatus
    #: The same report had been committed before; the first one stays.
    duplicate: bool = False
    successor: JobId | None = None


class CancelAnswer(Answer, frozen=True, kw_only=True, tag="cancel"):
    """What a cancellation did."""

    outcome: Literal["cancelled", "requested"]


class Changed(Answer, frozen=True, kw_only=True, tag="changed"):
    """The job is as asked."""

    job_id: JobId
    position: int | None = None


class Done(Answer, frozen=True, kw_only=True, tag="done"):
    """It is as asked."""


class Reserved(Answer, frozen=True, kw_only=True, tag="reserved"):
    """How a reservation stands."""

    reservation_id: str
    status: ReservationStatus
    expires_at: Timestamp
    #: Seconds left; none once it is over.
    left_s: float


class Saved(Answer, frozen=True, kw_only=True, tag="saved"):
    """The template or schedule is as asked."""

    id: str
    version: int
    created: bool = False


class Fired(Answer, frozen=True, kw_only=True, tag="fired"):
    """What a schedule did: its jobs or instances, oldest first, and how many times passed without one."""

    jobs: tuple[Submitted, ...] = ()
    missed: int = 0


class Backfilled(Answer, frozen=True, kw_only=True, tag="backfilled"):
    """How many jobs were made, and from which time on to go on; None when all is done."""

    count: int
    next_since: Timestamp | None = None


class Claim(msgspec.Struct, frozen=True):
    """The right to send one delivery, until a time that also tells this claim from others."""

    delivery_id: str
    claimed_until: Timestamp
    #: Whom it goes to.
    webhook_id: str = ""


class Claimed(Answer, frozen=True, kw_only=True, tag="claimed"):
    """The deliveries that are to be sent now, maybe none."""

    claims: tuple[Claim, ...] = ()


class Grouped(Answer, frozen=True, kw_only=True, tag="grouped"):
    """The group is there, with its members in their order."""

    group_id: str
    members: tuple[JobId, ...] = ()
    #: False for a group that was there before.
    created: bool = True


class GroupCancelled(Answer, frozen=True, kw_only=True, tag="group_cancelled"):
    """How many members were ended, and how many were asked to stop."""

    cancelled: int = 0
    requested: int = 0


class Swept(Answer, frozen=True, kw_only=True, tag="swept"):
    """How much a maintenance command found to do."""

    count: int
    #: The limit was reached; there is more to do now.
    more: bool = False


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message as its receiver gets it: its number, and the item, encoded."""

    seq: int
    item: msgspec.Raw


class Kept(msgspec.Struct, frozen=True):
    """A key of an instance, with its value as a JSON text and when it was set, in milliseconds since 1970."""

    key: str
    value: msgspec.Raw
    at_ms: int


class LockedTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An instance under lock. Its history is read apart: whoever has it in memory need not."""

    instance_id: str
    token: Token
    messages: tuple[Delivered, ...]
    #: The highest delivery count among the messages; 1 is the first.
    attempts: int
    #: None: there is no record yet.
    orchestration_name: str | None = None
    orchestration_version: str | None = None
    execution_id: int = 1
    #: None: there is no history yet.
    history_id: int | None = None
    #: Of that history; 0: there is none.
    last_event_id: int = 0
    #: When the oldest of the messages was sent.
    since: Timestamp | None = None
    keys: tuple[Kept, ...] = ()
    #: Of the start of the instance.
    digest: str | None = None


class Fetched(Answer, frozen=True, kw_only=True, tag="fetched"):
    """The instance that was locked, or None: nothing has come in for anybody."""

    turn: LockedTurn | None = None
    #: What was locked beside it, if more was asked for.
    others: tuple[LockedTurn, ...] = ()
    #: Instances were left out because of what the worker holds, which were lost with other workers.
    held_back: bool = False
    #: One of them must run alone and waits until this worker holds nothing; nothing behind it was locked.
    alone_next: str | None = None


class Brought(Answer, frozen=True, kw_only=True, tag="brought"):
    """What came in since."""

    messages: tuple[Delivered, ...] = ()


class Begun(Answer, frozen=True, kw_only=True, tag="begun"):
    """The instance is there, or will be with its first turn."""

    instance_id: str
    #: False for one that was there before, or on its way.
    created: bool = True


class Deleted(Answer, frozen=True, kw_only=True, tag="deleted"):
    """What is gone."""

    instances: int = 0
    executions: int = 0
    events: int = 0
    messages: int = 0


class Mended(Answer, frozen=True, kw_only=True, tag="mended"):
    """What was found broken, and mended."""

    #: Leases that had no run.
    runs: int = 0
    #: Jobs that were RUNNING although their run had ended.
    jobs: int = 0
    #: Failed jobs of chains that lacked their successor.
    chains: int = 0
    #: The limit was reached; there is more to do now.
    more: bool = False


class Refusal(Answer, frozen=True, kw_only=True, tag="refused"):
    """Nothing was changed, and why. `code` names an exception of the error tree."""

    code: str
    message: str
    hint: str = ""
    #: The ids the message names, by kind.
    facts: dict[str, str] = {}

    def error(self) -> HoldfastError:
        """Give the exception this refusal stands for."""
        kind = BY_CODE.get(self.code, Refused)
        return kind(self.message, hint=self.hint or None, **self.facts)


Outcome = (
    Enqueued
    | Leased
    | Extended
    | Reported
    | CancelAnswer
    | Changed
    | Done
    | Reserved
    | Saved
    | Fired
    | Backfilled
    | Claimed
    | Grouped
    | GroupCancelled
    | Swept
    | Fetched
    | Brought
    | Begun
    | Deleted
    | Mended
    | Refusal
)

encode_outcome = msgspec.json.Encoder().encode
#: Made while there is one thread: two that make it at once find the classes half read, and msgspec ends the process.
decode_outcome = msgspec.json.Decoder(Outcome).decode


def refuse(kind: type[HoldfastError], message: str, *, hint: str = "", **facts: object) -> Refusal:
    """Build a refusal that will be raised as `kind`."""
    return Refusal(code=kind.code, message=message, hint=hint, facts={name: str(fact) for name, fact in facts.items()})

"""What travels between a coordinator and those who use it, as structs. Shared by both sides; JSON on the way.

Commands and outcomes are the model's own. Limits are the coordinator's; a client keeps to them by cutting its batches.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import BY_CODE, HoldfastError, StoreFailed
from holdfast.model.commands import Command, Lease
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.logs import LogLine, NumberedLine
from holdfast.model.outcomes import Outcome
from holdfast.model.times import Timestamp
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.rules.explain import Reason
from holdfast.stores.protocol import Entry

#: Where everything lives.
ROOT = "/api/v1"
#: Commands of one request.
MOST_COMMANDS = 256
#: Bytes of a body; of a blob.
MOST_BYTES, MOST_BLOB = 8 << 20, 256 << 20
#: Seconds of a long poll.
LONGEST_WAIT_S = 30.0
#: Leases of one heartbeat, entries of one page of the feed, records of one page of a look-up.
MOST_LEASES, MOST_ENTRIES, PAGE = 1000, 1000, 500
#: Answers say in this header what time it is for the coordinator.
NOW_HEADER = "Holdfast-Now"
PROBLEM_TYPE = "application/problem+json"


class Commands(msgspec.Struct, frozen=True):
    """Commands, to be answered in order."""

    commands: list[Command]


class Outcomes(msgspec.Struct, frozen=True):
    """What became of them."""

    outcomes: list[Outcome]


class LeaseWish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease that may be waited for."""

    lease: Lease
    #: Seconds; at most `LONGEST_WAIT_S`.
    wait_s: float = 0.0


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One look-up."""

    look: str
    #: Its arguments by name.
    given: msgspec.Raw = msgspec.Raw(b"{}")
    #: Of a walk: records passed over, because an earlier page had them.
    skip: int = 0


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a look-up found."""

    #: Number of the last event that the state contained.
    seq: int
    found: msgspec.Raw
    #: Of a walk: there is another page.
    more: bool = False


class Changes(msgspec.Struct, frozen=True):
    """Up to where the feed goes."""

    seq: int


class ProbeWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A webhook that is to be tried."""

    webhook_id: str


class Probed(msgspec.Struct, frozen=True):
    """Of a delivery that was tried: which one it is. What became of it is looked up."""

    delivery_id: str


class Questioned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is to be explained; one of the two."""

    job_id: str | None = None
    instance_id: str | None = None


class Explained(msgspec.Struct, frozen=True):
    """Why it is where it is."""

    reason: Reason


class FeedPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Entries of the feed, in order."""

    entries: list[Entry]
    more: bool = False


class Lines(msgspec.Struct, frozen=True):
    """What runs say."""

    lines: list[tuple[RunId, LogLine]]


class RunLines(msgspec.Struct, frozen=True):
    """What a run has said."""

    lines: list[NumberedLine]


class HeldLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease that is to live on."""

    job_id: JobId
    token: Token
    lease_s: float | None = None


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sign of life of a worker, and all it has to say."""

    #: For the roster, with the progress of what runs; None leaves it as it is.
    worker: WorkerInfo | None = None
    leases: list[HeldLease] = []
    lines: list[tuple[RunId, LogLine]] = []


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a heartbeat: one outcome a lease, in order, and what an operator asks for."""

    outcomes: list[Outcome] = []
    wish: Wish | None = None


class Roll(msgspec.Struct, frozen=True):
    """The workers there are."""

    workers: list[WorkerInfo]


class Facing(msgspec.Struct, frozen=True, kw_only=True):
    """Who a coordinator is, and what an acknowledgement of it survives."""

    version: str
    durability: str
    seq: int
    now: Timestamp


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as RFC 9457 writes it, with the words of our error tree."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    facts: dict[str, str] = {}

    def error(self) -> HoldfastError:
        """Give the exception it stands for."""
        kind = BY_CODE.get(self.code, StoreFailed)
        return kind(self.detail, hint=self.hint or None, **self.facts)


encode = msgspec.json.Encoder().encode
#: What clients read, with several threads.
ANSWERS = (Outcomes, Seen, Changes, Probed, Explained, FeedPage, RunLines, Beat, Roll, Facing, Problem)
for _kind in ANSWERS:
    # Here there is one: of two that read the first of a kind at once, one would find its class half read.
    msgspec.json.Decoder(_kind)

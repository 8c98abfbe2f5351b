"""The store of a coordinator elsewhere: commands are decided there, look-ups asked there.

It has no batch of its own (`write` refuses). Upkeep, that is trimming, sweeping, checking and snapshots, is left to the
coordinator.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import inf
from typing import NoReturn, cast

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidOperation, InvalidValue, StoreFailed
from holdfast.model.commands import (
    Command,
    Complete,
    Enqueue,
    Extend,
    Fail,
    GiveUp,
    Lease,
    Release,
    ReleaseReservation,
    RenewReservation,
    Reserve,
    Snooze,
)
from holdfast.model.ids import JobId, uuid7
from holdfast.model.outcomes import Outcome
from holdfast.model.times import Timestamp, milliseconds, stamp
from holdfast.model.workflows.commands import RenewActivity, RenewSessions, RenewTurn
from holdfast.rules.explain import Reason
from holdfast.stores.deadline import deadline
from holdfast.stores.http.channel import Channel, Request
from holdfast.stores.http.request_batcher import Together
from holdfast.stores.http.sidecar import HttpBlobs, HttpLogs, HttpRoster, NoSessions
from holdfast.stores.http.view import HttpView
from holdfast.stores.http.wire import (
    LONGEST_WAIT_S,
    MOST_BYTES,
    MOST_COMMANDS,
    Changes,
    Explained,
    Facing,
    FeedPage,
    Look,
    Outcomes,
    Probed,
    ProbeWish,
    Questioned,
    Seen,
    encode,
)
from holdfast.stores.protocol import Batch, Durability, Entry, Finding, Promises, View

#: Seconds without an answer after which a caller is told.
PATIENCE_S = 30.0
#: Seconds a receiver may take to answer one delivery, at most.
PROBE_S = 15.0
#: Bytes of commands up to which a caller's go with those of others.
SMALL = 256 << 10
#: Reports are known by their tokens, holds by their names, and a lease nobody heard of lapses: asking anew under other
#: ids does no harm.
_REPEATABLE = (
    Lease, Extend, Complete, Fail, Snooze, GiveUp, Release, Reserve, RenewReservation, ReleaseReservation,
)  # fmt: skip


#: A sign of life writes nothing, and under an id it would be remembered; twice the same does no harm.
_RENEWALS = (RenewTurn, RenewActivity, RenewSessions)


class HttpStore:
    """A coordinator, as a store."""

    def __init__(self, channel: Channel, facing: Facing) -> None:
        """Use a coordinator that has answered."""
        self._channel = channel
        self.promises = Promises(
            name="http",
            durability=Durability(facing.durability),
            many_processes=True,
            reopens=True,
            frozen_views=False,
        )
        self.blobs = HttpBlobs(channel)
        self.logs = HttpLogs(channel)
        self.workers = HttpRoster(channel)
        self.sessions = NoSessions()
        # Apart, because what becomes of them when no answer comes differs.
        self._repeatable = Together(partial(self._decide, is_repeatable=True), MOST_COMMANDS)
        self._others = Together(partial(self._decide, is_repeatable=False), MOST_COMMANDS)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        access_token: str | None = None,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
    ) -> HttpStore:
        """Reach the coordinator at `url`.

        Raises StoreBusy if nobody answers, Unauthorized if it knows better, InvalidValue for what is no access token.
        """
        token = access_token or os.environ.get("HOLDFAST_ACCESS_TOKEN") or ""
        channel = Channel(url, _sendable(token), clock or SystemClock(), patience_s)
        try:
            return cls(channel, msgspec.json.decode(channel.send(Request("GET", "/facing")), type=Facing))
        except BaseException:
            channel.close()
            raise

    # --- commands, decided elsewhere ----------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """The coordinator's time."""
        return self._channel.time

    def decide(self, commands: Sequence[Command], *, attempt_s: float | None = None) -> list[Outcome]:
        """Have the coordinator decide these, in order; those that fit into one request are committed together."""
        named = [self._named(command) for command in commands]
        encoded = [encode(command) for command in named]
        is_repeatable = all(isinstance(command, _REPEATABLE) for command in named)
        try:
            # Whoever has less patience than others must not send for them.
            if attempt_s is not None or deadline() < inf or sum(map(len, encoded)) > SMALL:
                return self._decide(encoded, is_repeatable=is_repeatable, attempt_s=attempt_s)
            return (self._repeatable if is_repeatable else self._others).decide(encoded)
        except StoreFailed as problem:
            # Whoever looks for them later learns what became of it.
            problem.facts["job_ids"] = [job.job_id for one in named if isinstance(one, Enqueue) for job in one.jobs]
            raise

    def _decide(
        self, commands: Sequence[bytes], *, is_repeatable: bool, attempt_s: float | None = None
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for portion in _portions(commands):
            body = b'{"commands":[%s]}' % b",".join(portion)
            sent = Request("POST", "/commands", body, is_repeatable=is_repeatable)
            outcomes += msgspec.json.decode(self._channel.send(sent, attempt_s=attempt_s), type=Outcomes).outcomes
        return outcomes

    def _named(self, command: Command) -> Command:
        """Give the command an id, if it has none: by it a repetition is known."""
        if command.cmd or isinstance(command, _RENEWALS):
            return command
        now = milliseconds(stamp(self.clock.now()))
        return msgspec.structs.replace(command, cmd=uuid7(now, _chance(), _chance()))

    # --- reading ------------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self, *, attempt_s: float | None = None) -> Iterator[View]:
        """Open a view, whose look-ups are requests."""

        def look(what: Look) -> Seen:
            answer = self._channel.send(Request("POST", "/look", encode(what)), attempt_s=attempt_s)
            return msgspec.json.decode(answer, type=Seen)

        # Its look-ups are made from the protocol itself, which no type checker can follow.
        yield cast("View", HttpView(look, lambda: self._changes(0, 0.0, attempt_s)))

    def _changes(self, after: int, wait_s: float, attempt_s: float | None = None) -> int:
        asked = {"after": str(after), "wait": f"{wait_s:.3f}"}
        answer = self._channel.send(Request("GET", "/changes", params=asked, wait_s=wait_s), attempt_s=attempt_s)
        return msgspec.json.decode(answer, type=Changes).seq

    def status(self) -> bytes:
        """Give how the coordinator stands, in its own words."""
        return self._channel.send(Request("GET", "/status"))

    def feed(self, after: int) -> Iterator[Entry]:
        """Walk the events above `after`."""
        # The first page is asked for at once, so that a number that is too old is refused here.
        return self._pages(self._page(after))

    def _page(self, after: int) -> FeedPage:
        answer = self._channel.send(Request("GET", "/feed", params={"after": str(after)}))
        return msgspec.json.decode(answer, type=FeedPage)

    def _pages(self, page: FeedPage) -> Iterator[Entry]:
        yield from page.entries
        while page.more and page.entries:
            page = self._page(page.entries[-1].seq)
            yield from page.entries

    def wait(self, after: int, timeout: float | None) -> bool:
        """Wait for an event above `after`, by long polls."""
        left_s = inf if timeout is None else max(0.0, timeout)
        while True:
            asked_s = min(LONGEST_WAIT_S, left_s)
            if self._changes(after, asked_s) > after:
                return True
            # Counted by what was asked for: a coordinator that ends lets everyone go early, and nobody asks it twice.
            left_s -= asked_s
            if left_s <= 0:
                return False

    def probe(self, webhook_id: str) -> str:
        """Have the coordinator try a webhook: it knows the secrets, and it is the one whose deliveries must arrive."""
        # In the body: no path carries every id there is.
        sent = Request("POST", "/webhooks/test", encode(ProbeWish(webhook_id)), wait_s=PROBE_S)
        return msgspec.json.decode(self._channel.send(sent), type=Probed).delivery_id

    def job_reason(self, job_id: JobId) -> Reason:
        """Have the coordinator say why a job is where it is: it knows the workers, and names what one may see."""
        return self._reason(Questioned(job_id=job_id))

    def instance_reason(self, instance_id: str) -> Reason:
        """Have it say the same of an instance."""
        return self._reason(Questioned(instance_id=instance_id))

    def _reason(self, what: Questioned) -> Reason:
        return msgspec.json.decode(self._channel.send(Request("POST", "/explain", encode(what))), type=Explained).reason

    # --- what the coordinator does by itself --------------------------------------------------------------------------

    def write(self) -> AbstractContextManager[Batch]:
        """Refuse: only the coordinator writes."""
        self._refuse("written to")

    def trim(self, before: Timestamp, limit: int, *, upto: int = 0) -> int:
        """Leave it to the coordinator."""
        del before, limit, upto
        return 0

    def check(self) -> list[Finding]:
        """Refuse: it reads every byte, there."""
        self._refuse("checked")

    def snapshot(self) -> None:
        """Refuse."""
        self._refuse("snapshotted")

    def _refuse(self, done: str) -> NoReturn:
        raise InvalidOperation(
            f"{self._channel.url} is a coordinator; its store is {done} where it runs. Nothing was done.",
            hint="Run the command on that machine, with --store naming the coordinator's own store.",
        )

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


def _portions(commands: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Cut a batch so that each part fits into a request. A command too large for any goes alone, to be refused."""
    portion: list[bytes] = []
    size = 0
    for command in commands:
        length = len(command) + 1
        if portion and (len(portion) == MOST_COMMANDS or size + length > MOST_BYTES - 1024):
            yield portion
            portion, size = [], 0
        portion.append(command)
        size += length
    if portion:
        yield portion


def _chance() -> int:
    return int.from_bytes(os.urandom(8))


def _sendable(token: str) -> str:
    """Give an access token without the end of the line it was read from. Errors of what sends it would quote it."""
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise InvalidValue(
            "the access token has characters that no access token has. Nothing was sent.",
            hint="Give it as `holdfast access add` has shown it.",
            field="access_token",
        )
    return token

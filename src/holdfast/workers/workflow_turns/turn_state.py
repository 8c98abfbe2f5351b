"""A stint: one turn under way in this worker, from its fetch to its last commit.

A small machine. What happens to it is put into its inbox by any thread; one thread of the crew at a time takes it out
and advances the turn. What it wants done comes out as an Outcome: a command to be sent, steps to be started. It never
waits, and while a step runs no thread is inside.

    opened → (steps run → finish → commit with hold)* → last commit
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from holdfast.model.ids import Token
from holdfast.model.outcomes import Delivered, LockedTurn
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.commands import AbandonTurn, AckTurn
from holdfast.model.workflows.history import UNKNOWN_VERSION, OrchestrationItem, TurnCommit
from holdfast.model.workflows.work_items import WorkItem
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workers.workflow_turns.step_run import StepOutcome, StepRun
from holdfast.workers.workflow_turns.turn_timeout import Code
from holdfast.workflows.api.definitions import Definition, Definitions
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.provider.translation import readable
from holdfast.workflows.runtime.completion import keeping, poison
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.start import beginning, has_ended
from holdfast.workflows.runtime.turn import Turn

log = logging.getLogger("holdfast.worker")

#: Seconds a lock lives without being renewed, and between two renewals.
LOCK_S, RENEW_S = 30.0, 10.0
LOCK_MS = round(LOCK_S * 1000)
#: Seconds after which what a turn has decided is committed although a step still runs.
IDLE_S = 0.05
#: Seconds until a turn that broke is tried again.
BROKEN_S = 1.0
#: Shortest and longest time between two tries of what no worker has code for, seconds.
PATIENCE_S = (1.0, 60.0)
_NEVER = float("inf")


class Ready(NamedTuple):
    """What a turn begins with."""

    item: OrchestrationItem
    resident: Execution | None
    #: Messages that cannot be read.
    unreadable: tuple[int, ...]


class Opened(NamedTuple):
    """The turn is to be begun, with what `open` reads."""

    open: Callable[[], Ready]


class Came(NamedTuple):
    """More messages."""

    messages: Sequence[Delivered]


class StepEnded(NamedTuple):
    """A step has an outcome."""

    step_no: int
    outcome: StepOutcome


class Committed(NamedTuple):
    """What was decided so far is durable, and the lock held."""


class Idled(NamedTuple):
    """Nothing has happened for a while, and a step runs."""


Input = Opened | Ready | Came | StepEnded | Committed | Idled


@dataclass(eq=False)
class Stint:
    """One turn under way. Fields without a word of their own are its desk's, and guarded by its lock."""

    locked: LockedTurn
    #: Seconds that its oldest message has waited.
    age_s: float
    renew_at: float
    lost_at: float
    fetched_at: float
    inbox: deque[Input] = field(default_factory=deque)
    #: A thread advances it, or will.
    is_taken: bool = False
    #: It may have something to send in a moment: it is taken, has neither sent nor begun a step since, and is not slow.
    is_coming: bool = False
    #: The thread that runs a step of it, and takes the outcome on by itself; 0: none.
    inline: int = 0
    #: A thread has begun.
    is_begun: bool = False
    #: A command of it is under way or waits to be sent; no other may be made.
    is_sending: bool = False
    #: Messages are being fetched for it: what is committed meanwhile would take them along unread.
    is_fetching: bool = False
    wants_more: bool = False
    #: Over for us: whatever still comes is ignored.
    is_gone: bool = False
    #: Its code is to be let go.
    is_dropped: bool = False
    #: When what it has decided is committed although a step runs.
    idle_at: float = _NEVER
    #: Numbers of the messages that are tagged.
    tagged: set[int] = field(default_factory=set)
    steps: dict[int, StepRun] = field(default_factory=dict)
    #: The thread's alone.
    turn: Turn | None = None
    code: Code = field(default_factory=Code)
    definition: Definition | None = None
    wants_commit: bool = False
    #: Messages to be set aside with its next command.
    unreadable: tuple[int, ...] = ()

    @property
    def token(self) -> Token:
        """The lock's."""
        return self.locked.token

    @property
    def execution(self) -> Execution | None:
        """The code of the turn, once there is some."""
        return None if self.turn is None else self.turn.execution

    @property
    def instance(self) -> str:
        """Whose turn it is."""
        return self.locked.instance_id


class Outcome(NamedTuple):
    """What a stint wants done after it was advanced."""

    ack: AckTurn | None = None
    abandon: AbandonTurn | None = None
    #: The stint ends with this command.
    is_last: bool = False
    #: The lock gets a new end with this command.
    extends: bool = False
    steps: Sequence[StepCall] = ()
    stopped: Sequence[int] = ()
    #: To be kept when the last command is durable.
    resident: Execution | None = None


class Commanding(Protocol):
    """Gives the command that commits what a turn decided, and holds the lock so many seconds or to the end it has."""

    def __call__(self, stint: Stint, commit: TurnCommit, hold_s: float | None, *, keep: bool) -> AckTurn:
        """Raise UsageError for what cannot be kept."""
        ...


class Playing:
    """Advances stints. Knows definitions and how texts are read; sends nothing."""

    def __init__(
        self,
        definitions: Definitions,
        blobs: Blobs,
        now_ms: Callable[[], int],
        *,
        may_send: Callable[[Stint], bool],
        command_of: Commanding,
    ) -> None:
        """Ask `may_send` before anything is taken out of a turn to be committed; `command_of` gives what commits it."""
        self._may_send = may_send
        self._command_of = command_of
        self._definitions = definitions
        self._blobs = blobs
        self._now_ms = now_ms
        #: The worker ends: turns are handed over at the next commit.
        self.is_draining = False

    def deliver(self, stint: Stint, inputs: Sequence[Input]) -> None:
        """Let the turn have these, in order. Runs the workflow's code."""
        for one in inputs:
            match one:
                case Ready():
                    self._begin(stint, one)
                case Came():
                    assert stint.turn is not None
                    stint.turn.deliver(self._items(stint, one.messages), self._now_ms())
                case StepEnded():
                    assert stint.turn is not None
                    stint.turn.finish_step(one.step_no, one.outcome, self._now_ms())
                case Idled():
                    stint.wants_commit = True
                case Opened() | Committed():
                    pass  # the first is opened by whoever delivers, the second only lets the turn go on

    def _items(self, stint: Stint, messages: Sequence[Delivered]) -> list[WorkItem]:
        items, unreadable = readable(self._blobs, messages)
        stint.unreadable += unreadable
        return items

    def refused(self, stint: Stint, ready: Ready) -> Outcome | None:
        """Say how a turn ends that is not begun: nothing of it can be read, or it was tried too often."""
        item, stint.unreadable = ready.item, ready.unreadable
        if not item.messages:
            return self._abandon(stint, "its messages cannot be read", counted=False)
        stint.definition = self._definition(item) if ready.resident is None else ready.resident.definition
        attempts = stint.locked.attempts
        if stint.definition is None or attempts <= stint.definition.max_turn_attempts or has_ended(item):
            return None
        log.error("workflow.poison", extra={"instance": stint.instance, "attempts": attempts})
        self._may_send(stint)
        ended = poison(item, attempts, self._now_ms())
        ended = msgspec.structs.replace(ended, metadata=keeping(ended.metadata, stint.definition))
        return Outcome(ack=self._ack(stint, ended), is_last=True)

    def _begin(self, stint: Stint, ready: Ready) -> None:
        # Not for secrets, and a system call would cost more than the turn.
        stint.turn = Turn(self._definitions, ready.item, seed=random.getrandbits(63))
        stint.turn.begin(self._now_ms(), ready.resident)

    def _definition(self, item: OrchestrationItem) -> Definition | None:
        begin = beginning(item)
        if begin is not None:
            return self._definitions.get(begin.orchestration, begin.version)
        return self._definitions.get(item.orchestration_name, None if item.version == UNKNOWN_VERSION else item.version)

    def wanted(self, stint: Stint, now: float) -> Outcome:
        """See where the turn stands at `now` (monotonic), and what it wants done."""
        turn = stint.turn
        assert turn is not None
        if turn.blocked is not None:
            log.warning("workflow.blocked", extra={"instance": stint.instance, "kind": turn.blocked.kind})
            return self._abandon(
                stint, blocked_reason(turn.blocked.kind, turn.blocked.text), counted=False, delay_s=_rarer(stint)
            )
        if turn.abandoned is not None:
            unregistered = turn.abandoned.is_unregistered
            return self._abandon(
                stint,
                turn.abandoned.reason,
                counted=False,
                delay_s=_rarer(stint) if unregistered else turn.abandoned.delay_s,
            )
        stopped = turn.take_stopped_steps()
        is_idle = turn.is_idle
        must_commit = is_idle or turn.must_commit or (stint.wants_commit and turn.has_news)
        if stint.is_sending or (must_commit and not self._may_send(stint)):
            return Outcome(stopped=stopped)
        if is_idle:
            resident = turn.execution if turn.stage == "running" else None
            return Outcome(ack=self._ack(stint, turn.commit()), is_last=True, stopped=stopped, resident=resident)
        if must_commit:
            stint.wants_commit = False
            hand_over = self.is_draining and not stint.steps
            until_ms = self._now_ms() + (0 if hand_over else LOCK_MS)
            commit = turn.commit(hold_until_ms=until_ms)
            if hand_over:
                return Outcome(ack=self._ack(stint, commit), is_last=True, stopped=stopped)
            # Most steps are short, and the lock is as good as new: its end is moved when it is time to renew it.
            is_old = stint.renew_at <= now
            ack = self._ack(stint, commit, LOCK_S if is_old else None, keep=True)
            return Outcome(ack=ack, extends=is_old, stopped=stopped)
        stint.wants_commit = False
        if self.is_draining:
            # What runs may end; then the turn is handed over.
            return Outcome(stopped=stopped) if stint.steps else self._abandon(stint, None, counted=False)
        return Outcome(steps=turn.take_steps(), stopped=stopped)

    def _ack(self, stint: Stint, commit: TurnCommit, hold: float | None = None, *, keep: bool = False) -> AckTurn:
        return self._command_of(stint, commit, hold, keep=keep)

    def _abandon(self, stint: Stint, reason: str | None, *, counted: bool, delay_s: float | None = None) -> Outcome:
        return Outcome(abandon=abandon(stint, reason, counted=counted, delay_s=delay_s), is_last=True)


def abandon(stint: Stint, reason: str | None, *, counted: bool, delay_s: float | None = None) -> AbandonTurn:
    """Give the command that gives an instance back."""
    return AbandonTurn(token=stint.token, delay_s=delay_s, given_back=not counted, reason=reason)


def _rarer(stint: Stint) -> float:
    """Give the seconds until it is tried again: the longer it waits, the rarer."""
    shortest, longest = PATIENCE_S
    return min(longest, max(shortest, stint.age_s / 2))

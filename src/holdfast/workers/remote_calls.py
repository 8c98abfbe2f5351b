"""The messenger: asks a store that is elsewhere, in a thread of its own, so that a pump never waits for an answer.

While an answer is awaited, and in the pauses before the same is asked again, the pump does what cannot wait: it stops
handlers whose time or lease is over, and goes on with its own end. That the store is away is said once, and once that
it is back. A store of this machine is asked directly: whatever it does, it does not get lost on the way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.engine.engine import Engine
from holdfast.errors import StoreBusy, StoreError, StoreFailed, StoreFull
from holdfast.failpoints import reach
from holdfast.model.commands import Command
from holdfast.model.outcomes import Outcome
from holdfast.stores.backoff import FIRST_S, LONGEST_S, jittered

log = logging.getLogger("holdfast.worker")

#: Seconds between two times that the pump does what cannot wait.
BEAT_S = 0.25
#: Seconds that one attempt to send commands takes, at most and at least: a lease is renewed in thirds of it.
ATTEMPT_S, SHORTEST_ATTEMPT_S = 10.0, 1.0
#: What was not answered is sent again for so long after the end of the leases it speaks of. Seconds.
RESENT_S = 60.0

T = TypeVar("T")


class Answered(NamedTuple):
    """Replies, and when the attempt was sent that brought them (monotonic)."""

    replies: list[Outcome]
    sent_at: float


class Messenger:
    """Between one pump and its store. Used by the pump's thread alone."""

    def __init__(self, engine: Engine, meanwhile: Callable[[], None]) -> None:
        """Call `meanwhile` now and then while one waits; what it raises ends the waiting."""
        self._engine = engine
        self._meanwhile = meanwhile
        self._is_needed = not engine.is_authority
        self._questions: SimpleQueue[_Question[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: The first problem since the store last answered.
        self.problem: StoreError | None = None
        self._away_since = 0.0
        self._pause_s = FIRST_S
        #: Asked for the same as soon as possible.
        self._urged = threading.Event()

    @property
    def losses(self) -> tuple[type[StoreError], ...]:
        """Errors after which the same may be asked again: nothing was written, or it is known by its ids."""
        return (StoreBusy, StoreFull, StoreFailed) if self._is_needed else ()

    @property
    def is_away(self) -> bool:
        """Whether the store has not answered since it was last asked."""
        return self.problem is not None

    def call(self, work: Callable[[], T]) -> T:
        """Have `work` done, which may wait for the store, and keeps to itself whether it answered."""
        if not self._is_needed:
            return work()
        question = _Question(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="holdfast-messenger", daemon=True)
            self._thread.start()
        self._questions.put(question)
        # Not by the slots, which would take a wake-up for an answer, and it would be missing later.
        while not question.answered.wait(BEAT_S):
            self._meanwhile()
        return question.answer()

    def hear(self, work: Callable[[], T]) -> T:
        """Have the store asked by `work`, once. Raises one of `losses` if it did not answer."""
        found = self.call(work)
        self._back()
        return found

    def ask(self, work: Callable[[], T]) -> T:
        """Have the store asked by `work` until it answers."""
        while True:
            try:
                return self.hear(work)
            except self.losses as problem:
                self.pause(problem)

    def submit(self, commands: Sequence[Command], ends_at: float, lease_s: float) -> Answered | None:
        """Send commands until they are answered, the same each time; not for ever after `ends_at` (monotonic).

        They speak of leases that end by then, of which the shortest lasts `lease_s` seconds.
        """
        if not self._is_needed:
            sent_at = self._engine.look().monotonic
            return Answered(self._engine.submit_many(commands), sent_at)
        named = [self._named(command) for command in commands]
        attempt_s = min(ATTEMPT_S, max(SHORTEST_ATTEMPT_S, lease_s / 3))
        while True:
            sent_at = self._engine.look().monotonic
            try:
                replies = self.hear(lambda: self._engine.submit_many(named, attempt_s=attempt_s))
            except self.losses as problem:
                if self._engine.look().monotonic >= ends_at + RESENT_S:
                    return None
                self.pause(problem)
            else:
                return Answered(replies, sent_at)

    def _named(self, command: Command) -> Command:
        """Give a command the id by which it is known when it is sent again."""
        if command.cmd:
            return command
        return msgspec.structs.replace(command, cmd=self._engine.new_id())

    def pause(self, problem: StoreError) -> None:
        """Wait before the same is asked again, each time longer."""
        now = self._engine.look().monotonic
        if self.problem is None:
            self._away_since = now
            log.warning("store.away", extra={"problem": problem.message})
        self.problem = problem
        wished_s = problem.facts.get("retry_after_s", 0.0)
        pause_s = max(jittered(self._pause_s), wished_s if isinstance(wished_s, float) else 0.0)
        self._pause_s = min(LONGEST_S, 2 * self._pause_s)
        self._urged.clear()
        reach("messenger.pausing")
        while (left_s := now + pause_s - self._engine.look().monotonic) > 0 and not self._urged.wait(
            min(left_s, BEAT_S)
        ):
            self._meanwhile()

    def urge(self) -> None:
        """End a pause. From any thread."""
        self._urged.set()

    def close(self) -> None:
        """Let the thread end, when it is no longer waiting."""
        if self._thread is not None:
            self._questions.put(None)
            self._thread = None

    def _back(self) -> None:
        if self.problem is not None:
            self.problem, self._pause_s = None, FIRST_S
            away_s = round(self._engine.look().monotonic - self._away_since, 1)
            log.warning("store.back", extra={"seconds": away_s})

    def _serve(self) -> None:
        while (question := self._questions.get()) is not None:
            question.ask()


class _Question(Generic[T]):
    """Something asked in another thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: list[T] = []
        self._problem: BaseException | None = None
        self.answered = threading.Event()

    def ask(self) -> None:
        """Ask, and keep what came of it."""
        try:
            self._found.append(self._work())
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            self._problem = problem
        self.answered.set()

    def answer(self) -> T:
        """Give the answer, or raise what was raised."""
        if self._problem is not None:
            raise self._problem
        return self._found[0]

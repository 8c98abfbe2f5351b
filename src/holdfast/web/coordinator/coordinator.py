"""The coordinator: the engine of one store, and what its requests share. Made and ended inside the server's event loop.

Handlers are tasks of the loop. Commands are gathered and decided together, in one thread; whatever else touches the
store runs in a thread of a pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from starlette.requests import Request

from holdfast.engine.commit_stats import Committed, Counts
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import Report
from holdfast.errors import CorruptState, HoldfastError, StoreFailed, StoreFull
from holdfast.model.access import LOCAL, Access
from holdfast.model.commands import Command, CreateGroup, Enqueue, Lease, NewJob, Reserve, StartDirect
from holdfast.model.outcomes import Outcome, Refusal
from holdfast.model.retention import Retention
from holdfast.model.workflows.commands import AnswerDecision, FetchActivity, FetchTurn, StartInstance
from holdfast.rules.access.command_scope import forbidden, may_ask, reaches_all
from holdfast.rules.access.instance_commands import signed
from holdfast.stores.protocol import Journalling
from holdfast.web.coordinator.command_batcher import Gathering, Submission
from holdfast.web.coordinator.event_notifier import Bell
from holdfast.web.coordinator.lease_queue import Lobby
from holdfast.web.coordinator.log_intake import Transcripts
from holdfast.web.coordinator.maintenance_loop import Keeper
from holdfast.web.coordinator.store_counts import Census
from holdfast.web.coordinator.worker_registry import Muster
from holdfast.web.remote_store.feed_pages import Pages
from holdfast.web.server.limits import Limits

log = logging.getLogger("holdfast.serve")

#: Seconds after a command that found no room for which the disk counts as full, unless one finds room before.
FULL_S = 10.0
#: Requests that look into the store at once.
THREADS = 8
#: Commands that may name an opening of the store; nobody outside this process has one.
_HOLDS = (Lease, FetchTurn, FetchActivity, Reserve, StartDirect)

#: After these only reopening settles what is so.
_FATAL = (StoreFailed, CorruptState)

T = TypeVar("T")


class Coordinator:
    """One authority, offered to others."""

    def __init__(
        self,
        engine: Engine,
        failed: Callable[[], None] = lambda: None,
        *,
        keeps: bool = True,
        webhook_allow: Sequence[str] = (),
        retention: Retention | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Offer an engine that has recovered; `failed` is told, once, in the loop, when it must stop.

        Unless it `keeps` the store, what time asks for is left to whoever else runs maintenance there.
        """
        self.engine = engine
        self._keeps = keeps
        #: Networks beside the public ones that webhooks may lie in.
        self.webhook_allow = webhook_allow
        #: How long the store keeps what has ended.
        self.retention = retention or Retention()
        self.limits = limits or Limits()
        self.muster = Muster(engine.store.workers, self.limits.workers, self.limits.note)
        #: What recovery did before, and how often the store was served before, if it is known.
        self.recovered: Report | None = None
        self.restarts: int | None = None
        #: Why it answers nothing any more.
        self.failure: BaseException | None = None
        self._failed = failed
        #: When a command last found no room, by the monotonic clock.
        self._full_at: float | None = None
        self._threads = ThreadPoolExecutor(THREADS, "holdfast-http")
        self.bell = Bell(engine, self._fail)
        self._gathering = Gathering(self._decided)
        self.lobby = Lobby(self.bell, self._submit)
        #: What happens here, counted.
        self.counts = Counts()
        engine.told = self._told
        self.census = Census(engine)
        #: The feed, for all who stream it.
        self.pages = Pages(engine.store.feed)
        #: What runs of workers elsewhere say.
        self.transcripts = Transcripts(engine.store.logs)
        self._keeper: Keeper | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to keep the store, and to serve those who wait."""
        loop = asyncio.get_running_loop()

        def failed(error: BaseException) -> None:
            loop.call_soon_threadsafe(self._fail, error)

        self.bell.start()
        self._serving = asyncio.create_task(self.lobby.serve())
        if self._keeps:
            self._keeper = Keeper(self.engine, failed, self.webhook_allow, self.retention)
            self._keeper.start()

    async def close(self) -> None:
        """Let everyone go and end what runs here. The engine is closed by who made it."""
        self.bell.close()
        if self._serving is not None:
            await self._serving
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.close)
        await asyncio.to_thread(self.bell.join)
        await asyncio.to_thread(self._gathering.close)
        await asyncio.to_thread(self._threads.shutdown)

    # --- for handlers -------------------------------------------------------------------------------------------------

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do what touches the store. A store that failed stops the coordinator: only reopening can settle it."""
        with self._watched():
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def decide(self, access: Access, commands: Sequence[Command]) -> list[Outcome]:
        """Decide commands of somebody, in order; what they may not send is refused in its place."""
        return await self._decide(access, commands)

    def admit(self, access: Access, command: Command) -> Command | Refusal:
        """Give a command as it may be decided, with who asks; or its refusal, whatever there is of what it names."""
        if may_ask(access, command):
            return self._owned(access, command)
        refusal = forbidden(access, command)
        self.counts.refused(refusal)
        return refusal

    async def _submit(self, commands: Sequence[Command]) -> list[Outcome]:
        """Decide commands that were admitted before."""
        return await self._decide(None, commands)

    async def _decide(self, access: Access | None, commands: Sequence[Command]) -> list[Outcome]:
        with self._watched():
            try:
                return await self._gathering.decide(access, commands)
            except StoreFull:
                self._full_at = self.engine.time.clock.monotonic()
                raise

    async def takes(self) -> str:
        """Tell how it takes commands: `ready`, `stopped`, or `full`, for as long as there is no room for what they do.

        Where nobody tries any more it is `ready` again after a while: whoever asks this before sending could not learn
        that there is room otherwise.
        """
        store, full_at = self.engine.store, self._full_at
        if self.failure is not None:
            return "stopped"
        if full_at is not None and self.engine.time.clock.monotonic() - full_at < FULL_S:
            return "full"
        if isinstance(store, Journalling):  # a log tries again by itself, and whoever waits for it has no answer yet
            # Not among those who look into the store: there they may all wait for the same room.
            return "full" if (await asyncio.to_thread(store.journal_stats)).state == "full" else "ready"
        return "ready"

    @contextmanager
    def _watched(self) -> Iterator[None]:
        if self.failure is not None:
            raise StoreFailed("the coordinator has stopped at an error of its store. Nothing was done.")
        try:
            yield
        except _FATAL as problem:
            self._fail(problem)
            raise

    # --- in a thread --------------------------------------------------------------------------------------------------

    def _decided(self, submissions: Sequence[Submission]) -> list[list[Outcome]]:
        """Decide the commands of several requests in one commit."""
        judged: list[list[Command | Refusal]] = []
        commands: list[Command] = []
        accesses: list[Access | None] = []
        for access, asked in submissions:
            judged.append([command if access is None else self.admit(access, command) for command in asked])
            for one in judged[-1]:
                if not isinstance(one, Refusal):
                    commands.append(one)
                    accesses.append(None if access is None or reaches_all(access, one) else access)
        outcomes = iter(self.engine.submit_judged(commands, accesses) if commands else ())
        return [[one if isinstance(one, Refusal) else next(outcomes) for one in some] for some in judged]

    def _told(self, commit: Committed) -> None:
        if commit.events:  # what changes nothing, such as a lease of nothing, needs no room
            self._full_at = None
        self.counts.note(commit)

    def _owned(self, access: Access, command: Command) -> Command:
        """Write down who asks, and what no stranger can have."""
        if access is not LOCAL and isinstance(command, AnswerDecision):
            command = signed(command, access.name)
        changes: dict[str, object] = {}
        if access is not LOCAL:
            changes["actor"] = access.name
        if isinstance(command, _HOLDS):
            changes["session_id"] = None
        if access is not LOCAL and isinstance(command, Enqueue):
            changes["jobs"] = tuple(_submitted(job, access) for job in command.jobs)
        if access is not LOCAL and isinstance(command, StartInstance):
            changes["submitted_by"] = access.name
        if access is not LOCAL and isinstance(command, CreateGroup):
            changes["members"] = tuple(
                _submitted(one, access) if isinstance(one, NewJob) else one for one in command.members
            )
            changes["callback"] = None if command.callback is None else _submitted(command.callback, access)
        return msgspec.structs.replace(command, **changes)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        if self.failure is None and not self.bell.is_closed:
            self.failure = error
            problem = error.message if isinstance(error, HoldfastError) else repr(error)
            log.error("serve.failed", extra={"problem": problem})
            self._failed()


def _submitted(job: NewJob, access: Access) -> NewJob:
    return msgspec.structs.replace(job, submitted_by=access.name)


def coordinator_of(request: Request) -> Coordinator:
    """Give the coordinator a request was sent to."""
    found = request.app.state.coordinator
    assert isinstance(found, Coordinator)
    return found

"""The same random calls on the provider of every store give the same answers, the same errors and the same state.

`memory:` is the model; time is the same for all, stores are reopened in between. And whatever happens, no signal that
was sent is lost or delivered to two commits.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.engine import Engine, maintenance
from holdfast.errors import ProviderError
from holdfast.rules.invariants import violations
from holdfast.stores.dir import DirStore
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.wal import WalStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.provider_kit import activity, completed, patch, signal, start, timer
from holdfast.workflows.provider import ExecutionMetadata, InstanceFilter, Provider, PruneOptions, QueueMessage, Status
from support.unsynced import Unsynced

LONG = os.environ.get("HOLDFAST_SOAK") == "1"
HISTORIES, STEPS = (300, 80) if LONG else (12, 30)
NAMES = st.sampled_from(["a", "b", "c"])
SECONDS = st.sampled_from([0.0, 1.0, 6.0, 31.0])
STATUSES = st.sampled_from([None, None, None, Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.CONTINUED_AS_NEW])


class ProvidersAgree(RuleBasedStateMachine):
    """One provider on each store."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.memory = Engine(MemoryStore(clock=self.clock), clock=self.clock)
        self.wal = self.open_wal()
        self.sqlite = self.open_sqlite()
        self.dir = self.open_dir()
        self.tokens: list[str] = []
        self.work: list[tuple[str, Any]] = []
        self.sent = 0
        #: Signals in the order they were committed with a turn, by instance.
        self.taken: dict[str, list[str]] = {}
        self.held: dict[str, tuple[str, list[str]]] = {}
        self.next_event = 1

    def open_wal(self) -> Engine:
        return Engine(WalStore.open(self.path / "wal", clock=self.clock), clock=self.clock)

    def open_sqlite(self) -> Engine:
        return Engine(SqliteStore.open(self.path / "db", clock=self.clock), clock=self.clock)

    def open_dir(self) -> Engine:
        files = Unsynced(self.path / "dir", create=True)
        return Engine(DirStore.open(self.path / "dir", fs=files, clock=self.clock), clock=self.clock)

    @property
    def engines(self) -> tuple[Engine, ...]:
        return self.memory, self.wal, self.sqlite, self.dir

    def teardown(self) -> None:
        for engine in self.engines:
            engine.close()
        shutil.rmtree(self.path)

    def all(self, method: str, *args: Any, **more: Any) -> Any:
        """Call all providers; they must say the same."""
        ProvidersAgree.calls += 1
        said = []
        for engine in self.engines:
            try:
                said.append(getattr(Provider(engine), method)(*args, **more))
            except ProviderError as error:
                said.append((str(error), error.retryable))
        assert all(one == said[0] for one in said), method
        return said[0]

    # --- what comes in ----------------------------------------------------------------------------------------------

    @rule(name=NAMES, delay=st.sampled_from([None, None, 2.0]))
    def begin(self, name: str, delay: float | None) -> None:
        self.all("enqueue_for_orchestrator", start(name), delay)

    @rule(name=NAMES, delay=st.sampled_from([None, None, None, 3.0]))
    def send(self, name: str, delay: float | None) -> None:
        self.sent += 1
        self.all("enqueue_for_orchestrator", signal(name, str(self.sent)), delay)

    # --- turns ------------------------------------------------------------------------------------------------------

    @rule(lock=st.sampled_from([5.0, 30.0]))
    def fetch(self, lock: float) -> None:
        found = self.all("fetch_orchestration_item", lock)
        if found is not None:
            item, token, _ = found
            self.tokens.append(token)
            self.held[token] = (item.instance, _signals(item.messages))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), status=STATUSES, hold=st.sampled_from([None, None, 10.0]), asks=st.booleans())
    def ack(self, data: st.DataObject, status: Status | None, hold: float | None, asks: bool) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        execution = data.draw(st.sampled_from([1, 1, 1, 2]))
        number = self.next_event
        name = self.held[token][0]
        later = timer(number, 1_767_225_600_000 + 20_000, name, execution)
        answer = self.all(
            "ack_orchestration_item",
            token,
            execution,
            [patch(number, name, execution), patch(number + 1, name, execution)],
            [activity(number, name, execution)] if asks else (),
            [later] if asks else (),
            ExecutionMetadata(status=status),
            cancelled_timers=[number - 2],
            hold=hold,
        )
        if answer is None:
            self.next_event += 2
            instance, signals = self.held[token]
            self.taken.setdefault(instance, []).extend(signals)
            self.held[token] = (instance, [])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), delay=st.sampled_from([None, 4.0]), given=st.booleans(), reason=st.sampled_from([None, "r"]))
    def abandon(self, data: st.DataObject, delay: float | None, given: bool, reason: str | None) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        self.all("abandon_orchestration_item", token, delay, given, reason=reason)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        self.all("renew_orchestration_item_lock", data.draw(st.sampled_from(self.tokens)), 20.0)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def more(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        found = self.all("fetch_more_messages", token)
        if isinstance(found, list):
            self.held[token][1].extend(_signals(found))

    @rule()
    def announce(self) -> None:
        self.all("announce_handlers", ["flow"])

    # --- activities -------------------------------------------------------------------------------------------------

    @rule(lock=st.sampled_from([5.0, 30.0]))
    def take(self, lock: float) -> None:
        found = self.all("fetch_work_item", lock)
        if found is not None:
            self.work.append((found[1], found[0]))

    @precondition(lambda self: self.work)
    @rule(data=st.data(), how=st.sampled_from(["done", "none", "back", "renew"]))
    def work_on(self, data: st.DataObject, how: str) -> None:
        token, item = data.draw(st.sampled_from(self.work))
        match how:
            case "done":
                self.all("ack_work_item", token, completed(item.id, item.instance, execution=item.execution_id))
            case "none":
                self.all("ack_work_item", token)
            case "back":
                self.all("abandon_work_item", token, 2.0)
            case _:
                self.all("renew_work_item_lock", token, 20.0)

    # --- time, management, reopening --------------------------------------------------------------------------------

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def tick(self) -> None:
        for engine in self.engines:
            maintenance.tick(engine)

    @rule(name=NAMES, force=st.booleans())
    def delete(self, name: str, force: bool) -> None:
        answer = self.all("delete_instance", name, force)
        if not isinstance(answer, tuple):
            self.held = {token: (owner, [] if owner == name else got) for token, (owner, got) in self.held.items()}
            self.taken.pop(name, None)

    @rule(keep=st.sampled_from([None, 1, 2]))
    def prune(self, keep: int | None) -> None:
        self.all("prune_executions_bulk", InstanceFilter(), PruneOptions(keep_last=keep))

    @rule(store=st.sampled_from(["wal", "sqlite", "dir", "snapshot"]))
    def reopen(self, store: str) -> None:
        if store == "snapshot":
            self.wal.store.snapshot()
            self.dir.store.snapshot()
            return
        getattr(self, store).close()
        setattr(self, store, getattr(self, f"open_{store}")())

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def all_show_the_same(self) -> None:
        self.all("get_queue_depths")
        self.all("get_system_metrics")
        for name in self.all("list_instances"):
            self.all("get_instance_info", name)
            for number in self.all("list_executions", name):
                self.all("read_with_execution", name, number)

    @invariant()
    def all_are_sound(self) -> None:
        for engine in self.engines:
            with engine.read() as view:
                assert list(violations(view)) == []

    @invariant()
    def no_signal_is_committed_twice(self) -> None:
        for name, signals in self.taken.items():
            assert len(set(signals)) == len(signals), name


def _signals(items: Any) -> list[str]:
    return [item.data for item in items if isinstance(item, QueueMessage)]


def test_random_calls_are_answered_alike_by_every_provider():
    ProvidersAgree.calls = 0
    run_state_machine_as_test(ProvidersAgree, settings=settings(max_examples=HISTORIES, stateful_step_count=STEPS))
    print(f"{ProvidersAgree.calls} calls on each store")
    assert ProvidersAgree.calls > HISTORIES * STEPS

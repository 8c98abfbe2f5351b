"""The provider: the storage face of the workflow engine, on every store. A translator.

A writing method builds one command, the engine decides it with the shared rules, the store commits it. All methods are
synchronous, thread-safe, and durable when they return. Durations are seconds, absolute times whole milliseconds since
1970 UTC. Whatever goes wrong is a ProviderError.

    orchestrator  turns and histories
    activities    activities, which are jobs with an owner
    management    lists, counts, trees, deletion, pruning, published state
"""

from __future__ import annotations

from typing import Protocol

from holdfast.clock import Clock
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import ProviderError
from holdfast.model.error_details import Category, ErrorDetails
from holdfast.model.workflows import event_kinds as EventKind  # noqa: N812 - the contract's name for the kinds of events
from holdfast.model.workflows.history import (
    DeleteInstanceResult,
    Event,
    ExecutionInfo,
    ExecutionMetadata,
    InstanceFilter,
    InstanceInfo,
    InstanceTree,
    KvEntry,
    OrchestrationItem,
    PruneOptions,
    PruneResult,
    QueueDepths,
    ScheduledActivityIdentifier,
    Status,
    SystemMetrics,
)
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityExecute,
    ActivityFailed,
    ActivityOptions,
    CancelInstance,
    ContinueAsNew,
    ExternalRaised,
    QueueMessage,
    ResumeInstance,
    StartOrchestration,
    SubOrchCompleted,
    SubOrchFailed,
    TimerFired,
    WorkItem,
)
from holdfast.stores import opening
from holdfast.stores.protocol import Store
from holdfast.workflows.provider.activities import Working
from holdfast.workflows.provider.filters import (
    DispatcherCapabilityFilter,
    SemverRange,
    SessionFetchConfig,
    SystemStats,
    TagFilter,
)
from holdfast.workflows.provider.management import Managing
from holdfast.workflows.provider.orchestrator import Orchestrating

__all__ = [
    "ActivityCompleted",
    "ActivityExecute",
    "ActivityFailed",
    "ActivityOptions",
    "CancelInstance",
    "Category",
    "ContinueAsNew",
    "DeleteInstanceResult",
    "DispatcherCapabilityFilter",
    "ErrorDetails",
    "Event",
    "EventKind",
    "ExecutionInfo",
    "ExecutionMetadata",
    "ExternalRaised",
    "InstanceFilter",
    "InstanceInfo",
    "InstanceTree",
    "KvEntry",
    "OrchestrationItem",
    "Provider",
    "ProviderError",
    "PruneOptions",
    "PruneResult",
    "QueueDepths",
    "QueueMessage",
    "ResumeInstance",
    "ScheduledActivityIdentifier",
    "SemverRange",
    "SessionFetchConfig",
    "StartOrchestration",
    "Status",
    "SubOrchCompleted",
    "SubOrchFailed",
    "SystemMetrics",
    "SystemStats",
    "TagFilter",
    "TimerFired",
    "WorkItem",
    "open_store",
]


class Provider(Orchestrating, Working, Managing):
    """Histories, the two queues, instance locks and instance records of one store."""


class ProvidedStore(Store, Protocol):
    """A store with its provider."""

    provider: Provider


def open_store(url: str, *, clock: Clock | None = None, readonly: bool = False) -> ProvidedStore:
    """Open or create the store a URL names; its `provider` is the storage face of workflows.

    Raises InvalidValue for a URL that is none, StoreError if the store cannot be opened.

    >>> open_store("memory:").provider.list_instances()
    []
    """
    store = opening.open_store(url, clock=clock, readonly=readonly)
    made: Engine | None = None

    def engine() -> Engine:
        nonlocal made
        if made is None:
            made = Engine(store, clock=clock)
        recover(made)  # if it fails, the next call recovers the same engine again
        return made

    store.provider = Provider(engine)  # type: ignore[attr-defined]  # rooms below this one know of no provider
    return store  # type: ignore[return-value]  # now it has one

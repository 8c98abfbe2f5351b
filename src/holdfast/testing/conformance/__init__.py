"""What proves a store right: one suite for every store, ours or a stranger's.

A store's test class inherits the suite and says how the store is opened; nothing else is asked of it.

    class TestMyStore(Conformance):
        def open(self, path: Path) -> Store:
            return MyStore(path / "store")

`open` is called again on the same path to reopen what was left there. What a store does not promise
(`Store.promises`) is skipped, visibly. The suite is made of topics; a store in the making may inherit some of them.
Needs pytest; `pytest.register_assert_rewrite("holdfast.testing.conformance")` in a conftest makes failures show their
values. Everything runs through the engine, so rules are checked along with what keeps their results.
"""

from __future__ import annotations

from holdfast.testing.conformance.atomicity import Atomicity
from holdfast.testing.conformance.bad_input import BadInput
from holdfast.testing.conformance.beside import DeadProcesses, Lines, Workers
from holdfast.testing.conformance.blobs import Contents, LargePayloads
from holdfast.testing.conformance.clocks import Clocks, Expiry, Leaps
from holdfast.testing.conformance.concurrency import Concurrency
from holdfast.testing.conformance.edits import Edits
from holdfast.testing.conformance.endings import Endings
from holdfast.testing.conformance.feed import Feed, Wait
from holdfast.testing.conformance.groups import GroupEnds, Groups
from holdfast.testing.conformance.harness import Harness, Topic
from holdfast.testing.conformance.keys import Keys
from holdfast.testing.conformance.leases import Leases
from holdfast.testing.conformance.limits import Limits
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.pause import Pause
from holdfast.testing.conformance.queries import Queries
from holdfast.testing.conformance.recovery import Matrix
from holdfast.testing.conformance.reopening import Reopening
from holdfast.testing.conformance.reports import Reports, StateTable
from holdfast.testing.conformance.reservations import DirectRuns, Reservations
from holdfast.testing.conformance.retention import Bounded, Keeping, KeepingByQueue
from holdfast.testing.conformance.retry import ManualRetries, Retries
from holdfast.testing.conformance.schedules import Fires, Late, Overlaps, Templates, Wishes
from holdfast.testing.conformance.ttl import LatestStart
from holdfast.testing.conformance.webhooks import Deliveries, Owed, Webhooks

__all__ = [
    "Atomicity",
    "BadInput",
    "Bounded",
    "Clocks",
    "Concurrency",
    "Conformance",
    "Contents",
    "DeadProcesses",
    "Deliveries",
    "DirectRuns",
    "Edits",
    "Endings",
    "Expiry",
    "Feed",
    "Fires",
    "GroupEnds",
    "Groups",
    "Harness",
    "Keeping",
    "KeepingByQueue",
    "Keys",
    "LargePayloads",
    "Late",
    "LatestStart",
    "Leaps",
    "Leases",
    "Limits",
    "Lines",
    "ManualRetries",
    "Matrix",
    "Order",
    "Overlaps",
    "Owed",
    "Pause",
    "Queries",
    "Reopening",
    "Reports",
    "Reservations",
    "Retries",
    "StateTable",
    "Templates",
    "Topic",
    "Wait",
    "Webhooks",
    "Wishes",
    "Workers",
]


class Conformance(
    Atomicity,
    Order,
    Leases,
    Reports,
    StateTable,
    Keys,
    Retries,
    ManualRetries,
    Edits,
    Endings,
    Expiry,
    Clocks,
    Leaps,
    LatestStart,
    Pause,
    Limits,
    Fires,
    Late,
    Overlaps,
    Wishes,
    Templates,
    Groups,
    GroupEnds,
    Webhooks,
    Owed,
    Deliveries,
    Reservations,
    DirectRuns,
    Matrix,
    Keeping,
    KeepingByQueue,
    Bounded,
    Feed,
    Wait,
    Queries,
    Reopening,
    BadInput,
    Contents,
    LargePayloads,
    Lines,
    Workers,
    DeadProcesses,
    Concurrency,
):
    """Every topic."""

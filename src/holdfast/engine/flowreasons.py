"""Reasons of instances: why they are where they are, from one view of the store, the roster of workers and the time.

The rule itself is `rules.flowexplain`; here is only what it needs to know.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.reasons import Reasons
from holdfast.errors import WorkflowNotFound
from holdfast.model.times import Timestamp
from holdfast.model.workers import WorkerInfo
from holdfast.rules.explain import Reason
from holdfast.rules.flowexplain import explain_instance
from holdfast.stores.protocol import View


def instance_reason(engine: Engine, instance_id: str) -> Reason:
    """Give the one reason why an instance is where it is, now. Raises WorkflowNotFound."""
    workers = engine.store.workers.all()
    now = engine.look().now
    with engine.read() as view:
        return reason_in(view, instance_id, now, workers)


def reason_in(view: View, instance_id: str, now: Timestamp, workers: Sequence[WorkerInfo]) -> Reason:
    """Give the one reason why an instance is where it is, in this view of the store. Raises WorkflowNotFound."""
    reasons = Reasons(view, now, workers)
    found = explain_instance(view, instance_id, now, workers, lambda job: reasons.of(job).sentence)
    if found is None:
        raise WorkflowNotFound(f"there is no instance {instance_id!r}.", instance=instance_id)
    return found

"""Reasons of instances: why they are where they are, from one view of the store, the roster of workers and the time.

The rule itself is `rules.workflows.explain`; here is only what it needs to know.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.reasons import Reasons
from holdfast.errors import WorkflowNotFound
from holdfast.model.times import Timestamp
from holdfast.model.workers import WorkerInfo
from holdfast.rules.explain import Reason, Sees
from holdfast.rules.workflows.explain import explain_instance
from holdfast.stores.protocol import Explaining, View


def instance_reason(engine: Engine, instance_id: str) -> Reason:
    """Give the one reason why an instance is where it is, now. Raises WorkflowNotFound."""
    if isinstance(engine.store, Explaining):
        return engine.store.instance_reason(instance_id)
    workers = engine.store.workers.all()
    now = engine.look().now
    with engine.read() as view:
        return reason_in(view, instance_id, now, workers)


def reason_in(view: View, instance_id: str, now: Timestamp, workers: Sequence[WorkerInfo], sees: Sees = None) -> Reason:
    """Give the one reason why an instance is where it is, in this view of the store. Raises WorkflowNotFound.

    Of what holds the jobs of its activities, what who asks `sees`.
    """
    reasons = Reasons(view, now, workers, sees)
    found = explain_instance(view, instance_id, now, workers, lambda job: reasons.of(job).sentence)
    if found is None:
        raise WorkflowNotFound(f"there is no instance {instance_id!r}.", instance=instance_id)
    return found

"""Instances of workflows, their executions and their questions, as programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.app.workflows.decisions import DecisionState, state_of
from holdfast.app.workflows.state import InstanceState
from holdfast.engine.views.projection import fill, preview, shown
from holdfast.model.payloads import NULL
from holdfast.model.workflows.instances import Execution, InstanceStatus, KeyValue, execution_key
from holdfast.rules.explain import Reason
from holdfast.stores.protocol import View
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workflows.provider.payloads import text_of

#: Statuses that count as running: an execution that goes on as new ends, its instance does not.
GOING = (InstanceStatus.RUNNING, InstanceStatus.CONTINUED_AS_NEW)

DecisionRow = shown("DecisionRow", DecisionState, without=("id",), decision_id=str)
InstanceRow = shown(
    "InstanceRow", InstanceState, without=("id", "custom_status"), instance_id=str, preview=str, reason=Reason
)
FullInstance = shown(
    "FullInstance",
    InstanceState,
    without=("id",),
    instance_id=str,
    reason=Reason,
    output=str | None,
    kv=dict[str, Any],
    decisions=list[DecisionRow],  # type: ignore[valid-type]  # made above
)
ExecutionRow = shown("ExecutionRow", Execution, without=("output",), preview=str)


def instance_row(state: InstanceState, reason: Reason) -> Any:
    """Give an instance as a list shows it."""
    said = "" if state.custom_status is None else preview(msgspec.Raw(msgspec.json.encode(state.custom_status)))
    return fill(InstanceRow, state, instance_id=state.id, preview=said, reason=reason)


def full_instance(view: View, blobs: Blobs, state: InstanceState, reason: Reason) -> Any:
    """Give an instance whole: what it says, its keys, its open questions, and what it returned."""
    return fill(
        FullInstance,
        state,
        instance_id=state.id,
        reason=reason,
        output=output_of(view, blobs, state),
        kv=_keys(blobs, view.keys(state.id)),
        decisions=[decision_row(state_of(asked)) for asked in view.decisions(state.id) if asked.is_open],
    )


def decision_row(state: DecisionState) -> Any:
    """Give a question with every field."""
    return fill(DecisionRow, state, decision_id=state.id)


def execution_row(execution: Execution) -> Any:
    """Give an execution without what it returned, but how that begins."""
    return fill(ExecutionRow, execution, preview="" if execution.output == NULL else preview(execution.output))


def output_of(view: View, blobs: Blobs, state: InstanceState) -> str | None:
    """Give what an ended instance returned, as JSON, or why it failed."""
    execution = view.get(Execution, execution_key(state.id, state.execution_id))
    return None if execution is None else text_of(blobs, execution.output)


def _keys(blobs: Blobs, keys: Sequence[KeyValue]) -> dict[str, Any]:
    """Give the keys of an instance with their values, as the running execution sees them."""
    texts = {one.key: text_of(blobs, one.live) for one in keys}
    return {key: msgspec.json.decode(text) for key, text in texts.items() if text is not None}

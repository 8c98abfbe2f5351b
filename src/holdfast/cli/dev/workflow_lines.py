"""A line for each turn of an instance, as developers want to see it: how it ended, or what it waits for now."""

from __future__ import annotations

import msgspec

from holdfast.cli.render import status_labels
from holdfast.cli.render.tables import shrink
from holdfast.cli.render.terminal import Screen, safe
from holdfast.engine.workflow_reasons import reason_in
from holdfast.model.events import TurnCommitted
from holdfast.model.payloads import ref_in
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workflows.instances import OVER, Instance, InstanceStatus
from holdfast.stores.protocol import View

#: Characters of a sentence that are shown.
SHOWN = 200
_LOOKS = {
    InstanceStatus.COMPLETED: status_labels.COMPLETED,
    InstanceStatus.FAILED: status_labels.FAILED,
    InstanceStatus.CANCELLED: status_labels.CANCELLED,
}


def line_of_turn(event: TurnCommitted, at: Timestamp, view: View, looks: Screen) -> str | None:
    """Write where a turn has left its instance; None where it goes on at once, or has gone on since."""
    instance = view.get(Instance, event.instance_id)
    if instance is None or event.held_until is not None:
        return None
    took = age_of(seconds_between(instance.created_at, at))
    if event.status in OVER:
        look, said = _LOOKS[event.status], _error(event)
    else:
        reason = reason_in(view, event.instance_id, at, ())
        if reason.code != "waiting":
            return None
        asks = any(line.startswith("decision ") for line in event.waiting_on or ())
        look, said = status_labels.ASKING if asks else status_labels.WAITING, reason.sentence
    which = looks.faint(f"{safe(event.instance_id)} {took}")
    head = f"{looks.faint(at[11:19])} {looks.glyph(look)} {safe(event.orchestration_name)} {which}"
    return f"{head}  {shrink(safe(said), SHOWN)}" if said else head


def _error(event: TurnCommitted) -> str:
    """Say why it failed; what is too long to lie in the record is left to `workflows show`."""
    if event.status is InstanceStatus.COMPLETED or ref_in(event.output) is not None:
        return ""
    text = msgspec.json.decode(event.output)
    return text.strip().rpartition("\n")[2] if isinstance(text, str) else ""


def age_of(seconds: float) -> str:
    """Write how long something took."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

"""What is said to instances of workflows by whoever has no code of them, as commands: start, signal, cancel.

Names and ids are checked here; whether the instance can hear it is decided by the rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.model.payloads import admit_object
from holdfast.model.workflows.commands import NewMessage, StartInstance, TellInstance
from holdfast.model.workflows.work_items import CancelInstance, QueueMessage, StartOrchestration, WorkItem, encode_item
from holdfast.workflows.api.definitions import version_key
from holdfast.workflows.api.operations import demand_instance_id, demand_signal_name


def start_command(
    workflow: str,
    instance_id: str,
    given: msgspec.Raw,
    *,
    version: str | None = None,
    signals: Sequence[tuple[str, str]] = (),
    cmd: str = "",
) -> StartInstance:
    """Begin an instance with arguments by name, a JSON object, and with signals, each a name and its JSON.

    Raises InvalidValue for what is no workflow, version, id, object or signal.
    """
    if not is_name(workflow):
        raise InvalidValue(f"workflow {workflow!r:.150}: no name. Nothing was started.", hint=NAME_HINT)
    if version is not None:
        version_key(version)
    text = bytes(admit_object(given, "input")).decode()
    start = StartOrchestration(
        instance=demand_instance_id(instance_id), orchestration=workflow, input=text, version=version
    )
    return StartInstance(
        cmd=cmd, message=_message(start), signals=tuple(_message(_signal(instance_id, *one)) for one in signals)
    )


def signal_command(
    instance_id: str, name: str, data: str, *, hold_s: float | None = None, cmd: str = ""
) -> TellInstance:
    """Send a signal that carries a JSON text. Raises InvalidValue for what names none."""
    return TellInstance(cmd=cmd, message=_message(_signal(instance_id, name, data)), hold_s=hold_s)


def cancel_command(instance_id: str, reason: str, *, force: bool, cmd: str = "") -> TellInstance:
    """Ask an instance to stop; with `force` it ends without its code."""
    return TellInstance(cmd=cmd, message=_message(CancelInstance(instance=instance_id, reason=reason, force=force)))


def _signal(instance_id: str, name: str, data: str) -> QueueMessage:
    return QueueMessage(instance=instance_id, name=demand_signal_name(name), data=data)


def _message(item: WorkItem) -> NewMessage:
    return NewMessage(item=msgspec.Raw(encode_item(item)))

"""`/workflows`, spoken to: start, signal, cancel, remove."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.app.workflows.commands import cancel_command, signal_command, start_command
from holdfast.model.outcomes import Begun, Deleted
from holdfast.model.payloads import EMPTY, NULL, admit
from holdfast.model.workflows.commands import DeleteInstances, StartInstance, TellInstance
from holdfast.web.api.endpoint import Ask, Endpoint, Settled, done, told
from holdfast.web.api.jobs import CancelBody
from holdfast.web.api.paging import NoNamespace


class Signal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal, and what it carries."""

    name: str
    data: msgspec.Raw = NULL


class SignalBody(Signal, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal, what it carries, and how many seconds it is kept for an instance that is not there yet."""

    hold: float | None = None


class StartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workflow, with which arguments by name, and signals it finds when it begins."""

    workflow: str
    id: str | None = None
    version: str | None = None
    input: msgspec.Raw = EMPTY
    signals: list[Signal] = []


class Started(msgspec.Struct, frozen=True):
    """The instance is there."""

    instance_id: str
    created: bool


class Removed(msgspec.Struct, frozen=True):
    """What is gone."""

    instances: int
    executions: int
    events: int
    messages: int


class DeleteQuery(NoNamespace, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether it is removed although it runs."""

    force: bool = False


async def start(ask: Ask[NoNamespace, StartBody]) -> Response:
    """Start an instance; the same id with the same input gives the one there is."""
    body = ask.body
    command = start_command(
        body.workflow,
        ask.id_of(body.id, "instance"),
        body.input,
        version=body.version,
        signals=[(one.name, _text(one.data)) for one in body.signals],
        cmd=ask.cmd,
    )
    outcome = await ask.order(command)
    assert isinstance(outcome, Begun)
    return told(Started(outcome.instance_id, outcome.created), 201 if outcome.created else 200)


async def signal(ask: Ask[NoNamespace, SignalBody]) -> Response:
    """Send a signal; it is kept until the workflow reads it."""
    body = ask.body
    await ask.order(signal_command(_id(ask), body.name, _text(body.data), hold_s=body.hold, cmd=ask.cmd))
    return done(_id(ask))


async def cancel(ask: Ask[NoNamespace, CancelBody]) -> Response:
    """Ask an instance to stop; with `force` it ends without its code."""
    await ask.order(cancel_command(_id(ask), ask.body.reason, force=ask.body.force, cmd=ask.cmd))
    return done(_id(ask))


async def delete(ask: Ask[DeleteQuery, None]) -> Response:
    """Remove an instance with all its children."""
    command = DeleteInstances(instance_ids=(_id(ask),), force=ask.query.force, tree=True, cmd=ask.cmd)
    outcome = await ask.order(command)
    assert isinstance(outcome, Deleted)
    return told(Removed(outcome.instances, outcome.executions, outcome.events, outcome.messages))


def _id(ask: Ask[Any, Any]) -> str:
    return ask.path["instance_id"]


def _text(data: msgspec.Raw) -> str:
    return bytes(admit(data, "data")).decode()


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/workflows",
        summary="Start an instance; the same id with the same input gives the one there is.",
        handler=start,
        query=NoNamespace,
        body=StartBody,
        answers={201: Started, 200: Started},
        refuses=(409,),
        sends=StartInstance,
    ),
    Endpoint(
        method="POST",
        path="/workflows/{instance_id}/signal",
        summary="Send a signal; it is kept until the workflow reads it.",
        handler=signal,
        query=NoNamespace,
        body=SignalBody,
        answers={200: Settled},
        refuses=(409,),
        sends=TellInstance,
        roles="client, admin",
    ),
    Endpoint(
        method="POST",
        path="/workflows/{instance_id}/cancel",
        summary="Ask an instance to stop; its code may clean up first.",
        handler=cancel,
        query=NoNamespace,
        body=CancelBody,
        answers={200: Settled},
        refuses=(409,),
        sends=TellInstance,
        roles="operator, admin",
    ),
    Endpoint(
        method="DELETE",
        path="/workflows/{instance_id}",
        summary="Remove an instance with all its children.",
        handler=delete,
        query=DeleteQuery,
        answers={200: Removed},
        refuses=(409,),
        sends=DeleteInstances,
    ),
)

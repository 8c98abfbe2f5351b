"""`/workflows/{id}/reset|fork|fail`: have an instance go on from an earlier event, go on in a copy, or end."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from starlette.responses import Response

from holdfast.app.workflows.handle import MAX_SEED
from holdfast.app.workflows.rewind import fail_command, fork_command, reset_command
from holdfast.model.payloads import NULL, admit_object
from holdfast.model.times import milliseconds
from holdfast.model.workflows.commands import FailInstance, ForkInstance, ResetInstance
from holdfast.stores.protocol import View
from holdfast.web.api.bodies import ReasonBody
from holdfast.web.api.endpoint import Ask, Endpoint, Settled, done, told
from holdfast.web.api.paging import NoNamespace
from holdfast.web.api.workflows import found_instance
from holdfast.workflows.api.operations import demand_instance_id

EventId = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class ResetBody(ReasonBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last event that is kept; by default before the turn that failed."""

    to: EventId | None = None


class ForkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last event that is copied, the id of the new instance, and other arguments: with these it begins anew."""

    to: EventId | None = None
    id: str | None = None
    input: msgspec.Raw = NULL


class Rewound(msgspec.Struct, frozen=True):
    """It goes on behind this event."""

    instance_id: str
    until: int


class Forked(msgspec.Struct, frozen=True):
    """The new instance, and what it began with."""

    instance_id: str
    forked_from: str
    until: int


async def reset(ask: Ask[NoNamespace, ResetBody]) -> Response:
    """Have an instance that has ended or is blocked go on from an event, as its next execution."""
    body = ask.body
    command = await ask.look(
        lambda view: reset_command(
            view, _blobs(ask), _found(ask, view), to=body.to, now_ms=_now(ask), cmd=ask.cmd, reason=body.reason
        )
    )
    await ask.order(command)
    return told(Rewound(command.instance_id, command.until))


async def fork(ask: Ask[NoNamespace, ForkBody]) -> Response:
    """Begin another instance with a copy of this one's history up to an event."""
    body, one = ask.body, ask.path["instance_id"]
    chosen = demand_instance_id(ask.id_of(body.id, "instance"))
    given = None if bytes(body.input) == b"null" else bytes(admit_object(body.input, "input")).decode()

    def made(view: View) -> ForkInstance:
        return fork_command(
            view,
            _blobs(ask),
            _found(ask, view),
            fork=chosen,
            to=body.to,
            given=given,
            now_ms=_now(ask),
            seed=UUID(ask.new_id("seed")).int & MAX_SEED,
            cmd=ask.cmd,
        )

    command = await ask.look(made)
    await ask.order(command)
    return told(Forked(chosen, one, command.until), 201)


async def fail(ask: Ask[NoNamespace, ReasonBody]) -> Response:
    """End an instance that is blocked or damaged as FAILED, without its code."""
    reason = ask.body.reason
    command = await ask.look(
        lambda view: fail_command(view, _blobs(ask), _found(ask, view), reason=reason, now_ms=_now(ask), cmd=ask.cmd)
    )
    await ask.order(command)
    return done(command.instance_id)


def _found(ask: Ask[Any, Any], view: View) -> str:
    """Give the id of the path. Before anything is read of it: how it stands is for who may see it."""
    return found_instance(ask, view, ask.path["instance_id"])


def _blobs(ask: Ask[Any, Any]) -> Any:
    return ask.engine.store.blobs


def _now(ask: Ask[Any, Any]) -> int:
    return milliseconds(ask.now)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/workflows/{instance_id}/reset",
        summary="Have an instance that has ended or is blocked go on from an event, as its next execution.",
        handler=reset,
        query=NoNamespace,
        body=ResetBody,
        answers={200: Rewound},
        refuses=(409,),
        sends=ResetInstance,
    ),
    Endpoint(
        method="POST",
        path="/workflows/{instance_id}/fork",
        summary="Begin another instance with a copy of this one's history up to an event.",
        handler=fork,
        query=NoNamespace,
        body=ForkBody,
        answers={201: Forked},
        refuses=(409,),
        sends=ForkInstance,
    ),
    Endpoint(
        method="POST",
        path="/workflows/{instance_id}/fail",
        summary="End an instance that is blocked or damaged as FAILED, without its code.",
        handler=fail,
        query=NoNamespace,
        body=ReasonBody,
        answers={200: Settled},
        refuses=(409,),
        sends=FailInstance,
    ),
)

"""`/groups`: jobs that belong together."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from holdfast.engine.views.groups import FullGroup, GroupRow, full_group, group_row, last_members
from holdfast.errors import PayloadTooLarge
from holdfast.model.commands import CancelGroup, CreateGroup
from holdfast.model.groups import Group, GroupMode, GroupStatus, OnFailure
from holdfast.model.ids import JobId
from holdfast.model.outcomes import GroupCancelled, Grouped
from holdfast.model.times import Timestamp
from holdfast.stores.protocol import GroupQuery, View
from holdfast.web.api.bodies import ReasonBody
from holdfast.web.api.endpoint import SEEN, Ask, Endpoint, told
from holdfast.web.api.jobs import JobBody, new_job
from holdfast.web.api.lookup import found, id_within
from holdfast.web.api.paging import Page, PageQuery, Query, walked

#: Members of a group; and those that are shown unless more are asked for.
MOST, SHOWN = 10_000, 200


#: A new job, or the id of one that waits.
Member: Any = JobBody | str
Callback: Any = JobBody | None


class GroupBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members in their order: new jobs, and ids of jobs that wait and belong to no group."""

    members: list[Member]
    group_id: str | None = None
    name: str | None = None
    mode: GroupMode = GroupMode.SEQUENTIAL
    on_failure: OnFailure = OnFailure.STOP
    #: Made in the commit that ends the group, however it ends.
    callback: Callback = None


class GroupsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which groups to list, newest first."""

    status: GroupStatus | None = None


class MembersQuery(Query, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many members to show."""

    members: Annotated[int, msgspec.Meta(ge=0, le=MOST)] = SHOWN


class CancelGroupBody(ReasonBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, and whether those that run are asked to stop."""

    running: bool = False


class GroupMade(msgspec.Struct, frozen=True):
    """The group is there, with its members in their order."""

    group_id: str
    members: list[JobId]
    created: bool


class GroupStopped(msgspec.Struct, frozen=True):
    """How many members were ended, and how many were asked to stop."""

    group_id: str
    cancelled: int
    requested: int


async def list_groups(ask: Ask[GroupsQuery, None]) -> Response:
    """List groups, newest first."""
    ask.demand_list(namespace=ask.namespace)
    query = ask.query
    start = ask.place(tuple[Timestamp, str])

    def rows(view: View) -> Any:
        kept, at = walked(
            lambda before, limit: view.groups(
                GroupQuery(namespace=ask.namespace, status=query.status, before=before, limit=limit)
            ),
            lambda one: (one.created_at, one.group_id),
            start,
            query.limit,
        )
        return map(group_row, kept), at

    return await ask.page(rows)


async def create(ask: Ask[Query, GroupBody]) -> Response:
    """Make a group of jobs, all or none."""
    body = ask.body
    if len(body.members) > MOST:
        raise PayloadTooLarge(f"{len(body.members):,} members are more than {MOST:,}. Nothing was stored.")
    command = CreateGroup(
        group_id=ask.id_of(body.group_id, "group"),
        members=tuple(
            JobId(one) if isinstance(one, str) else new_job(ask, one, at) for at, one in enumerate(body.members)
        ),
        namespace=ask.namespace,
        name=body.name,
        mode=body.mode,
        on_failure=body.on_failure,
        callback=None if body.callback is None else new_job(ask, body.callback, -1),
        cmd=ask.cmd,
    )
    outcome = await ask.order(command)
    assert isinstance(outcome, Grouped)
    return told(GroupMade(outcome.group_id, list(outcome.members), outcome.created), 201 if outcome.created else 200)


async def get(ask: Ask[MembersQuery, None]) -> Response:
    """Give a group with its members, each by the last of its retries."""

    def whole(view: View) -> Any:
        group, reasons = found(ask, view, Group, ask.path["group_id"]), ask.reasons(view)
        members = last_members(view, group.group_id)[: ask.query.members]
        return full_group(group, [(job, reasons.of(job)) for job in members])

    return told(await ask.look(whole))


async def cancel(ask: Ask[Query, CancelGroupBody]) -> Response:
    """End the members that wait; with `running` ask the others to stop."""
    body, group_id = ask.body, await id_within(ask, Group, ask.path["group_id"])
    outcome = await ask.order(CancelGroup(group_id=group_id, running=body.running, reason=body.reason, cmd=ask.cmd))
    assert isinstance(outcome, GroupCancelled)
    return told(GroupStopped(group_id, outcome.cancelled, outcome.requested))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/groups",
        summary="List groups, newest first.",
        handler=list_groups,
        query=GroupsQuery,
        answers={200: Page[GroupRow]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="POST",
        path="/groups",
        summary="Make a group of jobs, all or none.",
        handler=create,
        body=GroupBody,
        answers={201: GroupMade, 200: GroupMade},
        refuses=(404, 409),
        sends=CreateGroup,
    ),
    Endpoint(
        method="GET",
        path="/groups/{group_id}",
        summary="Give a group with its members, each by the last of its retries.",
        handler=get,
        query=MembersQuery,
        answers={200: FullGroup},
        roles=SEEN,
    ),
    Endpoint(
        method="POST",
        path="/groups/{group_id}/cancel",
        summary="End the members that wait, or ask all to stop.",
        handler=cancel,
        body=CancelGroupBody,
        answers={200: GroupStopped},
        refuses=(409,),
        sends=CancelGroup,
    ),
)

"""`/workflows`, read: durable runs, what they say and wait for, their histories. They belong to no namespace."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from holdfast.app.workflows.history import exported
from holdfast.app.workflows.records import (
    GOING,
    ExecutionRow,
    FullInstance,
    InstanceRow,
    execution_row,
    full_instance,
    instance_row,
)
from holdfast.app.workflows.state import state_of
from holdfast.engine.workflow_reasons import reason_in
from holdfast.errors import NotFound, WorkflowNotFound
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import Execution, HistoryRow, InstanceStatus, execution_key
from holdfast.rules.access.roles import FLOWS
from holdfast.rules.access.visibility import started_by
from holdfast.rules.explain import Reason
from holdfast.rules.workflows.messages import is_expected
from holdfast.stores.protocol import InstanceQuery, StartQuery, View
from holdfast.web.api.endpoint import SEEN, Ask, Endpoint, told
from holdfast.web.api.paging import NoNamespace, Page, PlainPageQuery, no_cursor, walked
from holdfast.workflows.provider.payloads import events_of
from holdfast.workflows.replay.export import HistoryFile, write_file

#: A place in the list: the number of an instance; or the id of one that nobody has begun, those come first.
#: No number is larger: a store could not even look for it.
Place = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | str


class InstancesQuery(PlainPageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which instances to list: those that nobody has begun by id, then the others, newest first."""

    status: InstanceStatus | None = None
    workflow: str | None = None
    version: str | None = None
    parent: str | None = None
    #: The code of its reason, such as waiting or blocked.
    reason: str | None = None


class HistoryQuery(PlainPageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events: of which execution, by default the current one, and before which."""

    execution: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None


class ExportQuery(NoNamespace, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether every word and number of payloads is left out."""

    redact: bool = False


class Executions(msgspec.Struct, frozen=True):
    """All executions that are kept, oldest first."""

    items: list[ExecutionRow]  # type: ignore[valid-type]  # made of the record
    as_of: int


class InstanceExplained(msgspec.Struct, frozen=True):
    """Why an instance is where it is."""

    instance_id: str
    status: InstanceStatus
    reason: Reason


async def list_instances(ask: Ask[InstancesQuery, None]) -> Response:
    """List instances, newest first; before them those that no worker has begun yet. Clients see what they started."""
    query, own = ask.query, ask.submitter(namespace=FLOWS)
    start: Place | None = ask.place(Place)

    def rows(view: View) -> Any:
        ids: list[str] = []
        at: Place | None = None
        if not isinstance(start, int) and query.status in (None, *GOING):
            asked = StartQuery(
                orchestration_name=query.workflow, submitted_by=own, after=start or "", limit=query.limit + 1
            )
            waiting = [one.instance_id for one in view.unbegun(asked)]
            ids = waiting[: query.limit]
            at = ids[-1] if len(waiting) > query.limit else None
        begun: list[Any] = []
        if at is None:
            begun, at = _begun(ask, view, own, start if isinstance(start, int) else None, query.limit - len(ids))
        return [*_rows(ask, view, ids), *begun], at

    return await ask.page(rows)


def _begun(
    ask: Ask[InstancesQuery, None], view: View, own: str | None, before: int | None, limit: int
) -> tuple[list[Any], int | None]:
    query = ask.query
    statuses = None if query.status is None else GOING if query.status in GOING else (query.status,)
    if not limit:
        newest = view.instances(InstanceQuery(submitted_by=own, limit=1))
        return [], newest[0].seq + 1 if newest else None
    kept, at = walked(
        lambda place, most: view.instances(
            InstanceQuery(
                statuses=statuses,
                orchestration_name=query.workflow,
                parent=query.parent,
                submitted_by=own,
                before=place,
                limit=most,
            )
        ),
        lambda one: one.seq,
        before,
        limit,
        (lambda one: bool(_rows(ask, view, [one.instance_id]))) if query.version or query.reason else None,
    )
    return _rows(ask, view, [one.instance_id for one in kept]), at


def _rows(ask: Ask[InstancesQuery, None], view: View, ids: list[str]) -> list[Any]:
    """Give these instances as rows, without those that a filter leaves out."""
    query, store, now = ask.query, ask.engine.store, ask.now
    workers = store.workers.all()
    rows = []
    for one in ids:
        state = state_of(view, store.blobs, one)
        reason = reason_in(view, one, now, workers, ask.eyes(view))
        if (
            query.version in (None, state.version)
            and query.reason in (None, reason.code)
            and query.parent in (None, state.parent)
        ):
            rows.append(instance_row(state, reason))
    return rows


async def get(ask: Ask[NoNamespace, None]) -> Response:
    """Give an instance whole: what it says, its keys, what it waits for, its open questions, what it returned."""

    def whole(view: View) -> Any:
        store, one = ask.engine.store, _found(ask, view)
        state = state_of(view, store.blobs, one)
        reason = reason_in(view, one, ask.now, store.workers.all(), ask.eyes(view))
        return full_instance(view, store.blobs, state, reason)

    return told(await ask.look(whole))


async def history(ask: Ask[HistoryQuery, None]) -> Response:
    """List the events of an execution, newest first."""
    query = ask.query
    start: tuple[int, int] | None = ask.place(tuple[int, int])
    # The next page is of the execution of the one before, although there may be a newer one by then.
    chosen, before = (query.execution, query.before) if start is None else start
    if query.execution not in (None, chosen):
        raise no_cursor(query.cursor)

    def found(view: View) -> Any:
        one, blobs = _found(ask, view), ask.engine.store.blobs
        number = chosen or state_of(view, blobs, one).execution_id
        execution = view.get(Execution, execution_key(one, number))
        if execution is None:
            if chosen is not None:
                raise NotFound(f"instance {one!r:.220} has no execution {number}.", instance=one[:200])
            return [], None
        top = execution.last_event_id + 1 if before is None else min(before, execution.last_event_id + 1)
        rows, more = _events_before(view, execution.history_id, top, query.limit)
        events = events_of(blobs, rows, number, one)[::-1]
        return events, (number, events[-1].event_id) if more else None

    return await ask.page(found)


def _events_before(view: View, history_id: int, before: int, limit: int) -> tuple[list[HistoryRow], bool]:
    """Give the last `limit` events before one, in order, and whether there are more. Their ids may have gaps."""
    reach = limit
    while True:
        after = max(0, before - 1 - reach)
        rows = [row for row in view.history(history_id, after, reach + 1) if row.event_id < before]
        if len(rows) > limit or after == 0:
            return list(rows[-limit:]), len(rows) > limit
        reach *= 2


async def executions(ask: Ask[NoNamespace, None]) -> Response:
    """List the executions of an instance, oldest first."""

    def listed(view: View) -> Executions:
        return Executions([execution_row(one) for one in view.executions(_found(ask, view))], view.seq)

    return told(await ask.look(listed))


async def explain(ask: Ask[NoNamespace, None]) -> Response:
    """Say why an instance is where it is."""

    def why(view: View) -> InstanceExplained:
        store = ask.engine.store
        state = state_of(view, store.blobs, _found(ask, view))
        reason = reason_in(view, state.id, ask.now, store.workers.all(), ask.eyes(view))
        return InstanceExplained(state.id, state.status, reason)

    return told(await ask.look(why))


async def export(ask: Ask[ExportQuery, None]) -> Response:
    """Give all histories of an instance as one file."""
    blobs = ask.engine.store.blobs
    file = await ask.look(lambda view: exported(view, blobs, _found(ask, view), redact=ask.query.redact))
    return Response(write_file(file), media_type="application/json", headers={"Cache-Control": "no-store"})


def _found(ask: Ask[Any, Any], view: View) -> str:
    return found_instance(ask, view, ask.path["instance_id"])


def found_instance(ask: Ask[Any, Any], view: View, one: str) -> str:
    """Give an id if there is such an instance, begun or not. Raises WorkflowNotFound or Forbidden."""
    own = ask.submitter(namespace=FLOWS)
    if not is_expected(view, one) or own not in (None, started_by(one, view)):
        raise WorkflowNotFound(f"there is no instance {one!r:.220}.", instance=one[:200])
    return one


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/workflows",
        summary="List instances, newest first; before them those that no worker has begun yet.",
        handler=list_instances,
        query=InstancesQuery,
        answers={200: Page[InstanceRow]},  # type: ignore[valid-type]  # made of the record
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/workflows/{instance_id}",
        summary="Give an instance whole.",
        handler=get,
        query=NoNamespace,
        answers={200: FullInstance},
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/workflows/{instance_id}/history",
        summary="List the events of an execution, newest first.",
        handler=history,
        query=HistoryQuery,
        answers={200: Page[Event]},
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/workflows/{instance_id}/executions",
        summary="List the executions of an instance, oldest first.",
        handler=executions,
        query=NoNamespace,
        answers={200: Executions},
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/workflows/{instance_id}/explain",
        summary="Say why an instance is where it is.",
        handler=explain,
        query=NoNamespace,
        answers={200: InstanceExplained},
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/workflows/{instance_id}/export",
        summary="Give all histories of an instance as one file.",
        handler=export,
        query=ExportQuery,
        answers={200: HistoryFile},
        roles=SEEN,
        refuses=(409,),
    ),
)

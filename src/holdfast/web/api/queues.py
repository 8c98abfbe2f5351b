"""`/queues` and `/dispatch`: how full they are, their limits, and whether anything is leased."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.engine.views.queues import FullQueue, ListedQueue, full_queue, listed_queue, queue_rows
from holdfast.errors import QueueNotFound
from holdfast.model.commands import (
    Command,
    Normalize,
    PauseDispatch,
    PauseQueue,
    ResumeDispatch,
    ResumeQueue,
    SetQueue,
)
from holdfast.model.events import QueueChanges
from holdfast.stores.protocol import View
from holdfast.web.api.bodies import Empty, ReasonBody, changes_of, strict_whole
from holdfast.web.api.endpoint import Ask, Endpoint, Settled, done, told
from holdfast.web.api.paging import NoNamespace, Page, PageQuery, Query, sliced

ChangesBody = strict_whole(QueueChanges)


async def list_queues(ask: Ask[PageQuery, None]) -> Response:
    """List queues by name."""
    ask.demand_list(namespace=ask.namespace)
    start = ask.place(str)

    def rows(view: View) -> Any:
        kept, at = sliced(queue_rows(view, ask.now, ask.namespace), lambda row: row.name, start, ask.query.limit)
        return [listed_queue(row, view, ask.now) for row in kept], at

    return await ask.page(rows)


async def get(ask: Ask[Query, None]) -> Response:
    """Give a queue with the jobs at its head."""
    ask.demand_list(namespace=ask.namespace)
    name = ask.path["queue"]

    def whole(view: View) -> Any:
        row = next((row for row in queue_rows(view, ask.now, ask.namespace) if row.name == name), None)
        if row is None:
            raise QueueNotFound(f"queue {name!r:.220} has no jobs and no settings.", queue=name[:200])
        return full_queue(row, ask.reasons(view), ask.now)

    return told(await ask.look(whole))


async def update(ask: Ask[Query, Any]) -> Response:
    """Change the limits of a queue."""
    changes: QueueChanges = changes_of(ask.body)
    return await _ordered(ask, SetQueue(queue=_queue(ask), namespace=ask.namespace, changes=changes, cmd=ask.cmd))


async def pause(ask: Ask[Query, ReasonBody]) -> Response:
    """Stop leasing from a queue."""
    command = PauseQueue(queue=_queue(ask), namespace=ask.namespace, reason=ask.body.reason, cmd=ask.cmd)
    return await _ordered(ask, command)


async def resume(ask: Ask[Query, Empty]) -> Response:
    """Lease from a queue again."""
    return await _ordered(ask, ResumeQueue(queue=_queue(ask), namespace=ask.namespace, cmd=ask.cmd))


async def normalize(ask: Ask[Query, Empty]) -> Response:
    """Space the positions of a queue's jobs evenly again."""
    return await _ordered(ask, Normalize(queue=_queue(ask), namespace=ask.namespace, cmd=ask.cmd))


def _queue(ask: Ask[Any, Any]) -> str:
    return ask.path["queue"]


async def _ordered(ask: Ask[Any, Any], command: Command) -> Response:
    await ask.order(command)
    return done(_queue(ask))


async def pause_dispatch(ask: Ask[NoNamespace, ReasonBody]) -> Response:
    """Stop leasing altogether."""
    await ask.order(PauseDispatch(reason=ask.body.reason, cmd=ask.cmd))
    return done("dispatch")


async def resume_dispatch(ask: Ask[NoNamespace, Empty]) -> Response:
    """Lease again."""
    await ask.order(ResumeDispatch(cmd=ask.cmd))
    return done("dispatch")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/queues",
        summary="List queues with the number of their jobs by status.",
        handler=list_queues,
        query=PageQuery,
        answers={200: Page[ListedQueue]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}",
        summary="Give a queue with the jobs at its head.",
        handler=get,
        answers={200: FullQueue},
    ),
    Endpoint(
        method="PATCH",
        path="/queues/{queue}",
        summary="Change the limits of a queue; null takes one away.",
        handler=update,
        body=ChangesBody,
        answers={200: Settled},
        refuses=(409,),
        sends=SetQueue,
    ),
    Endpoint(
        method="POST",
        path="/queues/{queue}/pause",
        summary="Stop leasing from a queue; what runs goes on.",
        handler=pause,
        body=ReasonBody,
        answers={200: Settled},
        refuses=(409,),
        sends=PauseQueue,
    ),
    Endpoint(
        method="POST",
        path="/queues/{queue}/resume",
        summary="Lease from a queue again.",
        handler=resume,
        body=Empty,
        answers={200: Settled},
        refuses=(409,),
        sends=ResumeQueue,
    ),
    Endpoint(
        method="POST",
        path="/queues/{queue}/normalize",
        summary="Space the positions of a queue's jobs evenly again; their order stays.",
        handler=normalize,
        body=Empty,
        answers={200: Settled},
        refuses=(409,),
        sends=Normalize,
    ),
    Endpoint(
        method="POST",
        path="/dispatch/pause",
        summary="Stop leasing altogether.",
        handler=pause_dispatch,
        query=NoNamespace,
        body=ReasonBody,
        answers={200: Settled},
        refuses=(409,),
        sends=PauseDispatch,
    ),
    Endpoint(
        method="POST",
        path="/dispatch/resume",
        summary="Lease again.",
        handler=resume_dispatch,
        query=NoNamespace,
        body=Empty,
        answers={200: Settled},
        refuses=(409,),
        sends=ResumeDispatch,
    ),
)

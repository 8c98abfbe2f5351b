"""`/decisions`: questions that workflows asked people, and their answers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.responses import Response

from holdfast.app.workflows.decisions import DecisionState, answer_command, state_of
from holdfast.app.workflows.records import DecisionRow, decision_row
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import AnswerDecision
from holdfast.model.workflows.decisions import Decision
from holdfast.rules.access.roles import FLOWS
from holdfast.stores.protocol import View
from holdfast.web.api.endpoint import SEEN, Ask, Endpoint, Settled, done, told
from holdfast.web.api.lookup import found
from holdfast.web.api.paging import NoNamespace, Page, PlainPageQuery, sliced


class DecisionsQuery(PlainPageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which questions to list, oldest first; overdue are open ones whose time is over."""

    state: Literal["open", "overdue", "answered"] | None = None
    instance: str | None = None


class ResolveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the options, or words, or both."""

    chosen: str | None = None
    message: str | None = None


def _is(state: DecisionState, wanted: str | None, now: Timestamp) -> bool:
    match wanted:
        case None:
            return True
        case "open":
            return state.is_open
        case "overdue":
            return state.is_open and state.expires_at is not None and state.expires_at <= now
        case _:
            return not state.is_open


async def list_decisions(ask: Ask[DecisionsQuery, None]) -> Response:
    """List questions, oldest first."""
    ask.demand_list(namespace=FLOWS)
    query, now = ask.query, ask.now
    start = ask.place(tuple[Timestamp, str])

    def rows(view: View) -> Any:
        having = view.all(Decision) if query.instance is None else view.decisions(query.instance)
        wanted = (one for one in map(state_of, having) if _is(one, query.state, now))
        kept, at = sliced(wanted, lambda one: (one.created_at, one.id), start, query.limit)
        return map(decision_row, kept), at

    return await ask.page(rows)


async def get(ask: Ask[NoNamespace, None]) -> Response:
    """Give a question with its options and its answer."""
    return told(await ask.look(lambda view: decision_row(state_of(_found(ask, view)))))


async def resolve(ask: Ask[NoNamespace, ResolveBody]) -> Response:
    """Answer a question; the first answer wins."""
    record, body = await ask.look(lambda view: _found(ask, view)), ask.body
    command = answer_command(record, body.chosen, body.message, by=ask.access.name, cmd=ask.cmd)
    await ask.order(command)
    return done(record.decision_id)


def _found(ask: Ask[Any, Any], view: View) -> Decision:
    return found(ask, view, Decision, ask.path["decision_id"])


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/decisions",
        summary="List questions that workflows asked, oldest first.",
        handler=list_decisions,
        query=DecisionsQuery,
        answers={200: Page[DecisionRow]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="GET",
        path="/decisions/{decision_id}",
        summary="Give a question with its options and its answer.",
        handler=get,
        query=NoNamespace,
        answers={200: DecisionRow},
        roles=SEEN,
    ),
    Endpoint(
        method="POST",
        path="/decisions/{decision_id}/resolve",
        summary="Answer a question; the first answer wins.",
        handler=resolve,
        query=NoNamespace,
        body=ResolveBody,
        answers={200: Settled},
        refuses=(409,),
        sends=AnswerDecision,
    ),
)

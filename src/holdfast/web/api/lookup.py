"""Things by the id in a path, and those that have names listed by them.

What somebody may not see is not there, nor what is in another namespace than was named. Whoever sees nothing of a kind
is told so, whatever is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.responses import Response

from holdfast.errors import (
    DecisionNotFound,
    DeliveryNotFound,
    GroupNotFound,
    JobNotFound,
    NotFound,
    ReservationNotFound,
    RunNotFound,
    ScheduleNotFound,
    TemplateNotFound,
    WebhookNotFound,
)
from holdfast.model.groups import Group
from holdfast.model.jobs import Job, Run
from holdfast.model.records import DoneCommand, Record, key_of
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.model.workflows.decisions import Decision
from holdfast.rules.access.visibility import home_of, may_see_some
from holdfast.stores.protocol import View
from holdfast.web.api.endpoint import Ask
from holdfast.web.api.paging import PageQuery, sliced

R = TypeVar("R", bound=Record)
N = TypeVar("N", Template, Schedule)

_ERRORS: dict[type, tuple[type[NotFound], str]] = {
    Job: (JobNotFound, "job"),
    Run: (RunNotFound, "run"),
    Group: (GroupNotFound, "group"),
    Template: (TemplateNotFound, "template"),
    Schedule: (ScheduleNotFound, "schedule"),
    Reservation: (ReservationNotFound, "reservation"),
    Webhook: (WebhookNotFound, "webhook"),
    Delivery: (DeliveryNotFound, "delivery"),
    Decision: (DecisionNotFound, "decision"),
}


def found(ask: Ask[Any, Any], view: View, kind: type[R], key: str) -> R:
    """Give the record of that id. Raises its NotFound, or Forbidden."""
    return _demanded(ask, view, kind, key, view.get(kind, key))


def found_named(ask: Ask[Any, Any], view: View, kind: type[N], word: str) -> N:
    """Give the template or schedule of that id, or of that name. Raises its NotFound, or Forbidden."""
    there = view.get(kind, word)
    if there is None or not ask.sees(there, view):
        there = view.by_name(kind, ask.namespace, word)
    return _demanded(ask, view, kind, word, there)


async def id_to_delete(ask: Ask[Any, Any], kind: type[N], word: str) -> str:
    """Give the id of what is to be deleted. Raises its NotFound, or Forbidden.

    What is gone has the word itself, if the key was used before: then the command is answered as it was the first time.
    """

    def looking(view: View) -> str:
        try:
            return key_of(found_named(ask, view, kind, word))
        except NotFound:
            if ask.key and view.get(DoneCommand, ask.cmd) is not None:
                return word
            raise

    return await ask.look(looking)


async def list_named(ask: Ask[PageQuery, None], kind: type[N], row: Callable[[N], Any]) -> Response:
    """List the templates or schedules of a namespace by name. Raises Forbidden."""
    ask.demand_list(namespace=ask.namespace)
    start = ask.place(str)

    def rows(view: View) -> Any:
        mine = (one for one in view.all(kind) if one.namespace == ask.namespace)
        kept, at = sliced(mine, lambda one: one.name, start, ask.query.limit)
        return map(row, kept), at

    return await ask.page(rows)


async def id_within(ask: Ask[Any, Any], kind: type[Record], key: str) -> str:
    """Give the id of what a command is about. Raises its NotFound for what lies in another namespace than was named.

    What is not there at all is left to the command: it may be a repeat, and what it was about gone.
    """
    if ask.named is not None:
        there = await ask.look(lambda view: view.get(kind, key))
        if there is not None and home_of(there) != ask.named:
            raise _not_found(kind, key)
    return key


def _demanded(ask: Ask[Any, Any], view: View, kind: type[R], key: str, record: R | None) -> R:
    if not may_see_some(ask.access, kind):
        raise ask.forbidden()
    if record is None or ask.named not in (None, home_of(record)) or not ask.sees(record, view):
        raise _not_found(kind, key)
    return record


def _not_found(kind: type, key: str) -> NotFound:
    error, noun = _ERRORS[kind]
    return error(f"there is no {noun} {key!r:.220}. Nothing was changed.", **{f"{noun}_id": key[:200]})

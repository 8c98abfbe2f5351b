"""Things by the id in a path.

Whoever may not see one is told so; what is in another namespace than was named is not there.
"""

from __future__ import annotations

from typing import Any, TypeVar

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
from holdfast.model.decisions import Decision
from holdfast.model.groups import Group
from holdfast.model.jobs import Job, Run
from holdfast.model.records import Record
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.rules.access import may_see_some
from holdfast.stores.protocol import View
from holdfast.web.api.endpoints import Ask

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
    return _demanded(ask, kind, key, view.get(kind, key))


def found_named(ask: Ask[Any, Any], view: View, kind: type[N], word: str) -> N:
    """Give the template or schedule of that id, or of that name. Raises its NotFound, or Forbidden."""
    return _demanded(ask, kind, word, view.get(kind, word) or view.by_name(kind, ask.namespace, word))


def _demanded(ask: Ask[Any, Any], kind: type[R], key: str, record: R | None) -> R:
    if not may_see_some(ask.access, kind):
        raise ask.forbidden()
    if record is None or ask.named not in (None, getattr(record, "namespace", ask.named)):
        error, noun = _ERRORS[kind]
        raise error(f"there is no {noun} {key!r:.220}. Nothing was changed.", **{f"{noun}_id": key[:200]})
    ask.demand_seen(record)
    return record

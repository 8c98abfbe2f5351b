"""Ids and names as people give them: ids whole, by an unambiguous beginning, or `-` for those on stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

from holdfast.cli.store_access.target import Target
from holdfast.cli.store_access.visibility import seen
from holdfast.engine.views.reservations import active
from holdfast.errors import (
    AmbiguousId,
    GroupNotFound,
    InvalidValue,
    JobNotFound,
    NotFound,
    ReservationNotFound,
    ScheduleNotFound,
    TemplateNotFound,
)
from holdfast.model.groups import Group
from holdfast.model.jobs import Job
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.stores.protocol import View

N = TypeVar("N", Template, Schedule)

#: Candidates an ambiguous beginning lists.
CANDIDATES = 10


def given(words: Sequence[str]) -> list[str]:
    """Give the ids named on the command line; `-` stands for those on stdin, one a line."""
    named: list[str] = []
    for word in words:
        named += _read_lines() if word == "-" else [word]
    return list(dict.fromkeys(named))


def _read_lines() -> list[str]:
    # What is no text is no id; it will not be found.
    text = sys.stdin.buffer.read().decode(errors="replace")
    return [line.strip() for line in text.split("\n") if line.strip()]


def find(view: View, target: Target, word: str) -> Job:
    """Find the job of that id, or the only one whose id begins so. Raises JobNotFound or AmbiguousId."""
    if not word:
        raise InvalidValue("an id must not be empty.", field="id")
    job = view.get(Job, word)
    if job is None:
        found = _beginning(view, word, Job)
        if len(found) > 1:
            raise _ambiguous(word, found)
        job = view.get(Job, found[0]) if found else None
    if job is None or target.namespace not in (None, job.namespace):
        where = "" if target.namespace is None else f" in namespace {target.namespace!r}"
        raise JobNotFound(
            f"there is no job {word}{where}. Nothing was changed.", hint="See `holdfast jobs ls`.", job_id=word
        )
    return job


def find_all(view: View, target: Target, words: Iterable[str]) -> list[Job]:
    """Find each of these jobs, before anything is done to one of them."""
    jobs = {job.job_id: job for job in (find(view, target, word) for word in words)}
    return list(jobs.values())


def find_group(view: View, target: Target, word: str) -> Group:
    """Find the group of that id, or the only one whose id begins so. Raises GroupNotFound or AmbiguousId."""
    if not word:
        raise InvalidValue("an id must not be empty.", field="id")
    group = view.get(Group, word)
    if group is None:
        found = _beginning(view, word, Group)
        if len(found) > 1:
            raise _ambiguous(word, found)
        group = view.get(Group, found[0]) if found else None
    if group is None or target.namespace not in (None, group.namespace):
        where = "" if target.namespace is None else f" in namespace {target.namespace!r}"
        raise GroupNotFound(
            f"there is no group {word}{where}. Nothing was changed.", hint="See `holdfast groups ls`.", group_id=word
        )
    return group


def find_reservation(view: View, target: Target, word: str) -> Reservation:
    """Find the reservation of that id, or the only one not ended whose id begins so.

    Raises ReservationNotFound or AmbiguousId.
    """
    if not word:
        raise InvalidValue("an id must not be empty.", field="id")
    held = view.get(Reservation, word)
    if held is None:
        found = [one for one in active(view) if one.reservation_id.startswith(word)]
        if len(found) > 1:
            raise _ambiguous(word, [one.reservation_id for one in found])
        held = found[0] if found else None
    if held is None or target.namespace not in (None, held.namespace):
        raise ReservationNotFound(
            f"there is no reservation {word}. Nothing was changed.",
            hint="See `holdfast reservations ls --all`.",
            reservation_id=word,
        )
    return held


def find_named(view: View, target: Target, kind: type[N], word: str) -> N:
    """Find a template or schedule by its name, or by its id. Raises TemplateNotFound, ScheduleNotFound."""
    found = view.by_name(kind, target.name, word) or view.get(kind, word)
    if found is None or target.namespace not in (None, found.namespace):
        error, noun = _NAMED[kind]
        raise error(
            f"there is no {noun} {word}. Nothing was changed.", hint=f"See `holdfast {noun}s ls`.", **{noun: word}
        )
    return found


_NAMED: dict[type, tuple[type[NotFound], str]] = {
    Template: (TemplateNotFound, "template"),
    Schedule: (ScheduleNotFound, "schedule"),
}


def _beginning(view: View, word: str, kind: type[Job | Group]) -> Sequence[str]:
    """Give ids that begin so. Whoever sees only what is their own gives ids whole."""
    return seen(lambda: view.ids_with_prefix(word, CANDIDATES + 1, kind)) or ()


def _ambiguous(word: str, found: Sequence[str]) -> AmbiguousId:
    listed = [str(job_id) for job_id in found[:CANDIDATES]]
    more = ", …" if len(found) > CANDIDATES else ""
    return AmbiguousId(
        f"{word} begins more than one id: {', '.join(listed)}{more}. Nothing was changed.",
        hint="Give more of it.",
        candidates=listed,
    )

"""Looking after a store from outside: check and repair by URL, also where it refuses to open."""

from __future__ import annotations

from typing import Protocol

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidOperation, InvalidValue, StoreDamaged
from holdfast.journal import Journal, JournalOptions
from holdfast.journal.repair import Problem
from holdfast.model.schedules import Schedule
from holdfast.model.times import Timestamp, later, stamp
from holdfast.rules.schedules.next_fire import passes_over
from holdfast.stores.opening import StoreUrl, open_store, parse_url
from holdfast.stores.protocol import Finding, View
from holdfast.stores.wal import finding, with_versions

#: A clock that is wrong by so many seconds mends itself.
SLACK_S = 60.0


class Plan(Protocol):
    """What a repair would do, told before it is done."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        ...

    @property
    def lines(self) -> list[str]:
        """For people: what is damaged, what would be lost, what is kept."""
        ...

    def apply(self) -> list[str]:
        """Do it; give the lines that tell what was done."""
        ...


def check(url: str, *, clock: Clock | None = None) -> list[Finding]:
    """Read everything and list what is wrong; a store that refuses to open is a finding, too."""
    now = stamp((clock or SystemClock()).now())
    where = parse_url(url)
    if where.scheme == "wal":
        problems = Journal.check(where.path, options=_options(where))
        if problems:
            return [finding(problem) for problem in problems]
    try:
        store = open_store(url, readonly=True)
    except StoreDamaged as damage:
        return [finding(Problem.of(damage))]
    try:
        # What is damaged comes first: its schedules may not be what they seem.
        findings = store.check()
        if findings:
            return findings
        with store.read() as view:
            return silent_schedules(view, now)
    finally:
        store.close()


def silent_schedules(view: View, now: Timestamp) -> list[Finding]:
    """Name the schedules that will not fire although they are enabled."""
    found = [_silence(schedule, now) for schedule in view.all(Schedule)]
    return [finding for finding in found if finding is not None]


def _silence(schedule: Schedule, now: Timestamp) -> Finding | None:
    try:
        missed = passes_over(schedule, later(now, SLACK_S))
    except InvalidValue as problem:
        return Finding(
            code="schedule_unplannable",
            message=f"schedule {schedule.name} cannot be planned here, and is paused when it is due: {problem.message}",
            remedy=f"Update the zones of this machine, or run `holdfast schedules update {schedule.name}`.",
            id=schedule.schedule_id,
        )
    if missed is None:
        return None
    # It fired by a clock that had run ahead, and says nothing until the right one is as late as that.
    return Finding(
        code="schedule_ahead",
        message=f"schedule {schedule.name} passes over its fires from {missed} on: the clock had run ahead.",
        remedy=f"Run `holdfast schedules reset {schedule.name}`.",
        id=schedule.schedule_id,
    )


def plan_repair(url: str, *, accept_snapshot: bool = False) -> Plan:
    """Find out what a repair would keep and lose. Raises InvalidOperation where there is none."""
    where = parse_url(url)
    if where.scheme == "dir":
        from holdfast.stores.dir.integrity import repair  # noqa: PLC0415 - only what is used is imported

        return repair.plan(where.path)
    if where.scheme != "wal":
        raise InvalidOperation(
            f"{where.scheme}: has no log of its own to cut back to. Nothing was changed.",
            hint="Run `holdfast store check` to see what is damaged, and restore those records from a backup.",
        )
    return Journal.plan_repair(where.path, options=_options(where), accept_snapshot=accept_snapshot)


def _options(where: StoreUrl) -> JournalOptions:
    return with_versions(JournalOptions(network="allow" if where.network else "refuse"))

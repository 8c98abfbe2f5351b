"""Groups as people see them: a line each, or a page with a bar and the members."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli.render import job_rows
from holdfast.cli.render.bars import bar
from holdfast.cli.render.status_labels import look_of
from holdfast.cli.render.tables import Column, age, ago, id_length, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.model.groups import Group
from holdfast.model.jobs import Job
from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.explain import Reason
from holdfast.rules.groups.effects import callback_of

#: Cells of the bar in a list, and on a page.
SMALL, LARGE = 12, 32

_COLUMNS = (
    Column("STATUS"),
    Column("ID"),
    Column("MODE", spare=True),
    Column("PROGRESS"),
    Column("AGE", right=True),
    Column("NAME"),
)
_MEMBERS = (
    Column("NO", right=True),
    Column("STATUS"),
    Column("ID"),
    Column("TASK"),
    Column("REASON", least=32),
)


def group_table(groups: Sequence[Group], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out a list of groups."""
    size = id_length([group.group_id for group in groups], screen)
    rows = [
        [
            _badge(group, screen),
            safe(group.group_id[:size]),
            group.mode,
            _progress(group, SMALL, screen),
            age(seconds_between(group.created_at, now)),
            safe(group.name or ""),
        ]
        for group in groups
    ]
    return lines(_COLUMNS, rows, screen)


def group_page(group: Group, members: Sequence[tuple[Job, Reason]], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out one group: how far it is, what is not as usual, its members."""
    callback = callback_of(group)
    shown = {
        "id": group.group_id,
        "name": group.name,
        "mode": f"{group.mode}, on failure {group.on_failure}",
        "members": _counts(group),
        "then": callback and f"{callback.job_type} ({callback.job_id})",
        "created": f"{group.created_at}, {ago(seconds_between(group.created_at, now))}",
        "started": group.started_at,
        "finished": group.finished_at,
    }
    titles = max(map(len, shown))
    page = [f"{_badge(group, screen)}  {_progress(group, LARGE, screen)}"]
    page += [f"{screen.faint(title.ljust(titles))}  {safe(value)}" for title, value in shown.items() if value]
    if members:
        page += ["", *_member_table(members, screen)]
    left = group.members - len(members)
    return [*page, *([f"and {left:,} more: --limit {group.members}"] if left else [])]


def _member_table(members: Sequence[tuple[Job, Reason]], screen: Screen) -> list[str]:
    size = id_length([job.job_id for job, _ in members], screen)
    rows = [
        [
            str((job.sequence_number or 0) + 1),
            job_rows.badge(job, reason, screen),
            safe(job.job_id[:size]),
            safe(job.job_type),
            safe(reason.sentence),
        ]
        for job, reason in members
    ]
    return lines(_MEMBERS, rows, screen)


def _badge(group: Group, screen: Screen) -> str:
    look = look_of(group.status)
    return f"{screen.glyph(look)} {screen.paint(group.status, look)}"


def _progress(group: Group, cells: int, screen: Screen) -> str:
    if not group.members:
        return "no members"
    ended = group.members - group.queued - group.running
    return f"[{bar(ended / group.members, cells, unicode=screen.unicode)}] {ended:,} of {group.members:,}"


def _counts(group: Group) -> str:
    counts = {
        "queued": group.queued,
        "running": group.running,
        "completed": group.completed,
        "failed": group.failed,
        "cancelled": group.cancelled,
    }
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return f"{group.members:,}: {said}" if said else "none"

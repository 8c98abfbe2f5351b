"""The page of `top`, laid out for the room there is. Pure: a scene and the viewer's wishes in, lines out."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.cli.render.bars import bar, progress_text
from holdfast.cli.render.status_labels import RUNNING, STUCK
from holdfast.cli.render.tables import LEAST_TEXT, Column, age, id_length, lines, shrink, width
from holdfast.cli.render.terminal import Screen, safe
from holdfast.cli.render.worker_rows import BAR, countdown, worker_table
from holdfast.cli.store_access.snapshot import Scene
from holdfast.engine.views.workers import Held
from holdfast.model.jobs import JobStatus
from holdfast.model.times import seconds_between
from holdfast.stores.protocol import Durability

_QUEUES = (
    Column("QUEUE"),
    Column("WAITING", right=True),
    Column(""),
    Column("RUNNING", right=True),
    Column("FAILED", right=True, spare=True),
    Column("DEAD", right=True, spare=True),
    Column("STATE"),
)
_RUNNING = (
    Column("AGE", right=True),
    Column("ID"),
    Column("TASK"),
    Column("QUEUE", spare=True),
    Column("LEASE", right=True),
    Column("WORKER", spare=True),
    Column("PROGRESS", least=36),
)
#: What `s` goes through.
SORTS = ("age", "progress", "task", "queue")


class Wishes(NamedTuple):
    """What the viewer chose."""

    sort: str = "age"
    #: Only what contains it is listed.
    sought: str = ""
    #: It is being typed.
    typing: bool = False


def page(scene: Scene, wishes: Wishes, screen: Screen, height: int | None = None) -> list[str]:
    """Lay out everything; with a height, as much of each list as fits."""
    sections = [
        section
        for section in (
            _queues(scene, wishes, screen),
            _running(scene, wishes, screen),
            _workers(scene, wishes, screen),
        )
        if len(section) > 1
    ]
    head = _head(scene, screen)
    foot = [] if height is None else ["", _foot(wishes, screen)]
    if height is not None:
        sections = _fit(sections, height - len(head) - len(foot))
    laid = [*head, *(line for section in sections for line in ("", *section)), *foot]
    return laid if height is None else laid[:height]


def _head(scene: Scene, screen: Screen) -> list[str]:
    authority, rates, workers = scene.authority, scene.rates, scene.workers()
    because = f": {safe(authority.dispatch_reason)}" if authority is not None and authority.dispatch_reason else ""
    is_paused = authority is not None and authority.dispatch_paused
    dispatching = "" if authority is None else "dispatching"
    paused = screen.paint(f"dispatch is paused{because}", STUCK) if is_paused else dispatching
    relaxed = f"  {screen.paint('durability relaxed', STUCK)}" if scene.durability is Durability.RELAXED else ""
    oldest = "none" if scene.oldest_due is None else age(seconds_between(scene.oldest_due, scene.at))
    staff = ", ".join(f"{count} {state}" for state, count in (workers or {}).items() if count)
    figures = (
        {}
        if rates is None
        else {
            "enqueued": f"{rates.enqueued:.1f}/s",
            "completed": f"{rates.completed:.1f}/s",
            "failed": f"{rates.failed:.1f}/s",
            "lost leases": f"{rates.lost_leases}/min",
        },
        {
            "waiting": f"{scene.count(JobStatus.QUEUED):,}",
            "oldest due": oldest,
            "running": str(scene.count(JobStatus.RUNNING)),
            **({} if workers is None else {"workers": staff or "none"}),
        },
    )
    told = ["  ".join(f"{screen.faint(title)} {value}" for title, value in row.items()) for row in figures if row]
    first = f"{scene.at[11:19]}Z  {paused}{relaxed}  "
    # A long path is cut rather than anything that matters more.
    store = safe(scene.store)
    room = max(LEAST_TEXT, screen.width - width(first)) if screen.is_terminal else width(store)
    return [f"{first}{shrink(store, room, unicode=screen.unicode)}", *told]


def _foot(wishes: Wishes, screen: Screen) -> str:
    if wishes.typing:
        return f"/{safe(wishes.sought)}_  Enter keeps it, Esc drops it"
    kept = f"  only {safe(wishes.sought)!r}" if wishes.sought else ""
    return screen.faint(f"q quit  / filter  s sort (by {wishes.sort}){kept}")


def _fit(sections: list[list[str]], room: int) -> list[list[str]]:
    """Shorten the longest lists, line by line, until all fit with a blank line above each; say how much is cut."""
    sizes = [len(section) for section in sections]
    while sizes and sum(sizes) + len(sizes) > room and max(sizes) > 2:
        sizes[sizes.index(max(sizes))] -= 1
    return [
        section if size == len(section) else [*section[: size - 1], f"  and {len(section) - size + 1} more"]
        for section, size in zip(sections, sizes, strict=True)
    ]


def _seeks(wishes: Wishes, *texts: str | None) -> bool:
    wanted = wishes.sought.casefold()
    return not wanted or any(wanted in text.casefold() for text in texts if text)


def _queues(scene: Scene, wishes: Wishes, screen: Screen) -> list[str]:
    rows = [row for row in scene.queues if _seeks(wishes, row.name, row.namespace)]
    waiting = {(row.namespace, row.name): row.counts[JobStatus.QUEUED.value] for row in rows}
    most = max(waiting.values(), default=0) or 1
    told = []
    for row in sorted(rows, key=lambda row: (-waiting[row.namespace, row.name], row.namespace, row.name)):
        count = waiting[row.namespace, row.name]
        state = "open" if not row.paused else f"paused: {row.pause_reason}" if row.pause_reason else "paused"
        told.append(
            [
                safe(f"{row.namespace}/{row.name}" if row.namespace else row.name),
                f"{count:,}",
                bar(count / most, BAR, unicode=screen.unicode),
                *(str(row.counts[status.value]) for status in (JobStatus.RUNNING, JobStatus.FAILED, JobStatus.DEAD)),
                safe(state),
            ]
        )
    return lines(_QUEUES, told, screen)


def _running(scene: Scene, wishes: Wishes, screen: Screen) -> list[str]:
    held = [
        one
        for one in scene.running
        if _seeks(wishes, one.job.job_id, one.job.job_type, one.job.queue, one.job.worker_id)
    ]
    size = id_length([one.job.job_id for one in held], screen)
    rows = [
        _running_row(scene, one, size, screen) for one in sorted(held, key=lambda one: _place(scene, wishes.sort, one))
    ]
    return lines(_RUNNING, rows, screen)


def _running_row(scene: Scene, held: Held, size: int, screen: Screen) -> list[str]:
    job, told = held.job, scene.progress.get(held.job.job_id)
    return [
        age(seconds_between(held.since, scene.at)),
        screen.paint(safe(job.job_id[:size]), RUNNING),
        safe(job.job_type),
        safe(job.queue),
        countdown(job, scene.at),
        shrink(safe(job.worker_id or ""), 24, unicode=screen.unicode)
        if screen.is_terminal
        else safe(job.worker_id or ""),
        "" if told is None else progress_text(told, screen, BAR),
    ]


def _place(scene: Scene, sort: str, held: Held) -> tuple[float | str, str, str]:
    """Give a running job's place in the list; among equals the oldest is first."""
    job, told = held.job, scene.progress.get(held.job.job_id)
    match sort:
        case "progress":
            first: float | str = 1.0 if told is None or told.fraction is None else -told.fraction
        case "task":
            first = job.job_type
        case "queue":
            first = job.queue
        case _:
            first = held.since
    return first, held.since, job.job_id


def _workers(scene: Scene, wishes: Wishes, screen: Screen) -> list[str]:
    known = scene.staff or ()
    found = [one for one in known if _seeks(wishes, one.worker.worker_id, one.worker.host, *one.worker.queues)]
    return worker_table(found, scene.at, screen)

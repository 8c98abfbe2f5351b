"""`holdfast status`: the store on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.commands.queues import queue_table
from holdfast.cli.render.output import output_for, output_options
from holdfast.cli.render.status_labels import STUCK
from holdfast.cli.render.tables import age, ago
from holdfast.cli.render.terminal import Screen, safe
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.rates import Pulse
from holdfast.cli.store_access.snapshot import Scene, gather, scene_record
from holdfast.cli.store_access.target import store_options, target
from holdfast.cli.store_access.visibility import say_left_out, seen
from holdfast.model.jobs import JobStatus
from holdfast.model.times import seconds_between
from holdfast.rules.explain import COUNTED
from holdfast.rules.jobs.retention import FAILED_S
from holdfast.stores.protocol import Durability, Store, View

if TYPE_CHECKING:
    from holdfast.engine.views.status import Standing


@click.command(cls=WatchCommand)
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def status(*, watch: float | None, output: str) -> None:
    """Tell whether work is dispatched and by whom, how much there is, and how durable an answer is."""
    place, out = target(), output_for(output)
    pulse = Pulse()

    def look(view: View, store: Store) -> Shown:
        from holdfast.engine.views.status import Standing, standing_of  # noqa: PLC0415 - `--help` starts without it

        scene = gather(view, store, place, pulse)
        # Here alone: `top` looks too often for a question that the authority must think about.
        standing = seen(lambda: standing_of(store)) or Standing()
        say_left_out(*scene.left_out())
        record = {**scene_record(scene), **msgspec.structs.asdict(standing)}
        return [record], lambda: _page(scene, standing, out.screen)

    show(place, out, watch, look, key="store", one=True)


def _page(scene: Scene, standing: Standing, screen: Screen) -> list[str]:
    from holdfast.engine.views.status import recovery_told  # noqa: PLC0415 - the same

    authority, recovery, workers = scene.authority, scene.recovery, scene.workers()
    because = f": {authority.dispatch_reason}" if authority is not None and authority.dispatch_reason else ""
    is_paused = authority is not None and authority.dispatch_paused
    staff = ", ".join(f"{count} {state}" for state, count in (workers or {}).items() if count)
    waiting = scene.count(JobStatus.QUEUED)
    shown = {
        "store": scene.store,
        "dispatch": "" if authority is None else f"paused{because}" if is_paused else "on",
        "durability": scene.durability.value,
        "workers": "" if workers is None else staff or "none",
        "running": str(scene.count(JobStatus.RUNNING)),
        "waiting": f"{waiting}{_since(scene)}",
        "workflows": scene.instances and f"{scene.instances}{' or more' * (scene.instances == COUNTED)} running",
        "decisions": scene.questions and _asked(scene.questions),
        "reserved": ", ".join(row.name for row in scene.queues if row.reservation is not None),
        "set aside": scene.set_aside and _quarantined(scene),
        "adopted": _adopted(scene),
        "opened": recovery_told(standing.last_recovery, standing.replay),
        "recovery": recovery and _recovered(recovery.leases, ago(seconds_between(recovery.at, scene.at))),
        "feed": str(scene.seq),
        "clock": scene.at,
    }
    alarming = {
        "dispatch": is_paused,
        "durability": scene.durability is Durability.RELAXED,
        "workers": workers is not None and not workers["ready"] and waiting > 0,
        "set aside": True,
    }
    titles = max(map(len, shown))
    head = [
        f"{screen.faint(title.ljust(titles))}  {screen.paint(safe(text), STUCK) if alarming.get(title) else safe(text)}"
        for title, text in shown.items()
        if text
    ]
    return [*head, "", *queue_table(list(scene.queues), screen)] if scene.queues else head


def _since(scene: Scene) -> str:
    return "" if scene.oldest_due is None else f", oldest due for {age(seconds_between(scene.oldest_due, scene.at))}"


def _asked(questions: int) -> str:
    return f"{questions} wait{'s' * (questions == 1)} for an answer; see `holdfast decisions ls`"


def _quarantined(scene: Scene) -> str:
    files = f"{scene.set_aside} file{'s' * (scene.set_aside != 1)} that could not be used"
    return f"{files}; see `holdfast store repair {scene.store}`"


def _adopted(scene: Scene) -> str:
    """Tell of adopted jobs, for as long as some of them may be there."""
    found = scene.adopted
    if found is None or seconds_between(found.at, scene.at) > FAILED_S:
        return ""
    ended = f"{found.completed} completed and {found.failed} failed jobs of another program"
    return f"{ended} on {found.at[:10]}; retention counts from then"


def _recovered(leases: int, when: str) -> str:
    return f"{when}, {leases} lease{'s' * (leases != 1)} of an ended process taken back"

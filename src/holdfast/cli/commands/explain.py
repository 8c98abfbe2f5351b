"""`holdfast explain ID`: why a job or an instance is where it is, what stands behind that, and what would change it."""

from __future__ import annotations

import click

from holdfast.cli.render import job_rows
from holdfast.cli.render.output import Record, output_for, output_options
from holdfast.cli.render.status_labels import ways_on
from holdfast.cli.render.terminal import safe
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.ids import find
from holdfast.cli.store_access.target import now, store_options, target
from holdfast.cli.store_access.visibility import reasons_seen, seen
from holdfast.engine.views.jobs import behind
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.workflows.instances import Instance
from holdfast.stores.protocol import Store, View


@click.command(cls=WatchCommand)
@click.argument("word", metavar="ID")
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def explain(*, word: str, watch: float | None, output: str) -> None:
    """Give the one reason why a job or an instance of a workflow is where it is, and the commands that would change it.

    Of a job also the chain behind it. Ids of instances are given whole.
    """
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        if view.get(Job, word) is None and _is_instance(view, word):
            from holdfast.cli.render.instance_explain import explained  # noqa: PLC0415 - half of the package, for instances only

            return explained(view, store, word, out.screen)
        job = find(view, place, word)
        reasons = reasons_seen(view, store, now())
        reason = reasons.of(job)
        chain = behind(view, job, reason)
        links = [(role, other, reasons.of(other)) for role, other in chain]
        # What succeeded, or was carried on by another job, is over for good.
        over = job.status is JobStatus.COMPLETED or (job.has_ended and reason.holder is not None)
        ways = [] if over else ways_on(job.job_id, job.queue, job.namespace, reason.code)
        record: Record = {
            "job_id": job.job_id,
            "status": job.status,
            "reason": reason,
            "chain": [
                {"role": role, "job_id": other.job_id, "status": other.status, "reason": why}
                for role, other, why in links
            ],
            "ways_on": [{"for": wish, "command": command} for wish, command in ways],
        }

        def page() -> list[str]:
            screen = out.screen
            said = [f"{job_rows.badge(job, reason, screen)}  {safe(reason.sentence)}"]
            if reason.holder:
                said.append(f"{screen.faint('held by')}  {safe(reason.holder)}")
            if reason.until:
                said.append(f"{screen.faint('until')}    {reason.until}")
            for role, other, why in links:
                line = f"{job_rows.badge(other, why, screen)}  {safe(other.job_id)}  {safe(why.sentence)}"
                said.append(f"{screen.faint(role)}  {line}")
            if ways:
                said.append(screen.faint("what would change it"))
            said += [f"  {wish}: {safe(command)}" for wish, command in ways]
            return said

        return [record], page

    # There is one record; a job and an instance have this field in common.
    show(place, out, watch, look, key="status", one=True)


def _is_instance(view: View, word: str) -> bool:
    """Tell whether there is an instance of exactly that id, or one that is to begin."""
    if not word:
        return False
    return view.get(Instance, word) is not None or any(
        one.parked is None for one in seen(lambda: view.beginnings(word)) or ()
    )

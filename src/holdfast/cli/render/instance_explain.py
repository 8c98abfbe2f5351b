"""Why an instance is where it is, what it waits for line by line, and what would change it; for `holdfast explain`."""

from __future__ import annotations

from holdfast.app.workflows.decisions import state_of as question_of
from holdfast.app.workflows.state import state_of
from holdfast.cli.render.instance_text import ways_on
from holdfast.cli.render.output import Record
from holdfast.cli.render.terminal import Screen, safe
from holdfast.cli.render.watch import Shown
from holdfast.cli.render.workflow_rows import InstanceSeen, badge, more
from holdfast.cli.store_access.target import now
from holdfast.cli.store_access.visibility import instance_reason_seen, say_left_out, seen
from holdfast.stores.protocol import Store, View


def explained(view: View, store: Store, instance_id: str, screen: Screen) -> Shown:
    """Give the reason as a record, and as a page."""
    state = state_of(view, store.blobs, instance_id)
    reason = instance_reason_seen(view, store, instance_id, now())
    questions = [one for one in map(question_of, view.decisions(instance_id)) if one.is_open]
    activities = seen(lambda: view.activities_of(instance_id))
    if activities is None and any(line.startswith("activity ") for line in state.waiting_on):
        say_left_out("the jobs of its activities")
    jobs = [job.job_id for job in activities or () if not job.has_ended]
    ways = ways_on(state, reason, questions, jobs)
    record: Record = {
        "instance_id": state.id,
        "status": state.status,
        "reason": reason,
        "ways_on": [{"for": wish, "command": command} for wish, command in ways],
    }

    def page() -> list[str]:
        said = [f"{badge(InstanceSeen(state, reason), screen)}  {safe(reason.sentence)}", *more(reason)]
        if reason.until:
            said.append(f"{screen.faint('until')}    {reason.until}")
        if ways:
            said.append(screen.faint("what would change it"))
        return [*said, *(f"  {safe(wish)}: {safe(command)}" for wish, command in ways)]

    return [record], page

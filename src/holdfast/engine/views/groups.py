"""Groups as programs read them, alone or with their members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engine.views.jobs import JobRow, job_row
from holdfast.engine.views.projection import fill, shown
from holdfast.model.groups import Group
from holdfast.model.jobs import Job
from holdfast.rules.explain import Reason
from holdfast.rules.jobs.retry import automatic_heir
from holdfast.stores.protocol import View

GroupRow = shown("GroupRow", Group, without=("callback",))
FullGroup = shown("FullGroup", Group, jobs=list[JobRow])  # type: ignore[valid-type]  # made of others


def group_row(group: Group) -> Any:
    """Give a group as a list shows it."""
    return fill(GroupRow, group)


def full_group(group: Group, members: Sequence[tuple[Job, Reason]]) -> Any:
    """Give a group with these of its members; counts are those of all."""
    return fill(FullGroup, group, jobs=[job_row(job, reason) for job, reason in members])


def last_members(view: View, group_id: str) -> list[Job]:
    """Give the members of a group in their order, each by the last of its automatic retries."""
    return [job for job in view.members(group_id) if automatic_heir(view, job) is None]

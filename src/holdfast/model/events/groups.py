"""What happens to groups."""

from __future__ import annotations

from holdfast.model.events.base import Fact
from holdfast.model.groups import Group, GroupStatus
from holdfast.model.ids import JobId


class GroupCreated(Fact, frozen=True, kw_only=True, tag="group:created"):
    """A group has its members: jobs created by the next events with its id, and queued ones that join it.

    The group carries no counts: they grow as members are created and join.
    """

    group: Group
    #: Queued jobs that become members, with their sequence numbers.
    joined: tuple[tuple[JobId, int], ...] = ()


class GroupChanged(Fact, frozen=True, kw_only=True, tag="group:changed"):
    """A group has another status. With a last one it has ended."""

    group_id: str
    status: GroupStatus


class GroupPruned(Fact, frozen=True, kw_only=True, tag="group:pruned"):
    """Retention removed an ended group, with its members."""

    group_id: str


GroupEvent = GroupCreated | GroupChanged | GroupPruned

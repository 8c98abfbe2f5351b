"""What a role may look up in a store: by what the look-up concerns. Whatever is not allowed here is forbidden.

Every look-up is of exactly one sort; one that is of none is forbidden to all but those who read everything. Knows no
HTTP and no token. What a role may send is said by `access`.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.access import Access, Role
from holdfast.model.groups import Group
from holdfast.model.jobs import Job, Run
from holdfast.model.records import Record
from holdfast.rules.access import FLOWS, KINDS, home_of, may_read
from holdfast.rules.state import State

#: Of one namespace, which is given with it.
OF_NAMESPACE = frozenset(
    {
        "band", "bands", "by_name", "direct", "edge", "ended", "ended_beyond", "groups", "jobs", "queued",
        "ready", "reservation", "running", "running_with", "starts", "webhooks",
    }
)  # fmt: skip
#: Of one thing, or of what belongs to it: that is looked at first.
OF_THING = frozenset(
    {
        "active_of", "deliveries", "get", "last_run", "members", "run_by_token", "running_of", "runs", "schedules_of",
        "successors", "turn_of",
    }
)  # fmt: skip
#: Of workflows.
OF_FLOWS = frozenset(
    {
        "activities", "activities_of", "affinities", "beginnings", "begun_by", "candidates", "children", "decisions",
        "executions", "flow_totals", "held_by", "history", "instances", "is_spoken_of", "keys", "leased", "mail",
        "mail_totals", "owned_queues", "stuck_turns", "timers", "turn_by_token", "visible",
    }
)  # fmt: skip
#: Times, and nothing of what they belong to.
OF_TIMES = frozenset({"next_due"})
#: Of everything there is.
OF_ALL = frozenset(
    {
        "all", "beside", "counts", "due", "ended_queues", "granted_by", "ids_with_prefix", "live_groups",
        "local_leases", "local_turns", "unfollowed",
    }
)  # fmt: skip
#: What a worker must see to do its work: when something is due, whether its jobs are still its own, and histories.
WORKER_SEES = frozenset(
    {
        "ready", "next_due", "get", "starts", "reservation", "direct", "running", "running_with", "running_of",
        "candidates", "history", "keys", "executions", "visible", "turn_by_token", "owned_queues", "stuck_turns",
    }
)  # fmt: skip
#: What a client may ask about what it submitted.
CLIENT_SEES = frozenset({"get", "runs", "last_run", "run_by_token", "successors", "members"})


def may_look(access: Access, look: str, given: dict[str, object], state: State) -> bool:
    """Tell whether they may be told what this look-up finds now."""
    if not _is_within(access, look, given, state):
        return False
    if may_read(access) or (Role.WORKER in access.roles and look in WORKER_SEES):
        return True
    if Role.CLIENT not in access.roles or look not in CLIENT_SEES:
        return False
    thing = _thing(look, given, state)
    return _may_say_none(look) if thing is None else is_own(access, thing, state)


def may_hear(access: Access, run_id: str, state: State) -> bool:
    """Tell whether they may read what a run says."""
    run = state.get(Run, run_id)
    if access.namespaces is not None and (run is None or run.namespace not in access.namespaces):
        return False
    return may_read(access) or (Role.CLIENT in access.roles and run is not None and is_own(access, run, state))


def may_speak(access: Access, run_ids: Iterable[str], state: State) -> bool:
    """Tell whether whoever works may say what these runs say: those of its namespaces."""
    if access.namespaces is None:
        return True
    runs = [state.get(Run, run_id) for run_id in run_ids]
    return all(run is not None and run.namespace in access.namespaces for run in runs)


def _is_within(access: Access, look: str, given: dict[str, object], state: State) -> bool:
    """Tell whether a look-up stays within their namespaces."""
    if access.namespaces is None or look in OF_TIMES:
        return True
    if look in OF_FLOWS:
        return FLOWS in access.namespaces
    if look in OF_NAMESPACE:
        return given.get("namespace", getattr(given.get("query"), "namespace", None)) in access.namespaces
    if look not in OF_THING:
        return False
    thing = _thing(look, given, state)
    return _may_say_none(look) if thing is None else home_of(thing) in access.namespaces


def _may_say_none(look: str) -> bool:
    """Tell whether nothing is to be kept from anybody where a thing is not there. What belonged to it may be."""
    return look == "get"


def _thing(look: str, given: dict[str, object], state: State) -> Record | None:
    """Give what a look-up is about. None if there is no such thing."""
    if look == "get":
        kind, key = given["kind"], given["key"]
        assert isinstance(kind, type)
        assert isinstance(key, str)
        found: Record | None = state.get(kind, key)
        return found
    query = given.get("query")
    named = ((kind, given.get(field, getattr(query, field, None))) for field, kind in KINDS)
    kind, key = next((kind, key) for kind, key in named if isinstance(key, str))
    return state.get(kind, key)


def is_own(access: Access, thing: Record, state: State) -> bool:
    """Tell whether they submitted this: a job, a run of it, or a group of such jobs alone."""
    match thing:
        case Job():
            return thing.submitted_by == access.name
        case Run():
            job = state.get(Job, thing.job_id)
            return job is not None and job.submitted_by == access.name
        case Group():
            members = state.members(thing.group_id)
            return bool(members) and all(job.submitted_by == access.name for job in members)
        case _:
            return False

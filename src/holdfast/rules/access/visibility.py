"""What a role may see: things, by where they belong and by who submitted them; and the look-ups that show them.

What somebody may not see is not there: it is neither found nor listed nor counted, so that nobody learns of it by
asking. Only where a role sees nothing of a sort at all, or a namespace is named that is not theirs, are they told so,
whatever is there. Knows no HTTP and no token. What a role may send is said by `roles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from holdfast.model.access import Access, Role
from holdfast.model.groups import Group
from holdfast.model.jobs import Job, Run
from holdfast.model.records import Authority, Queue, Record
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import Affinity, Execution, HistoryRow, Instance, KeyValue, Message, Turn
from holdfast.rules.access.roles import FLOWS, KINDS, may_read, may_read_all, may_work
from holdfast.rules.state import State

_OF_AN_INSTANCE = (Execution, Message, Turn, KeyValue, Decision)
_OF_FLOWS = (Instance, HistoryRow, Affinity, *_OF_AN_INSTANCE)
#: What can be somebody's own.
_OWNED = (Job, Run, Group, Instance, HistoryRow, *_OF_AN_INSTANCE)


class Sight(Enum):
    """How much somebody sees of what is there."""

    NOTHING = 0
    #: What they submitted, and what came of it.
    OWN = 1
    #: Whatever lies in their namespaces.
    ALL = 2


# --- things -----------------------------------------------------------------------------------------------------------


def home_of(thing: object) -> str | None:
    """Give the namespace something belongs to; None for what is of the store as a whole."""
    return FLOWS if isinstance(thing, _OF_FLOWS) else getattr(thing, "namespace", None)


def sight_in(access: Access, namespace: str | None) -> Sight:
    """Tell what they see of a namespace; None: of what belongs to none."""
    if not is_within(access, namespace):
        return Sight.NOTHING
    if may_read(access):
        return Sight.ALL
    return Sight.OWN if Role.CLIENT in access.roles else Sight.NOTHING


def may_see(access: Access, thing: Record, state: State) -> bool:
    """Tell whether one thing is there for them."""
    sight = sight_in(access, home_of(thing))
    return sight is Sight.ALL or (sight is Sight.OWN and _is_own(access, thing, state))


def may_see_some(access: Access, kind: type) -> bool:
    """Tell whether anything of a kind may be theirs to see."""
    return may_read(access) or (Role.CLIENT in access.roles and kind in _OWNED)


def started_by(instance_id: str, state: State) -> str | None:
    """Give the access token that started an instance, whether or not it has begun; None: nobody from outside."""
    instance = state.get(Instance, instance_id)
    if instance is not None:
        return instance.submitted_by
    return next((start.submitted_by for start in state.beginnings(instance_id) if start.is_to_begin), None)


def may_hear(access: Access, run_id: str, state: State) -> bool:
    """Tell whether they may read what a run says."""
    run = state.get(Run, run_id)
    return may_read_all(access) if run is None else may_see(access, run, state)


def may_speak(access: Access, run_ids: Iterable[str], state: State) -> bool:
    """Tell whether whoever works may say what these runs say: those of its namespaces. One that is gone is nobody's."""
    if access.namespaces is None:
        return True
    runs = [state.get(Run, run_id) for run_id in run_ids]
    return all(run is None or is_within(access, run.namespace) for run in runs)


def may_meet(access: Access, worker: WorkerInfo) -> bool:
    """Tell whether a worker is there for them: whoever works knows those who work for its namespaces."""
    return may_read_all(access) or (may_work(access) and is_within(access, worker.namespace))


def is_within(access: Access, namespace: str | None) -> bool:
    """Tell whether a namespace is theirs; None, of what belongs to none, is for who has them all."""
    return access.namespaces is None or namespace in access.namespaces


def _is_own(access: Access, thing: Record, state: State) -> bool:
    """Tell whether they submitted this: a job, a group of such jobs alone, an instance, or what belongs to one."""
    match thing:
        case Job() | Instance():
            return thing.submitted_by == access.name
        case Run():
            job = state.get(Job, thing.job_id)
            return job is not None and job.submitted_by == access.name
        case Group():
            members = state.members(thing.group_id)
            return bool(members) and all(job.submitted_by == access.name for job in members)
        case HistoryRow():
            execution = state.execution_of(thing.history_id)
            return execution is not None and started_by(execution.instance_id, state) == access.name
        case Execution() | Message() | Turn() | KeyValue() | Decision():
            return started_by(thing.instance_id, state) == access.name
        case _:
            return False


# --- look-ups ---------------------------------------------------------------------------------------------------------

#: Every look-up is of exactly one sort; one that is of none shows nothing but to those who read everything.
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
        "execution_of", "executions", "flow_totals", "held_by", "history", "instances", "is_spoken_of", "keys",
        "leased", "mail", "mail_totals", "owned_queues", "starts_under", "stuck_turns", "timers", "turn_by_token",
        "unbegun", "visible",
    }
)  # fmt: skip
#: Times, and nothing of what they belong to.
OF_TIMES = frozenset({"next_due"})
#: Of everything there is; each that is found says where it belongs, and what lies elsewhere is left out.
SIEVED = frozenset({"all", "counts", "due", "ids_with_prefix"})
#: Of everything there is, for who keeps the store.
OF_ALL = frozenset({"beside", "ended_queues", "granted_by", "live_groups", "local_leases", "local_turns", "unfollowed"})
#: Asked by anybody: what is found tells where it belongs.
_ANYWHERE = OF_THING | OF_TIMES | SIEVED
#: What a worker must see to do its work: when something is due, whether its jobs are still its own, and histories.
WORKER_SEES = frozenset(
    {
        "ready", "next_due", "get", "starts", "reservation", "direct", "running", "running_with", "running_of",
        "candidates", "history", "keys", "executions", "visible", "turn_by_token", "owned_queues", "stuck_turns",
    }
)  # fmt: skip
#: Look-ups of whose query a client's name becomes a part.
NARROWED = frozenset({"jobs", "instances", "unbegun"})
#: What a client may ask about what it submitted.
CLIENT_SEES = NARROWED | {
    "get", "runs", "last_run", "run_by_token", "successors", "members",
    "beginnings", "children", "decisions", "execution_of", "executions", "history", "keys",
}  # fmt: skip

#: And the kinds of which it gets one by its key.
_WORKER_GETS = (Job, Run, Group, Queue, Authority, *_OF_FLOWS)

Given = Mapping[str, Any]


def sight_of(access: Access, look: str, given: Given) -> Sight:
    """Tell what they see of what a look-up finds; nothing: they are told so, whatever is there."""
    if not _is_asked_within(access, look, given):
        return Sight.NOTHING
    if may_read(access):
        return Sight.ALL
    if Role.WORKER in access.roles and look in WORKER_SEES and (look != "get" or given["kind"] in _WORKER_GETS):
        return Sight.ALL
    if Role.CLIENT not in access.roles or look not in CLIENT_SEES:
        return Sight.NOTHING
    return Sight.OWN if look != "get" or given["kind"] in _OWNED else Sight.NOTHING


def _is_asked_within(access: Access, look: str, given: Given) -> bool:
    """Tell whether a look-up, by what is given with it, may stay within their namespaces."""
    if access.namespaces is None or look in _ANYWHERE:
        return True
    if look in OF_NAMESPACE:
        return given.get("namespace", getattr(given.get("query"), "namespace", None)) in access.namespaces
    return look in OF_FLOWS and FLOWS in access.namespaces


def shown(access: Access, look: str, given: Given, state: State, find: Callable[[Given], Any]) -> Any:
    """Look up, by `find`, what they may see of it; None if what it is about is not there for them.

    For those who see something of it (`sight_of`).
    """
    sight = sight_of(access, look, given)
    if sight is Sight.OWN and look in NARROWED:
        query = given["query"]
        if query.submitted_by not in (None, access.name):
            return None
        return find({**given, "query": msgspec.structs.replace(query, submitted_by=access.name)})
    if sight is Sight.OWN or (look in OF_THING and access.namespaces is not None):
        thing = _thing(look, given, state)
        if thing is None or not is_within(access, home_of(thing)):
            return None
        if sight is Sight.OWN and not _is_own(access, thing, state):
            return None
    if look not in SIEVED or access.namespaces is None:
        return find(given)
    if look == "ids_with_prefix":
        asked = given.get("namespaces")
        theirs = [one for one in access.namespaces if asked is None or one in asked]
        return find({**given, "namespaces": theirs})
    return (one for one in find(given) if is_within(access, home_of(one)))


def _thing(look: str, given: Given, state: State) -> Record | None:
    """Give what a look-up is about: of an instance that nobody has begun its start. None if there is no such thing."""
    if look == "get":
        found: Record | None = state.get(given["kind"], given["key"])
        return found
    if "history_id" in given:
        return state.execution_of(given["history_id"])
    if "instance_id" in given:
        name = given["instance_id"]
        return state.get(Instance, name) or next((one for one in state.beginnings(name) if one.is_to_begin), None)
    query = given.get("query")
    named = ((kind, given.get(field, getattr(query, field, None))) for field, kind in KINDS)
    kind, key = next((kind, key) for kind, key in named if isinstance(key, str))
    return state.get(kind, key)

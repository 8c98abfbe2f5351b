"""What a role may see: things of its namespaces and its own, by whatever look-up; what else is there does not show."""

from __future__ import annotations

import pytest

from holdfast.model.access import LOCAL, Access, Role
from holdfast.model.groups import Group
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.payloads import NULL
from holdfast.model.records import TABLES, Authority, Queue
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Webhook
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import Execution, HistoryRow, Instance, KeyValue, Message, Turn
from holdfast.rules.access.visibility import (
    CLIENT_SEES,
    NARROWED,
    OF_ALL,
    OF_FLOWS,
    OF_NAMESPACE,
    OF_THING,
    OF_TIMES,
    SIEVED,
    WORKER_SEES,
    Sight,
    home_of,
    may_hear,
    may_meet,
    may_see,
    may_see_some,
    may_speak,
    shown,
    sight_in,
    sight_of,
    started_by,
)
from holdfast.stores.http.lookups import LOOK_UPS
from holdfast.stores.protocol import DeliveryQuery, InstanceQuery, JobQuery, QueueCount, StartQuery

SORTS = {
    "namespace": OF_NAMESPACE,
    "thing": OF_THING,
    "flows": OF_FLOWS,
    "times": OF_TIMES,
    "sieved": SIEVED,
    "all": OF_ALL,
}
AT = "2026-01-01T00:00:00.000000Z"


def one(*roles, namespaces=None):
    return Access(name="x", roles=roles, namespaces=namespaces)


def job(job_id, **fields):
    return Job(job_id, "t", params=None, created_at=AT, **fields)


class Kept:
    """A store with things of somebody, in a namespace; workflows are of the one without a name."""

    def __init__(self, namespace="abroad", by="y", *, begun=True):
        self.by, self.namespace, self.begun = by, namespace, begun

    def get(self, kind, key):
        return {
            Job: job(key, namespace=self.namespace, submitted_by=self.by),
            Run: Run("r", "j", 1, AT, NULL, namespace=self.namespace),
            Group: Group(key, AT, namespace=self.namespace),
            Template: Template(key, key, "t", AT, namespace=self.namespace),
            Schedule: Schedule(key, key, AT, namespace=self.namespace),
            Webhook: Webhook(key, "https://example.com", AT, namespace=self.namespace),
            Instance: Instance(key, "flow", AT, AT, 1, submitted_by=self.by) if self.begun else None,
            Execution: Execution("i", 1, 1, AT),
            HistoryRow: HistoryRow(1, 1, NULL),
            Turn: Turn("i", 1),
            KeyValue: KeyValue("i", "k"),
            Decision: Decision("d", "i", 1, 1, NULL, AT),
            Message: Message(1, "i", "QueueMessage", NULL, AT, AT),
            Authority: Authority(),
        }[kind]

    def members(self, group_id, status=None):
        return [job("j", submitted_by=self.by), job("k", submitted_by="x")]

    def beginnings(self, instance_id):
        start = Message(1, instance_id, "StartOrchestration", NULL, AT, AT, orchestration="flow", submitted_by=self.by)
        return [] if self.begun else [start]

    def execution_of(self, history_id):
        return Execution("i", 1, history_id, AT)


class Gone:
    def get(self, kind, key):
        return None

    def beginnings(self, instance_id):
        return []

    def execution_of(self, history_id):
        return None


#: Arguments by which each thing can be asked for; whatever else a look-up is given does not matter to who may.
GIVEN = {
    "active_of": {"schedule_id": "s"},
    "deliveries": {"query": DeliveryQuery(webhook_id="w")},
    "get": {"kind": Job, "key": "j"},
    "last_run": {"job_id": "j"},
    "members": {"group_id": "g"},
    "run_by_token": {"job_id": "j", "token": 1},
    "running_of": {"schedule_id": "s"},
    "runs": {"job_id": "j"},
    "schedules_of": {"template_id": "t"},
    "successors": {"job_id": "j"},
    "turn_of": {"group_id": "g"},
}
#: The same of instances, for who started them.
OF_INSTANCE = {
    "beginnings": {"instance_id": "i"},
    "children": {"instance_id": "i"},
    "decisions": {"instance_id": "i"},
    "execution_of": {"history_id": 1},
    "executions": {"instance_id": "i"},
    "history": {"history_id": 1, "after": 0, "limit": None},
    "keys": {"instance_id": "i"},
}
QUERIES = {"jobs": {"query": JobQuery()}, "instances": {"query": InstanceQuery()}, "unbegun": {"query": StartQuery()}}
ALL_GIVEN = {**GIVEN, **OF_INSTANCE, **QUERIES}
FOUND = object()


def sees(access, look, given, state):
    """Tell whether a look-up finds what is there, after nobody was told that it may not."""
    if sight_of(access, look, given) is Sight.NOTHING:
        return False
    return shown(access, look, given, state, lambda _: FOUND) is FOUND


def test_every_look_up_is_of_exactly_one_sort():
    found = {look: [sort for sort, looks in SORTS.items() if look in looks] for look in LOOK_UPS}
    assert {look: sorts for look, sorts in found.items() if len(sorts) != 1} == {}
    assert {look for looks in SORTS.values() for look in looks} == set(LOOK_UPS)
    assert set(LOOK_UPS) >= WORKER_SEES | CLIENT_SEES
    assert set(GIVEN) == OF_THING
    assert {*GIVEN, *OF_INSTANCE, *QUERIES} >= CLIENT_SEES
    assert set(QUERIES) == NARROWED


@pytest.mark.parametrize("look", sorted(OF_NAMESPACE))
def test_what_is_of_a_namespace_says_so(look):
    said = LOOK_UPS[look].arguments.__struct_fields__
    assert "namespace" in said or "query" in said
    for given in ({"namespace": "home"}, {"query": JobQuery(namespace="home")}):
        assert sight_of(one(Role.READER, namespaces=("home",)), look, given) is Sight.ALL
        assert sight_of(one(Role.ADMIN, namespaces=("abroad",)), look, given) is Sight.NOTHING
        assert sight_of(one(Role.CLIENT), look, given) is (Sight.OWN if look == "jobs" else Sight.NOTHING)


@pytest.mark.parametrize("look", sorted(OF_THING))
def test_a_thing_is_shown_to_who_reads_in_its_namespace_and_is_not_there_for_others(look):
    for role in (Role.READER, Role.OPERATOR, Role.ADMIN):
        assert sees(one(role), look, GIVEN[look], Kept())
        assert sees(one(role, namespaces=("abroad",)), look, GIVEN[look], Kept())
        for state in (Kept(), Gone()):  # nobody can tell one from the other
            elsewhere = one(role, namespaces=("home", ""))
            assert sight_of(elsewhere, look, GIVEN[look]) is Sight.ALL
            assert shown(elsewhere, look, GIVEN[look], state, lambda _: FOUND) is None


@pytest.mark.parametrize("look", sorted(OF_FLOWS))
def test_workflows_are_of_the_namespace_without_a_name(look):
    assert sight_of(one(Role.READER, namespaces=("", "home")), look, {}) is Sight.ALL
    assert sight_of(one(Role.ADMIN, Role.WORKER, namespaces=("home",)), look, {}) is Sight.NOTHING


@pytest.mark.parametrize("look", sorted(OF_ALL))
def test_what_is_of_everything_is_for_who_reads_everything(look):
    assert sight_of(one(Role.READER), look, {}) is Sight.ALL
    assert sight_of(one(Role.ADMIN, Role.WORKER, Role.CLIENT, namespaces=("",)), look, {}) is Sight.NOTHING
    assert sight_of(one(Role.WORKER, Role.CLIENT), look, {}) is Sight.NOTHING


@pytest.mark.parametrize("look", sorted(set(LOOK_UPS) - CLIENT_SEES))
def test_a_client_is_told_nothing_else(look):
    assert sight_of(one(Role.CLIENT), look, ALL_GIVEN.get(look, {"namespace": ""})) is Sight.NOTHING


@pytest.mark.parametrize("look", sorted(CLIENT_SEES & OF_THING))
def test_a_client_is_told_of_jobs_it_submitted(look):
    given = GIVEN[look]
    assert sees(one(Role.CLIENT), look, given, Kept(by="x"))
    assert sees(one(Role.CLIENT, namespaces=("abroad",)), look, given, Kept(by="x"))
    assert not sees(one(Role.CLIENT, namespaces=("home",)), look, given, Kept(by="x"))


@pytest.mark.parametrize("look", sorted(OF_INSTANCE))
@pytest.mark.parametrize("begun", [True, False])
def test_a_client_is_told_of_instances_it_started(look, begun):
    given = OF_INSTANCE[look]
    assert sees(one(Role.CLIENT), look, given, Kept(by="x", begun=begun))
    assert sees(one(Role.CLIENT, namespaces=("",)), look, given, Kept(by="x", begun=begun))
    assert not sees(one(Role.CLIENT, namespaces=("home",)), look, given, Kept(by="x", begun=begun))
    assert not sees(one(Role.CLIENT), look, given, Kept(by=None, begun=begun))


@pytest.mark.parametrize("look", sorted(CLIENT_SEES - NARROWED))
def test_for_a_client_what_is_others_is_as_what_is_not_there(look):
    client, given = one(Role.CLIENT), ALL_GIVEN[look]
    assert sight_of(client, look, given) is Sight.OWN
    for state in (Kept(by="y"), Kept(by="y", begun=False), Gone()):
        assert shown(client, look, given, state, lambda _: FOUND) is None


@pytest.mark.parametrize("look", sorted(NARROWED))
def test_of_a_list_a_client_is_given_its_own(look):
    given, client = QUERIES[look], one(Role.CLIENT)

    def whose(query):
        return shown(client, look, {"query": query}, Gone(), lambda asked: asked["query"].submitted_by)

    assert whose(given["query"]) == "x"
    assert whose(type(given["query"])(submitted_by="x")) == "x"
    assert whose(type(given["query"])(submitted_by="y")) is None
    for reads in (one(Role.READER), one(Role.CLIENT, Role.OPERATOR)):
        assert shown(reads, look, given, Gone(), lambda asked: asked["query"]) == given["query"]


@pytest.mark.parametrize("kind", [Run, Group, Instance, Execution, HistoryRow, Turn, KeyValue, Decision, Message])
def test_what_belongs_to_jobs_and_instances_is_of_who_submitted_them(kind):
    given = {"kind": kind, "key": "k"}
    assert sees(one(Role.CLIENT), "get", given, Kept(by="x"))
    assert not sees(one(Role.CLIENT), "get", given, Kept(by="y"))
    assert may_see_some(one(Role.CLIENT), kind)


@pytest.mark.parametrize("kind", [Schedule, Webhook, Template, Queue, Authority])
def test_a_client_is_told_that_it_gets_no_thing_of_another_kind(kind):
    assert sight_of(one(Role.CLIENT), "get", {"kind": kind, "key": "k"}) is Sight.NOTHING
    assert not may_see_some(one(Role.CLIENT), kind)
    assert may_see_some(one(Role.READER), kind)


def test_what_is_of_the_store_is_not_seen_from_within_a_namespace():
    given = {"kind": Authority, "key": "k"}
    assert sees(one(Role.READER), "get", given, Kept())
    assert not sees(one(Role.READER, namespaces=("", "abroad")), "get", given, Kept())


@pytest.mark.parametrize("look", sorted(set(LOOK_UPS) - WORKER_SEES))
def test_a_worker_is_told_what_its_work_needs_and_nothing_else(look):
    assert sight_of(one(Role.WORKER), look, ALL_GIVEN.get(look, {"namespace": ""})) is Sight.NOTHING


def test_a_worker_gets_nothing_of_what_only_people_make_and_read():
    worker = Access(name="w", roles=(Role.WORKER,))
    seen = [kind for kind in TABLES.values() if sight_of(worker, "get", {"kind": kind, "key": "a"}) is Sight.ALL]
    left_out = {kind.__name__ for kind in TABLES.values()} - {kind.__name__ for kind in seen}
    assert left_out == {"DoneCommand", "HeldKey", "Reservation", "Schedule", "Template", "Webhook", "Delivery"}


def test_a_worker_meets_those_who_work_for_its_namespaces():
    def worker(namespace):
        at = "2026-01-01T00:00:00.000000Z"
        return WorkerInfo(
            worker_id="w", name="w", host="h", pid=1, version="1", namespace=namespace, started_at=at, last_seen=at
        )

    kept = Access(name="x", roles=(Role.WORKER,), namespaces=("a",))
    assert may_meet(kept, worker("a"))
    assert not may_meet(kept, worker("b"))
    assert not may_meet(Access(name="x", roles=(Role.READER,), namespaces=("a",)), worker("a"))
    for role in (Role.WORKER, Role.READER):
        assert may_meet(Access(name="x", roles=(role,)), worker("b"))
    assert not may_meet(Access(name="x", roles=(Role.CLIENT,)), worker("b"))


def test_a_worker_gets_the_jobs_of_its_namespaces_whoever_submitted_them():
    assert sees(one(Role.WORKER), "get", GIVEN["get"], Kept(by="y"))
    assert not sees(one(Role.WORKER, namespaces=("home",)), "get", GIVEN["get"], Kept(by="y"))


# --- what is of everything --------------------------------------------------------------------------------------------

JOBS = [job(f"a{at}", namespace="home" if at % 10 == 0 else "abroad") for at in range(100)]


class Many:
    def get(self, kind, key):
        return next(found for found in JOBS if found.job_id == key)


def test_of_all_there_is_they_get_what_is_in_their_namespaces():
    within = one(Role.READER, namespaces=("home", "other"))
    found = shown(within, "all", {"kind": Job}, Many(), lambda _: iter(JOBS))
    assert [record.job_id for record in found] == [f"a{at}" for at in range(0, 100, 10)]
    counts = [QueueCount(space, "q", JobStatus.QUEUED, 1) for space in ("abroad", "home", "other")]
    assert list(shown(within, "counts", {}, Many(), lambda _: counts)) == counts[1:]
    assert list(shown(one(Role.READER), "counts", {}, Many(), lambda _: counts)) == counts


@pytest.mark.parametrize(
    ("asked", "looked"), [(None, ["home", "other"]), (["other"], ["other"]), (["abroad", "home"], ["home"]), ([], [])]
)
def test_ids_are_looked_for_once_and_in_their_namespaces_alone(asked, looked):
    within, looks = one(Role.ADMIN, namespaces=("home", "other")), []
    given = {"prefix": "a", "limit": 3, "kind": Job, "namespaces": asked}
    shown(within, "ids_with_prefix", given, Gone(), lambda one: looks.append(one) or [])
    assert looks == [{**given, "namespaces": looked}]
    assert shown(one(Role.ADMIN), "ids_with_prefix", given, Gone(), lambda one: one) == given


@pytest.mark.parametrize("table", sorted(set(TABLES) - {"commands", "meta"}))
def test_of_every_table_is_known_where_its_records_belong(table):
    """Or nobody within a namespace would see one: only what the store itself remembers belongs nowhere."""
    kind = TABLES[table]
    fields = kind.__struct_fields__
    assert "namespace" in fields or home_of(kind(*[None] * len(fields))) == ""


# --- things -----------------------------------------------------------------------------------------------------------


def test_a_job_is_shown_to_who_reads_there_and_to_who_submitted_it():
    mine = job("j", namespace="home", submitted_by="x")
    assert may_see(one(Role.READER), mine, Gone())
    assert may_see(one(Role.CLIENT), mine, Gone())
    assert may_see(one(Role.CLIENT, namespaces=("home",)), mine, Gone())
    assert not may_see(one(Role.CLIENT), job("j", submitted_by="y"), Gone())
    assert not may_see(one(Role.CLIENT, namespaces=("abroad",)), mine, Gone())
    assert not may_see(one(Role.WORKER), mine, Gone())
    assert not may_see(one(Role.OPERATOR, namespaces=("abroad",)), mine, Gone())


def test_a_list_is_for_who_reads_in_its_namespace_and_for_who_submits_there():
    assert sight_in(one(Role.READER), None) is Sight.ALL
    assert sight_in(LOCAL, "home") is Sight.ALL
    assert sight_in(one(Role.OPERATOR, namespaces=("home",)), "home") is Sight.ALL
    assert sight_in(one(Role.OPERATOR, namespaces=("home",)), "abroad") is Sight.NOTHING
    assert sight_in(one(Role.READER, namespaces=("home",)), None) is Sight.NOTHING
    assert sight_in(one(Role.CLIENT, Role.WORKER), "home") is Sight.OWN
    assert sight_in(one(Role.CLIENT, namespaces=("away",)), "home") is Sight.NOTHING
    assert sight_in(one(Role.WORKER), "home") is Sight.NOTHING


def test_whoever_sees_none_of_a_kind_is_told_so():
    assert may_see_some(one(Role.CLIENT), Job)
    assert not may_see_some(one(Role.WORKER), Job)


def test_an_instance_is_of_who_started_it_also_before_it_begins():
    assert started_by("i", Kept(by="x")) == "x"
    assert started_by("i", Kept(by="x", begun=False)) == "x"
    assert started_by("i", Kept(by=None)) is None
    assert started_by("i", Gone()) is None


def test_what_a_run_says_is_heard_by_who_reads_there_and_by_who_submitted_it():
    assert may_hear(one(Role.READER), "r", Kept())
    assert may_hear(one(Role.READER), "r", Gone())
    assert may_hear(one(Role.READER, namespaces=("abroad",)), "r", Kept())
    assert not may_hear(one(Role.READER, namespaces=("home",)), "r", Kept())
    assert not may_hear(one(Role.READER, namespaces=("home",)), "r", Gone())
    assert may_hear(one(Role.CLIENT), "r", Kept(by="x"))
    assert not may_hear(one(Role.CLIENT), "r", Kept(by="y"))
    assert not may_hear(one(Role.CLIENT), "r", Gone())
    assert not may_hear(one(Role.WORKER), "r", Kept())


def test_a_worker_speaks_for_runs_of_its_namespaces():
    assert may_speak(one(Role.WORKER), ["r"], Kept())
    assert may_speak(one(Role.WORKER, namespaces=("abroad",)), ["r"], Kept())
    assert not may_speak(one(Role.WORKER, namespaces=("home",)), ["r"], Kept())
    assert may_speak(one(Role.WORKER, namespaces=("home",)), ["r"], Gone()), "of which nothing is kept"

"""Who may look up what: each look-up is of one sort, and none leads out of somebody's namespaces or to others' jobs."""

from __future__ import annotations

import pytest

from holdfast.model.access import Access, Role
from holdfast.model.groups import Group
from holdfast.model.instances import Instance
from holdfast.model.jobs import Job, Run
from holdfast.model.payloads import NULL
from holdfast.model.records import Authority
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Webhook
from holdfast.rules.looks import (
    CLIENT_SEES,
    OF_ALL,
    OF_FLOWS,
    OF_NAMESPACE,
    OF_THING,
    OF_TIMES,
    WORKER_SEES,
    may_hear,
    may_look,
    may_speak,
)
from holdfast.stores.http.lookups import LOOK_UPS
from holdfast.stores.protocol import DeliveryQuery, JobQuery

SORTS = {"namespace": OF_NAMESPACE, "thing": OF_THING, "flows": OF_FLOWS, "times": OF_TIMES, "all": OF_ALL}
AT = "2026-01-01T00:00:00.000000Z"


def one(*roles, namespaces=None):
    return Access(name="x", roles=roles, namespaces=namespaces)


def job(job_id, **fields):
    return Job(job_id, "t", params=None, created_at=AT, **fields)


class Kept:
    """A store with things of somebody, in a namespace."""

    def __init__(self, namespace="abroad", by="y"):
        self.by, self.namespace = by, namespace

    def get(self, kind, key):
        return {
            Job: job(key, namespace=self.namespace, submitted_by=self.by),
            Run: Run("r", "j", 1, AT, NULL, namespace=self.namespace),
            Group: Group(key, AT, namespace=self.namespace),
            Template: Template(key, key, "t", AT, namespace=self.namespace),
            Schedule: Schedule(key, key, AT, namespace=self.namespace),
            Webhook: Webhook(key, "https://example.com", AT, namespace=self.namespace),
            Instance: Instance(key, "flow", AT, AT, 1),
            Authority: Authority(),
        }[kind]

    def members(self, group_id, status=None):
        return [job("j", submitted_by=self.by), job("k", submitted_by="x")]


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


def test_every_look_up_is_of_exactly_one_sort():
    found = {look: [sort for sort, looks in SORTS.items() if look in looks] for look in LOOK_UPS}
    assert {look: sorts for look, sorts in found.items() if len(sorts) != 1} == {}
    assert {look for looks in SORTS.values() for look in looks} == set(LOOK_UPS)
    assert set(LOOK_UPS) >= WORKER_SEES | CLIENT_SEES
    assert set(GIVEN) == OF_THING


@pytest.mark.parametrize("look", sorted(OF_NAMESPACE))
def test_what_is_of_a_namespace_says_so(look):
    said = LOOK_UPS[look].arguments.__struct_fields__
    assert "namespace" in said or "query" in said
    for given in ({"namespace": "home"}, {"query": JobQuery(namespace="home")}):
        assert may_look(one(Role.READER, namespaces=("home",)), look, given, Kept())
        assert not may_look(one(Role.ADMIN, namespaces=("abroad",)), look, given, Kept())
        assert not may_look(one(Role.CLIENT), look, given, Kept())


@pytest.mark.parametrize("look", sorted(OF_THING))
def test_a_thing_is_shown_to_who_reads_in_its_namespace(look):
    for role in (Role.READER, Role.OPERATOR, Role.ADMIN):
        assert may_look(one(role), look, GIVEN[look], Kept())
        assert may_look(one(role, namespaces=("abroad",)), look, GIVEN[look], Kept())
        assert not may_look(one(role, namespaces=("home", "")), look, GIVEN[look], Kept())


@pytest.mark.parametrize("look", sorted(OF_FLOWS))
def test_workflows_are_of_the_namespace_without_a_name(look):
    assert may_look(one(Role.READER, namespaces=("", "home")), look, {}, Kept())
    assert not may_look(one(Role.ADMIN, Role.WORKER, namespaces=("home",)), look, {}, Kept())


@pytest.mark.parametrize("look", sorted(OF_ALL))
def test_what_is_of_everything_is_for_who_reads_everything(look):
    assert may_look(one(Role.READER), look, {}, Kept())
    assert not may_look(one(Role.ADMIN, Role.WORKER, Role.CLIENT, namespaces=("",)), look, {}, Kept())
    assert not may_look(one(Role.WORKER, Role.CLIENT), look, {}, Kept())


@pytest.mark.parametrize("look", sorted(set(LOOK_UPS) - CLIENT_SEES))
def test_a_client_is_told_nothing_else(look):
    assert not may_look(one(Role.CLIENT), look, GIVEN.get(look, {"namespace": ""}), Kept(by="x"))


@pytest.mark.parametrize("look", sorted(CLIENT_SEES))
def test_a_client_is_told_of_what_it_submitted(look):
    given = GIVEN[look]
    assert may_look(one(Role.CLIENT), look, given, Kept(by="x"))
    assert may_look(one(Role.CLIENT, namespaces=("abroad",)), look, given, Kept(by="x"))
    assert not may_look(one(Role.CLIENT, namespaces=("home",)), look, given, Kept(by="x"))
    assert not may_look(one(Role.CLIENT), look, given, Kept(by="y"))


class Gone:
    def get(self, kind, key):
        return None


@pytest.mark.parametrize("look", sorted(OF_THING))
def test_what_is_left_of_a_thing_that_has_gone_is_shown_to_who_reads_everything(look):
    """A thing that is not there may be said not to be there; its deliveries, runs or members may still be."""
    assert may_look(one(Role.READER), look, GIVEN[look], Gone())
    assert may_look(one(Role.READER, namespaces=("home",)), look, GIVEN[look], Gone()) == (look == "get")
    assert may_look(one(Role.CLIENT), look, GIVEN[look], Gone()) == (look == "get")


@pytest.mark.parametrize("kind", [Run, Group])
def test_runs_and_groups_are_of_who_submitted_their_jobs(kind):
    given = {"kind": kind, "key": "k"}
    assert may_look(one(Role.CLIENT), "get", given, Kept(by="x"))
    assert not may_look(one(Role.CLIENT), "get", given, Kept(by="y"))


@pytest.mark.parametrize("kind", [Schedule, Webhook, Instance, Authority])
def test_a_client_gets_no_thing_of_another_kind(kind):
    assert not may_look(one(Role.CLIENT), "get", {"kind": kind, "key": "k"}, Kept(by="x"))


def test_what_is_of_the_store_is_not_seen_from_within_a_namespace():
    given = {"kind": Authority, "key": "k"}
    assert may_look(one(Role.READER), "get", given, Kept())
    assert not may_look(one(Role.READER, namespaces=("", "abroad")), "get", given, Kept())


@pytest.mark.parametrize("look", sorted(set(LOOK_UPS) - WORKER_SEES))
def test_a_worker_is_told_what_its_work_needs_and_nothing_else(look):
    assert not may_look(one(Role.WORKER), look, GIVEN.get(look, {"namespace": ""}), Kept())


def test_what_a_run_says_is_heard_by_who_reads_there_and_by_who_submitted_it():
    assert may_hear(one(Role.READER), "r", Kept())
    assert may_hear(one(Role.READER, namespaces=("abroad",)), "r", Kept())
    assert not may_hear(one(Role.READER, namespaces=("home",)), "r", Kept())
    assert may_hear(one(Role.CLIENT), "r", Kept(by="x"))
    assert not may_hear(one(Role.CLIENT), "r", Kept(by="y"))
    assert not may_hear(one(Role.CLIENT), "r", Gone())
    assert not may_hear(one(Role.WORKER), "r", Kept())


def test_a_worker_speaks_for_runs_of_its_namespaces():
    assert may_speak(one(Role.WORKER), ["r"], Kept())
    assert may_speak(one(Role.WORKER, namespaces=("abroad",)), ["r"], Kept())
    assert not may_speak(one(Role.WORKER, namespaces=("home",)), ["r"], Kept())
    assert not may_speak(one(Role.WORKER, namespaces=("home",)), ["r"], Gone())

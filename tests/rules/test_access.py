"""What a role may do, decided without a server."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast.model.access import LOCAL, Access, Role
from holdfast.model.commands import (
    Cancel,
    Command,
    Complete,
    Enqueue,
    Expire,
    Extend,
    Lease,
    NewJob,
    PutSchedule,
    PutTemplate,
    Trigger,
    UpdateSchedule,
    UseTemplate,
)
from holdfast.model.jobs import Job
from holdfast.model.schedules import NewSchedule, Schedule, ScheduleChanges
from holdfast.model.templates import NewTemplate, Template
from holdfast.rules.access import (
    _OWN,
    _SENDS,
    may_list,
    may_look,
    may_reach,
    may_see,
    may_send,
    may_show,
    roles_for,
)
from holdfast.stores.protocol import JobQuery


def one(*roles, namespaces=None):
    return Access(name="x", roles=roles, namespaces=namespaces)


def test_what_time_asks_for_is_nobodys_to_send():
    for kind in _OWN:
        assert kind in get_args(Command)
        assert not any(kind in sends for sends in _SENDS.values())
    assert not may_send(LOCAL, Expire())


def test_roles_add_up():
    lease, enqueue = Lease(worker_id="w"), Enqueue(jobs=())
    assert not may_send(one(Role.CLIENT), lease)
    assert not may_send(one(Role.WORKER), enqueue)
    assert may_send(one(Role.CLIENT, Role.WORKER), lease)
    assert may_send(one(Role.CLIENT, Role.WORKER), enqueue)


@pytest.mark.parametrize("role", [Role.READER, Role.CLIENT, Role.WORKER])
def test_only_operators_cancel(role):
    assert not may_send(one(role), Cancel(job_id="a"))
    assert may_send(one(Role.OPERATOR), Cancel(job_id="a"))
    assert may_send(one(Role.ADMIN), Cancel(job_id="a"))


class Nothing:
    def get(self, kind, key):
        return None


class Abroad:
    def get(self, kind, key):
        return type("Found", (), {"namespace": "abroad"})()


def test_a_report_needs_the_namespace_of_its_job():
    within = one(Role.WORKER, namespaces=("home",))
    for report in (Complete(job_id="a", token=1), Extend(job_id="a", token=1)):
        assert not may_reach(within, report, Abroad())
        assert may_reach(within, report, Nothing())  # the rules say that there is no such job
        assert may_reach(one(Role.WORKER), report, Abroad())


def test_one_job_abroad_keeps_the_whole_command_out():
    jobs = [NewJob(job_id=space, job_type="t", params=b"1", namespace=space) for space in ("home", "abroad")]
    within = one(Role.CLIENT, namespaces=("home",))
    assert may_reach(within, Enqueue(jobs=(jobs[0],)), Nothing())
    assert not may_reach(within, Enqueue(jobs=tuple(jobs)), Nothing())


def test_lists_are_for_who_reads_everything_there():
    query = {"query": JobQuery(namespace="home")}
    assert may_look(one(Role.READER), "jobs", query)
    assert may_look(one(Role.READER, namespaces=("home",)), "jobs", query)
    assert not may_look(one(Role.READER, namespaces=("abroad",)), "jobs", query)
    assert not may_look(one(Role.CLIENT), "jobs", query)
    assert not may_look(one(Role.WORKER), "jobs", query)
    assert not may_look(one(Role.READER, namespaces=("home",)), "all", {"kind": Job})


def test_what_has_no_namespace_is_not_seen_from_within_one():
    assert not may_see(one(Role.READER, namespaces=("home",)), object())
    assert may_see(one(Role.READER), object())


class Kept:
    """A store with one template and one schedule abroad."""

    def get(self, kind, key):
        there = {
            (Template, "t"): Template("t", "t", "task", "", namespace="abroad"),
            (Schedule, "s"): Schedule("s", "s", "", namespace="abroad"),
        }
        return there.get((kind, key))


@pytest.mark.parametrize(
    "command",
    [
        UseTemplate(template_id="t", job_id="new"),
        Trigger(schedule_id="s", job_id="new"),
        PutTemplate(template_id="new", template=NewTemplate(name="n", job_type="t", namespace="abroad")),
        PutSchedule(schedule_id="new", schedule=NewSchedule(name="n", template_id="t", namespace="home")),
        UpdateSchedule(schedule_id="new", changes=ScheduleChanges(template_id="t")),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_makes_something_abroad_is_out_of_reach_whatever_its_new_id(command):
    assert not may_reach(one(Role.ADMIN, namespaces=("home",)), command, Kept())
    assert may_reach(one(Role.ADMIN, namespaces=("home", "abroad")), command, Kept())


def job(**fields):
    return Job("j", "t", params=None, created_at="", **fields)


def test_a_job_is_shown_to_who_reads_there_and_to_who_submitted_it():
    mine = job(namespace="home", submitted_by="x")
    assert may_show(one(Role.READER), mine)
    assert may_show(one(Role.CLIENT), mine)
    assert may_show(one(Role.CLIENT, namespaces=("home",)), mine)
    assert not may_show(one(Role.CLIENT), job(submitted_by="y"))
    assert not may_show(one(Role.CLIENT, namespaces=("abroad",)), mine)
    assert not may_show(one(Role.WORKER), mine)
    assert not may_show(one(Role.OPERATOR, namespaces=("abroad",)), mine)


def test_a_list_is_for_who_reads_in_its_namespace():
    assert may_list(one(Role.READER), None)
    assert may_list(one(Role.OPERATOR, namespaces=("home",)), "home")
    assert not may_list(one(Role.OPERATOR, namespaces=("home",)), "abroad")
    assert not may_list(one(Role.READER, namespaces=("home",)), None)
    assert not may_list(one(Role.CLIENT, Role.WORKER), "home")


def test_the_roles_of_a_command_are_those_that_may_send_it():
    assert roles_for(Cancel) == [Role.OPERATOR, Role.ADMIN]
    assert roles_for(Enqueue) == [Role.CLIENT, Role.ADMIN]
    assert roles_for(None) == [Role.READER, Role.OPERATOR, Role.ADMIN]

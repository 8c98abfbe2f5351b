"""What a role may do, decided without a server."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from holdfast.model.access import LOCAL, Access, Role
from holdfast.model.commands import (
    Cancel,
    Command,
    Complete,
    CreateGroup,
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
from holdfast.model.jobs import Job, KeyHold
from holdfast.model.records import HeldKey
from holdfast.model.schedules import NewSchedule, Schedule, ScheduleChanges
from holdfast.model.templates import NewTemplate, Template
from holdfast.rules.access import (
    _OWN,
    _SENDS,
    may_reach,
    may_send,
    reaches_all,
    roles_for,
)


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


def test_the_roles_of_a_command_are_those_that_may_send_it():
    assert roles_for(Cancel) == [Role.OPERATOR, Role.ADMIN]
    assert roles_for(Enqueue) == [Role.CLIENT, Role.ADMIN]
    assert roles_for(None) == [Role.READER, Role.OPERATOR, Role.ADMIN]


#: Role → what it may send that no role before it may; admins send whatever is not the authority's own.
SENT = {
    Role.READER: "",
    Role.CLIENT: "enqueue create_group start_instance",
    Role.WORKER: """
        lease extend complete fail snooze give_up release fetch_turn fetch_more ack_turn abandon_turn renew_turn
        park_messages fetch_activity ack_activity abandon_activity renew_activity renew_sessions announce_handlers
    """,
    Role.OPERATOR: """
        retry cancel cancel_group move normalize update bury pause_queue resume_queue set_queue pause_dispatch
        resume_dispatch pause_schedule resume_schedule trigger answer_decision redeliver release_reservation
    """,
    Role.ADMIN: """
        reserve renew_reservation start_direct put_template archive_template delete_template use_template put_schedule
        update_schedule reset_schedule delete_schedule backfill put_webhook update_webhook rotate_secret delete_webhook
        probe_webhook prune send_message append_history start_activity clean_sessions delete_instances delete_ended
        prune_executions reset_instance fork_instance fail_instance import_instance
    """,
}
NOBODYS = """
    expire end_session end_sessions mend mend_groups drop_runs fire replan claim_deliveries end_delivery
"""
#: Whose it is depends on what it says: `test_saying`.
BY_WHAT_IT_SAYS = "tell_instance"
KINDS = {kind.__struct_config__.tag: kind for kind in get_args(Command)}


def test_every_kind_of_command_is_somebodys_or_nobodys():
    """A new one is put into this table by whoever makes it, or nobody can send it unseen."""
    assert sorted([*" ".join(SENT.values()).split(), *NOBODYS.split(), BY_WHAT_IT_SAYS]) == sorted(KINDS)


@pytest.mark.parametrize("tag", sorted(set(KINDS) - {BY_WHAT_IT_SAYS}))
def test_a_kind_of_command_is_sent_by_its_role_and_by_admins_alone(tag):
    # Only its kind counts.
    given = {name: () if name in ("jobs", "members") else None for name in KINDS[tag].__struct_fields__}
    command = KINDS[tag](**given)
    allowed = [role for role in Role if may_send(one(role), command)]
    if tag in NOBODYS.split():
        assert allowed == []
    else:
        assert allowed == [role for role in Role if role is Role.ADMIN or tag in SENT[role].split()]


def test_who_only_submits_replaces_no_job_of_others_under_its_key():
    new = NewJob(job_id="n", job_type="work", params=msgspec.Raw(b"{}"), key="k", on_conflict="replace")
    replaces = Enqueue(jobs=(new,))

    class Holding:
        def __init__(self, by):
            self.by = by

        def get(self, kind, key):
            held = HeldKey("", "task work k", "theirs", KeyHold.ACTIVE)
            return held if kind is HeldKey else job(submitted_by=self.by)

    assert not reaches_all(one(Role.CLIENT), [replaces])
    assert not may_reach(one(Role.CLIENT), replaces, Holding("y"))
    assert may_reach(one(Role.CLIENT), replaces, Holding("x"))
    assert may_reach(one(Role.ADMIN), replaces, Holding("y"))
    assert not may_reach(one(Role.CLIENT), CreateGroup(group_id="g", members=(new,)), Holding("y"))
    returns = Enqueue(jobs=(msgspec.structs.replace(new, on_conflict="return"),))
    assert reaches_all(one(Role.CLIENT), [returns])


def test_who_only_submits_puts_no_job_of_others_into_a_group():
    adopts = CreateGroup(group_id="g", members=("theirs",))

    class Theirs:
        def get(self, kind, key):
            return job(submitted_by="y")

    class Mine:
        def get(self, kind, key):
            return job(submitted_by="x")

    assert not reaches_all(one(Role.CLIENT), [adopts])
    assert not may_reach(one(Role.CLIENT), adopts, Theirs())
    assert may_reach(one(Role.CLIENT), adopts, Mine())
    assert may_reach(one(Role.ADMIN), adopts, Theirs())
    assert reaches_all(one(Role.ADMIN), [adopts])
    assert not reaches_all(one(Role.ADMIN, namespaces=("home",)), [])

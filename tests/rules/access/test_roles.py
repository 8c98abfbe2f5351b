"""What a role may do, decided without a server."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast.model.access import LOCAL, Access, Role
from holdfast.model.commands import Cancel, Command, Enqueue, Expire, Lease
from holdfast.rules.access.roles import _OWN, _SENDS, may_fetch_content, may_keep_content, may_send, roles_for


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


def test_who_only_reads_gets_content_and_puts_none():
    for role in Role:
        assert may_fetch_content(one(role))
        assert may_keep_content(one(role)) == (role is not Role.READER)

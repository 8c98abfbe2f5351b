"""What a command may be about, decided without a server: what somebody may not see is answered as what is not there."""

from __future__ import annotations

from functools import cache
from typing import get_args

import msgspec
import pytest
from world import START, World, new

from holdfast.model import commands as c
from holdfast.model.access import LOCAL, Access, Role
from holdfast.model.command_base import FlowOrder
from holdfast.model.commands import Command
from holdfast.model.events import JobChanges
from holdfast.model.events.queues import QueueChanges
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Refusal
from holdfast.model.schedules import NewSchedule, ScheduleChanges
from holdfast.model.templates import NewTemplate
from holdfast.model.times import later
from holdfast.model.webhooks import NewWebhook, WebhookChanges
from holdfast.model.workflows.commands import CleanSessions, FetchMore
from holdfast.rules.access.command_scope import Without, may_ask, out_of_reach, reaches_all
from holdfast.rules.access.roles import _OWN, may_send
from holdfast.rules.decide import decide
from holdfast.rules.random_source import Draws

SECRET = "s" * 40
#: Kinds of access token, each kept to a namespace where there is one of everything, too.
TOKENS = {
    "worker": (Role.WORKER,),
    "operator": (Role.OPERATOR,),
    "admin": (Role.ADMIN,),
    "all roles": tuple(Role),
}


def kept(*roles, namespaces=("home",)):
    return Access(name="x", roles=roles, namespaces=namespaces)


@cache
def furnished():
    """One of each thing in two namespaces, by ids that end alike; only looked at."""
    world = World()
    for space in ("home", "abroad"):
        for name in ("job", "old", "beside"):
            world.do(c.Enqueue(jobs=(new(f"{name}-{space}", namespace=space),)))
        world.do(c.Cancel(job_id=f"old-{space}"))
        world.do(c.Retry(job_id=f"old-{space}", new_job_id=f"again-{space}"))
        world.do(
            c.CreateGroup(group_id=f"group-{space}", members=(new(f"m-{space}", namespace=space),), namespace=space)
        )
        template = NewTemplate(name="t", job_type="t", namespace=space)
        world.do(c.PutTemplate(template_id=f"template-{space}", template=template))
        schedule = NewSchedule(name="s", job_type="t", interval_s=60.0, namespace=space)
        world.do(c.PutSchedule(schedule_id=f"schedule-{space}", schedule=schedule))
        world.do(c.Reserve(reservation_id=f"reservation-{space}", queue="own", reserved_by="me", namespace=space))
        hook = NewWebhook(url="https://example.com/", made_secret=SECRET, namespace=space)
        world.do(c.PutWebhook(webhook_id=f"webhook-{space}", webhook=hook))
        world.do(c.ProbeWebhook(webhook_id=f"webhook-{space}", delivery_id=f"delivery-{space}"))
    return world


def naming(where):
    """Give every kind of command that names a thing which must be there: of a namespace, or of none."""
    job, old, group = f"job-{where}", f"old-{where}", f"group-{where}"
    template, schedule = f"template-{where}", f"schedule-{where}"
    reservation, webhook, delivery = f"reservation-{where}", f"webhook-{where}", f"delivery-{where}"
    return [
        c.Extend(job_id=job, token=1),
        c.Complete(job_id=job, token=1),
        c.Fail(job_id=job, token=1, error="no"),
        c.Snooze(job_id=job, token=1, delay_s=1.0),
        c.GiveUp(job_id=job, token=1),
        c.Release(job_id=job, token=1, begun=True),
        c.Cancel(job_id=job, cmd=f"c-{where}"),
        c.Cancel(job_id=job, force=True),
        c.Bury(job_id=job),
        c.Update(job_id=job, changes=JobChanges(priority=1)),
        c.Move(job_id=job, to="first"),
        c.Move(job_id="job-home", before=f"beside-{where}"),
        c.Move(job_id="job-home", after=f"beside-{where}"),
        c.Retry(job_id=old, new_job_id="new"),
        c.Retry(job_id=old, new_job_id=f"again-{where}"),
        c.CancelGroup(group_id=group),
        c.CreateGroup(group_id="new", members=(job,), namespace="home"),
        c.ArchiveTemplate(template_id=template),
        c.DeleteTemplate(template_id=template),
        c.UseTemplate(template_id=template, job_id="new"),
        c.PutSchedule(
            schedule_id="new", schedule=NewSchedule(name="n", template_id=template, interval_s=60.0, namespace="home")
        ),
        c.UpdateSchedule(schedule_id="schedule-home", changes=ScheduleChanges(template_id=template, job_type=None)),
        c.UpdateSchedule(schedule_id=schedule, changes=ScheduleChanges(queue="q")),
        c.PauseSchedule(schedule_id=schedule),
        c.ResumeSchedule(schedule_id=schedule),
        c.ResetSchedule(schedule_id=schedule),
        c.DeleteSchedule(schedule_id=schedule),
        c.Trigger(schedule_id=schedule, job_id="new"),
        c.Backfill(schedule_id=schedule, backfill_id="b", since=later(START, -60), until=START),
        c.RenewReservation(reservation_id=reservation),
        c.ReleaseReservation(reservation_id=reservation),
        c.StartDirect(reservation_id=reservation, job=new("new", namespace="home", queue="own"), worker_id="w"),
        c.UpdateWebhook(webhook_id=webhook, changes=WebhookChanges(enabled=False)),
        c.RotateSecret(webhook_id=webhook, secret="t" * 40),
        c.DeleteWebhook(webhook_id=webhook),
        c.ProbeWebhook(webhook_id=webhook, delivery_id="new"),
        c.Redeliver(delivery_id=delivery),
    ]  # fmt: skip


def making(where):
    """Give every kind of command that would make something at home under an id of a namespace, or of none."""
    return [
        c.Enqueue(jobs=(new(f"job-{where}", namespace="home"),)),
        c.Retry(job_id="old-home", new_job_id=f"job-{where}"),
        c.CreateGroup(group_id=f"group-{where}", members=(new("n", namespace="home"),), namespace="home"),
        c.PutTemplate(
            template_id=f"template-{where}",
            template=NewTemplate(name="n", job_type="t", namespace="home"),
            replace=True,
        ),
        c.UseTemplate(template_id="template-home", job_id=f"job-{where}"),
        c.PutSchedule(
            schedule_id=f"schedule-{where}",
            schedule=NewSchedule(name="n", job_type="t", interval_s=60.0, namespace="home"),
            replace=True,
        ),
        c.Trigger(schedule_id="schedule-home", job_id=f"job-{where}"),
        c.Reserve(reservation_id=f"reservation-{where}", queue="free", reserved_by="me", namespace="home"),
        c.StartDirect(
            reservation_id="reservation-home", job=new(f"job-{where}", namespace="home", queue="own"), worker_id="w"
        ),
        c.PutWebhook(
            webhook_id=f"webhook-{where}",
            webhook=NewWebhook(url="https://example.com/", made_secret=SECRET, namespace="home"),
            replace=True,
        ),
        c.ProbeWebhook(webhook_id="webhook-home", delivery_id=f"delivery-{where}"),
    ]


#: Says itself which namespace it is for, and names nothing that could be elsewhere.
SAYING = [
    c.Enqueue(jobs=(new("n", namespace="home"), new("m", namespace="abroad"))),
    c.Lease(worker_id="w", namespace="abroad"),
    c.Normalize(queue="q", namespace="abroad"),
    c.PauseQueue(queue="q", namespace="abroad"),
    c.ResumeQueue(queue="q", namespace="abroad"),
    c.SetQueue(queue="q", changes=QueueChanges(max_running=1), namespace="abroad"),
    c.Reserve(reservation_id="new", queue="q", reserved_by="me", namespace="abroad"),
    c.CreateGroup(group_id="new", namespace="abroad"),
    c.StartDirect(reservation_id="reservation-home", job=new("n", namespace="abroad"), worker_id="w"),
    c.PutTemplate(template_id="new", template=NewTemplate(name="n", job_type="t", namespace="abroad")),
    c.PutSchedule(schedule_id="new", schedule=NewSchedule(name="n", job_type="t", namespace="abroad")),
    c.PutWebhook(webhook_id="new", webhook=NewWebhook(url="https://example.com/", namespace="abroad")),
]
#: Is about everything.
WIDE = [c.PauseDispatch(), c.ResumeDispatch(), c.Prune(retention=c.Retention(done_s=0, failed_s=0))]


def judged(world, access, command):
    """Give what somebody is answered, by the order in which a coordinator asks."""
    if not may_ask(access, command):
        return "forbidden"

    def decided(state):
        return decide(state, command, world.now, Draws(world.now, 1))

    refusal = None if reaches_all(access, command) else out_of_reach(access, command, world.tables, decided)
    return decided(world.tables).outcome if refusal is None else refusal


def told(outcome, where):
    """Give what an answer says, with the ids of one namespace read as those of none."""
    return msgspec.json.encode(outcome).decode().replace(f"-{where}", "-none")


def test_every_kind_of_command_is_looked_at():
    """A new one is put into one of these tables by whoever makes it."""
    seen = {type(one) for one in (*naming("none"), *making("none"), *SAYING, *WIDE)}
    flows = {kind for kind in get_args(Command) if issubclass(kind, FlowOrder)}
    assert seen | flows | set(_OWN) == set(get_args(Command))


@pytest.mark.parametrize("token", list(TOKENS))
@pytest.mark.parametrize("number", range(len(naming("none"))), ids=lambda at: f"{at}-{type(naming('')[at]).__name__}")
def test_what_is_elsewhere_is_answered_as_what_is_nowhere(number, token):
    """In every word: code, message, hint and facts."""
    access, world = kept(*TOKENS[token]), furnished()
    elsewhere, nowhere = (judged(world, access, naming(where)[number]) for where in ("abroad", "none"))
    assert told(elsewhere, "abroad") == told(nowhere, "none")
    if may_send(access, naming("none")[number]):
        assert isinstance(elsewhere, Refusal)
        assert elsewhere.code.endswith("_not_found")
    else:
        assert elsewhere == judged(world, access, naming("home")[number]) == "forbidden"


@pytest.mark.parametrize("number", range(len(naming("none"))), ids=lambda at: f"{at}-{type(naming('')[at]).__name__}")
def test_what_is_at_home_or_named_by_who_is_kept_to_no_namespace_is_for_the_rules(number):
    world = furnished()
    for access, where in ((kept(*Role), "home"), (LOCAL, "home"), (LOCAL, "abroad")):
        command = naming(where)[number]
        plain = decide(world.tables, command, world.now, Draws(world.now, 1)).outcome
        assert judged(world, access, command) == plain


@pytest.mark.parametrize("number", range(len(making("none"))), ids=lambda at: f"{at}-{type(making('')[at]).__name__}")
def test_an_id_that_is_taken_elsewhere_is_taken(number):
    """As one that something else at home has: nothing is told of what it is, and nothing of it changes."""
    access, world = kept(*Role), furnished()
    assert not isinstance(judged(world, access, making("none")[number]), Refusal)
    elsewhere = judged(world, access, making("abroad")[number])
    assert elsewhere.code == "id_reused"


@pytest.mark.parametrize("command", [*SAYING, *WIDE], ids=lambda command: type(command).__name__)
def test_a_namespace_that_is_named_and_all_of_them_are_forbidden_whatever_is_there(command):
    assert not may_ask(kept(*Role), command)
    assert may_ask(kept(*Role, namespaces=("home", "abroad")), command) is (command in SAYING)
    assert may_ask(LOCAL, command)


@pytest.mark.parametrize("command", [FetchMore(token=1), CleanSessions()], ids=lambda command: type(command).__name__)
def test_workflows_belong_to_the_namespace_without_a_name(command):
    assert not may_ask(kept(*Role), command)
    assert may_ask(kept(*Role, namespaces=("",)), command)


def replacing():
    return new("n", key="k", on_conflict="replace")


def test_who_only_submits_replaces_no_job_of_others_under_its_key():
    replaces = c.Enqueue(jobs=(replacing(),))
    for by, is_theirs in (("x", True), ("y", False)):
        world = World()
        world.do(c.Enqueue(jobs=(new("held", key="k", submitted_by=by),)))
        client = kept(Role.CLIENT, namespaces=None)
        assert isinstance(judged(world, client, replaces), Refusal) is not is_theirs
        assert not isinstance(judged(world, kept(Role.ADMIN, namespaces=None), replaces), Refusal)
        grouped = c.CreateGroup(group_id="g", members=(replacing(),))
        assert judged(world, client, grouped).code == ("duplicate_key" if is_theirs else "forbidden")
    returns = c.Enqueue(jobs=(new("n", key="k"),))
    assert reaches_all(client, returns)
    assert not reaches_all(client, replaces)


def test_who_only_submits_puts_no_job_of_others_into_a_group():
    """To a client it is not there; who sees it is told that it is not theirs."""
    world = World()
    for name in ("x", "y"):
        world.do(c.Enqueue(jobs=(new(f"of {name}", submitted_by=name),)))

    def adopts(name):
        return c.CreateGroup(group_id="g", members=(name,))

    client, reader = (kept(Role.CLIENT, *more, namespaces=None) for more in ((), (Role.READER,)))
    assert not isinstance(judged(world, client, adopts("of x")), Refusal)
    theirs, nobodys = judged(world, client, adopts("of y")), judged(world, client, adopts("none"))
    assert told(theirs, "").replace("of y", "none") == told(nobodys, "")
    assert theirs.code == "job_not_found"
    assert judged(world, reader, adopts("of y")).code == "forbidden"
    assert not isinstance(judged(world, LOCAL, adopts("of y")), Refusal)


def test_what_is_forbidden_is_so_whether_or_not_something_unseen_is_named_with_it():
    world = World()
    world.do(c.Enqueue(jobs=(new("seen", namespace="home", submitted_by="y"), new("unseen", namespace="abroad"))))
    reader = kept(Role.CLIENT, Role.READER)
    for other in ("unseen", "none"):
        command = c.CreateGroup(group_id="g", members=(other, "seen"), namespace="home")
        assert judged(world, reader, command).code == "forbidden"


def test_a_state_without_something_has_all_the_rest():
    tables = furnished().tables
    state = Without(tables, {(Job, "job-home")})
    assert state.get(Job, "job-home") is None
    assert state.get(Job, "old-home") == tables.get(Job, "old-home")
    assert [one.job_id for one in state.successors("old-home")] == ["again-home"]

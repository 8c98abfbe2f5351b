"""Every command in every state of a job, as the contract has it."""

import re

import msgspec
import pytest
from world import World, content, new, replay

from holdfast.model import commands as c
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.outcomes import Refusal, Reported
from holdfast.model.workflows.commands import FlowCommand
from holdfast.rules.decide import Plan, Telling

# A cell says what the command does to the job in that state.
#   STATUS          committed, something was written, the job then has that status (GONE: it is removed)
#   =               committed, nothing was written
#   dup             the same report again: committed, nothing was written, said so
#   a word          refused with the code it stands for, nothing was written
#   word>STATUS     refused, and the lapsed lease it came with was ended
# States: AGAIN is QUEUED after a reported failure, LOST is QUEUED after an expired lease, STOPPING is RUNNING with a
# cancel request, LAPSED is RUNNING at the very end of its lease. DEAD lost its leases, BURIED was declared dead while
# RUNNING, CANCELLED was cancelled while QUEUED, GAVE_UP from inside, FORCED while RUNNING.
LIVE = """
command         | QUEUED      | AGAIN       | LOST        | RUNNING     | STOPPING    | LAPSED
enqueue         | =           | =           | =           | =           | =           | =
enqueue other   | reused      | reused      | reused      | reused      | reused      | reused
lease           | RUNNING     | RUNNING     | RUNNING     | =           | =           | =
extend          | unknown     | lost        | lost        | RUNNING     | RUNNING     | lost>QUEUED
complete        | unknown     | already     | lost        | COMPLETED   | COMPLETED   | lost>QUEUED
fail            | unknown     | dup         | lost        | QUEUED      | CANCELLED   | lost>QUEUED
fail fatal      | unknown     | dup         | lost        | FAILED      | CANCELLED   | lost>QUEUED
snooze          | unknown     | already     | lost        | QUEUED      | CANCELLED   | lost>QUEUED
give up         | unknown     | already     | lost        | CANCELLED   | CANCELLED   | lost>QUEUED
release         | unknown     | already     | lost        | QUEUED      | CANCELLED   | QUEUED
cancel          | CANCELLED   | CANCELLED   | CANCELLED   | RUNNING     | =           | RUNNING
cancel force    | CANCELLED   | CANCELLED   | CANCELLED   | CANCELLED   | CANCELLED   | CANCELLED
bury            | DEAD        | DEAD        | DEAD        | DEAD        | DEAD        | DEAD
update          | QUEUED      | QUEUED      | QUEUED      | not_so      | not_so      | not_so
update params   | QUEUED      | not_so      | not_so      | not_so      | not_so      | not_so
move            | QUEUED      | QUEUED      | QUEUED      | not_so      | not_so      | not_so
normalize       | QUEUED      | QUEUED      | QUEUED      | RUNNING     | RUNNING     | RUNNING
set queue       | QUEUED      | QUEUED      | QUEUED      | RUNNING     | RUNNING     | RUNNING
retry           | not_so      | not_so      | not_so      | not_so      | not_so      | not_so
pause queue     | QUEUED      | QUEUED      | QUEUED      | RUNNING     | RUNNING     | RUNNING
resume queue    | =           | =           | =           | =           | =           | =
pause dispatch  | QUEUED      | QUEUED      | QUEUED      | RUNNING     | RUNNING     | RUNNING
resume dispatch | =           | =           | =           | =           | =           | =
expire          | =           | =           | =           | =           | =           | QUEUED
end sessions    | =           | =           | =           | QUEUED      | CANCELLED   | QUEUED
end session     | =           | =           | =           | QUEUED      | CANCELLED   | QUEUED
prune           | =           | =           | =           | =           | =           | =
"""
ENDED = """
command         | COMPLETED   | FAILED      | DEAD        | BURIED      | CANCELLED   | GAVE_UP     | FORCED
enqueue         | =           | =           | =           | =           | =           | =           | =
enqueue other   | reused      | reused      | reused      | reused      | reused      | reused      | reused
lease           | =           | =           | =           | =           | =           | =           | =
extend          | lost        | lost        | lost        | lost        | unknown     | lost        | lost
complete        | dup         | already     | lost        | lost        | unknown     | already     | lost
fail            | already     | dup         | lost        | lost        | unknown     | already     | lost
fail fatal      | already     | dup         | lost        | lost        | unknown     | already     | lost
snooze          | already     | already     | lost        | lost        | unknown     | already     | lost
give up         | already     | already     | lost        | lost        | unknown     | dup         | lost
release         | already     | already     | lost        | lost        | unknown     | already     | lost
cancel          | not_so      | not_so      | not_so      | not_so      | not_so      | not_so      | not_so
cancel force    | not_so      | not_so      | not_so      | not_so      | not_so      | not_so      | not_so
bury            | not_so      | not_so      | not_so      | not_so      | not_so      | not_so      | not_so
update          | not_so      | not_so      | not_so      | not_so      | not_so      | not_so      | not_so
update params   | not_so      | not_so      | not_so      | not_so      | not_so      | not_so      | not_so
move            | not_so      | not_so      | not_so      | not_so      | not_so      | not_so      | not_so
normalize       | COMPLETED   | FAILED      | DEAD        | DEAD        | CANCELLED   | CANCELLED   | CANCELLED
set queue       | COMPLETED   | FAILED      | DEAD        | DEAD        | CANCELLED   | CANCELLED   | CANCELLED
retry           | not_so      | FAILED      | DEAD        | DEAD        | CANCELLED   | CANCELLED   | CANCELLED
pause queue     | COMPLETED   | FAILED      | DEAD        | DEAD        | CANCELLED   | CANCELLED   | CANCELLED
resume queue    | =           | =           | =           | =           | =           | =           | =
pause dispatch  | COMPLETED   | FAILED      | DEAD        | DEAD        | CANCELLED   | CANCELLED   | CANCELLED
resume dispatch | =           | =           | =           | =           | =           | =           | =
expire          | =           | =           | =           | =           | =           | =           | =
end sessions    | =           | =           | =           | =           | =           | =           | =
end session     | =           | =           | =           | =           | =           | =           | =
prune           | GONE        | GONE        | GONE        | GONE        | GONE        | GONE        | GONE
"""

WORDS = {
    "invalid_operation": "not_so",
    "lease_lost": "lost",
    "already_reported": "already",
    "unknown_lease": "unknown",
    "id_reused": "reused",
}
NEVER_GRANTED = 99


def cells(table):
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
    return [(row[0], state, cell) for row in rows for state, cell in zip(head[1:], row[1:], strict=True)]


CELLS = cells(LIVE) + cells(ENDED)


def make(state):
    """Bring a job into the named state; give the world and the newest token the job ever had."""
    world = World()
    world.enqueue("other", job_type="rest")
    options = {"max_expiries": 1} if state == "DEAD" else {}
    world.enqueue("j", **options)
    if state == "QUEUED":
        return world, NEVER_GRANTED
    if state == "CANCELLED":
        world.do(c.Cancel(job_id="j"))
        return world, NEVER_GRANTED
    (grant,) = world.lease(job_types=("t",), session_id="before")
    token = grant.token
    held = {"job_id": "j", "token": token}
    world.wait(10)
    match state:
        case "AGAIN":
            world.do(c.Fail(**held, error="e"))
            world.wait(10)
        case "LOST" | "DEAD":
            world.wait(20)
            world.do(c.Expire())
        case "STOPPING":
            world.do(c.Cancel(job_id="j"))
        case "LAPSED":
            world.wait(20)
        case "COMPLETED":
            world.do(c.Complete(**held))
        case "FAILED":
            world.do(c.Fail(**held, error="e", fatal=True))
        case "BURIED":
            world.do(c.Bury(job_id="j"))
        case "GAVE_UP":
            world.do(c.GiveUp(**held))
        case "FORCED":
            world.do(c.Cancel(job_id="j", force=True))
        case _:
            assert state == "RUNNING"
    return world, token


def order(name, token, cmd=""):
    """Give the command of a row."""
    held = {"job_id": "j", "token": token, "cmd": cmd}
    match name:
        case "enqueue":
            return c.Enqueue(jobs=(new("j"),), cmd=cmd)
        case "enqueue other":
            return c.Enqueue(jobs=(new("j", b'{"a":1}'),), cmd=cmd)
        case "lease":
            return c.Lease(worker_id="w2", job_types=("t",), cmd=cmd)
        case "extend":
            return c.Extend(**held)
        case "complete":
            return c.Complete(**held)
        case "fail":
            return c.Fail(**held, error="again")
        case "fail fatal":
            return c.Fail(**held, error="again", fatal=True)
        case "snooze":
            return c.Snooze(**held, delay_s=5)
        case "give up":
            return c.GiveUp(**held)
        case "release":
            return c.Release(**held, begun=True)
        case "cancel":
            return c.Cancel(job_id="j", cmd=cmd)
        case "cancel force":
            return c.Cancel(job_id="j", force=True, cmd=cmd)
        case "bury":
            return c.Bury(job_id="j", cmd=cmd)
        case "update":
            return c.Update(job_id="j", changes=JobChanges(priority=5), cmd=cmd)
        case "update params":
            return c.Update(job_id="j", changes=JobChanges(params=msgspec.Raw(b'{"a":2}')), cmd=cmd)
        case "move":
            return c.Move(job_id="j", before="other", cmd=cmd)
        case "normalize":
            return c.Normalize(queue="default", cmd=cmd)
        case "set queue":
            return c.SetQueue(queue="default", changes=QueueChanges(max_running=1, aging_s=60), cmd=cmd)
        case "retry":
            return c.Retry(job_id="j", new_job_id="j2", cmd=cmd)
        case "pause queue":
            return c.PauseQueue(queue="default", cmd=cmd)
        case "resume queue":
            return c.ResumeQueue(queue="default", cmd=cmd)
        case "pause dispatch":
            return c.PauseDispatch(cmd=cmd)
        case "resume dispatch":
            return c.ResumeDispatch(cmd=cmd)
        case "expire":
            return c.Expire(cmd=cmd)
        case "end sessions":
            return c.EndSessions(session_id="now", cmd=cmd)
        case "end session":
            return c.EndSession(session_id="before", cmd=cmd)
        case "prune":
            return c.Prune(retention=c.Retention(done_s=0, failed_s=0), cmd=cmd)
    raise AssertionError(name)


#: About schedules, templates, reservations and webhooks, whose states are others.
RESERVING = {c.Reserve, c.RenewReservation, c.ReleaseReservation, c.StartDirect}
DELIVERING = {c.ProbeWebhook, c.ClaimDeliveries, *Telling.__args__}
ELSEWHERE = {
    *RESERVING,
    *DELIVERING,
    c.CreateGroup,
    c.CancelGroup,
    c.MendGroups,
    c.Mend,
    c.DropRuns,
    c.Fire,
    c.Trigger,
    c.Backfill,
    c.UseTemplate,
    c.Replan,
    *Plan.__args__,
    *FlowCommand.__args__,
}


def test_the_tables_have_a_row_for_every_command():
    assert {type(order(name, 1)) for name, _, _ in CELLS} | ELSEWHERE == set(c.Command.__args__)


@pytest.mark.parametrize(("name", "state", "expected"), CELLS)
def test_each_command_in_each_state_does_what_the_contract_says(name, state, expected):
    world, token = make(state)
    before, length, status = content(world.tables), world.tables.seq, world.job().status
    outcome = world.tell(order(name, token))
    job = world.job()
    after = "GONE" if job is None else str(job.status)
    if isinstance(outcome, Refusal):
        word = WORDS[outcome.code]
        seen = word if world.tables.seq == length else f"{word}>{after}"
    elif world.tables.seq > length:
        seen = after
    else:
        seen = "dup" if isinstance(outcome, Reported) and outcome.duplicate else "="
    assert seen == expected
    if re.fullmatch("=|dup|[a-z_]+", seen):
        assert content(world.tables) == before
        assert after == status
    assert content(replay(world.groups)) == content(world.tables)


JOB_COMMANDS = [name for name in dict.fromkeys(name for name, _, _ in CELLS) if hasattr(order(name, 1), "job_id")]


@pytest.mark.parametrize("name", JOB_COMMANDS)
def test_an_unknown_job_is_refused_by_every_command_that_names_one(name):
    world = World()
    world.enqueue("other", job_type="rest")
    assert world.refused(order(name, 1)) == "job_not_found"


@pytest.mark.parametrize("name", ["extend", "complete", "fail", "snooze", "give up", "release"])
def test_a_token_never_granted_is_unknown_and_an_older_one_has_lost_its_lease(name):
    world, first = make("LOST")
    (grant,) = world.lease(job_types=("t",))
    assert grant.token > first
    assert world.refused(order(name, NEVER_GRANTED)) == "unknown_lease"
    assert world.refused(order(name, first)) == "lease_lost"


@pytest.mark.parametrize("name", ["complete", "fail", "snooze", "give up", "release", "extend"])
def test_a_token_of_another_job_is_unknown(name):
    world, _ = make("RUNNING")
    (other,) = world.lease(job_types=("rest",))
    assert world.refused(order(name, other.token)) == "unknown_lease"


# Where each command has an effect, and so could have it twice.
EFFECT = {
    "enqueue": "QUEUED", "lease": "QUEUED", "cancel force": "RUNNING", "cancel": "QUEUED", "bury": "QUEUED",
    "update": "QUEUED", "update params": "QUEUED", "move": "QUEUED", "normalize": "QUEUED", "set queue": "QUEUED",
    "retry": "FAILED", "pause queue": "QUEUED", "pause dispatch": "QUEUED", "extend": "RUNNING", "complete": "RUNNING",
    "fail": "RUNNING", "fail fatal": "RUNNING", "snooze": "RUNNING", "give up": "RUNNING", "release": "RUNNING",
    "expire": "LAPSED", "end sessions": "RUNNING", "end session": "RUNNING", "prune": "COMPLETED",
}  # fmt: skip


@pytest.mark.parametrize(("name", "state"), EFFECT.items())
def test_the_same_command_sent_twice_has_one_effect(name, state):
    world, token = make(state)
    command = order(name, token, cmd="c1")
    world.do(command)
    before = content(world.tables)
    again = world.tell(command)
    assert not isinstance(again, Refusal)
    assert content(world.tables) == before


EDITS = [
    "cancel",
    "cancel force",
    "bury",
    "update",
    "update params",
    "move",
    "normalize",
    "set queue",
    "pause queue",
    "pause dispatch",
]


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_sent_again_gives_its_first_outcome_whatever_happened_since(name):
    world, token = make(EFFECT[name])
    first = world.do(order(name, token, cmd="c1"))
    world.do(c.ResumeQueue(queue="default"))
    world.do(c.ResumeDispatch())
    if world.job().status == "QUEUED":
        world.do(c.Cancel(job_id="j"))
    before = content(world.tables)
    assert world.do(order(name, token, cmd="c1")) == first
    assert content(world.tables) == before


@pytest.mark.parametrize("name", [*EDITS, "lease"])
def test_a_command_id_used_for_something_else_is_refused(name):
    world, token = make(EFFECT[name])
    world.do(c.PauseQueue(queue="unrelated", cmd="c1"))
    assert world.refused(order(name, token, cmd="c1")) == "id_reused"

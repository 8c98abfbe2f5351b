"""Commands that leave no id of their own are remembered for an hour."""

import msgspec
import pytest
from world import World

from holdfast.model import commands as c
from holdfast.model.outcomes import CancelAnswer, Done
from holdfast.model.workflows.commands import AbandonTurn
from holdfast.rules.idempotency import REMEMBER_GRANTS_S, REMEMBER_S, remember, remember_grants, seen_before


def remembered(world, command, outcome):
    world.tables.add([remember(command, outcome)], world.now)
    return seen_before(world.tables, command)


def test_a_new_id_was_not_seen_before():
    assert seen_before(World().tables, c.Cancel(job_id="j", cmd="c")) is None


def test_the_first_outcome_is_given_again():
    command = c.Cancel(job_id="j", cmd="c")
    outcome = CancelAnswer(outcome="requested")
    assert remembered(World(), command, outcome).outcome == outcome


def test_an_outcome_that_is_looked_up_instead_is_none():
    world, command = World(), c.Lease(worker_id="w", cmd="c")
    world.tables.add([remember_grants(command, world.now, 30)], world.now)
    assert seen_before(world.tables, command).outcome is None


@pytest.mark.parametrize(
    "other",
    [c.Cancel(job_id="k", cmd="c"), c.Cancel(job_id="j", cmd="c", force=True), c.Bury(job_id="j", cmd="c")],
)
def test_another_command_under_the_same_id_is_refused(other):
    world = World()
    remembered(world, c.Cancel(job_id="j", cmd="c"), Done())
    assert seen_before(world.tables, other).outcome.code == "id_reused"


def test_a_command_with_odd_text_can_be_remembered():
    command = c.Cancel(job_id="j", cmd="c", reason="\ud800")
    world = World()
    assert remembered(world, command, Done()).outcome == Done()
    assert seen_before(world.tables, msgspec.structs.replace(command, reason="\ud801")).outcome.code == "id_reused"


def enqueue(priority=0, **asked):
    new = c.NewJob(job_id="j", job_type="t", params=msgspec.Raw(b"{}"), priority=priority)
    return c.Enqueue(jobs=(new,), cmd="c", **asked)


def test_what_is_made_under_a_key_is_made_for_one_request():
    world = World()
    assert world.do(enqueue(request="r")).jobs[0].created
    seq = world.tables.seq
    assert not world.do(enqueue(request="r")).jobs[0].created
    # Other options are another request, also where the job is the same to who sends no key.
    assert world.tell(enqueue(9, request="other")).code == "id_reused"
    assert world.tell(msgspec.structs.replace(enqueue(request="r"), actor="somebody else")).code == "id_reused"
    assert world.tables.seq == seq
    world.wait(REMEMBER_S)
    world.do(c.Prune())
    assert not world.do(enqueue(9, request="other")).jobs[0].created


def test_what_is_made_without_a_key_leaves_nothing_behind_but_itself():
    world = World()
    world.do(enqueue())
    assert seen_before(world.tables, enqueue()) is None


def test_what_is_refused_uses_no_key_up():
    world, wish = World(), c.Retry(job_id="j", new_job_id="k", cmd="c", request="r")
    assert world.tell(wish).code == "job_not_found"
    assert seen_before(world.tables, wish) is None


def test_it_is_remembered_for_an_hour():
    world = World()
    world.do(c.PauseDispatch(cmd="c"))
    world.wait(REMEMBER_S - 1e-6)
    assert world.do(c.Prune()).count == 0
    world.wait(1e-6)
    assert world.do(c.Prune()).count == 1
    assert REMEMBER_S == 3600


@pytest.mark.parametrize(("lease_s", "kept_s"), [(30, REMEMBER_GRANTS_S), (900, 900), (7200, REMEMBER_S)])
def test_what_was_granted_is_remembered_while_it_lasts_and_some_minutes(lease_s, kept_s):
    world = World()
    command = c.Lease(worker_id="w", cmd="c", lease_s=lease_s)
    world.do(c.Enqueue(jobs=(c.NewJob(job_id="j", job_type="t", params=msgspec.Raw(b"{}")),)))
    (grant,) = world.do(command).grants
    world.wait(min(lease_s, kept_s) - 1e-6)
    assert [one.token for one in world.do(command).grants] == [grant.token]
    world.do(c.Complete(job_id="j", token=grant.token))
    world.wait(kept_s - min(lease_s, kept_s))
    assert world.do(command).grants == ()
    assert world.do(c.Prune()).count == 0
    world.wait(1e-6)
    assert world.do(c.Prune()).count == 1


def test_a_turn_that_is_given_back_without_a_reason_is_remembered():
    command = AbandonTurn(token=1, cmd="c", given_back=True)
    assert remembered(World(), command, Done()).outcome == Done()

"""Commands that leave no id of their own are remembered for an hour."""

import msgspec
import pytest
from world import World

from holdfast.model import commands as c
from holdfast.model.flowcommands import AbandonTurn
from holdfast.model.outcomes import CancelAnswer, Done
from holdfast.rules.repeats import REMEMBER_S, remember, seen_before


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
    assert remembered(World(), c.Lease(worker_id="w", cmd="c"), None).outcome is None


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


def test_it_is_remembered_for_an_hour():
    world = World()
    world.do(c.PauseDispatch(cmd="c"))
    world.wait(REMEMBER_S - 1e-6)
    assert world.do(c.Prune()).count == 0
    world.wait(1e-6)
    assert world.do(c.Prune()).count == 1
    assert REMEMBER_S == 3600


def test_a_turn_that_is_given_back_without_a_reason_is_remembered():
    command = AbandonTurn(token=1, cmd="c", given_back=True)
    assert remembered(World(), command, Done()).outcome == Done()

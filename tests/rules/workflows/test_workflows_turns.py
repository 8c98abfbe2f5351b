"""Turns: instances that were lost with their worker are fetched apart from others of their kind, then alone."""

from flowworld import FlowWorld

from holdfast.model import commands as c
from holdfast.model.workflows.commands import AbandonTurn, FetchTurn


def begun(*names):
    world = FlowWorld()
    for name in names:
        world.begin(name)
    return world


def fetch(world, holds=0, **options):
    found = world.do(_fetch(holds, **options))
    turns = () if found.turn is None else (found.turn, *found.others)
    return [turn.instance_id for turn in turns], found.held_back, found.alone_next


def _fetch(holds, **options):
    return FetchTurn(**{"lock_s": 30.0, "n": 9, "holds": holds} | options)


def lose_turns(world, times=1):
    for _ in range(times):
        world.do(_fetch(None, session_id="dead"))
        world.do(c.EndSession(session_id="dead"))


def test_instances_lost_once_are_fetched_one_at_a_time_among_others():
    world = begun("a", "b")
    lose_turns(world)
    world.begin("c")
    assert fetch(world) == (["a", "c"], True, None)
    assert fetch(world, holds=2, on_trial=True) == ([], True, None)
    assert fetch(world, holds=2) == (["b"], False, None)


def test_instance_lost_twice_is_fetched_alone_and_made_way_for():
    world = begun("a", "b")
    lose_turns(world, times=2)
    assert fetch(world, holds=1) == ([], True, None)
    world.wait(10)
    assert fetch(world, holds=1) == ([], True, "a")
    assert fetch(world) == (["a"], False, None)


def test_worker_that_does_not_say_what_it_holds_gets_every_instance():
    world = begun("a", "b")
    lose_turns(world, times=3)
    assert fetch(world, None) == (["a", "b"], False, None)


def test_lock_whose_turn_had_not_begun_is_not_charged():
    world = begun("a", "b")
    found = world.do(_fetch(None, session_id="dead"))
    world.do(c.EndSession(session_id="dead", unbegun=(found.others[0].token,)))
    again = world.do(_fetch(None))
    assert [turn.attempts for turn in (again.turn, *again.others)] == [2, 1]


def test_turn_given_back_uncounted_is_no_suspect():
    world = begun("a", "b")
    for _ in range(3):
        found = world.do(_fetch(None))
        for turn in (found.turn, *found.others):
            world.do(AbandonTurn(token=turn.token, given_back=True))
    assert fetch(world) == (["a", "b"], False, None)

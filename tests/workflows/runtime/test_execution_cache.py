"""Residents: kept until there are too many, and closed when they go."""

from holdfast.workflows.api import context as hf
from holdfast.workflows.runtime.execution_cache import Residents
from support.flows import World


def suspended(name, function):
    world = World()
    world.start(world.workflow(function, name="main"), instance=name)
    world.settle()
    return world._residents[name]


async def waits() -> None:
    await hf.signal("never")


def blocks() -> None:
    hf.signal("never")


def test_the_least_recently_used_goes_first():
    kept = Residents(limit=2)
    one, two, three = (suspended(name, waits) for name in ("one", "two", "three"))
    kept.keep(one)
    kept.keep(two)
    kept.keep(kept.take("one"))
    kept.keep(three)
    assert len(kept) == 2
    assert kept.take("two") is None
    assert two._loop.is_closed()
    assert kept.take("one") is one
    kept.clear()
    assert len(kept) == 0
    assert three._loop.is_closed()


def test_a_newer_execution_of_an_instance_takes_the_place_of_the_older():
    kept = Residents()
    old, new = suspended("i", waits), suspended("i", waits)
    kept.keep(old)
    kept.keep(new)
    assert old._loop.is_closed()
    assert kept.take("i") is new
    new.close()


def test_threads_of_def_workflows_are_bounded():
    kept = Residents(limit=10, blocking_limit=2)
    made = [suspended(name, blocks) for name in ("one", "two", "three")]
    for execution in made:
        kept.keep(execution)
    assert len(kept) == 2
    assert made[0]._loop.is_closed()
    kept.clear()


def test_threads_of_def_workflows_are_bounded_where_all_places_are_taken_too():
    kept = Residents(limit=3, blocking_limit=1)
    for name in ("one", "two", "three"):
        kept.keep(suspended(name, waits))
    made = [suspended(name, blocks) for name in ("four", "five")]
    for execution in made:
        kept.keep(execution)
    assert made[0]._loop.is_closed()
    assert len(kept) == 3
    kept.clear()


def test_a_def_workflow_that_is_taken_out_or_kept_again_counts_once():
    kept = Residents(limit=10, blocking_limit=2)
    one, two, three = (suspended(name, blocks) for name in ("one", "two", "three"))
    kept.keep(one)
    kept.keep(two)
    kept.keep(kept.take("one"))
    assert len(kept) == 2
    kept.keep(three)
    assert two._loop.is_closed()
    assert kept.take("one") is one
    assert kept.take("three") is three
    one.close()
    three.close()

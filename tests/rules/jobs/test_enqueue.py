"""Enqueue: all or none, ids sent again, the place in the queue, and what a conflict of keys does."""

import msgspec
import pytest
from world import START, World, content, new

from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import later
from holdfast.model.workflows.instances import owner_of


def enqueue(*jobs, cmd=""):
    return c.Enqueue(jobs=jobs, cmd=cmd)


def submitted(outcome):
    return [(job.job_id, job.created) for job in outcome.jobs]


def test_a_job_is_kept_with_all_that_was_asked_for():
    world = World()
    asked = new(
        "j", b'{"a":1}', namespace="n", queue="q", priority=7, timeout_s=5, lease_s=60, retry_mode="chain",
        max_attempts=2, max_expiries=3, key="k", key_scope="queue", key_hold="forever",
        limit_key="l", key_limit=2, tags={"a": "b"},
        owner=owner_of("i", 1, 2), affinity="a", submitted_by="s", traceparent="t",
    )  # fmt: skip
    world.do(enqueue(asked))
    job = world.job()
    for field in (*(set(asked.__struct_fields__) & set(Job.__struct_fields__) - {"created_at"}),):
        assert getattr(job, field) == getattr(asked, field), field
    assert (job.status, job.created_at, job.rank, job.position, job.seq) == ("QUEUED", START, -7, 100, 1)
    assert (job.attempts, job.expiries, job.executions) == (0, 0, 0)


def test_a_job_that_was_asked_for_earlier_keeps_its_time_and_none_comes_from_the_future():
    world = World()
    world.do(enqueue(new("past", created_at=later(START, -60)), new("ahead", created_at=later(START, 60))))
    assert (world.job("past").created_at, world.job("ahead").created_at) == (later(START, -60), START)


def test_each_job_goes_to_the_back_of_its_band():
    world = World()
    world.do(enqueue(new("a"), new("b"), new("c", priority=1), new("d", queue="q"), new("e"), new("f", namespace="n")))
    world.enqueue("g")
    assert {name: world.job(name).position for name in "abcdefg"} == {
        "a": 100, "b": 200, "c": 100, "d": 100, "e": 300, "f": 100, "g": 400,
    }  # fmt: skip


def test_delayed_jobs_have_their_place_too():
    world = World()
    world.enqueue("a", delay_s=50)
    assert (world.enqueue("b").created, world.job("b").position) == (True, 200)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"delay_s": 0}, None),
        ({"delay_s": 5}, later(START, 5)),
        ({"not_before": later(START, 9)}, later(START, 9)),
        ({"not_before": later(START, 9), "delay_s": 5}, later(START, 9)),
        ({"not_before": later(START, 9), "delay_s": 15}, later(START, 15)),
        ({"not_before": later(START, -9)}, None),
        ({"not_before": START}, None),
    ],
)
def test_the_later_of_two_delays_counts_and_one_that_has_passed_holds_nothing_back(options, expected):
    world = World()
    world.enqueue("j", **options)
    assert world.job().not_before == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"ttl_s": 5}, later(START, 5)),
        ({"expires_at": later(START, 9)}, later(START, 9)),
        ({"expires_at": later(START, 9), "ttl_s": 5}, later(START, 5)),
        ({"expires_at": later(START, 3), "ttl_s": 5}, later(START, 3)),
    ],
)
def test_the_earlier_of_two_latest_starts_counts(options, expected):
    world = World()
    world.enqueue("j", **options)
    assert world.job().expires_at == expected


# --- ids sent again ---------------------------------------------------------------------------------------------------


def test_the_same_submission_twice_gives_one_record():
    world = World()
    assert submitted(world.do(enqueue(new("j", b'{"a":1}')))) == [("j", True)]
    length = len(world.groups)
    assert submitted(world.do(enqueue(new("j", b'{"a":1}', priority=9)))) == [("j", False)]
    assert len(world.groups) == length


def test_the_same_id_twice_in_one_command_is_one_job():
    world = World()
    assert submitted(world.do(enqueue(new("j"), new("j")))) == [("j", True), ("j", False)]
    assert len(world.events()) == 1


@pytest.mark.parametrize("other", [new("j", b'{"a":2}'), new("j", job_type="other"), new("j", namespace="n")])
def test_an_id_with_other_content_is_refused_with_everything_beside_it(other):
    world = World()
    world.do(enqueue(new("j")))
    assert world.refused(enqueue(new("fresh"), other)) == "id_reused"
    assert world.job("fresh") is None
    assert World().refused(enqueue(new("j"), other)) == "id_reused"


# --- conflicts of keys ------------------------------------------------------------------------------------------------


def test_the_holder_is_returned_unless_asked_otherwise():
    world = World()
    world.enqueue("a", key="k")
    length = len(world.groups)
    assert submitted(world.do(enqueue(new("b", b'{"x":1}', key="k")))) == [("a", False)]
    assert len(world.groups) == length


def test_a_conflict_is_rejected_by_name_and_nothing_of_the_command_is_kept():
    world = World()
    world.enqueue("a", key="k")
    outcome = world.tell(enqueue(new("fresh"), new("b", key="k", on_conflict="reject")))
    assert (outcome.code, outcome.facts) == ("duplicate_key", {"job_id": "a", "key": "k"})
    assert world.job("fresh") is None


def test_jobs_of_one_command_see_each_others_keys():
    world = World()
    outcome = world.do(enqueue(new("a", key="k"), new("b", key="k"), new("c", key="other")))
    assert submitted(outcome) == [("a", True), ("a", False), ("c", True)]
    assert world.refused(enqueue(new("x", key="n"), new("y", key="n", on_conflict="reject"))) == "duplicate_key"


def test_a_queued_holder_takes_the_new_params_priority_and_delay():
    world = World()
    world.enqueue("a", key="k", delay_s=5, tags={"a": "b"})
    world.enqueue("b")
    world.enqueue("c", priority=3)
    replacing = new("z", b'{"x":1}', key="k", on_conflict="replace", priority=3, delay_s=60, tags={"c": "d"})
    assert submitted(world.do(enqueue(replacing))) == [("a", False)]
    job = world.job("a")
    assert (bytes(job.params), job.priority, job.rank, job.position) == (b'{"x":1}', 3, -3, 200)
    assert (job.not_before, job.tags) == (later(START, 60), {"a": "b"})
    assert world.job("z") is None


def test_delay_and_replace_debounce():
    world = World()
    for _ in range(5):
        world.do(enqueue(new("j", key="k", on_conflict="replace", delay_s=10)))
        world.wait(9)
        assert world.lease() == ()
        assert world.enqueue(f"later{world.now}", key="k", on_conflict="replace", delay_s=10).job_id == "j"
    world.wait(10)
    assert [grant.job.job_id for grant in world.lease(9)] == ["j"]


def test_a_replacement_without_a_delay_may_start_at_once():
    world = World()
    world.enqueue("a", key="k", delay_s=600)
    world.enqueue("b", key="k", on_conflict="replace")
    assert len(world.lease()) == 1


def test_a_running_holder_is_returned_unchanged():
    world = World()
    world.start("a", key="k")
    before = content(world.tables)
    assert submitted(world.do(enqueue(new("b", b'{"x":1}', key="k", on_conflict="replace")))) == [("a", False)]
    assert content(world.tables) == before


@pytest.mark.parametrize("how", ["fail", "lose", "release"])
def test_the_params_of_a_holder_that_ran_before_stay_frozen(how):
    world = World()
    token = world.start("a", key="k")
    match how:
        case "fail":
            world.do(c.Fail(job_id="a", token=token, error="e"))
        case "lose":
            world.wait(30)
            world.do(c.Expire())
        case "release":
            world.do(c.Release(job_id="a", token=token, begun=False))
    before = content(world.tables)
    assert submitted(world.do(enqueue(new("b", b'{"x":1}', key="k", on_conflict="replace")))) == [("a", False)]
    assert content(world.tables) == before


def test_several_replacements_in_one_command_leave_priority_and_band_in_agreement():
    for first in ("stored", "draft"):
        world = World()
        jobs = [new("a", key="k")]
        if first == "stored":
            world.do(enqueue(*jobs))
            jobs = []
        jobs += [
            new(f"r{number}", b'{"n":%d}' % number, key="k", on_conflict="replace", priority=priority)
            for number, priority in enumerate([5, 0, 5, 5, -3])
        ]
        world.do(enqueue(*jobs))
        job = world.job("a")
        assert (bytes(job.params), job.priority, job.rank) == (b'{"n":4}', -3, 3)


@pytest.mark.parametrize("on_conflict", ["return", "replace"])
def test_an_answer_about_a_holder_is_repeated_even_after_the_holder_is_gone(on_conflict):
    world = World()
    world.enqueue("a", key="k")
    again = enqueue(new("b", key="k", on_conflict=on_conflict, delay_s=10), cmd="c1")
    first = world.do(again)
    world.wait(5)
    before = content(world.tables)
    assert world.do(again) == first
    assert content(world.tables) == before
    world.do(c.Cancel(job_id="a"))
    before = content(world.tables)
    assert world.do(again) == first
    assert content(world.tables) == before


def test_an_id_of_a_keyed_command_used_for_another_is_refused():
    world = World()
    world.enqueue("a", key="k")
    world.do(enqueue(new("b", key="k"), cmd="c1"))
    assert world.refused(enqueue(new("b2", key="k"), cmd="c1")) == "id_reused"


def test_creation_is_one_event_with_the_whole_job():
    world = World()
    world.do(c.Enqueue(jobs=(new("j"),), cmd="c1", actor="me"))
    (event,) = world.events()
    assert isinstance(event, ev.JobCreated)
    assert (event.cmd, event.actor) == ("c1", "me")
    assert msgspec.structs.replace(event.job, seq=1) == world.job()
    assert event.job.status is JobStatus.QUEUED

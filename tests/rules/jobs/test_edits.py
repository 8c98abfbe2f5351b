"""Edits by people: cancel, bury, update, move, normalise, pause."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import START, World, content

from holdfast.model import commands as c
from holdfast.model.events import JobChanges, JobMoved, QueueNormalized
from holdfast.model.jobs import Backoff, Job
from holdfast.model.records import AUTHORITY, Authority, Queue
from holdfast.model.times import later
from holdfast.rules.jobs.dispatch_order import FAR


def order(world, queue="default", rank=0):
    return [job.job_id for job in world.tables.band("", queue, rank)]


def line(*names):
    world = World()
    for name in names:
        world.enqueue(name)
    return world


# --- cancel and bury --------------------------------------------------------------------------------------------------


def test_a_queued_job_is_cancelled_without_a_run():
    world = line("j")
    assert world.do(c.Cancel(job_id="j", reason="why")).outcome == "cancelled"
    job = world.job()
    assert (job.status, job.cancel_reason, job.finished_at, world.tables.runs("j")) == ("CANCELLED", "why", START, ())


def test_a_running_job_is_asked_to_stop_once():
    world = World()
    world.start("j")
    assert world.do(c.Cancel(job_id="j", reason="first")).outcome == "requested"
    world.wait(1)
    assert world.do(c.Cancel(job_id="j", reason="second")).outcome == "requested"
    assert (world.job().cancel_requested_at, world.job().cancel_reason) == (START, "first")


def test_force_revokes_the_lease_at_once():
    world = World()
    token = world.start("j")
    assert world.do(c.Cancel(job_id="j", force=True)).outcome == "cancelled"
    assert (world.job().status, world.run().status, world.run().reason) == ("CANCELLED", "CANCELLED", "cancelled")
    assert world.refused(c.Complete(job_id="j", token=token)) == "lease_lost"


@pytest.mark.parametrize("running", [False, True])
def test_a_buried_job_is_dead_with_its_reason(running):
    world = World()
    token = world.start("j") if running else world.enqueue("j")
    world.do(c.Bury(job_id="j", reason="poison"))
    assert (world.job().status, world.job().error) == ("DEAD", "poison")
    if running:
        assert (world.run().status, world.run().reason) == ("CANCELLED", "buried")
        assert world.refused(c.Complete(job_id="j", token=token)) == "lease_lost"


def test_a_job_buried_without_a_reason_keeps_its_last_error():
    world = World()
    token = world.start("j")
    world.do(c.Fail(job_id="j", token=token, error="boom"))
    world.do(c.Bury(job_id="j"))
    assert world.job().error == "boom"


@pytest.mark.parametrize(
    "command",
    [
        lambda reason: c.Cancel(job_id="j", reason=reason, cmd="c"),
        lambda reason: c.Bury(job_id="j", reason=reason, cmd="c"),
        lambda reason: c.PauseQueue(queue="q", reason=reason, cmd="c"),
        lambda reason: c.PauseDispatch(reason=reason, cmd="c"),
    ],
    ids=["cancel", "bury", "pause queue", "pause dispatch"],
)
@pytest.mark.parametrize("reason", ["\ud800", "x" * 100_000, "a\0b"], ids=["surrogate", "long", "nul"])
def test_any_reason_is_made_storable_and_its_repeat_is_recognised(command, reason):
    world = line("j")
    first = world.do(command(reason))
    before = content(world.tables)
    assert world.do(command(reason)) == first
    assert content(world.tables) == before
    assert all(len(msgspec.json.encode(event)) < 40_000 for event in world.events())


# --- update -----------------------------------------------------------------------------------------------------------


def test_every_field_that_may_change_can_be_changed():
    world = line("j")
    changes = JobChanges(
        params=msgspec.Raw(b'{"a":1}'), queue="q", priority=5, not_before=later(START, 9), expires_at=later(START, 99),
        timeout_s=5, lease_s=60, max_attempts=9, max_expiries=8, backoff=Backoff(base_s=1), limit_key="l", key_limit=2,
        tags={"a": "b"},
    )  # fmt: skip
    assert set(changes.given()) == set(JobChanges.__struct_fields__)
    reply = world.do(c.Update(job_id="j", changes=changes))
    job = world.job()
    for field, value in changes.given().items():
        assert getattr(job, field) == value, field
    assert (job.rank, job.position, reply.position) == (-5, 100, 100)


def test_values_can_be_taken_away_again():
    world = World()
    world.enqueue("j", delay_s=9, ttl_s=99, timeout_s=5, limit_key="l", tags={"a": "b"})
    changes = JobChanges(not_before=None, expires_at=None, timeout_s=None, limit_key=None, tags=None)
    world.do(c.Update(job_id="j", changes=changes))
    job = world.job()
    assert (job.not_before, job.expires_at, job.timeout_s, job.limit_key, job.tags) == (None,) * 5
    assert len(world.lease()) == 1


def test_another_priority_or_queue_puts_a_job_at_the_back_of_its_new_band():
    world = line("a", "b", "c")
    world.do(c.Update(job_id="c", changes=JobChanges(priority=1)))
    reply = world.do(c.Update(job_id="a", changes=JobChanges(priority=1)))
    assert (order(world, rank=-1), reply.position) == (["c", "a"], 200)
    world.do(c.Update(job_id="a", changes=JobChanges(queue="q")))
    assert (order(world, "q", -1), world.job("a").position) == (["a"], 100)


def test_an_edit_within_the_band_leaves_the_place_alone():
    world = line("a", "b")
    reply = world.do(c.Update(job_id="a", changes=JobChanges(priority=0, queue="default", timeout_s=3)))
    assert (order(world), reply.position) == (["a", "b"], 100)


def test_the_place_zero_is_told_as_zero():
    world = World()
    world.enqueue("low", priority=1)
    world.tables.put(Job, "low", msgspec.structs.replace(world.job("low"), position=-100))
    world.enqueue("j")
    reply = world.do(c.Update(job_id="j", changes=JobChanges(priority=1)))
    assert reply.position == world.job().position == 0


def test_a_job_cannot_leave_the_queue_its_key_belongs_to():
    world = World()
    world.enqueue("j", key="k", key_scope="queue")
    world.enqueue("free", key="k", key_scope="task")
    assert world.refused(c.Update(job_id="j", changes=JobChanges(queue="q"))) == "invalid_operation"
    world.do(c.Update(job_id="free", changes=JobChanges(queue="q")))
    world.do(c.Update(job_id="j", changes=JobChanges(priority=3)))


def test_an_empty_edit_is_refused():
    assert line("j").refused(c.Update(job_id="j", changes=JobChanges())) == "invalid_value"


# --- move -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"before": "a"}, "dabc"),
        ({"before": "b"}, "adbc"),
        ({"before": "c"}, "abdc"),
        ({"after": "a"}, "adbc"),
        ({"after": "b"}, "abdc"),
        ({"after": "c"}, "abcd"),
        ({"to": "first"}, "dabc"),
        ({"to": "last"}, "abcd"),
        ({"before": "d"}, "abcd"),
        ({"after": "d"}, "abcd"),
    ],
)
def test_a_job_is_moved_to_where_it_was_wished(wish, expected):
    world = line(*"abcd")
    reply = world.do(c.Move(job_id="d", **wish))
    assert "".join(order(world)) == expected
    assert reply.position == world.job("d").position


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.sampled_from(["before", "after", "to"]), st.sampled_from("abcde")),
        max_size=30,
    )
)
def test_any_row_of_moves_does_what_a_list_would_do(moves):
    world = line(*"abcde")
    expected = list("abcde")
    for job, how, goal in moves:
        if how == "to":
            world.do(c.Move(job_id=job, to="first" if goal < "c" else "last"))
            expected.remove(job)
            expected.insert(0 if goal < "c" else 4, job)
        else:
            world.do(c.Move(job_id=job, **{how: goal}))
            if job != goal:
                expected.remove(job)
                expected.insert(expected.index(goal) + (how == "after"), job)
        assert order(world) == expected


def test_when_no_gap_is_left_the_band_is_spaced_again_in_the_same_commit():
    world = line("a", "b", "c")
    spaced = 0
    for turn in range(20):
        mover, goal = ("c", "b") if turn % 2 else ("b", "c")
        world.do(c.Move(job_id=mover, before=goal))
        assert order(world) == ["a", mover, goal]
        spaced += any(isinstance(event, QueueNormalized) for event in world.last)
    assert spaced
    assert len(world.groups) == 3 + 19  # the first wish was fulfilled already


def test_jobs_of_one_position_are_told_apart_before_one_is_put_between_them():
    world = line("a", "b", "c")
    for name in "ab":
        world.tables.put(Job, name, msgspec.structs.replace(world.job(name), position=100))
    world.do(c.Move(job_id="c", after="a"))
    assert order(world) == ["a", "c", "b"]


@pytest.mark.parametrize("edge", ["first", "last"])
def test_a_place_beyond_exact_integers_is_never_given(edge):
    world = line("a", "b", "c")
    sign = -1 if edge == "first" else 1
    far = "a" if edge == "first" else "c"
    world.tables.put(Job, far, msgspec.structs.replace(world.job(far), position=sign * FAR))
    world.do(c.Move(job_id="b", to=edge))
    assert order(world) == (["b", "a", "c"] if edge == "first" else ["a", "c", "b"])
    assert all(abs(world.job(name).position) < 1000 for name in "abc")
    world = line("a", "b", "c")
    world.tables.put(Job, far, msgspec.structs.replace(world.job(far), position=sign * FAR))
    world.do(c.Move(job_id="b", **{"before" if edge == "first" else "after": far}))
    assert order(world) == (["b", "a", "c"] if edge == "first" else ["a", "c", "b"])


def test_a_move_is_only_within_one_band():
    world = line("a", "b")
    world.enqueue("other", queue="q")
    world.enqueue("higher", priority=1)
    world.enqueue("elsewhere", namespace="n")
    world.enqueue("gone")
    world.do(c.Cancel(job_id="gone"))
    for goal in ("other", "higher", "elsewhere", "gone"):
        assert world.refused(c.Move(job_id="a", before=goal)) == "invalid_operation"
    assert world.refused(c.Move(job_id="a", after="nobody")) == "job_not_found"


@pytest.mark.parametrize(
    "wish", [{}, {"before": "b", "to": "first"}, {"before": "b", "after": "b"}, {"before": ""}, {"after": ""}]
)
def test_a_move_names_exactly_one_goal(wish):
    assert line("a", "b").refused(c.Move(job_id="a", **wish)) == "invalid_value"


def test_a_job_that_is_where_it_should_be_is_not_written():
    world = line("a", "b")
    length = len(world.groups)
    for wish in ({"to": "first"}, {"before": "b"}, {"before": "a"}):
        assert world.do(c.Move(job_id="a", **wish)).position == 100
    assert len(world.groups) == length


def test_delayed_jobs_count_as_neighbours():
    world = World()
    world.enqueue("a", delay_s=60)
    world.enqueue("b")
    world.enqueue("c", delay_s=60)
    world.do(c.Move(job_id="c", before="b"))
    assert order(world) == ["a", "c", "b"]
    assert isinstance(world.last[0], JobMoved)
    world.do(c.Move(job_id="b", to="first"))
    assert order(world) == ["b", "a", "c"]


# --- normalise and pause ----------------------------------------------------------------------------------------------


def test_normalising_spaces_every_band_of_a_queue_in_its_order():
    world = line("a", "b", "c")
    world.enqueue("high", priority=5)
    world.enqueue("other", queue="q")
    world.do(c.Move(job_id="c", before="b"))
    world.do(c.Move(job_id="other", to="first"))
    world.do(c.Normalize(queue="default"))
    assert {name: world.job(name).position for name in ("a", "c", "b", "high")} == {
        "a": 100,
        "c": 200,
        "b": 300,
        "high": 100,
    }
    assert len(world.last) == 2


def test_an_empty_queue_has_nothing_to_space():
    world = World()
    world.do(c.Normalize(queue="nobody"))
    assert world.groups == []


def test_a_pause_is_kept_with_its_reason_and_repeated_only_with_another():
    world = World()
    world.do(c.PauseQueue(queue="q", reason="r"))
    world.do(c.PauseQueue(queue="q", reason="r"))
    assert len(world.groups) == 1
    world.do(c.PauseQueue(queue="q", reason="other"))
    assert world.tables.get(Queue, "\0q") == Queue("", "q", paused=True, pause_reason="other")
    world.do(c.ResumeQueue(queue="q"))
    world.do(c.ResumeQueue(queue="q"))
    assert (world.tables.get(Queue, "\0q").paused, len(world.groups)) == (False, 3)


def test_dispatch_as_a_whole_pauses_the_same_way():
    world = World()
    world.start("j")
    world.do(c.PauseDispatch(reason="r"))
    world.do(c.PauseDispatch(reason="r"))
    assert len(world.groups) == 3
    paused = world.tables.get(Authority, AUTHORITY)
    assert paused == Authority(last_token=1, dispatch_paused=True, dispatch_reason="r")
    world.do(c.ResumeDispatch())
    assert world.tables.get(Authority, AUTHORITY) == Authority(last_token=1)

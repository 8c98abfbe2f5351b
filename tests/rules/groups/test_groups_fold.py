"""Counts and status of groups: whatever happens to members, they are what a walk over the members gives."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import START, World, new

from holdfast.errors import CorruptState
from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.groups import Group, GroupMode, GroupStatus, OnFailure
from holdfast.model.jobs import Backoff, Job, JobStatus, RetryKind
from holdfast.model.times import later
from holdfast.rules.fold import fold
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.groups.fold import OVER, counted_as, counts_of, moved, status_of
from holdfast.rules.jobs.retry import last_of

EMPTY = Group("g", START)
LAST = {JobStatus.COMPLETED: 3, JobStatus.FAILED: 4, JobStatus.DEAD: 4, JobStatus.CANCELLED: 5}
PLACES = {JobStatus.QUEUED: 1, JobStatus.RUNNING: 2, **LAST}


def group(world, group_id="g"):
    return world.tables.get(Group, group_id)


def walked(world, roots):
    """Count the members one by one, each by the last job of its chain."""
    counts = [len(roots), 0, 0, 0, 0, 0]
    for root in roots:
        counts[PLACES[last_of(world.tables, root).status]] += 1
    return tuple(counts)


@st.composite
def lives(draw):
    """A group and what happens to its members."""
    members = tuple(
        new(
            f"m{number}",
            retry_mode=draw(st.sampled_from(["requeue", "chain"])),
            max_attempts=draw(st.integers(1, 2)),
            max_expiries=draw(st.integers(1, 2)),
            backoff=Backoff(base_s=draw(st.sampled_from([0, 20])), jitter=0),
            ttl_s=draw(st.sampled_from([None, None, 30])),
        )
        for number in range(draw(st.integers(1, 4)))
    )
    command = c.CreateGroup(
        group_id="g",
        members=members,
        mode=draw(st.sampled_from(GroupMode)),
        on_failure=draw(st.sampled_from(OnFailure)),
        callback=draw(st.none() | st.just(new("z", queue="end"))),
    )
    steps = st.tuples(
        st.sampled_from(
            ["lease", "complete", "fail", "fatal", "snooze", "release", "give up", "lose", "cancel", "bury", "retry"]
        ),
        st.integers(0, 5),
    )
    return command, draw(st.lists(steps, min_size=6, max_size=25))


def step(world, what, number):
    """Do one thing to one of the jobs that are there."""
    jobs = sorted(world.tables.all(Job), key=lambda job: job.job_id)
    job = jobs[number % len(jobs)]
    running = [each for each in jobs if each.status is JobStatus.RUNNING]
    held = running[number % len(running)] if running else None
    match what:
        case "lease":
            world.wait(1)
            world.lease(number + 1)
        case "lose":
            world.wait(31)
            world.do(c.Expire())
        case "cancel":
            world.tell(c.Cancel(job_id=job.job_id, force=number % 2 == 0))
        case "bury":
            world.tell(c.Bury(job_id=job.job_id))
        case "retry":
            world.tell(c.Retry(job_id=job.job_id, new_job_id=f"again-{world.draws}"))
        case _ if held is None:
            world.lease(1)
        case _:
            token = {"job_id": held.job_id, "token": held.token}
            reports = {
                "complete": lambda: c.Complete(**token),
                "fail": lambda: c.Fail(**token, error="boom"),
                "fatal": lambda: c.Fail(**token, error="boom", fatal=True),
                "snooze": lambda: c.Snooze(**token, delay_s=5),
                "release": lambda: c.Release(**token, begun=True),
                "give up": lambda: c.GiveUp(**token),
            }
            world.tell(reports[what]())


@given(lives())
def test_counts_are_always_what_a_walk_over_the_members_gives(life):
    command, steps = life
    world = World()
    world.do(command)
    roots = [member.job_id for member in command.members]
    for what, number in steps:
        before = group(world)
        step(world, what, number)
        found = group(world)
        assert counts_of(found) == walked(world, roots)
        over = all(last_of(world.tables, root).has_ended for root in roots)
        assert (found.status in OVER) == over == (found.finished_at is not None)
        assert before.finished_at in (None, found.finished_at), "an end is for good"
        if command.on_failure is OnFailure.STOP and found.failed:
            assert not found.queued
        called = world.tables.get(Job, "z")
        assert (called is not None) == (over and command.callback is not None)
    world.do(c.CancelGroup(group_id="g", running=True)) if group(world).status not in OVER else None
    world.wait(86_400)
    world.do(c.Expire())
    assert group(world).status in OVER


@given(lives())
def test_in_a_sequential_group_no_member_runs_before_those_ahead_have_ended(life):
    command, steps = life
    world = World()
    world.do(msgspec.structs.replace(command, mode=GroupMode.SEQUENTIAL))
    for what, number in steps:
        step(world, what, number)
        active = [job for job in world.tables.members("g") if not job.has_ended]
        ready = {job.job_id for job in world.tables.ready("", ["default"], None, world.now)}
        for job in active[1:]:
            assert job.status is JobStatus.QUEUED
            assert job.job_id not in ready


@pytest.mark.parametrize(
    ("counts", "on_failure", "status"),
    [
        ((0, 0, 0, 0, 0), "stop", "CREATED"),
        ((2, 0, 0, 0, 0), "stop", "QUEUED"),
        ((1, 0, 1, 0, 0), "stop", "RUNNING"),
        ((0, 1, 0, 1, 0), "continue", "RUNNING"),
        ((1, 0, 0, 0, 1), "stop", "RUNNING"),
        ((0, 0, 2, 0, 0), "stop", "COMPLETED"),
        ((0, 0, 1, 1, 0), "skip", "COMPLETED"),
        ((0, 0, 1, 1, 1), "skip", "PARTIAL"),
        ((0, 0, 0, 2, 0), "skip", "FAILED"),
        ((0, 0, 0, 1, 1), "stop", "FAILED"),
        ((0, 0, 0, 0, 2), "stop", "CANCELLED"),
        ((0, 0, 1, 0, 1), "continue", "PARTIAL"),
        ((0, 0, 1, 1, 0), "continue", "PARTIAL"),
    ],
)
def test_the_first_status_that_fits(counts, on_failure, status):
    queued, running, completed, failed, cancelled = counts
    found = Group(
        "g",
        START,
        on_failure=OnFailure(on_failure),
        members=sum(counts),
        queued=queued,
        running=running,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        started_at=START if running or completed or failed else None,
    )
    assert status_of(found) is GroupStatus(status)


def test_a_lease_that_was_given_back_has_started_the_group_all_the_same():
    found = moved(moved(EMPTY, None, JobStatus.QUEUED, None), JobStatus.QUEUED, JobStatus.RUNNING, START)
    assert status_of(moved(found, JobStatus.RUNNING, JobStatus.QUEUED, None)) is GroupStatus.RUNNING


def test_the_earliest_first_lease_is_the_start():
    late = later(START, 9)
    found = moved(moved(EMPTY, None, JobStatus.QUEUED, late), None, JobStatus.QUEUED, START)
    assert moved(found, JobStatus.QUEUED, JobStatus.RUNNING, late).started_at == START


def test_a_job_that_ends_with_a_successor_counts_as_queued():
    assert counted_as(ev.JobFailed(job_id="j", token=1, error="", error_kind="", to=JobStatus.FAILED)) == "FAILED"
    followed = ev.JobFailed(job_id="j", token=1, error="", error_kind="", to=JobStatus.FAILED, successor="k")
    assert counted_as(followed) is JobStatus.QUEUED
    assert counted_as(ev.JobMoved(job_id="j", position=1)) is None


def test_a_member_carried_on_after_its_end_is_counted_anew():
    world = World()
    world.do(c.CreateGroup(group_id="g", members=(new("a", retry_mode="chain", max_attempts=1),)))
    (grant,) = world.lease()
    world.do(c.Fail(job_id="a", token=grant.token, error="boom"))
    assert group(world).status is GroupStatus.FAILED
    old = world.job("a")
    heir = msgspec.structs.replace(
        old, job_id="b", status=JobStatus.QUEUED, retry_of="a", retry_kind=RetryKind.AUTO, finished_at=None
    )
    events = [ev.JobCreated(job=heir), ev.GroupChanged(group_id="g", status=GroupStatus.RUNNING)]
    world.tables.add(events, world.now)
    assert counts_of(group(world)) == (1, 1, 0, 0, 0, 0)
    assert group(world).finished_at is None


# --- contradictions ---------------------------------------------------------------------------------------------------

AT = Stamp(99, START)


def ended():
    world = World()
    world.do(c.CreateGroup(group_id="g", members=(new("a"),)))
    world.do(c.Cancel(job_id="a"))
    return world


@pytest.mark.parametrize(
    "event",
    [
        ev.GroupCreated(group=EMPTY),
        ev.GroupCreated(group=Group("h", START), joined=(("a", 0),)),
        ev.GroupCreated(group=Group("h", START), joined=(("nobody", 0),)),
        ev.GroupChanged(group_id="g", status=GroupStatus.COMPLETED),
        ev.GroupChanged(group_id="h", status=GroupStatus.COMPLETED),
        ev.GroupPruned(group_id="h"),
        ev.JobCreated(job=Job("b", "t", msgspec.Raw(b"{}"), START, group_id="g", sequence_number=1)),
        ev.JobCreated(job=Job("b", "t", msgspec.Raw(b"{}"), START, group_id="h", sequence_number=1)),
    ],
)
def test_what_cannot_have_happened_to_a_group_stops_the_store(event):
    with pytest.raises(CorruptState):
        fold(ended().tables, event, AT)


def test_a_group_that_lives_is_not_pruned():
    world = World()
    world.do(c.CreateGroup(group_id="g", members=(new("a"),)))
    with pytest.raises(CorruptState, match="pruned while QUEUED"):
        fold(world.tables, ev.GroupPruned(group_id="g"), AT)

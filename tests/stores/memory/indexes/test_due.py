"""Lanes of time: whatever waits stands in its lane once, by its time, and is gone when it waits no more."""

from hypothesis import given
from hypothesis import strategies as st
from lineskit import RAW, START, STATUSES, TIMES, Told, batches, job

from holdfast.model.jobs import Job, JobStatus, KeyHold
from holdfast.model.records import DoneCommand, HeldKey, key_of
from holdfast.model.times import later
from holdfast.rules.state import Lane
from holdfast.stores.memory.indexes.due import Lanes, kind_of

SOON = later(START, 60)
OF_JOBS = {Lane.DELAYED, Lane.TTL, Lane.LEASE}


@st.composite
def jobs(draw):
    status = draw(STATUSES)
    return job(
        f"j{draw(st.integers(0, 5))}",
        status=status,
        not_before=draw(st.none() | TIMES),
        expires_at=draw(st.none() | TIMES),
        lease_expires_at=draw(TIMES) if status is JobStatus.RUNNING else None,
        sequence_number=draw(st.sampled_from([None, None, 2])),
    )


RECORDS = (
    jobs()
    | jobs()
    | st.builds(DoneCommand, st.sampled_from("abc"), st.just("d"), st.just(RAW), TIMES)
    | st.builds(HeldKey, st.just(""), st.sampled_from("ab"), st.just("j1"), st.just(KeyHold.WINDOW), st.none() | TIMES)
)


def waits(one):
    """Tell who waits for others here: whoever has a number."""
    return one.sequence_number is not None


def shown(lanes):
    return {lane: list(keys) for lane, keys in lanes.items()}


@given(batches(RECORDS))
def test_after_any_changes_and_undone_ones_lanes_are_as_those_filled_with_what_is_there(drawn):
    told, lanes = Told(), Lanes()

    def follow(before, after):
        match after or before:
            case DoneCommand():
                lanes.reindex_command(before, after)
            case HeldKey():
                lanes.reindex_key(before, after)
            case _:
                if before is not None:
                    lanes.discard(before, waits=waits(before))
                if after is not None:
                    lanes.add(after, waits=waits(after))

    told.run(follow, drawn)
    commands, held, everything = (list(told.records[kind].values()) for kind in (DoneCommand, HeldKey, Job))
    queued = [one for one in everything if one.status is JobStatus.QUEUED]
    expected = {lane: [] for lane in Lane} | {
        Lane.COMMAND: sorted((one.at, one.cmd) for one in commands),
        Lane.KEY: sorted((one.held_until, key_of(one)) for one in held if one.held_until),
        Lane.TTL: sorted((one.expires_at, one.job_id) for one in queued if one.expires_at),
        Lane.DELAYED: sorted((one.not_before, one.job_id) for one in queued if one.not_before and not waits(one)),
        Lane.LEASE: sorted((one.lease_expires_at, one.job_id) for one in everything if one.lease_expires_at),
    }
    assert shown(lanes) == expected
    fresh = Lanes()
    fresh.fill(everything, {one.job_id for one in everything if waits(one)})
    assert {lane: list(fresh[lane]) for lane in OF_JOBS} == {lane: expected[lane] for lane in OF_JOBS}


def test_filling_in_jobs_leaves_the_lanes_of_others_as_they_are():
    lanes = Lanes()
    lanes.reindex_command(None, DoneCommand("c", "d", RAW, START))
    lanes.fill([job("j", expires_at=SOON)], ())
    assert list(lanes[Lane.COMMAND]) == [(START, "c")]
    assert list(lanes[Lane.TTL]) == [(SOON, "j")]


def test_a_job_that_was_promoted_is_forgotten_with_the_times_it_still_has():
    lanes, one, other = Lanes(), job("j", not_before=START, expires_at=SOON), job("k", not_before=START)
    lanes.add(one, waits=False)
    lanes.add(other, waits=False)
    lanes[Lane.DELAYED].discard((START, "j"))
    lanes.discard(one, waits=False)
    assert {lane: keys for lane, keys in shown(lanes).items() if keys} == {Lane.DELAYED: [(START, "k")]}


def test_a_lane_is_of_jobs_where_nothing_else_is_said_of_it():
    assert {lane for lane in Lane if kind_of(lane) is Job} == OF_JOBS
    assert (kind_of(Lane.COMMAND), kind_of(Lane.KEY)) == (DoneCommand, HeldKey)

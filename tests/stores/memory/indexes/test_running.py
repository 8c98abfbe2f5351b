"""RUNNING jobs: who holds a place of a queue, a limit key or a schedule, and who is passed by for it."""

from hypothesis import given
from hypothesis import strategies as st
from lineskit import STATUSES, Told, batches, job

from holdfast.model.jobs import Job, JobStatus
from holdfast.model.schedules import Overlap
from holdfast.stores.memory.indexes.running import RunningJobs

RUNNING = JobStatus.RUNNING


@st.composite
def jobs(draw):
    return job(
        f"j{draw(st.integers(0, 7))}",
        namespace=draw(st.sampled_from(["", "", "n"])),
        queue=draw(st.sampled_from("qr")),
        status=draw(STATUSES | st.just(RUNNING)),
        limit_key=draw(st.sampled_from([None, "k", "l"])),
        schedule_id=draw(st.sampled_from([None, "s", "t"])),
    )


@given(batches(jobs()))
def test_after_any_changes_and_undone_ones_the_running_are_those_that_run(drawn):
    told, running = Told(), RunningJobs()

    def follow(before, after):
        for one, by in ((before, -1), (after, 1)):
            if one is not None:
                running.count(one, by)

    told.run(follow, drawn)
    everything = list(told.records[Job].values())

    def those(**fields):
        """Name the RUNNING jobs with these fields."""
        found = [one for one in everything if all(getattr(one, name) == value for name, value in fields.items())]
        return sorted(one.job_id for one in found if one.status is RUNNING)

    for namespace in ("", "n", "other"):
        assert sorted(running.few(namespace, 8)) == those(namespace=namespace)
        for queue in "qr":
            assert sorted(running.of_queue(namespace, queue)) == those(namespace=namespace, queue=queue)
        for key in "kl":
            assert sorted(running.with_key(namespace, key)) == those(namespace=namespace, limit_key=key)
    for name in "st":
        assert sorted(running.of_schedule(name)) == those(schedule_id=name)
        active = [one.job_id for one in everything if one.schedule_id == name and not one.has_ended]
        assert running.active_of(name) == min(active, default=None)


def test_a_queued_job_of_a_schedule_is_active_and_holds_no_place():
    running = RunningJobs()
    running.count(job("j", schedule_id="s", limit_key="k"), 1)
    assert running.active_of("s") == "j"
    assert [*running.of_schedule("s"), *running.with_key("", "k"), *running.of_queue("", "default")] == []


def test_jobs_whose_limit_key_is_full_are_passed_by_and_those_of_other_namespaces_are_not():
    running = RunningJobs()
    running.count(job("r", status=RUNNING, limit_key="k"), 1)
    full, wide = job("full", limit_key="k"), job("wide", limit_key="k", key_limit=2)
    others = [job("elsewhere", limit_key="k", namespace="n"), job("other", limit_key="l"), job("none")]
    assert list(running.free(iter([full, wide, *others]))) == [wide, *others]
    running.count(job("s", status=RUNNING, limit_key="k"), 1)
    assert list(running.free(iter([full, wide, *others]))) == others


def test_a_job_that_waits_for_its_schedule_is_passed_by_while_another_of_that_runs():
    running = RunningJobs()
    queued = [job(kind, schedule_id="s", overlap=kind) for kind in (Overlap.QUEUE, Overlap.ALLOW, Overlap.SKIP)]
    other = job("other", schedule_id="t", overlap=Overlap.QUEUE)
    for one in queued:
        running.count(one, 1)
    assert list(running.free(iter([*queued, other]))) == [*queued, other]
    busy = job("r", schedule_id="s", status=RUNNING)
    running.count(busy, 1)
    assert list(running.free(iter([*queued, other]))) == [*queued[1:], other]
    running.count(busy, -1)
    assert list(running.free(iter([*queued, other]))) == [*queued, other]


def test_those_of_a_namespace_are_given_if_they_are_few():
    running = RunningJobs()
    for name, queue in (("a", "q"), ("b", "r")):
        running.count(job(name, queue=queue, status=RUNNING), 1)
    assert sorted(running.few("", 2)) == ["a", "b"]
    assert running.few("", 1) is None

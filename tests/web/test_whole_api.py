"""The Python API at a coordinator: what is promised of any store holds there, for each noun once."""

from __future__ import annotations

import hashlib

import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.errors import Forbidden, JobCancelled, JobFailed, ReservationConflict
from holdfast.model.access import Access, Role
from holdfast.model.commands import Enqueue
from holdfast.testing.conformance.harness import new_job

ACCESSES = [
    Access(name=f"the-{role.value}", roles=(role,), digest=hashlib.sha256(role.value.encode()).hexdigest())
    for role in (Role.CLIENT, Role.WORKER)
]
#: A wait that is never used up: what is waited for has happened, or fails.
PATIENCE_S = 30.0


def application(url, **options):
    """The code of somebody's application, at a store."""
    hf = Holdfast(url, **options)

    @hf.task(name="double")
    def double(number: int) -> int:
        hf.current.log.info("doubling")
        hf.current.progress(1, 2, "half")
        return 2 * number

    @hf.task(name="odd", max_attempts=1)
    def odd() -> None:
        raise ValueError("odd")

    if hf.namespace:  # workflows belong to none
        return hf, double, odd

    @hf.workflow(name="order")
    async def order(number: int) -> str:
        doubled = await double.call(number)
        hf.set_status({"doubled": doubled})
        paid = await hf.signal("paid", type=int)
        answer = await hf.decision("Send it?", ["yes", "no"])
        return f"{doubled} {paid} {answer}"

    return hf, double, odd, order


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    with running(f"wal:{tmp_path_factory.mktemp('api') / 'jobs'}", accesses=ACCESSES) as serving:
        yield serving


@pytest.fixture
def apps(coordinator, request):
    """Make applications in a namespace of the test's own, which are closed in the end."""
    opened = []

    def make(**options):
        made = application(coordinator.url, **{"namespace": request.node.name[:60], **options})
        opened.append(made[0])
        return made

    yield make
    for hf in opened:
        hf.close()


def test_a_job_gives_its_result_its_runs_its_lines_and_its_progress(apps):
    hf, double, *_ = apps()
    job = double.options(id="a-job").enqueue(21)
    assert job.explain().sentence
    hf.work(until_idle=True)
    assert job.result(timeout=PATIENCE_S) == 42
    (run,) = job.runs()
    assert hf.run(run.run_id).job_id == "a-job"
    assert [line.text for line in job.log()] == ["doubling"]
    assert [found.id for found in hf.jobs()] == ["a-job"]


def test_a_failure_is_raised_where_the_result_is_asked_for(apps):
    hf, _, odd = apps()
    job = odd.enqueue()
    hf.work(until_idle=True)
    with pytest.raises(JobFailed, match="odd"):
        job.result(timeout=PATIENCE_S)
    again = job.retry()
    assert again.id != job.id
    assert again.cancel("no") == "cancelled"
    with pytest.raises(JobCancelled):
        again.result(timeout=PATIENCE_S)


def test_a_queued_job_is_changed_moved_and_buried(apps):
    hf, double, *_ = apps()
    first, second = double.enqueue(1), double.enqueue(2)
    second.update(priority=0, tags={"colour": "red"})
    second.move(before=first.id)
    assert second.refresh().tags == {"colour": "red"}
    hf.queue("default").pause("lunch")
    assert hf.queue("default").counts() == {first.status: 2}
    hf.queue("default").resume()
    second.bury("never")
    assert second.status == "DEAD"


def test_a_group_gives_the_results_of_its_members_in_order(apps):
    hf, double, *_ = apps()
    group = hf.fan_out(double, [(1,), (2,), (3,)], name="three")
    hf.work(until_idle=True)
    assert group.results(timeout=PATIENCE_S) == [2, 4, 6]
    assert (group.status, group.progress.done) == ("COMPLETED", 3)
    assert [found.id for found in hf.groups()] == [group.id]
    chain = hf.chain(double.job(1), double.job(2))
    chain.cancel("no")
    assert chain.status == "CANCELLED"


def test_a_schedule_is_previewed_triggered_paused_and_deleted(apps):
    hf, double, *_ = apps()
    schedule = hf.schedule("hourly", double, every=3600, params={"number": 4})
    assert len(schedule.preview(3)) == 3
    job = schedule.trigger()
    hf.work(until_idle=True)
    assert job.result(timeout=PATIENCE_S) == 8
    schedule.pause("later")
    assert not schedule.record().enabled
    assert hf.schedules()[0].name == "hourly"
    schedule.delete()
    assert hf.schedules() == []


def test_a_template_is_used(apps):
    hf, double, *_ = apps()
    hf.template("nine", double, {"number": 9}, priority=3)
    (template,) = hf.templates()
    job = template.enqueue()
    hf.work(until_idle=True)
    assert job.result(timeout=PATIENCE_S) == 18


def test_a_queue_is_reserved_by_one_and_used_directly(apps):
    hf, double, *_ = apps()
    other, *_ = apps()
    with hf.reserve("default", by="anna") as held:
        held.wait_idle()
        assert double.direct(5) == 10
        with pytest.raises(ReservationConflict, match="anna"), other.reserve("default", wait=0):
            pass
    with other.reserve("default", wait=0):
        pass


def test_a_webhook_is_tried_by_the_coordinator_and_not_from_here(apps):
    """The networks that this process may tell are not those that the coordinator may."""
    hf, *_ = apps(webhook_allow=["127.0.0.0/8"])
    hook = hf.webhook("http://127.0.0.1:9/", id="hook")
    delivery = hook.test()
    assert delivery.status == "FAILED"
    assert "127.0.0.1" in delivery.last_error
    assert [found.delivery_id for found in hook.deliveries()] == [delivery.delivery_id]
    hook.disable()
    assert not hook.record().enabled
    assert hook.rotate()
    hook.delete()
    assert hf.webhooks() == []


def test_a_workflow_calls_is_told_asks_and_ends(apps):
    hf, _, _, order = apps(namespace="")
    run = order.start(21, id="order-1")
    hf.work(until_idle=True)
    assert run.status().custom_status == {"doubled": 42}
    run.signal("paid", 7)
    hf.work(until_idle=True)
    (question,) = hf.decisions(instance="order-1")
    question.resolve("yes", by="ann")
    hf.work(until_idle=True)
    assert run.result(timeout=PATIENCE_S) == "42 7 yes"
    assert order.start(21, id="order-1").result(timeout=PATIENCE_S) == "42 7 yes"
    assert run.history()
    other = order.start(1, id="order-2")
    other.cancel("no")
    hf.work(until_idle=True)
    assert other.wait(timeout=PATIENCE_S).status == "CANCELLED"
    assert {found.id for found in hf.instances()} == {"order-1", "order-2"}


def test_a_client_submits_and_a_worker_works_each_with_no_more_than_its_role(apps):
    """One cannot lease, the other cannot submit; what a turn starts is no submission."""
    _, double, _, order = apps(namespace="", access_token="client")
    work, *_ = apps(namespace="", access_token="worker")
    job = double.options(id="mine").enqueue(3)
    group = double.app.fan_out(double, [(1,), (2,)])
    run = order.start(5, id="order-3")
    run.signal("paid", 1)
    work.work(until_idle=True)
    assert job.result(timeout=PATIENCE_S) == 6
    assert [line.text for line in job.log()] == ["doubling"]
    assert group.results(timeout=PATIENCE_S) == [2, 4]
    with pytest.raises(Forbidden):
        work.engine.ask(Enqueue(jobs=(new_job("x"),)))
    with pytest.raises(Forbidden):
        double.app.work(until_idle=True)
    assert {one.id for one in double.app.jobs()} >= {"mine"}
    assert all(one.refresh().submitted_by == "the-client" for one in double.app.jobs())
    assert (run.status().custom_status, run.status().submitted_by) == ({"doubled": 10}, "the-client")
    assert [one.id for one in double.app.instances()] == ["order-3"]

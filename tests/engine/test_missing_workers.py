"""What waiting work needs and no live worker has, told once it has waited long enough."""

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.engine.missing_workers import lacking, missing_code, unserved
from holdfast.model import commands as c
from holdfast.model.times import later, stamp
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event, ExecutionMetadata
from holdfast.model.workflows.work_items import QueueMessage, StartOrchestration
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.clock import ManualClock
from holdfast.workflows.provider import Provider


class Scene:
    """A store in which instances wait."""

    def __init__(self):
        self.clock = ManualClock()
        self.engine = Engine(MemoryStore(clock=self.clock), clock=self.clock)
        self.provider = Provider(self.engine)

    @property
    def now(self):
        return stamp(self.clock.now())

    def worker(self, *workflows, age=0.0, **more):
        began = later(self.now, -age)
        told = {"worker_id": "w", "name": "w", "host": "h", "pid": 1, "version": "0", "last_seen": self.now}
        return WorkerInfo(**told, started_at=began, workflows=workflows, **more)

    def start(self, name, workflow="onboard", version=None):
        self.provider.enqueue_for_orchestrator(
            StartOrchestration(instance=name, orchestration=workflow, input="{}", version=version)
        )

    def begun(self, name, workflow="onboard", version="1.0.0", waiting_on=None):
        """Start an instance and give it its first turn; it waits for nothing that will come by itself."""
        self.start(name, workflow)
        _, token, _ = self.provider.fetch_orchestration_item(30)
        kind = event_kinds.OrchestrationStarted(name=workflow, version=version, input="{}")
        event = Event(event_id=1, instance=name, execution_id=1, timestamp_ms=1, kind=kind)
        metadata = ExecutionMetadata(status="Running", waiting_on=waiting_on)
        self.provider.ack_orchestration_item(token, 1, (event,), metadata=metadata)

    def enqueue(self, job_id, queue="default", task="send"):
        job = c.NewJob(job_id=job_id, job_type=task, params=msgspec.Raw(b"{}"), queue=queue)
        self.engine.ask(c.Enqueue(jobs=(job,)))

    def missing(self, *workers):
        with self.engine.read() as view:
            return list(missing_code(view, self.now, workers))

    def unserved(self, *workers):
        with self.engine.read() as view:
            return list(unserved(view, self.now, workers))

    def lacking(self, *having):
        with self.engine.read() as view:
            return lacking(view, self.now, having)


@pytest.fixture
def scene():
    return Scene()


def test_an_instance_with_something_to_do_is_missed_after_five_minutes(scene):
    scene.begun("user-42", version="2.0.0")
    scene.provider.enqueue_for_orchestrator(QueueMessage(instance="user-42", name="paid", data="1"))
    old = scene.worker("onboard 1.0.0")
    scene.clock.advance(299)
    assert scene.missing(old) == []
    scene.clock.advance(2)
    (found,) = scene.missing(scene.worker("onboard 1.0.0"))
    assert (found.code, found.id, found.ids) == ("workflow_code_missing", "onboard 2.0.0", ("user-42",))
    assert "the first since 2026-01-01T00:00:00.000000Z" in found.message
    assert "live workers have onboard 1.0.0" in found.message
    assert "user-42" in found.message
    assert scene.missing(scene.worker("onboard 1.0.0", "onboard 2.0.0")) == []


def test_one_that_only_waits_is_missed_by_workers_that_have_been_there_as_long(scene):
    scene.begun("a")
    scene.begun("b")
    scene.clock.advance(3600)
    assert scene.missing() == []  # between two deployments nobody is there
    assert scene.missing(scene.worker("onboard 2.0.0", age=10)) == []
    (found,) = scene.missing(scene.worker("onboard 2.0.0", age=301))
    assert sorted(found.ids) == ["a", "b"]


def test_workers_that_leave_or_are_lost_have_no_code(scene):
    scene.begun("a")
    ready = scene.worker("other 1.0.0", age=600)
    for state in (WorkerState.DRAINING, WorkerState.LOST):
        leaving = msgspec.structs.replace(scene.worker("onboard 1.0.0"), worker_id="x", state=state)
        assert len(scene.missing(ready, leaving)) == 1


def test_a_start_without_a_version_is_content_with_any(scene):
    scene.start("new")
    scene.start("pinned", version="3.0.0")
    assert scene.lacking("onboard 1.0.0") == {"onboard 3.0.0": ["pinned"]}
    assert scene.lacking("other 1.0.0") == {"onboard": ["new"], "onboard 3.0.0": ["pinned"]}


def test_a_start_that_was_given_back_is_still_needed(scene):
    scene.start("new")
    _, token, _ = scene.provider.fetch_orchestration_item(30)
    scene.provider.abandon_orchestration_item(token, 60.0, ignore_attempt=True, reason="no live worker has workflow")
    assert scene.lacking() == {"onboard": ["new"]}


def test_what_has_ended_needs_nobody(scene):
    scene.begun("a")
    scene.provider.enqueue_for_orchestrator(QueueMessage(instance="a", name="s", data="1"))
    _, token, _ = scene.provider.fetch_orchestration_item(30)
    scene.provider.ack_orchestration_item(token, 1, metadata=ExecutionMetadata(status="Completed", output="1"))
    assert scene.lacking() == {}


def test_a_queue_that_nobody_serves_is_named_once_its_jobs_have_waited(scene):
    scene.enqueue("j", queue="mail")
    elsewhere = scene.worker(queues=("default",))
    scene.clock.advance(299)
    assert scene.unserved(elsewhere) == []
    scene.clock.advance(1)
    (found,) = scene.unserved(elsewhere)
    assert (found.code, found.id) == ("queue_unserved", "mail")
    assert "--queues mail" in found.remedy
    assert scene.unserved(scene.worker(queues=("mail",))) == []


def test_a_task_that_no_worker_of_its_queue_knows_is_named(scene):
    scene.enqueue("j")
    scene.enqueue("k", task="known")
    scene.clock.advance(300)
    (found,) = scene.unserved(scene.worker(job_types=("known",)))
    assert (found.code, found.id) == ("task_code_missing", "send")
    assert scene.unserved(scene.worker(job_types=None)) == []

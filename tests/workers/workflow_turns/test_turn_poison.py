"""Turns that were delivered too often: what is ended, by whose limit, and what is let be."""

import asyncio
import threading

import pytest
from turnskit import LONG, App

from holdfast.failpoints import listening
from holdfast.model.workflows.history import Status
from holdfast.model.workflows.work_items import StartOrchestration
from holdfast.workflows.api import context as face


@pytest.fixture
def app(url, clock):
    made = App(url, clock)
    yield made
    made.close()


def deliver_in_vain(app, times):
    for _ in range(times):
        _, token, _ = app.provider.fetch_orchestration_item(30)
        app.provider.abandon_orchestration_item(token)


def test_what_came_too_late_for_an_ended_instance_is_settled_however_often_it_was_delivered(app):
    @app.workflow
    async def flow() -> int:
        return 1

    app.start(flow)
    app.settle()
    app.signal("late")
    deliver_in_vain(app, 12)
    app.settle()
    assert app.provider.get_queue_depths().orchestrator_queue == 0
    assert app.result() == 1


def test_the_limit_is_that_of_the_recorded_workflow_whatever_a_second_start_names(app):
    @app.workflow(max_turn_attempts=2)
    async def flow() -> None:
        await face.signal("never")

    app.start(flow)
    app.settle()
    app.provider.enqueue_for_orchestrator(StartOrchestration(instance="i", orchestration="other", input="{}"))
    deliver_in_vain(app, 2)
    app.settle()
    assert app.status() is Status.FAILED


def test_an_instance_in_memory_that_others_failed_with_is_ended_from_its_history(app):
    @app.workflow
    async def flow() -> int:
        return await asyncio.wait_for(face.signal("x"), 3600)

    held, go = threading.Event(), threading.Event()

    def hold():
        if app.provider.list_instances():
            held.set()
            assert go.wait(LONG)

    app.start(flow)
    with listening("turns.answered", hold):
        app.worker().start()
        assert held.wait(LONG)
        app.signal("x", 1)
        deliver_in_vain(app, 11)
        go.set()
    app.wait(status=Status.FAILED)
    assert [event.event_id for event in app.provider.read("i")] == [1, 2, 3]
    assert app.provider.get_queue_depths().timer_queue == 0

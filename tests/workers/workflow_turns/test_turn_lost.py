"""Instances that were lost with their workers: they run alone, and no worker leaves them behind."""

import threading

import pytest
from turnskit import LONG, App

from holdfast.failpoints import listening
from holdfast.model.commands import EndSession, Lease
from holdfast.model.workflows.commands import AbandonTurn, FetchTurn
from holdfast.model.workflows.history import Status
from holdfast.workflows.api import context as face


@pytest.fixture
def app(url, clock):
    made = App(url, clock)
    yield made
    made.close()


def lose(app, instance, *, times):
    """Have workers die that run this instance; they give back what else they have."""
    engine = app.hf.engine
    for _ in range(times):
        fetched = engine.ask(FetchTurn(lock_s=30, n=9, session_id="dead"))
        for turn in (fetched.turn, *fetched.others):
            if turn.instance_id != instance:
                engine.ask(AbandonTurn(token=turn.token, given_back=True))
        engine.ask(EndSession(session_id="dead"))


def test_worker_that_ends_when_idle_runs_the_instance_it_made_way_for(app, clock):
    was_fetched = threading.Event()

    @app.workflow
    async def first() -> None:
        await face.step(was_fetched.wait, LONG)

    @app.workflow
    async def other() -> None:
        pass

    app.start(first, instance="first")
    app.start(other, instance="suspect")
    lose(app, "suspect", times=2)
    clock.advance(10)  # from now on workers make way
    with listening("turns.answered", was_fetched.set):
        app.settle()
    assert (app.status("first"), app.status("suspect")) == (Status.COMPLETED, Status.COMPLETED)


def test_worker_that_ends_when_idle_runs_instances_after_it_made_way_for_a_job_that_is_gone(app, clock):
    was_answered = threading.Event()
    suspect = app.hf.task(name="suspect")(lambda: None).enqueue()
    engine = app.hf.engine
    for _ in range(2):
        assert engine.ask(Lease(worker_id="other", session_id="dead")).grants
        engine.ask(EndSession(session_id="dead"))

    @app.workflow
    async def flow() -> None:
        pass

    @app.hf.task(name="first")
    def first() -> None:
        assert was_answered.wait(LONG)
        suspect.cancel()
        app.start(flow)

    first.options(priority=1).enqueue()
    clock.advance(10)  # from now on workers make way
    with listening("pump.sent", was_answered.set):
        app.settle()
    assert app.status() is Status.COMPLETED

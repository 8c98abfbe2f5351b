"""Pause: no new leases, of one queue or of all. What runs goes on, and so do enqueues."""

from __future__ import annotations

from holdfast.model.commands import PauseDispatch, PauseQueue, ResumeDispatch, ResumeQueue
from holdfast.model.jobs import JobStatus
from holdfast.model.outcomes import Done
from holdfast.model.records import AUTHORITY, Authority, Queue, pair
from holdfast.testing.conformance.harness import Harness, Topic, new_job
from holdfast.testing.conformance.marks import counts_writes


class Pause(Topic):
    """Queue and dispatch."""

    def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, harness: Harness) -> None:
        harness.enqueue("a")
        assert harness.ask(PauseQueue(queue="default")) == Done()
        assert harness.order() == []
        assert harness.ask(ResumeQueue(queue="default")) == Done()
        assert harness.order() == ["a"]

    def test_other_queues_and_namespaces_go_on(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", queue="other"), new_job("c", namespace="x"))
        harness.ask(PauseQueue(queue="default"))
        assert harness.order(queues=("default", "other")) == ["b"]
        assert harness.order(namespace="x") == ["c"]

    def test_what_runs_goes_on_and_enqueues_are_taken(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.ask(PauseQueue(queue="default"))
        assert harness.enqueue("b").created
        assert harness.complete(grant).job_status is JobStatus.COMPLETED

    def test_the_reason_is_shown_and_survives_a_restart(self, harness: Harness) -> None:
        harness.ask(PauseQueue(queue="mail", namespace="x", reason="server down"))
        harness.restart()
        with harness.engine.read() as view:
            assert view.get(Queue, pair("x", "mail")) == Queue("x", "mail", paused=True, pause_reason="server down")
        harness.enqueue("a", queue="mail", namespace="x")
        assert harness.order(queues=("mail",), namespace="x") == []

    @counts_writes
    def test_pausing_what_is_paused_writes_nothing_unless_the_reason_differs(self, harness: Harness) -> None:
        harness.ask(PauseQueue(queue="default", reason="one"))
        with harness.unchanged():
            harness.ask(PauseQueue(queue="default", reason="one"))
        harness.ask(PauseQueue(queue="default", reason="two"))
        with harness.engine.read() as view:
            assert view.get(Queue, pair("", "default")) == Queue("", "default", paused=True, pause_reason="two")

    @counts_writes
    def test_resuming_what_is_not_paused_writes_nothing(self, harness: Harness) -> None:
        with harness.unchanged():
            assert harness.ask(ResumeQueue(queue="default")) == Done()
            assert harness.ask(ResumeDispatch()) == Done()

    def test_paused_dispatch_stops_every_queue_and_survives_a_restart(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", queue="other"))
        harness.ask(PauseDispatch(reason="upgrade"))
        harness.restart()
        assert harness.order(queues=("default", "other")) == []
        with harness.engine.read() as view:
            assert view.get(Authority, AUTHORITY) == Authority(dispatch_paused=True, dispatch_reason="upgrade")
        harness.ask(ResumeDispatch())
        assert harness.order(queues=("default", "other")) == ["a", "b"]

    def test_leases_expire_while_dispatch_is_paused(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        harness.ask(PauseDispatch())
        harness.advance(30)
        assert harness.tick().expired == 1
        assert harness.status("a") is JobStatus.QUEUED

    def test_a_paused_queue_keeps_its_order(self, harness: Harness) -> None:
        harness.ask(PauseQueue(queue="default"))
        harness.enqueue_many(new_job("a"), new_job("b", priority=1), new_job("c"))
        harness.ask(ResumeQueue(queue="default"))
        assert harness.order() == ["b", "a", "c"]

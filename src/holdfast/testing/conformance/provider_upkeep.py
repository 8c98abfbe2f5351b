"""Instances in the long run: how long they are kept, and how schedules begin them. Workflows §10, scheduler §12."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.engine.maintenance import LIMIT
from holdfast.engine.schedule_rounds import fire_due
from holdfast.errors import IdReused, InvalidValue
from holdfast.model.commands import Backfill, Prune, PutSchedule, Trigger
from holdfast.model.events import ScheduleFired
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Backfilled, Enqueued, Swept
from holdfast.model.retention import FOR_EVER_S, Retention
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule
from holdfast.model.times import Timestamp
from holdfast.model.workflows.instances import Instance
from holdfast.rules.schedules.overlaps import fire_id, latest_instance
from holdfast.rules.workflows.explain import explain_instance
from holdfast.testing.conformance.harness import Harness, told
from holdfast.testing.conformance.marks import counts_writes
from holdfast.testing.conformance.provider_kit import COMPLETED, Desk, ProviderTopic, start, started
from holdfast.workflows.provider import ExecutionMetadata, Status

DAY = 86_400.0


def _kept(desk: Desk) -> list[str]:
    return sorted(desk.provider.list_instances())


def _ended(retention_s: float | None) -> ExecutionMetadata:
    return ExecutionMetadata(status=Status.COMPLETED, output="1", retention_s=retention_s)


class ProviderRetention(ProviderTopic):
    """What is over goes in its time: whole trees, never one with a member that runs."""

    @counts_writes
    def test_ended_roots_go_after_thirty_days_with_their_trees(self, desk: Desk, harness: Harness) -> None:
        desk.begin("root")
        desk.end("child", parent="root")
        desk.ack(desk.turn("root"), metadata=COMPLETED)
        desk.begin("running")
        desk.advance(30 * DAY - 1)
        assert harness.tick().pruned == 0
        desk.advance(1)
        assert harness.tick().pruned == 2
        assert _kept(desk) == ["running"]
        assert harness.tick().pruned == 0

    @counts_writes
    def test_a_tree_with_a_member_that_runs_stays(self, desk: Desk, harness: Harness) -> None:
        desk.end("root", _ended(0.0))
        desk.send(start("child", parent_instance="root"))
        _, token, _ = desk.fetch()
        desk.ack(token, started("child", parent_instance="root"))
        desk.advance(60 * DAY)
        assert harness.tick().pruned == 0
        assert _kept(desk) == ["child", "root"]
        desk.ack(desk.turn("child"), metadata=COMPLETED)
        assert harness.tick().pruned == 2
        assert _kept(desk) == []

    def test_what_a_workflow_says_goes_before_what_the_store_says(self, desk: Desk, harness: Harness) -> None:
        desk.end("brief", _ended(10.0))
        desk.end("default")
        desk.end("long", _ended(90 * DAY))
        desk.end("always", _ended(FOR_EVER_S))
        desk.advance(10)
        harness.tick()
        assert _kept(desk) == ["always", "default", "long"]
        desk.advance(30 * DAY)
        harness.tick()
        assert _kept(desk) == ["always", "long"]
        desk.advance(60 * DAY)
        harness.tick()
        desk.advance(3650 * DAY)
        harness.tick()
        assert _kept(desk) == ["always"]

    def test_zero_deletes_at_the_end(self, desk: Desk, harness: Harness) -> None:
        desk.end("gone", _ended(0.0))
        assert harness.tick().pruned == 1
        assert _kept(desk) == []

    @counts_writes
    def test_the_store_may_keep_for_ever_and_not_at_all(self, desk: Desk, harness: Harness) -> None:
        desk.end("a")
        desk.advance(365 * DAY)
        assert harness.ask(Prune(retention=Retention(workflows_s=FOR_EVER_S))) == Swept(count=0)
        desk.end("b")
        assert harness.ask(Prune(retention=Retention(workflows_s=0.0))) == Swept(count=2)
        assert _kept(desk) == []

    def test_one_that_is_brought_back_forgets_when_it_was_to_go(self, desk: Desk, harness: Harness) -> None:
        desk.begin("i")
        desk.ack(desk.turn("i"), metadata=_ended(10.0))
        desk.ack(desk.turn("i"), started("i", 2), execution=2)
        desk.advance(DAY)
        harness.tick()
        assert _kept(desk) == ["i"]

    def test_a_late_message_does_not_change_when_it_goes(self, desk: Desk, harness: Harness) -> None:
        desk.end("i", _ended(10.0))
        desk.ack(desk.turn("i"))
        desk.advance(10)
        harness.tick()
        assert _kept(desk) == []

    @counts_writes
    def test_many_go_in_bounded_commits_each_tree_in_one(self, desk: Desk, harness: Harness) -> None:
        for number in range(5):
            desk.end(f"i{number}")
        desk.advance(30 * DAY)
        swept = harness.ask(Prune(limit=2))
        assert swept == Swept(count=2, more=True)
        assert len(_kept(desk)) == 3
        assert harness.tick().pruned == 3
        assert LIMIT >= 3

    def test_of_an_instance_that_goes_on_the_last_executions_stay(self, desk: Desk) -> None:
        desk.begin("i")
        for number in range(2, 16):
            desk.ack(
                desk.turn("i"),
                execution=number - 1,
                metadata=ExecutionMetadata(status=Status.CONTINUED_AS_NEW, output="next"),
            )
            desk.ack(
                desk.turn("i"),
                started("i", number),
                execution=number,
                metadata=ExecutionMetadata(status=Status.RUNNING, keep_executions=10),
            )
        assert desk.provider.list_executions("i") == list(range(6, 16))
        assert desk.provider.read_with_execution("i", 5) == []
        assert len(desk.provider.read_with_execution("i", 6)) == 1

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"retention_s": -1.0}, "retention_s must be 0-3155760000, got -1.0"),
            ({"retention_s": float("nan")}, "retention_s must be 0-3155760000, got nan"),
            ({"keep_executions": 0}, "keep_executions must be >= 1, got 0"),
        ],
    )
    def test_a_retention_that_is_none_is_refused(self, desk: Desk, wrong: dict[str, Any], message: str) -> None:
        desk.begin("i")
        token = desk.turn("i")
        metadata = ExecutionMetadata(status=Status.COMPLETED, output="1", **wrong)
        desk.refuses(message, desk.provider.ack_orchestration_item, token, 1, metadata=metadata)

    def test_without_a_word_all_executions_stay(self, desk: Desk) -> None:
        desk.continued(executions=12)
        assert len(desk.provider.list_executions("i")) == 12


def plan(harness: Harness, **more: Any) -> Schedule:
    """Make a schedule that begins an instance every hour."""
    given: dict[str, Any] = {"name": "nightly", "workflow": "flow", "interval_s": 3600.0, **more}
    harness.ask(PutSchedule(schedule_id="s", schedule=NewSchedule(**given)))
    return _schedule(harness)


def _schedule(harness: Harness) -> Schedule:
    with harness.engine.read() as view:
        found = view.get(Schedule, "s")
    assert found is not None
    return found


def _skipped(harness: Harness, after: int) -> list[str]:
    """Name for whom nothing was begun since then, and demand that nothing was."""
    found = [one.event for one in told(harness.store, after)]
    fired = [event for event in found if isinstance(event, ScheduleFired)]
    assert fired == found
    return [event.skipped_for or "" for event in fired]


class ProviderSchedules(ProviderTopic):
    """Schedules begin instances: one for each nominal time, in the commit of the fire."""

    def _fire(self, harness: Harness, seconds: float = 3600.0) -> Timestamp:
        harness.advance(seconds)
        fire_due(harness.authority)
        at = _schedule(harness).last_fire_at
        assert at is not None
        return at

    def _finish(self, desk: Desk, metadata: ExecutionMetadata = COMPLETED) -> str:
        item, token, _ = desk.fetch()
        desk.ack(token, started(item.instance), metadata=metadata)
        return item.instance

    def test_a_fire_begins_one_instance_with_its_input(self, desk: Desk, harness: Harness) -> None:
        plan(harness, param_overrides=msgspec.Raw(b'{"user":42}'))
        seq = harness.seq
        at = self._fire(harness)
        assert harness.kinds(seq) == ["schedule:fired", "message:stored"]
        fire_due(harness.authority)
        item, token, _ = desk.fetch()
        assert (item.instance, item.orchestration_name) == (fire_id("s", at), "flow")
        (begun,) = item.messages
        assert begun.input == '{"user":42}'  # type: ignore[union-attr]  # it is a start
        desk.ack(token, started(item.instance))
        with harness.engine.read() as view:
            made = view.get(Instance, item.instance)
        assert made is not None
        assert made.schedule_id == "s"
        desk.nothing()

    def test_skip_begins_none_while_one_is_not_over_and_names_it(self, desk: Desk, harness: Harness) -> None:
        plan(harness)
        first = fire_id("s", self._fire(harness))
        seq = harness.seq
        self._fire(harness)  # its start still waits to be delivered
        assert _skipped(harness, seq) == [first]
        assert self._finish(desk, ExecutionMetadata(status=Status.RUNNING)) == first
        seq = harness.seq
        self._fire(harness)
        assert _skipped(harness, seq) == [first]
        desk.ack(desk.turn(first), metadata=COMPLETED)
        last = fire_id("s", self._fire(harness))
        assert self._finish(desk) == last
        assert _schedule(harness).fires == 4
        with harness.engine.read() as view:
            assert latest_instance(view, _schedule(harness)) == last

    def test_queue_begins_the_next_in_the_commit_that_ends_the_one_before(self, desk: Desk, harness: Harness) -> None:
        plan(harness, overlap=Overlap.QUEUE)
        names = [fire_id("s", self._fire(harness)) for _ in range(3)]
        item, token, _ = desk.fetch()
        assert item.instance == names[0]
        desk.nothing()
        with harness.engine.read() as view:
            why = explain_instance(view, names[1], harness.now, (), lambda job: job.job_id)
        assert why is not None
        assert (why.code, why.holder) == ("waiting", names[0])
        seq = harness.seq
        desk.ack(token, started(names[0]), metadata=COMPLETED)
        assert "message:unparked" in harness.kinds(seq)
        assert self._finish(desk) == names[1]
        assert self._finish(desk) == names[2]
        desk.nothing()

    def test_queue_goes_on_when_the_one_before_is_deleted(self, desk: Desk, harness: Harness) -> None:
        plan(harness, overlap=Overlap.QUEUE)
        names = [fire_id("s", self._fire(harness)) for _ in range(2)]
        assert self._finish(desk, ExecutionMetadata(status=Status.RUNNING)) == names[0]
        desk.provider.delete_instance(names[0], force=True)
        assert self._finish(desk) == names[1]

    def test_allow_begins_them_side_by_side(self, desk: Desk, harness: Harness) -> None:
        plan(harness, overlap=Overlap.ALLOW)
        names = {fire_id("s", self._fire(harness)) for _ in range(3)}
        assert {desk.fetch()[0].instance for _ in range(3)} == names

    def test_what_continues_as_new_is_not_over(self, desk: Desk, harness: Harness) -> None:
        plan(harness)
        first = fire_id("s", self._fire(harness))
        self._finish(desk, ExecutionMetadata(status=Status.CONTINUED_AS_NEW, output="next"))
        seq = harness.seq
        self._fire(harness)
        assert _skipped(harness, seq) == [first]

    def test_missed_times_are_made_up_for_one_after_the_other(self, desk: Desk, harness: Harness) -> None:
        plan(harness, overlap=Overlap.QUEUE, catch_up=CatchUp.ALL, grace_s=0.0)
        self._fire(harness, 3 * 3600.0)
        begun = [self._finish(desk) for _ in range(3)]
        assert len(set(begun)) == 3
        desk.nothing()

    def test_a_wish_begins_one_now_and_again_gives_the_same(self, desk: Desk, harness: Harness) -> None:
        plan(harness, param_overrides=msgspec.Raw(b'{"user":1,"plan":"a"}'))
        self._fire(harness)
        wish = Trigger(schedule_id="s", job_id=JobId("now"), params=msgspec.Raw(b'{"user":2}'))
        first, again = harness.ask(wish), harness.ask(wish)
        assert isinstance(first, Enqueued)
        assert isinstance(again, Enqueued)
        assert (first.jobs[0].created, again.jobs[0].created) == (True, False)
        inputs = {(item := desk.fetch()[0]).instance: item.messages[0].input for _ in range(2)}  # type: ignore[union-attr]  # starts
        assert inputs["now"] == '{"user":2,"plan":"a"}'
        desk.end("other")
        harness.refused(IdReused, Trigger(schedule_id="s", job_id=JobId("other")))

    def test_a_backfill_begins_those_of_the_past_in_turn_and_once(self, desk: Desk, harness: Harness) -> None:
        made = plan(harness)
        harness.advance(3 * 3600.0)
        back = Backfill(schedule_id="s", backfill_id="b", since=made.created_at, until=harness.now)
        first, again = harness.ask(back), harness.ask(back)
        assert isinstance(first, Backfilled)
        assert isinstance(again, Backfilled)
        assert first.count > 0
        assert again.count == 0
        begun = [self._finish(desk) for _ in range(first.count)]
        assert len(set(begun)) == first.count
        desk.nothing()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"job_type": "send"},
            {"queue": "mail"},
            {"priority": 3},
            {"namespace": "n"},
            {"workflow": None},
        ],
        ids=str,
    )
    def test_what_makes_no_sense_for_a_workflow_is_refused(self, harness: Harness, wrong: dict[str, Any]) -> None:
        given: dict[str, Any] = {"name": "nightly", "workflow": "flow", "interval_s": 3600.0, **wrong}
        harness.refused(InvalidValue, PutSchedule(schedule_id="s", schedule=NewSchedule(**given)))

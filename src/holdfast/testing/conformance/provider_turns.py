"""Turns: fetch, ack, give back, renew. Who gets what, in which order, how often."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from holdfast.errors import ProviderError
from holdfast.model.outcomes import Fetched
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.commands import FetchTurn, RenewTurn
from holdfast.testing.conformance.marks import counts_writes
from holdfast.testing.conformance.provider_kit import (
    COMPLETED,
    CONTINUED,
    FAILED,
    Desk,
    ProviderTopic,
    activity,
    data_of,
    event,
    patch,
    signal,
    start,
    started,
    timer,
)
from holdfast.workflows.provider import (
    CancelInstance,
    ContinueAsNew,
    EventKind,
    ExecutionMetadata,
    ExternalRaised,
    QueueMessage,
    Status,
    SubOrchCompleted,
)


class ProviderFetch(ProviderTopic):
    """What a fetch gives."""

    def test_an_empty_store_has_nothing_to_fetch_and_writes_nothing(self, desk: Desk) -> None:
        with desk.harness.unchanged():
            desk.nothing()

    def test_a_start_is_fetched_with_its_own_name_and_no_history(self, desk: Desk) -> None:
        desk.send(start("i", version="2.1.0"))
        item, token, attempts = desk.fetch()
        assert (item.instance, item.orchestration_name, item.version) == ("i", "flow", "2.1.0")
        assert (item.execution_id, item.history, item.history_error, item.kv_snapshot) == (1, (), None, {})
        assert item.messages == (start("i", version="2.1.0"),)
        assert token.isdigit()
        assert attempts == 1

    def test_a_version_nobody_said_reads_unknown(self, desk: Desk) -> None:
        desk.send(start())
        assert desk.fetch()[0].version == "unknown"

    @counts_writes
    def test_a_fetch_is_durable_before_it_is_answered(self, desk: Desk) -> None:
        desk.send(start())
        seq = desk.harness.seq
        desk.fetch()
        assert desk.feed(seq) == ["turn:locked"]

    def test_a_locked_instance_is_not_fetched_again(self, desk: Desk) -> None:
        desk.send(start())
        desk.fetch()
        desk.send(signal())
        desk.nothing()

    def test_two_instances_are_worked_on_at_once(self, desk: Desk) -> None:
        desk.send(start("a"), start("b"))
        first, second = desk.fetch(), desk.fetch()
        assert (first[0].instance, second[0].instance) == ("a", "b")
        assert int(first[1]) < int(second[1])

    def test_instances_come_by_their_first_message(self, desk: Desk) -> None:
        for name in ("c", "a", "b"):
            desk.send(start(name))
            desk.advance(1)
        assert [desk.fetch()[0].instance for _ in range(3)] == ["c", "a", "b"]

    def test_all_that_is_visible_comes_in_one_batch_in_order(self, desk: Desk) -> None:
        desk.begin()
        desk.send(*(signal(data=str(number)) for number in range(5)))
        assert data_of(desk.fetch()[0].messages) == ["0", "1", "2", "3", "4"]

    def test_a_batch_has_at_most_a_thousand_messages_and_the_rest_follows(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        items = tuple(signal(data=str(number)) for number in range(1500))
        desk.ack(token, orchestrator_items=items)
        item, token, _ = desk.fetch()
        assert data_of(item.messages) == [str(number) for number in range(1000)]
        desk.ack(token)
        assert data_of(desk.fetch()[0].messages) == [str(number) for number in range(1000, 1500)]

    def test_name_version_and_history_come_from_the_record(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.ack(token, patch(3), patch(2))
        desk.send(signal())
        item, _, _ = desk.fetch()
        assert (item.orchestration_name, item.version, item.execution_id) == ("flow", "1.0.0", 1)
        assert [found.event_id for found in item.history] == [1, 2, 3]
        assert item.history[0] == started()

    def test_of_a_resident_instance_only_newer_events_come(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), patch(2), patch(3))
        desk.send(signal())
        found = desk.provider.fetch_orchestration_item(30.0, resident={"i": (1, 2)})
        assert found is not None
        assert [one.event_id for one in found[0].history] == [3]

    def test_of_a_resident_of_another_execution_the_whole_history_comes(self, desk: Desk) -> None:
        desk.continued(executions=2)
        desk.send(signal())
        found = desk.provider.fetch_orchestration_item(30.0, resident={"i": (1, 2)})
        assert found is not None
        assert [one.event_id for one in found[0].history] == [1]

    def test_an_instance_that_is_over_can_be_fetched(self, desk: Desk) -> None:
        desk.end()
        desk.send(signal())
        assert desk.fetch()[0].instance == "i"

    def test_every_kind_of_message_comes_back_as_it_was(self, desk: Desk) -> None:
        desk.begin()
        sent = (
            ExternalRaised(instance="i", name="e", data="ü\u2028\0"),
            QueueMessage(instance="i", name="q", data=""),
            SubOrchCompleted(parent_instance="i", parent_execution_id=1, parent_id=7, result="r"),
            CancelInstance(instance="i", reason="enough", force=True),
            ContinueAsNew(instance="i", orchestration="flow", input="x", carry_forward_events=(("a", "b"),)),
            timer(4, desk.now_ms - 5),
        )
        desk.send(*sent)
        got = desk.fetch()[0].messages
        assert set(map(repr, got)) == set(map(repr, sent))

    def test_tokens_only_grow_and_are_never_used_twice(self, desk: Desk) -> None:
        seen = []
        for number in range(4):
            desk.send(start(f"i{number}"))
            seen.append(int(desk.fetch()[1]))
        desk.provider.enqueue_for_worker(activity())
        seen.append(int(desk.take()[1]))
        assert seen == sorted(set(seen))

    def test_many_who_fetch_at_once_never_share_an_instance(self, desk: Desk) -> None:
        desk.send(*(start(f"i{number}") for number in range(20)))
        provider, got, lock = desk.provider, [], threading.Lock()

        def work() -> None:
            while (found := provider.fetch_orchestration_item(30.0)) is not None:
                with lock:
                    got.append(found[0].instance)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == sorted(f"i{number}" for number in range(20))

    def test_a_call_that_waits_is_woken_by_what_comes_in(self, desk: Desk) -> None:
        provider, got = desk.provider, []
        waiting = threading.Thread(target=lambda: got.append(provider.fetch_orchestration_item(30.0, 60.0)))
        waiting.start()
        desk.send(start())
        waiting.join(30)
        assert got
        assert got[0] is not None

    def test_a_call_that_waits_in_vain_gives_nothing(self, desk: Desk) -> None:
        assert desk.provider.fetch_orchestration_item(30.0, 0.01) is None


class ProviderOrphans(ProviderTopic):
    """Messages for nobody."""

    def test_a_message_for_nobody_is_parked_and_stands_in_nobodys_way(self, desk: Desk) -> None:
        desk.send(signal("ghost"), start("i"))
        assert desk.provider.get_queue_depths().parked == 1
        assert desk.fetch()[0].instance == "i"
        desk.nothing()

    def test_parked_messages_join_the_first_batch_with_a_start(self, desk: Desk) -> None:
        desk.send(signal(data="1"), signal(data="2"))
        desk.send(start())
        item, _, attempts = desk.fetch()
        assert data_of(item.messages) == ["1", "2"]
        assert start() in item.messages
        assert attempts == 1
        assert desk.provider.get_queue_depths().parked == 0

    def test_more_orphans_than_a_batch_takes_do_not_keep_the_start_out(self, desk: Desk) -> None:
        desk.begin("other")
        token = desk.turn("other")
        desk.ack(token, orchestrator_items=[signal(data=str(number)) for number in range(1005)])
        desk.send(start())
        item, _, _ = desk.fetch()
        assert start() in item.messages
        assert len(item.messages) == 1000

    def test_orphans_are_dropped_after_a_week_with_an_event(self, desk: Desk) -> None:
        desk.send(signal("ghost"))
        desk.advance(7 * 86_400 - 1)
        desk.harness.tick()
        assert desk.provider.get_queue_depths().parked == 1
        desk.advance(1)
        seq = desk.harness.seq
        desk.harness.tick()
        assert desk.feed(seq) == ["message:dropped"]
        assert desk.provider.get_queue_depths().parked == 0

    def test_a_held_signal_waits_only_so_long(self, desk: Desk) -> None:
        desk.provider.enqueue_for_orchestrator(signal("ghost"), hold=10.0)
        desk.advance(10)
        desk.harness.tick()
        assert desk.provider.get_queue_depths().parked == 0

    def test_a_start_and_a_signal_of_one_ack_find_each_other(self, desk: Desk) -> None:
        desk.begin("other")
        desk.ack(desk.turn("other"), orchestrator_items=[start("i"), signal("i")])
        item, _, _ = desk.fetch()
        assert len(item.messages) == 2

    def test_a_delayed_start_begins_nothing_before_its_time(self, desk: Desk) -> None:
        desk.send(signal())
        desk.send(start(), delay=10.0)
        desk.nothing()
        desk.advance(10)
        assert len(desk.fetch()[0].messages) == 2

    def test_an_enqueue_makes_no_instance(self, desk: Desk) -> None:
        desk.send(signal(), start())
        assert desk.provider.list_instances() == []
        assert desk.provider.read("i") == []


class ProviderAck(ProviderTopic):
    """What an ack does, all or nothing."""

    def test_an_ack_makes_the_instance_and_its_execution(self, desk: Desk) -> None:
        desk.begin()
        info = desk.provider.get_instance_info("i")
        assert (info.orchestration_name, info.orchestration_version, info.status) == ("flow", "1.0.0", "Running")
        assert (info.current_execution_id, info.output, info.parent_instance_id) == (1, None, None)
        assert desk.provider.read("i") == [started()]

    def test_the_messages_that_were_handed_out_are_gone_and_no_others(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.send(signal(data="later"))
        desk.ack(token)
        assert data_of(desk.fetch()[0].messages) == ["later"]

    @counts_writes
    def test_all_events_of_an_ack_form_one_group_in_order(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        seq = desk.harness.seq
        desk.ack(token, patch(2), worker_items=[activity(2)], orchestrator_items=[signal("i", "x")])
        assert desk.feed(seq) == ["turn:committed", "history:appended", "job:created", "message:stored"]

    def test_of_two_acks_with_one_token_exactly_one_succeeds(self, desk: Desk) -> None:
        desk.send(start())
        _, token, _ = desk.fetch()
        desk.ack(token, started())
        desk.refuses("Invalid lock token", desk.ack, token, patch(2))

    def test_a_token_nobody_has_is_refused(self, desk: Desk) -> None:
        desk.begin()
        for token in ("999", "", "x", "-1", "9" * 40, "１"):  # noqa: RUF001 - a digit that is none of ours
            desk.refuses("Invalid lock token", desk.ack, token)

    def test_the_instance_is_that_of_the_lock_whatever_the_events_say(self, desk: Desk) -> None:
        desk.send(start("i"))
        _, token, _ = desk.fetch()
        desk.ack(token, started("other"))
        assert desk.provider.list_instances() == ["i"]
        assert [found.instance for found in desk.provider.read("i")] == ["other"]

    def test_the_name_comes_from_metadata_then_events_then_the_start(self, desk: Desk) -> None:
        for name, delta, metadata in (
            ("said", (started("a", name="told"),), ExecutionMetadata(orchestration_name="said")),
            ("told", (started("b", name="told"),), ExecutionMetadata()),
            ("flow", (patch(1, "c"),), ExecutionMetadata()),
        ):
            desk.send(start({"said": "a", "told": "b", "flow": "c"}[name]))
            item, token, _ = desk.fetch()
            desk.ack(token, *delta, metadata=metadata)
            assert desk.provider.get_instance_info(item.instance).orchestration_name == name

    def test_metadata_overwrites_and_its_absence_changes_nothing(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), metadata=ExecutionMetadata(orchestration_name="new", orchestration_version="9.0.0"))
        desk.ack(desk.turn())
        info = desk.provider.get_instance_info("i")
        assert (info.orchestration_name, info.orchestration_version) == ("new", "9.0.0")

    def test_created_and_parent_are_set_once(self, desk: Desk) -> None:
        desk.begin(metadata=ExecutionMetadata(parent_instance_id="mum"))
        created = desk.provider.get_instance_info("i").created_at
        desk.advance(60)
        desk.ack(desk.turn(), metadata=ExecutionMetadata(parent_instance_id="dad"))
        info = desk.provider.get_instance_info("i")
        assert (info.created_at, info.parent_instance_id) == (created, "mum")
        assert info.updated_at == created + 60_000

    def test_status_and_output_are_stored_and_the_end_is_stamped(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.advance(5)
        desk.ack(token, metadata=COMPLETED)
        found = desk.provider.get_execution_info("i", 1)
        assert (found.status, found.output, found.completed_at) == ("Completed", "done", desk.now_ms)
        assert desk.provider.get_instance_info("i").output == "done"

    def test_a_running_execution_has_no_end(self, desk: Desk) -> None:
        desk.begin(metadata=ExecutionMetadata(status=Status.RUNNING, output="so far"))
        found = desk.provider.get_execution_info("i", 1)
        assert (found.status, found.output, found.completed_at) == ("Running", "so far", None)

    def test_an_end_never_changes(self, desk: Desk) -> None:
        desk.end()
        token = desk.turn()
        said = "execution 1 has already ended as Completed"
        desk.refuses(said, desk.ack, token, metadata=FAILED)
        desk.refuses(said, desk.ack, token, metadata=ExecutionMetadata(status=Status.RUNNING))
        desk.ack(token, metadata=ExecutionMetadata(status=Status.COMPLETED))

    def test_the_end_of_an_execution_that_went_on_is_named_as_such(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), metadata=CONTINUED)
        token = desk.turn()
        desk.refuses("execution 1 has already ended as ContinuedAsNew", desk.ack, token, metadata=COMPLETED)

    def test_one_duplicate_event_refuses_the_whole_ack(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        said = "Duplicate event_id 1 in execution 1"
        desk.refuses(said, desk.ack, token, patch(2), patch(1), worker_items=[activity()])
        desk.ack(token, patch(2))

    def test_an_id_twice_in_one_delta_is_a_duplicate(self, desk: Desk) -> None:
        desk.begin()
        desk.refuses("Duplicate event_id 7 in execution 1", desk.ack, desk.turn(), patch(7), patch(7))

    def test_event_ids_begin_at_one_and_may_have_gaps(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.refuses("event_id must be >= 1", desk.ack, token, patch(0))
        desk.ack(token, patch(2**31 - 1), patch(5))
        assert [found.event_id for found in desk.provider.read("i")] == [1, 5, 2**31 - 1]

    def test_a_gap_may_be_filled_later_but_not_twice(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), patch(9))
        desk.ack(desk.turn(), patch(4))
        desk.refuses("Duplicate event_id 4 in execution 1", desk.ack, desk.turn(), patch(4))

    def test_a_failed_ack_leaves_lock_and_messages_as_they_were(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        with pytest.raises(ProviderError):
            desk.ack(token, patch(1))
        desk.nothing()
        desk.ack(token, patch(2))
        desk.nothing()

    def test_every_field_of_an_event_comes_back_untouched(self, desk: Desk) -> None:
        desk.begin()
        kind = EventKind.DecisionRequested(prompt="ü?\0", options=("a", "b"), detail="x" * 50, expires_at_ms=7)
        odd = event(2, kind, "somebody", 77, source_event_id=1, engine_version="3.2.1")
        desk.ack(desk.turn(), odd)
        assert desk.provider.read("i")[1] == odd

    def test_current_execution_is_the_highest_there_was(self, desk: Desk) -> None:
        desk.continued(executions=3)
        desk.ack(desk.turn(), patch(5, execution=1), execution=1)
        assert desk.provider.get_instance_info("i").current_execution_id == 3
        assert desk.provider.list_executions("i") == [1, 2, 3]
        assert [found.event_id for found in desk.provider.read_with_execution("i", 1)] == [1, 2, 5]

    def test_a_checkpoint_keeps_the_lock_without_messages(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.ack(token, patch(2), hold=60.0)
        desk.nothing()
        desk.advance(59)
        desk.ack(token, patch(3))
        desk.nothing()
        assert len(desk.provider.read("i")) == 3

    def test_a_checkpoint_that_is_not_followed_up_lapses(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.ack(token, patch(2), hold=5.0)
        desk.advance(5)
        desk.refuses("Lock expired", desk.ack, token, patch(3))

    def test_an_ack_releases_the_lock(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn())
        desk.send(signal())
        desk.fetch()

    def test_items_for_others_reach_them(self, desk: Desk) -> None:
        desk.begin("a")
        desk.begin("b")
        desk.ack(desk.turn("a"), orchestrator_items=[signal("b", "hello"), start("c")])
        got = {item.instance: data_of(item.messages) for item, _, _ in (desk.fetch(), desk.fetch())}
        assert got == {"b": ["hello"], "c": []}

    def test_messages_to_itself_come_in_the_next_turn(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[signal("i", "again")])
        assert data_of(desk.fetch()[0].messages) == ["again"]


class ProviderOrder(ProviderTopic):
    """Timers, delays, and what comes first."""

    def test_a_timer_of_an_ack_is_delivered_at_its_time(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, desk.now_ms + 10_000)])
        desk.nothing()
        desk.advance(9.999)
        desk.nothing()
        desk.advance(0.001)
        assert len(desk.fetch()[0].messages) == 1

    def test_a_timer_in_the_past_is_delivered_at_once(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, 0)])
        assert len(desk.fetch()[0].messages) == 1

    def test_a_timer_beyond_the_calendar_waits(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, 2**63 - 1)])
        desk.nothing()
        assert desk.provider.get_queue_depths().timer_queue == 1

    def test_a_timer_that_is_enqueued_goes_by_its_delay(self, desk: Desk) -> None:
        desk.begin()
        desk.send(timer(2, desk.now_ms + 99_000))
        assert len(desk.fetch()[0].messages) == 1

    def test_a_delay_holds_a_message_back_and_no_other(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal(data="late"), delay=5.0)
        desk.send(signal(data="now"))
        item, token, _ = desk.fetch()
        assert data_of(item.messages) == ["now"]
        desk.ack(token)
        desk.nothing()
        desk.advance(5)
        assert data_of(desk.fetch()[0].messages) == ["late"]

    def test_an_answer_before_the_deadline_comes_before_its_timer(self, desk: Desk) -> None:
        deadline = timer(2, desk.now_ms + 60_000)
        desk.begin(orchestrator_items=[deadline])
        desk.advance(59)
        desk.send(signal(data="answer"))
        desk.advance(3600)
        assert desk.fetch()[0].messages == (signal(data="answer"), deadline)

    def test_an_answer_after_the_deadline_comes_after_its_timer(self, desk: Desk) -> None:
        deadline = timer(2, desk.now_ms + 60_000)
        desk.begin(orchestrator_items=[deadline])
        desk.advance(61)
        desk.send(signal(data="answer"))
        assert desk.fetch()[0].messages == (deadline, signal(data="answer"))

    def test_timers_come_by_their_time_not_by_when_they_were_made(self, desk: Desk) -> None:
        late, soon = timer(2, desk.now_ms + 20_000), timer(3, desk.now_ms + 10_000)
        desk.begin(orchestrator_items=[late, soon])
        desk.advance(30)
        assert desk.fetch()[0].messages == (soon, late)

    def test_a_clock_that_steps_back_does_not_reorder_signals(self, desk: Desk) -> None:
        desk.begin()
        desk.advance(7200)
        desk.send(signal(data="1"))
        clock = desk.harness.clock
        clock.set_wall(clock.now().replace(hour=0))
        desk.send(signal(data="2"))
        assert data_of(desk.fetch()[0].messages) == ["1", "2"]

    def test_a_cancelled_timer_never_wakes_the_instance(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, desk.now_ms + 10_000), timer(3, desk.now_ms + 10_000)])
        desk.ack(desk.turn(), cancelled_timers=[2])
        desk.advance(10)
        assert desk.fetch()[0].messages == (timer(3, desk.now_ms),)

    def test_a_timer_made_and_cancelled_in_one_ack_is_never_there(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, desk.now_ms + 10_000)], cancelled_timers=[2])
        assert desk.provider.get_queue_depths().timer_queue == 0

    def test_cancelling_a_timer_that_is_gone_is_fine(self, desk: Desk) -> None:
        desk.begin(cancelled_timers=[5, 6])

    def test_only_timers_of_that_execution_are_cancelled(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, desk.now_ms + 9000, execution=7)], cancelled_timers=[2])
        assert desk.provider.get_queue_depths().timer_queue == 1


class ProviderGivingBack(ProviderTopic):
    """Abandon, attempts, poison."""

    def test_an_abandoned_item_is_there_again_with_one_attempt_more(self, desk: Desk) -> None:
        desk.begin()
        for attempt in (1, 2, 3):
            if attempt == 1:
                desk.send(signal(data="x"))
            item, token, attempts = desk.fetch()
            assert (data_of(item.messages), attempts) == (["x"], attempt)
            desk.provider.abandon_orchestration_item(token)

    def test_an_attempt_given_back_does_not_count(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal())
        for _ in range(3):
            _, token, attempts = desk.fetch()
            assert attempts == 1
            desk.provider.abandon_orchestration_item(token, ignore_attempt=True)

    def test_a_delay_holds_what_was_given_back(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.provider.abandon_orchestration_item(token, 10.0)
        desk.nothing()
        desk.advance(10)
        desk.fetch()

    def test_only_what_was_handed_out_is_delayed(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal(data="old"))
        _, token, _ = desk.fetch()
        desk.send(signal(data="new"))
        desk.provider.abandon_orchestration_item(token, 10.0)
        item, token, attempts = desk.fetch()
        assert (data_of(item.messages), attempts) == (["new"], 1)
        desk.ack(token)
        desk.advance(10)
        assert desk.fetch()[2] == 2

    def test_order_survives_giving_back(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal(data="1"))
        _, token, _ = desk.fetch()
        desk.send(signal(data="2"))
        desk.provider.abandon_orchestration_item(token, 1.0)
        desk.advance(1)
        assert data_of(desk.fetch()[0].messages) == ["1", "2"]

    def test_nothing_overtakes_what_a_blocked_instance_gave_back(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, desk.now_ms + 3_600_000)])
        desk.send(signal(data="1"))
        _, token, _ = desk.fetch()
        reason = blocked_reason("CodeError", "wrong")
        desk.provider.abandon_orchestration_item(token, 60.0, ignore_attempt=True, reason=reason)
        desk.nothing()
        desk.send(signal(data="2"))
        item, token, attempts = desk.fetch()
        assert (data_of(item.messages), attempts) == (["1", "2"], 1)
        # Given back once more, they wait together.
        desk.provider.abandon_orchestration_item(token, 60.0, ignore_attempt=True, reason=reason)
        desk.nothing()
        desk.advance(60)
        item, token, _ = desk.fetch()
        assert data_of(item.messages) == ["1", "2"]
        desk.ack(token)
        desk.nothing()

    def test_the_highest_count_of_a_batch_is_told(self, desk: Desk) -> None:
        desk.begin()
        desk.provider.abandon_orchestration_item(desk.turn())
        desk.send(signal())
        assert desk.fetch()[2] == 2

    def test_a_token_can_be_given_back_once(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.provider.abandon_orchestration_item(token)
        desk.refuses("Invalid lock token", desk.provider.abandon_orchestration_item, token)
        desk.refuses("Invalid lock token", desk.ack, token)

    def test_an_expired_turn_can_be_given_back(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.advance(31)
        desk.provider.abandon_orchestration_item(token, ignore_attempt=True)
        assert desk.fetch()[2] == 1

    def test_a_new_start_can_be_given_back(self, desk: Desk) -> None:
        desk.send(start())
        _, token, _ = desk.fetch()
        desk.provider.abandon_orchestration_item(token, reason="no code for it")
        assert desk.fetch()[0].messages == (start(),)

    @pytest.mark.parametrize("force", [False, True])
    def test_a_cancel_does_not_wait_for_the_start_that_was_given_back(self, desk: Desk, force: bool) -> None:  # noqa: FBT001 - parametrised
        desk.send(start())
        desk.provider.abandon_orchestration_item(desk.fetch()[1], 60.0, ignore_attempt=True, reason="no code")
        desk.send(signal())
        desk.nothing()
        asked = CancelInstance(instance="i", reason="typo", force=force)
        desk.send(asked)
        item, token, _ = desk.fetch()
        assert item.messages == (start(), signal(), asked)
        # Given back once more, they wait together.
        desk.provider.abandon_orchestration_item(token, 60.0, ignore_attempt=True, reason="no code")
        desk.nothing()
        desk.advance(60)
        assert desk.fetch()[0].messages == item.messages

    def test_handlers_that_are_announced_get_what_waited_for_them(self, desk: Desk) -> None:
        desk.send(start("a", "one"), start("b", "two"))
        for _ in range(2):
            desk.provider.abandon_orchestration_item(desk.fetch()[1], 60.0, ignore_attempt=True, reason="no code")
        desk.nothing()
        assert desk.provider.announce_handlers(["two", "three"]) == 1
        assert desk.fetch()[0].instance == "b"
        desk.nothing()

    def test_handlers_of_another_version_change_nothing(self, desk: Desk) -> None:
        desk.begin()
        desk.provider.abandon_orchestration_item(desk.turn(), 60.0, ignore_attempt=True, reason="no code")
        assert desk.provider.announce_handlers(["flow 2.0.0"]) == 0
        assert desk.provider.announce_handlers(["flow 1.0.0"]) == 1

    def test_a_timer_is_not_early_because_handlers_came(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(2, desk.now_ms + 60_000)])
        desk.provider.abandon_orchestration_item(desk.turn(), 30.0, reason="blocked")
        desk.provider.announce_handlers(["flow"])
        assert len(desk.fetch()[0].messages) == 1


class ProviderLocks(ProviderTopic):
    """How long a lock lasts, and what ends it."""

    def test_a_lock_is_live_until_its_end_and_not_at_it(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.advance(29.999999)
        desk.ack(token, patch(2))
        token = desk.turn()
        desk.advance(30)
        desk.refuses("Lock expired", desk.ack, token, patch(3))

    def test_an_expired_lock_is_refused_even_if_nobody_took_it(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.advance(31)
        for call in (
            lambda: desk.ack(token),
            lambda: desk.provider.renew_orchestration_item_lock(token, 30.0),
            lambda: desk.provider.fetch_more_messages(token),
        ):
            desk.refuses("Lock expired", call)

    def test_it_reads_the_same_after_the_expiry_was_written(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.advance(31)
        seq = desk.harness.seq
        desk.harness.tick()
        assert desk.feed(seq) == ["turn:expired"]
        desk.refuses("Lock expired", desk.ack, token)

    def test_an_expired_turn_goes_to_the_next_with_its_attempt_counted(self, desk: Desk) -> None:
        desk.begin()
        old = desk.turn()
        desk.advance(31)
        item, token, attempts = desk.fetch()
        assert (item.instance, attempts) == ("i", 2)
        desk.refuses("Invalid lock token", desk.ack, old)
        desk.ack(token)

    def test_a_late_writer_cannot_spoil_what_its_successor_did(self, desk: Desk) -> None:
        desk.begin()
        old = desk.turn()
        desk.advance(31)
        _, token, _ = desk.fetch()
        desk.ack(token, patch(2))
        desk.refuses("Invalid lock token", desk.ack, old, patch(3))

    def test_renewing_keeps_the_lock(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        for _ in range(5):
            desk.advance(20)
            desk.provider.renew_orchestration_item_lock(token, 30.0)
        desk.nothing()
        desk.ack(token)

    def test_renewing_never_shortens_a_lock(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        with desk.harness.unchanged():
            desk.provider.renew_orchestration_item_lock(token, 1.0)
        desk.advance(29)
        desk.ack(token)

    def test_a_gain_that_is_too_small_is_not_written(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.advance(4)
        with desk.harness.unchanged():
            desk.provider.renew_orchestration_item_lock(token, 30.0)

    def test_a_clock_that_jumped_is_not_held_against_the_messages(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal())
        desk.harness.ask(FetchTurn(lock_s=30.0))  # by a worker elsewhere
        clock = desk.harness.clock
        clock.set_wall(clock.now().replace(hour=5))
        assert desk.fetch()[2] == 1

    def test_lock_of_the_deciding_process_outlives_a_jump_forward(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal())
        fetched = desk.harness.ask(FetchTurn(lock_s=30.0, session_id=desk.harness.authority.session_id))
        assert isinstance(fetched, Fetched)
        assert fetched.turn is not None
        desk.harness.clock.set_wall(desk.harness.clock.now() + timedelta(hours=2))
        assert desk.harness.tick().expired == 0
        desk.nothing()
        desk.advance(29)
        desk.harness.ask(RenewTurn(token=fetched.turn.token, lock_s=30.0))
        desk.advance(29)
        desk.ack(str(fetched.turn.token))

    def test_a_lock_ends_by_its_own_seconds_when_the_clock_was_set_back(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.harness.clock.set_wall(desk.harness.clock.now() - timedelta(hours=1))
        desk.advance(29)
        desk.harness.tick()
        desk.nothing()
        desk.advance(1)
        assert desk.harness.tick().expired == 1
        assert desk.fetch()[2] == 2
        desk.refuses("Invalid lock token", desk.ack, token)

    def test_a_lock_whose_holder_keeps_asking_stays_although_the_clock_was_set_back(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.harness.clock.set_wall(desk.harness.clock.now() - timedelta(hours=1))
        for _ in range(5):
            desk.advance(20)
            desk.provider.renew_orchestration_item_lock(token, 30.0)
            assert desk.harness.tick().expired == 0
        desk.ack(token)
        desk.advance(60)
        assert desk.harness.tick().expired == 0

    def test_a_lock_of_another_opening_is_timed_from_first_sight_when_the_clock_was_set_back(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal())
        desk.harness.ask(FetchTurn(lock_s=30.0))
        desk.harness.restart()
        desk.harness.recover()
        desk.harness.clock.set_wall(desk.harness.clock.now() - timedelta(hours=1))
        desk.harness.tick()
        desk.advance(29)
        assert desk.harness.tick().expired == 0
        desk.advance(1)
        assert desk.harness.tick().expired == 1

    @pytest.mark.parametrize("extended", [False, True])
    def test_lock_taken_before_a_step_back_and_a_restart_ends_by_its_own_seconds(
        self, desk: Desk, *, extended: bool
    ) -> None:
        desk.begin()
        desk.send(signal())
        fetched = desk.harness.ask(FetchTurn(lock_s=30.0))
        assert isinstance(fetched, Fetched)
        assert fetched.turn is not None
        for _ in range(10 if extended else 0):
            desk.advance(20)
            desk.harness.ask(RenewTurn(token=fetched.turn.token, lock_s=30.0))
        desk.harness.clock.set_wall(desk.harness.clock.now() - timedelta(seconds=100))
        desk.harness.restart()
        desk.harness.recover()
        desk.advance(30 - 0.001)
        assert desk.harness.tick().expired == 0
        desk.advance(0.001)
        assert desk.harness.tick().expired == 1

    def test_more_messages_come_under_a_live_lock(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.send(signal(data="2"), signal(data="3"))
        assert data_of(desk.provider.fetch_more_messages(token)) == ["2", "3"]
        assert desk.provider.fetch_more_messages(token) == []
        desk.ack(token)
        desk.nothing()

    def test_more_messages_are_given_back_with_the_others(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.send(signal(data="2"))
        desk.provider.fetch_more_messages(token)
        desk.provider.abandon_orchestration_item(token)
        item, _, attempts = desk.fetch()
        assert (data_of(item.messages), attempts) == (["1", "2"], 2)

    def test_a_timer_that_came_due_is_among_the_more(self, desk: Desk) -> None:
        due = timer(2, desk.now_ms + 5000)
        desk.begin(orchestrator_items=[due])
        token = desk.turn()
        desk.advance(5)
        assert desk.provider.fetch_more_messages(token) == [due]

    def test_a_dead_process_of_a_one_process_store_is_noticed_on_opening(self, desk: Desk) -> None:
        desk.begin()
        desk.turn()
        if desk.harness.store.promises.many_processes:
            pytest.skip("several processes: an opening proves nothing")
        desk.harness.restart()
        desk.harness.recover()
        assert desk.fetch()[2] == 2

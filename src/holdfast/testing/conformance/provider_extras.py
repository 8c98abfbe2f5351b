"""The second stage: sessions, custom status, keys, versions, stats, decisions; and histories by hand and in pieces."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import DecisionClosed, DecisionNotFound, InvalidValue, ProviderError
from holdfast.model.workflows.commands import AnswerDecision, NewMessage, StartInstance
from holdfast.model.workflows.decisions import Answer, Decision, decision_id
from holdfast.model.workflows.work_items import CancelInstance, StartOrchestration, encode_item
from holdfast.testing.conformance.provider_kit import (
    COMPLETED,
    CONTINUED,
    Desk,
    ProviderTopic,
    activity,
    completed,
    event,
    patch,
    signal,
    start,
    started,
)
from holdfast.testing.corruption import corrupt_history, corrupt_message
from holdfast.workflows.provider import (
    DispatcherCapabilityFilter,
    Event,
    EventKind,
    ExecutionMetadata,
    KvEntry,
    QueueMessage,
    SemverRange,
    SessionFetchConfig,
    Status,
    SystemStats,
    TagFilter,
)

ME, YOU = SessionFetchConfig("me", 60.0), SessionFetchConfig("you", 60.0)


def said(event_id: int, text: str | None) -> Event:
    """Build what an instance says of itself."""
    return event(event_id, EventKind.CustomStatusUpdated(status=text))


class ProviderSessions(ProviderTopic):
    """Activities of one session go to one worker."""

    def in_session(self, desk: Desk, *numbers: int, session: str = "s") -> None:
        desk.begin(worker_items=[activity(number, session_id=session) for number in numbers])

    def test_without_a_session_only_activities_without_one_come(self, desk: Desk) -> None:
        self.in_session(desk, 2)
        desk.idle()
        desk.provider.enqueue_for_worker(activity(9))
        assert desk.take()[0] == activity(9)

    def test_the_first_of_a_session_claims_it(self, desk: Desk) -> None:
        self.in_session(desk, 2, 3)
        assert desk.take(session=ME)[0] == activity(2, session_id="s")
        desk.idle(session=YOU)
        assert desk.take(session=ME)[0] == activity(3, session_id="s")

    def test_a_lapsed_session_is_free(self, desk: Desk) -> None:
        self.in_session(desk, 2, 3)
        desk.take(session=ME)
        desk.advance(60)
        desk.take(session=YOU)
        desk.take(session=YOU)

    def test_activities_without_a_session_come_to_everybody(self, desk: Desk) -> None:
        desk.provider.enqueue_for_worker(activity(2))
        desk.take(session=ME)

    def test_losing_a_session_means_the_next_candidate(self, desk: Desk) -> None:
        self.in_session(desk, 2, 3)
        desk.provider.enqueue_for_worker(activity(4, session_id="t"))
        desk.take(session=ME)
        assert desk.take(session=YOU)[0] == activity(4, session_id="t")

    def test_taking_another_keeps_the_session_longer(self, desk: Desk) -> None:
        self.in_session(desk, 2, 3, 4)
        desk.take(session=ME)
        desk.advance(40)
        desk.take(session=ME)
        desk.advance(40)
        desk.idle(session=SessionFetchConfig("you", 1.0), tag_filter=TagFilter.of("none"))
        item, _, _ = desk.take(session=ME)
        assert item == activity(2, session_id="s")

    def test_a_lapsed_session_does_not_void_a_live_lease(self, desk: Desk) -> None:
        self.in_session(desk, 2)
        _, token, _ = desk.take(300.0, session=ME)
        desk.advance(120)
        desk.provider.ack_work_item(token, completed())

    def test_sessions_are_renewed_while_they_work(self, desk: Desk) -> None:
        self.in_session(desk, 2, 3)
        desk.take(session=ME)
        for _ in range(3):
            desk.advance(50)
            assert desk.provider.renew_session_lock(["me", "nobody"], 60.0, 3600.0) == 1
        desk.idle(session=YOU)

    def test_idle_sessions_are_not_renewed(self, desk: Desk) -> None:
        self.in_session(desk, 2)
        desk.take(session=ME)
        desk.advance(50)
        assert desk.provider.renew_session_lock(["me"], 60.0, 49.0) == 0

    def test_work_refreshes_a_session(self, desk: Desk) -> None:
        self.in_session(desk, 2)
        _, token, _ = desk.take(300.0, session=ME)
        desk.advance(50)
        desk.provider.renew_work_item_lock(token, 300.0)
        assert desk.provider.renew_session_lock(["me"], 60.0, 10.0) == 1

    def test_a_lapsed_session_is_not_revived(self, desk: Desk) -> None:
        self.in_session(desk, 2)
        desk.take(session=ME)
        desk.advance(60)
        assert desk.provider.renew_session_lock(["me"], 60.0, 3600.0) == 0

    def test_lapsed_sessions_nobody_names_are_forgotten(self, desk: Desk) -> None:
        self.in_session(desk, 2)
        _, token, _ = desk.take(300.0, session=ME)
        desk.advance(60)
        assert desk.provider.cleanup_orphaned_sessions(0.0) == 0
        desk.provider.ack_work_item(token, completed())
        assert desk.provider.cleanup_orphaned_sessions(1e6) == 1
        assert desk.provider.cleanup_orphaned_sessions(0.0) == 0

    def test_ordinary_workers_keep_to_sessions_too(self, desk: Desk) -> None:
        self.in_session(desk, 2, 3)
        desk.harness.take("w1", lease_s=60)
        assert desk.harness.lease(1, "w2") == ()
        desk.idle(session=YOU)
        desk.harness.take("w1")
        desk.advance(100)
        desk.harness.tick()
        assert len(desk.harness.lease(5, "w2")) == 2

    def test_session_and_tag_both_apply(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity(2, session_id="s", tag="gpu")])
        desk.idle(session=ME)
        desk.idle(tag_filter=TagFilter.of("gpu"))
        desk.take(session=ME, tag_filter=TagFilter.of("gpu"))


class ProviderPublished(ProviderTopic):
    """Custom status and keys."""

    def test_the_last_status_of_a_delta_counts_once(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), said(2, "a"), said(3, "b"))
        assert desk.provider.get_custom_status("i", 0) == ("b", 1)
        assert desk.provider.get_custom_status("i", 1) is None

    def test_a_status_is_cleared_and_that_is_news(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), said(2, "a"))
        desk.ack(desk.turn(), said(3, None))
        desk.ack(desk.turn(), patch(4))
        assert desk.provider.get_custom_status("i", 1) == (None, 2)

    def test_an_instance_that_said_nothing_has_no_status(self, desk: Desk) -> None:
        desk.begin()
        assert desk.provider.get_custom_status("i", 0) is None
        assert desk.provider.get_custom_status("x", 0) is None

    def test_a_large_status_comes_back(self, desk: Desk) -> None:
        desk.begin()
        text = "ü" * 100_000
        desk.ack(desk.turn(), said(2, text))
        assert desk.provider.get_custom_status("i", 0) == (text, 1)

    def test_keys_are_seen_at_once_and_snapshotted_at_the_end(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), event(2, EventKind.KeyValueSet(key="k", value="", last_updated_at_ms=5)))
        assert desk.provider.get_kv_value("i", "k") == ""
        assert desk.provider.get_kv_all_values("i") == {"k": ""}
        desk.send(signal())
        item, token, _ = desk.fetch()
        assert item.kv_snapshot == {}
        desk.ack(token, metadata=CONTINUED)
        desk.send(signal())
        assert desk.fetch()[0].kv_snapshot == {"k": KvEntry("", 5)}

    def test_a_cleared_key_leaves_a_tombstone_until_the_end(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), event(2, EventKind.KeyValueSet(key="k", value="1")), metadata=CONTINUED)
        desk.ack(desk.turn(), event(1, EventKind.KeyValueCleared(key="k"), execution=2), execution=2)
        assert desk.provider.get_kv_value("i", "k") is None
        desk.send(signal())
        item, token, _ = desk.fetch()
        assert item.kv_snapshot == {"k": KvEntry("1", 0)}
        desk.ack(token, execution=2, metadata=COMPLETED)
        desk.send(signal())
        assert desk.fetch()[0].kv_snapshot == {}

    def test_changes_apply_in_order(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(
            desk.turn(),
            event(2, EventKind.KeyValueSet(key="a", value="1")),
            event(3, EventKind.KeyValueSet(key="b", value="1")),
            event(4, EventKind.KeyValuesCleared()),
            event(5, EventKind.KeyValueSet(key="b", value="2")),
            event(6, EventKind.KeyValueSet(key="c", value="3")),
            event(7, EventKind.KeyValueCleared(key="c")),
        )
        assert desk.provider.get_kv_all_values("i") == {"b": "2"}

    def test_clearing_all_clears_what_earlier_executions_left(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), event(2, EventKind.KeyValueSet(key="old", value="1")), metadata=CONTINUED)
        desk.ack(desk.turn(), event(1, EventKind.KeyValuesCleared(), execution=2), execution=2)
        assert desk.provider.get_kv_all_values("i") == {}

    def test_odd_keys_and_values_are_kept(self, desk: Desk) -> None:
        desk.begin()
        odd = {"a\0b": "\0", "ü" * 128: "x" * 65536, " ": "\u2028", "'\"": "{}"}
        events = [event(n, EventKind.KeyValueSet(key=k, value=v)) for n, (k, v) in enumerate(odd.items(), start=2)]
        desk.ack(desk.turn(), *events)
        assert desk.provider.get_kv_all_values("i") == odd
        assert {key: desk.provider.get_kv_value("i", key) for key in odd} == odd

    @pytest.mark.parametrize(("key", "value"), [("", "v"), ("k" * 257, "v"), ("ü" * 129, "v"), ("k", "v" * 65537)])
    def test_keys_and_values_have_limits(self, desk: Desk, key: str, value: str) -> None:
        desk.begin()
        token = desk.turn()
        with desk.harness.unchanged(), pytest.raises(ProviderError, match=r": invalid (key|value)"):
            desk.ack(token, event(2, EventKind.KeyValueSet(key=key, value=value)))

    def test_one_key_too_many_refuses_the_ack(self, desk: Desk) -> None:
        desk.begin()
        full = [event(n + 2, EventKind.KeyValueSet(key=f"k{n}", value="")) for n in range(1000)]
        desk.ack(desk.turn(), *full)
        token = desk.turn()
        desk.refuses(
            "instance 'i' would have 1001 keys; at most 1000 are kept",
            desk.ack,
            token,
            event(2000, EventKind.KeyValueSet(key="more", value="")),
        )
        desk.ack(
            token,
            event(2000, EventKind.KeyValueCleared(key="k1")),
            event(2001, EventKind.KeyValueSet(key="more", value="")),
        )

    def test_keys_of_nobody_are_none(self, desk: Desk) -> None:
        assert desk.provider.get_kv_value("x", "k") is None
        assert desk.provider.get_kv_all_values("x") == {}

    def test_stats_count_what_lives(self, desk: Desk) -> None:
        desk.send(start())
        _, token, _ = desk.fetch()
        first = started(carry_forward_events=(("a", "1"), ("b", "2")))
        large = event(5, EventKind.QueueEventDelivered(name="s", data="x" * 100_000))
        desk.ack(token, first, event(2, EventKind.KeyValueSet(key="k", value="ü")), large)
        desk.ack(
            desk.turn(),
            event(3, EventKind.KeyValueSet(key="gone", value="xyz")),
            event(4, EventKind.KeyValueCleared(key="gone")),
        )
        stats = desk.provider.get_instance_stats("i")
        assert stats is not None
        size = sum(len(msgspec.json.encode(one)) for one in desk.provider.read("i"))
        assert stats == SystemStats(
            history_event_count=5,
            history_size_bytes=size,
            queue_pending_count=2,
            kv_user_key_count=1,
            kv_total_value_bytes=2,
        )

    def test_texts_with_the_word_that_marks_a_reference_are_texts(self, desk: Desk) -> None:
        desk.begin()
        said, kept = EventKind.CustomStatusUpdated(status="$blob"), EventKind.KeyValueSet(key="$blob", value="$blob")
        over = ExecutionMetadata(status=Status.COMPLETED, output="$blob")
        desk.ack(desk.turn(), event(2, said), event(3, kept), metadata=over)
        assert desk.provider.get_custom_status("i", 0) == ("$blob", 1)
        assert desk.provider.get_kv_all_values("i") == {"$blob": "$blob"}
        assert desk.provider.get_instance_info("i").output == "$blob"

    def test_nobody_has_no_stats(self, desk: Desk) -> None:
        assert desk.provider.get_instance_stats("x") is None


class ProviderVersions(ProviderTopic):
    """Which runtime may work on which execution."""

    def versions(self, *ranges: tuple[str, str]) -> DispatcherCapabilityFilter:
        return DispatcherCapabilityFilter(supported_engine_versions=tuple(SemverRange(*one) for one in ranges))

    def test_a_pinned_execution_goes_to_who_can_run_it(self, desk: Desk) -> None:
        desk.begin(metadata=ExecutionMetadata(pinned_engine_version="2.5.0"))
        desk.send(signal())
        fetch = desk.provider.fetch_orchestration_item
        with desk.harness.unchanged():
            for ranges in ((("1.0.0", "2.4.9"),), (("2.5.1", "9.9.9"),), (("2.10.0", "3.0.0"),), ()):
                assert fetch(30.0, filter=self.versions(*ranges)) is None
        assert fetch(30.0, filter=self.versions(("1.0.0", "1.9.9"), ("2.5.0", "2.5.0"))) is not None

    def test_every_other_is_passed_by_without_a_lock(self, desk: Desk) -> None:
        desk.begin("pinned", metadata=ExecutionMetadata(pinned_engine_version="2.0.0"))
        desk.begin("free")
        desk.send(signal("pinned"), signal("free"))
        found = desk.provider.fetch_orchestration_item(30.0, filter=self.versions(("1.0.0", "1.9.9")))
        assert found is not None
        assert found[0].instance == "free"

    def test_new_instances_suit_everybody_but_no_range_suits_nobody(self, desk: Desk) -> None:
        desk.send(start())
        assert desk.provider.fetch_orchestration_item(30.0, filter=self.versions()) is None
        assert desk.provider.fetch_orchestration_item(30.0, filter=self.versions(("1.0.0", "1.0.0"))) is not None

    def test_a_pin_stays_until_another_is_given(self, desk: Desk) -> None:
        desk.begin(metadata=ExecutionMetadata(pinned_engine_version="2.0.0"))
        desk.ack(desk.turn(), metadata=ExecutionMetadata())
        desk.send(signal())
        fetch = desk.provider.fetch_orchestration_item
        assert fetch(30.0, filter=self.versions(("1.0.0", "1.9.9"))) is None
        found = fetch(30.0, filter=self.versions(("2.0.0", "2.0.0")))
        assert found is not None
        desk.ack(found[1], metadata=ExecutionMetadata(pinned_engine_version="1.0.0"))
        desk.send(signal())
        assert fetch(30.0, filter=self.versions(("1.0.0", "1.9.9"))) is not None

    def test_the_pin_belongs_to_the_execution(self, desk: Desk) -> None:
        desk.begin(metadata=ExecutionMetadata(pinned_engine_version="2.0.0"))
        desk.ack(desk.turn(), metadata=CONTINUED)
        desk.ack(desk.turn(), started(execution=2), execution=2)
        desk.send(signal())
        assert desk.provider.fetch_orchestration_item(30.0, filter=self.versions(("1.0.0", "1.0.0"))) is not None

    def test_what_is_no_version_is_refused(self, desk: Desk) -> None:
        desk.begin()
        with pytest.raises(ProviderError, match="invalid pinned_engine_version"):
            desk.ack(desk.turn(), metadata=ExecutionMetadata(pinned_engine_version="two"))
        with pytest.raises(ProviderError, match="invalid filter"):
            desk.provider.fetch_orchestration_item(30.0, filter=self.versions(("1", "2")))


class ProviderHistories(ProviderTopic):
    """Histories read, written by hand, and damaged."""

    def test_unknown_ones_are_empty(self, desk: Desk) -> None:
        assert desk.provider.read("x") == []
        desk.begin()
        assert desk.provider.read_with_execution("i", 7) == []

    def test_events_can_be_written_by_hand(self, desk: Desk) -> None:
        desk.provider.append_with_execution("i", 1, [started(), patch(2)])
        desk.provider.append_with_execution("i", 1, [patch(3)])
        assert [one.event_id for one in desk.provider.read("i")] == [1, 2, 3]
        assert desk.provider.get_instance_info("i").orchestration_name == "flow"

    def test_what_is_written_by_hand_obeys_the_same_rules(self, desk: Desk) -> None:
        desk.begin()
        append = desk.provider.append_with_execution
        desk.refuses("Duplicate event_id 1 in execution 1", append, "i", 1, [patch(2), patch(1)])
        desk.refuses("event_id must be >= 1", append, "i", 1, [patch(0)])

    def test_nothing_is_written_by_hand_while_somebody_works(self, desk: Desk) -> None:
        desk.begin()
        desk.turn()
        desk.refuses("instance 'i' is locked", desk.provider.append_with_execution, "i", 1, [patch(2)])
        desk.advance(31)
        desk.provider.append_with_execution("i", 1, [patch(2)])

    def test_large_events_come_back(self, desk: Desk) -> None:
        desk.begin()
        large = event(2, EventKind.StepCompleted(step_no=1, name="s", result="z" * 2_000_000))
        desk.ack(desk.turn(), large)
        assert desk.provider.read("i")[1] == large
        desk.harness.restart()
        assert desk.provider.read("i")[1] == large

    def test_a_message_over_a_megabyte_comes_back(self, desk: Desk) -> None:
        desk.begin()
        large = QueueMessage(instance="i", name="n", data="y" * 1_500_000)
        desk.send(large)
        assert desk.fetch()[0].messages == (large,)

    def test_a_damaged_history_is_told_and_never_shortened(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), patch(2))
        corrupt_history(desk.harness.authority.store, "i")
        with pytest.raises(ProviderError, match=r"read: execution 1, event \d+: cannot be read") as caught:
            desk.provider.read("i")
        assert not caught.value.retryable
        assert [finding.code for finding in desk.harness.authority.store.check()] == ["history", "history"]
        desk.provider.delete_instance("i", force=True)

    def test_a_damaged_history_is_fetched_with_what_is_wrong(self, desk: Desk) -> None:
        desk.begin()
        corrupt_history(desk.harness.authority.store, "i")
        desk.send(signal())
        item, token, attempts = desk.fetch()
        assert (item.history, attempts) == ((), 1)
        assert item.history_error is not None
        assert "execution 1, event 1" in item.history_error
        desk.ack(token, patch(2**31 - 1), metadata=COMPLETED)
        assert desk.provider.get_instance_info("i").status == "Completed"
        desk.provider.delete_instance("i")

    def test_damage_to_one_history_is_in_nobodys_way(self, desk: Desk) -> None:
        desk.begin("bad")
        desk.begin("good")
        corrupt_history(desk.harness.authority.store, "bad")
        desk.send(signal("good"))
        assert desk.fetch()[0].history_error is None
        assert desk.provider.get_system_metrics().total_instances == 2
        desk.provider.delete_instance("bad", force=True)

    def test_a_message_that_cannot_be_read_is_set_aside(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal(data="1"), signal(data="2"))
        corrupt_message(desk.harness.authority.store, "i")
        item, token, _ = desk.fetch()
        assert len(item.messages) == 1
        desk.ack(token)
        assert desk.provider.get_queue_depths().parked == 1
        desk.nothing()
        assert [finding.code for finding in desk.harness.authority.store.check()] == ["unreadable"]
        desk.provider.delete_instance("i", force=True)

    def test_only_what_cannot_be_read_means_nothing_to_fetch(self, desk: Desk) -> None:
        desk.begin()
        desk.send(signal())
        corrupt_message(desk.harness.authority.store, "i")
        desk.nothing()
        desk.send(signal(data="fine"))
        assert len(desk.fetch()[0].messages) == 1
        desk.provider.delete_instance("i", force=True)


class ProviderDecisions(ProviderTopic):
    """Questions to people, in the commit that asks."""

    def put_question(self, desk: Desk, within_s: float | None = None) -> str:
        desk.begin()
        until = None if within_s is None else desk.now_ms + round(1000 * within_s)
        asked = EventKind.DecisionRequested(prompt="Go?", options=("yes", "no"), expires_at_ms=until)
        desk.ack(desk.turn(), event(2, asked))
        return decision_id("i", 1, 2)

    def an_answer(self, name: str, chosen: str | None, *, to: str = "@decision/2") -> AnswerDecision:
        said = msgspec.json.encode(Answer(chosen=chosen, by="ann")).decode()
        item = QueueMessage(instance="i", name=to, data=said)
        return AnswerDecision(decision_id=name, message=NewMessage(item=msgspec.Raw(encode_item(item))))

    def question(self, desk: Desk, name: str) -> Decision:
        with desk.harness.engine.read() as view:
            decision = view.get(Decision, name)
        assert decision is not None
        return decision

    def test_a_question_is_there_with_the_commit_that_asks(self, desk: Desk) -> None:
        found = self.question(desk, self.put_question(desk))
        assert (found.instance_id, found.options, found.closed_at) == ("i", ("yes", "no"), None)

    def test_the_first_answer_wins(self, desk: Desk) -> None:
        name = self.put_question(desk)
        desk.harness.ask(self.an_answer(name, "yes"))
        desk.harness.refused(DecisionClosed, self.an_answer(name, "no"))
        assert len(desk.fetch()[0].messages) == 1

    def test_an_answer_that_comes_when_time_has_answered_is_refused_although_nobody_took_note(self, desk: Desk) -> None:
        name = self.put_question(desk, within_s=60)
        desk.harness.advance(60)
        desk.harness.refused(DecisionClosed, self.an_answer(name, "yes"))
        assert self.question(desk, name).is_open

    def test_an_answer_in_the_last_moment_counts(self, desk: Desk) -> None:
        name = self.put_question(desk, within_s=60)
        desk.harness.advance(59.9)
        desk.harness.ask(self.an_answer(name, "yes"))

    def test_an_unlisted_answer_is_refused(self, desk: Desk) -> None:
        desk.harness.refused(InvalidValue, self.an_answer(self.put_question(desk), "perhaps"))

    def test_an_answer_goes_to_who_asked_and_is_nothing_but_an_answer(self, desk: Desk) -> None:
        name = self.put_question(desk)
        desk.begin("other")
        for item in (signal("other"), CancelInstance(instance="i", reason="", force=True)):
            said = NewMessage(item=msgspec.Raw(encode_item(item)))
            desk.harness.refused(InvalidValue, msgspec.structs.replace(self.an_answer(name, "yes"), message=said))

    def test_what_the_workflow_would_read_is_judged_and_nothing_else(self, desk: Desk) -> None:
        name = self.put_question(desk)
        for chosen in ("perhaps", None):
            said = msgspec.structs.replace(self.an_answer(name, chosen), chosen="yes", by="somebody")
            desk.harness.refused(InvalidValue, said)
        desk.harness.ask(msgspec.structs.replace(self.an_answer(name, "yes"), chosen="perhaps", by="somebody"))
        assert self.question(desk, name).answered_by == "ann"

    def test_a_question_is_not_closed_by_what_answers_another_one_or_none(self, desk: Desk) -> None:
        name = self.put_question(desk)
        for to in ("never", "@decision/3", "@decision/02"):
            desk.harness.refused(InvalidValue, self.an_answer(name, "yes", to=to))
        desk.harness.ask(self.an_answer(name, "yes"))

    def test_a_start_brings_no_answer_to_what_will_be_asked(self, desk: Desk) -> None:
        begins = StartOrchestration(instance="i", orchestration="flow", input="{}")
        said = QueueMessage(instance="i", name="@decision/2", data='{"chosen":"yes"}')
        items = [NewMessage(item=msgspec.Raw(encode_item(item))) for item in (begins, said)]
        desk.harness.refused(InvalidValue, StartInstance(message=items[0], signals=(items[1],)))
        desk.nothing()

    def test_an_unknown_question_is_refused(self, desk: Desk) -> None:
        desk.harness.refused(DecisionNotFound, self.an_answer("nobody", "yes"))

    def test_a_question_is_closed_by_its_event(self, desk: Desk) -> None:
        name = self.put_question(desk)
        desk.ack(desk.turn(), event(3, EventKind.DecisionResolved(chosen="yes"), source_event_id=2))
        assert self.question(desk, name).closed_at is not None

    def test_the_end_of_the_instance_closes_its_questions(self, desk: Desk) -> None:
        name = self.put_question(desk)
        desk.ack(desk.turn(), metadata=COMPLETED)
        assert self.question(desk, name).closed_at is not None
        desk.harness.refused(DecisionClosed, self.an_answer(name, "yes"))

"""Crashes, repeats, reopening and several processes: every command about instances is there whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest

from holdfast.errors import StoreError
from holdfast.failpoints import listening
from holdfast.model.commands import Command, PutSchedule, Trigger
from holdfast.model.ids import JobId, Token
from holdfast.model.outcomes import Leased, Outcome, Refusal
from holdfast.model.records import TABLES
from holdfast.model.schedules import NewSchedule, Overlap
from holdfast.model.workflows.commands import (
    AbandonActivity,
    AbandonTurn,
    AckActivity,
    AckTurn,
    AnnounceHandlers,
    AnswerDecision,
    AppendHistory,
    CleanSessions,
    DeleteEnded,
    DeleteInstances,
    Delta,
    FetchActivity,
    FetchMore,
    FetchTurn,
    Metadata,
    NewActivity,
    NewEvent,
    NewMessage,
    ParkMessages,
    PruneExecutions,
    RenewActivity,
    RenewSessions,
    RenewTurn,
    SendMessage,
    StartActivity,
    StartInstance,
    TellInstance,
)
from holdfast.model.workflows.decisions import decision_id
from holdfast.model.workflows.instances import InstanceStatus, owner_of
from holdfast.rules.fold_changes import Stamp
from holdfast.stores.memory.batch import BatchTables
from holdfast.testing.conformance import provider_rewinding as rewinding
from holdfast.testing.conformance.harness import break_here, told
from holdfast.testing.conformance.provider_extras import ME
from holdfast.testing.conformance.provider_kit import (
    COMPLETED,
    Desk,
    ProviderTopic,
    activity,
    completed,
    event,
    patch,
    signal,
    start,
    started,
    timer,
)
from holdfast.workflows.provider import EventKind, Provider, QueueMessage


def _raw(struct: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(struct))


def _turn(desk: Desk, name: str) -> Token:
    desk.begin(name, worker_items=[activity(2, name)], orchestrator_items=[timer(3, desk.now_ms + 5000, name)])
    return Token(int(desk.turn(name)))


def _ack(desk: Desk, name: str) -> Command:
    token = _turn(desk, name)
    kinds: list[EventKind.AnyKind] = [
        EventKind.KeyValueSet(key="k", value="v"),
        EventKind.CustomStatusUpdated(status="half"),
    ]
    events = [NewEvent(event=_raw(event(number, kind, name))) for number, kind in enumerate(kinds, start=2)]
    return AckTurn(
        cmd=f"x{name}",
        token=token,
        execution_id=1,
        delta=Delta(events=tuple(events)),
        activities=(NewActivity(job_id=JobId(f"job-{name}"), item=_raw(activity(9, name))),),
        messages=(NewMessage(item=_raw(signal(name, "again"))), NewMessage(item=_raw(signal(f"{name}-ghost")))),
        metadata=Metadata(status=InstanceStatus.RUNNING, output=msgspec.Raw(b'"so far"')),
        cancelled=(owner_of(name, 1, 2),),
        cancelled_timers=(3,),
    )


def _hold(desk: Desk, name: str) -> Command:
    return AckTurn(cmd=f"x{name}", token=_turn(desk, name), execution_id=1, hold_s=60.0)


def _end(desk: Desk, name: str) -> Command:
    metadata = Metadata(status=InstanceStatus.COMPLETED, output=msgspec.Raw(b'"done"'))
    return AckTurn(cmd=f"x{name}", token=_turn(desk, name), execution_id=1, metadata=metadata)


def _last_of_two(desk: Desk, name: str) -> Command:
    """End the first of two instances of a schedule, which lets the second begin."""
    harness = desk.harness
    new = NewSchedule(name=name, workflow="flow", interval_s=3600.0, overlap=Overlap.QUEUE)
    harness.ask(PutSchedule(schedule_id=name, schedule=new))
    for number in ("1", "2"):
        harness.ask(Trigger(schedule_id=name, job_id=JobId(name + number)))
    item, token, _ = desk.fetch()
    while item.instance != name + "1":  # what an earlier one has let begin
        item, token, _ = desk.fetch()
    metadata = Metadata(status=InstanceStatus.COMPLETED, output=msgspec.Raw(b'"done"'), retention_s=60.0)
    return AckTurn(cmd=f"x{name}", token=Token(int(token)), execution_id=1, metadata=metadata)


def _fetch(desk: Desk, name: str) -> Command:
    desk.send(start(name))
    return FetchTurn(cmd=f"x{name}", lock_s=30.0, session_id="s")


def _more(desk: Desk, name: str) -> Command:
    token = _turn(desk, name)
    desk.send(signal(name, "more"))
    return FetchMore(cmd=f"x{name}", token=token)


def _renew(desk: Desk, name: str) -> Command:
    token = _turn(desk, name)
    desk.advance(20)
    return RenewTurn(cmd=f"x{name}", token=token, lock_s=30.0)


def _abandon(desk: Desk, name: str) -> Command:
    return AbandonTurn(cmd=f"x{name}", token=_turn(desk, name), delay_s=1e6, reason="why")


def _park(desk: Desk, name: str) -> Command:
    token = _turn(desk, name)
    with desk.harness.engine.read() as view:
        turn = view.turn_by_token(token)
    assert turn is not None
    return ParkMessages(cmd=f"x{name}", token=token, messages=turn.messages)


def _send(desk: Desk, name: str) -> Command:
    desk.send(signal(name))
    return SendMessage(cmd=f"x{name}", message=NewMessage(item=_raw(start(name))))


def _append(desk: Desk, name: str) -> Command:
    del desk
    events = (NewEvent(event=_raw(started(name))), NewEvent(event=_raw(patch(2, name))))
    return AppendHistory(cmd=f"x{name}", instance_id=name, execution_id=1, delta=Delta(events=events))


def _start_activity(desk: Desk, name: str) -> Command:
    del desk
    new = NewActivity(job_id=JobId(f"job-{name}"), item=_raw(activity(2, name)))
    return StartActivity(cmd=f"x{name}", activity=new)


def _fetch_activity(desk: Desk, name: str) -> Command:
    desk.provider.enqueue_for_worker(activity(2, name, session_id=name))
    return FetchActivity(
        cmd=f"x{name}", worker_id="w", lease_s=30.0, session_id="s", affinity_owner="me", affinity_s=60.0
    )


def _taken(desk: Desk, name: str) -> Token:
    desk.begin(name, worker_items=[activity(2, name, session_id=name)])
    return Token(int(desk.take(session=ME)[1]))


def _ack_activity(desk: Desk, name: str) -> Command:
    return AckActivity(cmd=f"x{name}", token=_taken(desk, name), completion=NewMessage(item=_raw(completed(2, name))))


def _abandon_activity(desk: Desk, name: str) -> Command:
    return AbandonActivity(cmd=f"x{name}", token=_taken(desk, name), delay_s=1e6)


def _renew_activity(desk: Desk, name: str) -> Command:
    token = _taken(desk, name)
    desk.advance(20)
    return RenewActivity(cmd=f"x{name}", token=token, lease_s=30.0)


def _renew_sessions(desk: Desk, name: str) -> Command:
    _taken(desk, name)
    desk.advance(20)
    return RenewSessions(cmd=f"x{name}", owner_ids=("me",), lock_s=60.0, idle_s=100.0)


def _clean_sessions(desk: Desk, name: str) -> Command:
    desk.provider.ack_work_item(str(_taken(desk, name)), completed(2, name))
    desk.advance(100)
    return CleanSessions(cmd=f"x{name}")


def _delete(desk: Desk, name: str) -> Command:
    _turn(desk, name)
    return DeleteInstances(cmd=f"x{name}", instance_ids=(name,), force=True, tree=True)


def _delete_ended(desk: Desk, name: str) -> Command:
    desk.end(name)
    return DeleteEnded(cmd=f"x{name}", instance_ids=(name,))


def _prune(desk: Desk, name: str) -> Command:
    desk.continued(name, executions=3)
    return PruneExecutions(cmd=f"x{name}", instance_id=name)


def _announce(desk: Desk, name: str) -> Command:
    desk.provider.abandon_orchestration_item(str(_turn(desk, name)), 1e6, reason="no code")
    return AnnounceHandlers(cmd=f"x{name}", handlers=("flow",))


def _answer(desk: Desk, name: str) -> Command:
    desk.begin(name)
    desk.ack(desk.turn(name), event(2, EventKind.DecisionRequested(prompt="?"), name))
    said = NewMessage(item=_raw(QueueMessage(instance=name, name="@decision/2", data='{"chosen":"yes"}')))
    return AnswerDecision(cmd=f"x{name}", decision_id=decision_id(name, 1, 2), message=said, chosen="yes", by="me")


def _start_instance(desk: Desk, name: str) -> Command:
    del desk
    signals = (NewMessage(item=_raw(signal(name))),)
    return StartInstance(cmd=f"x{name}", message=NewMessage(item=_raw(start(name))), signals=signals)


def _tell(desk: Desk, name: str) -> Command:
    desk.begin(name)
    return TellInstance(cmd=f"x{name}", message=NewMessage(item=_raw(signal(name))))


def _reset(desk: Desk, name: str) -> Command:
    rewinding.blocked(desk, name)
    return rewinding.reset(desk, name, cmd=f"x{name}")


def _fork(desk: Desk, name: str) -> Command:
    rewinding.ended(desk, f"{name}-old")
    return rewinding.fork(desk, f"{name}-old", name, cmd=f"x{name}")


def _fail(desk: Desk, name: str) -> Command:
    rewinding.blocked(desk, name)
    return rewinding.fail(desk, name, f"x{name}")


def _import(desk: Desk, name: str) -> Command:
    rewinding.ended(desk, f"{name}-old")
    return rewinding.imported(desk, f"{name}-old", name, f"x{name}")


#: One command of every kind about instances, each with the state it needs.
SAMPLES: dict[str, Callable[[Desk, str], Command]] = {
    "ack": _ack,
    "ack that keeps the lock": _hold,
    "ack that ends": _end,
    "ack that lets the next begin": _last_of_two,
    "fetch": _fetch,
    "fetch more": _more,
    "renew": _renew,
    "abandon": _abandon,
    "park": _park,
    "send": _send,
    "append": _append,
    "start activity": _start_activity,
    "fetch activity": _fetch_activity,
    "ack activity": _ack_activity,
    "abandon activity": _abandon_activity,
    "renew activity": _renew_activity,
    "renew sessions": _renew_sessions,
    "clean sessions": _clean_sessions,
    "delete": _delete,
    "delete ended": _delete_ended,
    "prune": _prune,
    "announce": _announce,
    "answer": _answer,
    "start": _start_instance,
    "tell": _tell,
    "reset": _reset,
    "fork": _fork,
    "fail": _fail,
    "import": _import,
}

each_flow_command = pytest.mark.parametrize("sample", SAMPLES)


def _tidy(desk: Desk, name: str) -> None:
    """Leave nothing unreadable or half done behind for the next round."""
    if name in desk.provider.list_instances():
        desk.provider.delete_instance(name, force=True)


def _essence(outcome: Outcome) -> object:
    """Give what must be the same when a command is sent again: of a job that was granted, not when it last changed."""
    if isinstance(outcome, Leased):
        return [(grant.job.job_id, grant.run_id, grant.token) for grant in outcome.grants]
    return outcome


class ProviderCrashes(ProviderTopic):
    """All or nothing, at every point; and what is sent again is done once."""

    @each_flow_command
    def test_a_crash_at_any_point_leaves_all_or_nothing(self, desk: Desk, sample: str) -> None:
        for number, point in enumerate(self.points):
            command = SAMPLES[sample](desk, f"i{number}")
            before = desk.harness.dump()
            with listening(point, break_here), pytest.raises((desk.harness.breaks, StoreError)):
                desk.harness.engine.submit(command)
            desk.harness.restart()
            after = desk.harness.dump()
            outcome = desk.harness.engine.submit(command)
            assert not isinstance(outcome, Refusal), (point, outcome)
            if after != before:
                assert desk.harness.dump() == after, f"{point}: it had been done, and was done again"
            else:
                assert desk.harness.seq > (before.feed[-1].seq if before.feed else 0)
            _tidy(desk, f"i{number}")

    @each_flow_command
    def test_sent_again_it_gives_its_first_outcome_and_writes_nothing(self, desk: Desk, sample: str) -> None:
        command = SAMPLES[sample](desk, "i")
        first = desk.harness.ask(command)
        with desk.harness.unchanged():
            assert _essence(desk.harness.ask(command)) == _essence(first)
        _tidy(desk, "i")

    @each_flow_command
    def test_a_command_that_fails_in_the_store_leaves_the_store_usable(self, desk: Desk, sample: str) -> None:
        command = SAMPLES[sample](desk, "i")
        with desk.harness.unchanged(), listening("engine.decided", break_here), pytest.raises(desk.harness.breaks):
            desk.harness.engine.submit(command)
        desk.harness.ask(command)
        _tidy(desk, "i")


class ProviderReopening(ProviderTopic):
    """What is there after a restart."""

    def story(self, desk: Desk) -> None:
        """Bring instances into every state."""
        desk.continued("continued", executions=3)
        desk.end("done")
        desk.end("child", COMPLETED, "done")
        desk.begin("waiting", worker_items=[activity(2, "waiting"), activity(3, "waiting", session_id="s")])
        desk.take()
        desk.take(session=ME)
        desk.ack(
            desk.turn("waiting"),
            event(2, EventKind.KeyValueSet(key="k\0", value="ü"), "waiting"),
            event(3, EventKind.CustomStatusUpdated(status="x" * 100_000), "waiting"),
            event(4, EventKind.DecisionRequested(prompt="?", options=("a",)), "waiting"),
            event(5, EventKind.StepCompleted(step_no=1, name="s", result="y" * 100_000), "waiting"),
            orchestrator_items=[timer(7, desk.now_ms + 60_000, "waiting"), signal("ghost", "z" * 100_000)],
        )
        desk.begin("given back")
        desk.provider.abandon_orchestration_item(desk.turn("given back"), 50.0, reason="no code")
        desk.begin("gone")
        desk.provider.delete_instance("gone", force=True)
        desk.begin("locked")
        desk.turn("locked")
        desk.send(signal("locked"), start("new"))

    def look(self, desk: Desk) -> object:
        """Say everything the provider shows."""
        provider = desk.provider
        names = provider.list_instances()
        return (
            names,
            [provider.get_instance_info(name) for name in names],
            [[provider.read_with_execution(name, n) for n in provider.list_executions(name)] for name in names],
            [provider.get_kv_all_values(name) for name in names],
            [provider.get_custom_status(name, 0) for name in names],
            provider.get_queue_depths(),
            provider.get_system_metrics(),
            [provider.get_instance_stats(name) for name in names],
        )

    def test_everything_is_there_again(self, desk: Desk) -> None:
        self.story(desk)
        before, seen = desk.harness.dump(), self.look(desk)
        for _ in range(2):
            desk.harness.reopen()
            assert desk.harness.dump() == before
            assert self.look(desk) == seen

    def test_everything_is_there_again_from_a_snapshot(self, desk: Desk) -> None:
        self.story(desk)
        with desk.harness.engine.read() as view:
            before = {name: list(view.all(kind)) for name, kind in TABLES.items()}
        seen = self.look(desk)
        desk.harness.authority.store.snapshot()
        desk.harness.reopen()
        with desk.harness.engine.read() as view:
            assert {name: list(view.all(kind)) for name, kind in TABLES.items()} == before
        assert self.look(desk) == seen

    def test_the_feed_alone_gives_the_same_records(self, desk: Desk) -> None:
        self.story(desk)
        tables = BatchTables()
        for entry in told(desk.harness.store):
            assert entry.event is not None
            tables.replay(entry.event, Stamp(entry.seq, entry.ts))
        tables.let_go()
        with desk.harness.engine.read() as view:
            for kind in TABLES.values():
                assert list(tables.all(kind)) == list(view.all(kind)), kind

    def test_work_goes_on_where_it_stood(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.harness.reopen()
        desk.ack(token, patch(2))
        desk.send(signal())
        assert [one.event_id for one in desk.fetch()[0].history] == [1, 2]

    def test_a_history_that_grew_in_many_turns_is_whole_after_each(self, desk: Desk) -> None:
        desk.begin()
        for number in range(2, 8):
            desk.ack(desk.turn(), patch(number))
            desk.harness.restart()
            assert [one.event_id for one in desk.provider.read("i")] == list(range(1, number + 1))


class ProviderProcesses(ProviderTopic):
    """Several processes on one store, where it promises them."""

    def test_what_one_sends_another_fetches(self, desk: Desk) -> None:
        other = Provider(desk.harness.second())
        desk.send(start())
        found = other.fetch_orchestration_item(30.0)
        assert found is not None
        desk.nothing()
        other.ack_orchestration_item(found[1], 1, [started()])
        assert desk.provider.read("i") == [started()]

    def test_a_lock_of_one_holds_against_the_other(self, desk: Desk) -> None:
        other = Provider(desk.harness.second())
        desk.begin()
        token = desk.turn()
        assert other.fetch_orchestration_item(30.0) is None
        desk.advance(31)
        found = other.fetch_orchestration_item(30.0)
        assert found is not None
        desk.refuses("Invalid lock token", desk.ack, token)
        other.ack_orchestration_item(found[1], 1)

    def test_one_appends_behind_what_the_other_wrote(self, desk: Desk) -> None:
        other = Provider(desk.harness.second())
        desk.begin()
        for number in range(2, 10):
            provider = other if number % 2 else desk.provider
            provider.enqueue_for_orchestrator(signal())
            found = provider.fetch_orchestration_item(30.0)
            assert found is not None
            provider.ack_orchestration_item(found[1], 1, [patch(number)])
        assert [one.event_id for one in other.read("i")] == list(range(1, 10))

    def test_a_deletion_by_one_is_noticed_by_the_other(self, desk: Desk) -> None:
        other = Provider(desk.harness.second())
        desk.begin()
        token = desk.turn()
        other.delete_instance("i", force=True)
        desk.refuses("Invalid lock token", desk.ack, token, patch(2))
        desk.begin("i")
        assert other.read("i") == [started()]

    def test_an_activity_goes_to_one_of_them(self, desk: Desk) -> None:
        other = Provider(desk.harness.second())
        desk.begin(worker_items=[activity(number) for number in range(2, 12)])
        got = []
        for number in range(10):
            found = (other if number % 2 else desk.provider).fetch_work_item(30.0)
            assert found is not None
            got.append(found[0].id)  # type: ignore[union-attr]  # all have an id
        assert got == list(range(2, 12))

    def test_many_threads_of_two_processes_do_every_turn_once(self, desk: Desk) -> None:
        providers = [desk.provider, Provider(desk.harness.second())]
        desk.send(*(start(f"i{number}") for number in range(12)))
        done: list[str] = []
        lock = threading.Lock()

        def work(provider: Provider) -> None:
            while (found := provider.fetch_orchestration_item(30.0)) is not None:
                item, token, _ = found
                provider.ack_orchestration_item(token, 1, [started(item.instance)], metadata=COMPLETED)
                with lock:
                    done.append(item.instance)

        threads = [threading.Thread(target=work, args=(provider,)) for provider in providers for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == sorted(f"i{number}" for number in range(12))
        assert desk.provider.get_system_metrics().completed_instances == 12

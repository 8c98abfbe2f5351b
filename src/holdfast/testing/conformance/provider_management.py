"""Management: lists, counts, trees, deletion, pruning."""

from __future__ import annotations

import pytest

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.work_items import CancelInstance, StartOrchestration
from holdfast.testing.conformance.marks import counts_writes
from holdfast.testing.conformance.provider_kit import (
    COMPLETED,
    CONTINUED,
    FAILED,
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
from holdfast.workflows.provider import (
    ContinueAsNew,
    DeleteInstanceResult,
    ExecutionMetadata,
    InstanceFilter,
    PruneOptions,
    PruneResult,
    QueueDepths,
    Status,
    SystemMetrics,
)

CANCELLED = ExecutionMetadata(status=Status.CANCELLED)


class ProviderLists(ProviderTopic):
    """What there is."""

    def test_an_empty_store_is_empty(self, desk: Desk) -> None:
        provider = desk.provider
        assert provider.list_instances() == []
        assert provider.list_executions("x") == []
        assert provider.list_children("x") == []
        assert provider.get_system_metrics() == SystemMetrics()
        assert provider.get_queue_depths() == QueueDepths()

    def test_instances_are_listed_newest_first(self, desk: Desk) -> None:
        for name in ("b", "a", "c"):
            desk.begin(name)
        assert desk.provider.list_instances() == ["c", "a", "b"]

    def test_instances_are_listed_by_the_status_of_their_current_execution(self, desk: Desk) -> None:
        desk.begin("running")
        desk.end("done")
        desk.end("broken", FAILED)
        desk.end("stopped", CANCELLED)
        listed = desk.provider.list_instances_by_status
        assert [listed(status) for status in ("Running", "Completed", "Failed", "Cancelled")] == [
            ["running"],
            ["done"],
            ["broken"],
            ["stopped"],
        ]

    def test_an_unknown_status_cannot_be_listed(self, desk: Desk) -> None:
        desk.refuses("unknown status 'Happy'", desk.provider.list_instances_by_status, "Happy")

    def test_going_on_as_new_counts_as_running_while_the_message_waits(self, desk: Desk) -> None:
        next_one = ContinueAsNew(instance="i", orchestration="flow", input="{}")
        desk.begin()
        desk.ack(desk.turn(), metadata=CONTINUED, orchestrator_items=[next_one])
        assert desk.provider.list_instances_by_status("Running") == ["i"]
        assert desk.provider.get_instance_info("i").status == "Running"
        assert desk.provider.get_system_metrics().running_instances == 1
        desk.refuses("instance 'i' is still running", desk.provider.delete_instance, "i")

    def test_going_on_as_new_without_the_message_is_what_it_is(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), metadata=CONTINUED)
        assert desk.provider.list_instances_by_status("Running") == []
        assert desk.provider.list_instances_by_status("ContinuedAsNew") == ["i"]

    def test_infos_of_what_is_not_there_are_refused(self, desk: Desk) -> None:
        desk.begin()
        desk.refuses("instance not found: 'x'", desk.provider.get_instance_info, "x")
        desk.refuses("execution not found: 'i' 3", desk.provider.get_execution_info, "i", 3)
        desk.refuses("instance not found: 'x'", desk.provider.get_parent_id, "x")
        desk.refuses("instance not found: 'x'", desk.provider.get_instance_tree, "x")

    def test_an_execution_is_described(self, desk: Desk) -> None:
        desk.continued(executions=2)
        first, second = (desk.provider.get_execution_info("i", number) for number in (1, 2))
        assert (first.status, first.output, first.event_count) == ("ContinuedAsNew", "next", 2)
        assert first.completed_at == first.started_at + 10_000
        assert (second.status, second.completed_at, second.event_count) == ("Running", None, 1)

    def test_metrics_count_everything(self, desk: Desk) -> None:
        desk.continued("a", executions=2)
        desk.end("b")
        desk.end("c", FAILED)
        desk.end("d", CANCELLED)
        assert desk.provider.get_system_metrics() == SystemMetrics(
            total_instances=4,
            total_executions=5,
            running_instances=1,
            completed_instances=1,
            failed_instances=1,
            cancelled_instances=1,
            total_events=6,
        )

    def test_depths_count_what_is_in_nobodys_hands(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity(2), activity(3)], orchestrator_items=[timer(4, desk.now_ms + 1000)])
        desk.send(signal("ghost"), signal("i"))
        desk.send(signal("i"), delay=60.0)
        assert desk.provider.get_queue_depths() == QueueDepths(
            orchestrator_queue=2, worker_queue=2, timer_queue=1, parked=1
        )
        desk.fetch()
        desk.send(signal("i"))
        desk.take()
        assert desk.provider.get_queue_depths() == QueueDepths(
            orchestrator_queue=2, worker_queue=1, timer_queue=1, parked=1
        )

    def test_what_a_lapsed_lock_held_counts_again(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        desk.turn()
        desk.take()
        desk.advance(31)
        depths = desk.provider.get_queue_depths()
        assert (depths.orchestrator_queue, depths.worker_queue) == (1, 1)

    def test_a_timer_that_is_due_is_an_ordinary_message(self, desk: Desk) -> None:
        desk.begin(orchestrator_items=[timer(4, desk.now_ms + 1000)])
        desk.advance(1)
        depths = desk.provider.get_queue_depths()
        assert (depths.orchestrator_queue, depths.timer_queue) == (1, 0)


class ProviderTrees(ProviderTopic):
    """Parents and children."""

    def family(self, desk: Desk, *, running: str = "") -> None:
        for name, parent in (("root", None), ("left", "root"), ("right", "root"), ("leaf", "left")):
            metadata = ExecutionMetadata(status=Status.RUNNING) if name == running else COMPLETED
            desk.end(name, metadata, parent)

    def test_children_and_parents(self, desk: Desk) -> None:
        self.family(desk)
        provider = desk.provider
        assert provider.list_children("root") == ["left", "right"]
        assert provider.list_children("leaf") == []
        assert (provider.get_parent_id("leaf"), provider.get_parent_id("root")) == ("left", None)

    def test_a_tree_is_given_from_its_root_wherever_one_asks(self, desk: Desk) -> None:
        self.family(desk)
        for name in ("root", "leaf", "right"):
            tree = desk.provider.get_instance_tree(name)
            assert tree.root_id == "root"
            assert sorted(tree.all_ids) == ["leaf", "left", "right", "root"]
            assert (tree.size, tree.is_root_only) == (4, False)

    def test_one_alone_is_a_tree(self, desk: Desk) -> None:
        desk.end("one")
        tree = desk.provider.get_instance_tree("one")
        assert (tree.all_ids, tree.is_root_only, tree.size) == (("one",), True, 1)

    def test_a_root_is_deleted_with_its_tree(self, desk: Desk) -> None:
        self.family(desk)
        assert desk.provider.delete_instance("root").instances_deleted == 4
        assert desk.provider.list_instances() == []

    @pytest.mark.parametrize("force", [False, True])
    def test_a_child_is_not_deleted_alone(self, desk: Desk, force: bool) -> None:  # noqa: FBT001 - parametrised
        self.family(desk)
        said = "'leaf' is a sub-orchestration of 'root': delete the root"
        desk.refuses(said, desk.provider.delete_instance, "leaf", force)
        desk.refuses(said, desk.provider.delete_instances_atomic, ["leaf"], force)

    def test_a_tree_with_a_member_that_runs_stays_without_force(self, desk: Desk) -> None:
        self.family(desk, running="leaf")
        desk.refuses("instance 'leaf' is still running", desk.provider.delete_instance, "root")
        assert desk.provider.delete_instance("root", force=True).instances_deleted == 4

    def test_a_list_must_name_whole_trees(self, desk: Desk) -> None:
        self.family(desk)
        said = "cannot delete 'root' without its child 'right': name the whole tree"
        desk.refuses(said, desk.provider.delete_instances_atomic, ["root", "left", "leaf"])
        gone = desk.provider.delete_instances_atomic(["leaf", "root", "left", "right", "nobody"])
        assert gone.instances_deleted == 4

    def test_a_list_is_deleted_whole_or_not_at_all(self, desk: Desk) -> None:
        desk.end("a")
        desk.begin("b")
        desk.refuses("instance 'b' is still running", desk.provider.delete_instances_atomic, ["a", "b"])
        assert sorted(desk.provider.list_instances()) == ["a", "b"]

    @counts_writes
    def test_an_empty_list_deletes_nothing(self, desk: Desk) -> None:
        with desk.harness.unchanged():
            assert desk.provider.delete_instances_atomic([]) == DeleteInstanceResult()


class ProviderDeletion(ProviderTopic):
    """What is left of what was deleted: nothing."""

    def test_everything_of_the_instance_goes_in_one_commit(self, desk: Desk) -> None:
        desk.begin(
            "i",
            worker_items=[activity(2), activity(3)],
            orchestrator_items=[timer(4, desk.now_ms + 60_000), signal("i")],
        )
        _, token, _ = desk.fetch()
        kv = event(2, event_kinds.KeyValueSet(key="k", value="v"))
        asked = event(3, event_kinds.DecisionRequested(prompt="?"))
        desk.ack(token, kv, asked, orchestrator_items=[signal("i")])
        seq = desk.harness.seq
        gone = desk.provider.delete_instance("i", force=True)
        assert gone == DeleteInstanceResult(
            instances_deleted=1, executions_deleted=1, events_deleted=3, queue_messages_deleted=4
        )
        assert "instance:deleted" in desk.feed(seq)
        assert desk.provider.get_queue_depths() == QueueDepths()
        tables = desk.harness.dump().tables
        left = ("instances", "executions", "history", "orchestrator_queue", "turns", "instance_kv", "decisions", "jobs")
        assert {name: tables[name] for name in left} == {name: [] for name in left}

    def test_an_unknown_instance_cannot_be_deleted(self, desk: Desk) -> None:
        desk.refuses("instance not found: 'x'", desk.provider.delete_instance, "x")

    def test_one_that_has_not_begun_is_deleted_by_force(self, desk: Desk) -> None:
        desk.send(start("i"), signal("i"))
        desk.refuses("instance 'i' is still running", desk.provider.delete_instance, "i")
        token = desk.fetch()[1]
        gone = desk.provider.delete_instance("i", force=True)
        assert (gone.instances_deleted, gone.queue_messages_deleted) == (1, 2)
        desk.refuses("Invalid lock token", desk.ack, token, started())
        desk.nothing()
        assert desk.provider.get_queue_depths() == QueueDepths()
        desk.begin("i")

    def test_a_child_that_has_not_begun_is_not_deleted_alone(self, desk: Desk) -> None:
        desk.begin()
        desk.send(start("c", parent_instance="i", parent_id=2))
        said = "'c' is a sub-orchestration of 'i': delete the root"
        desk.refuses(said, desk.provider.delete_instance, "c", force=True)

    def test_one_that_runs_is_refused_without_force(self, desk: Desk) -> None:
        desk.begin()
        desk.refuses("instance 'i' is still running", desk.provider.delete_instance, "i")

    def test_an_ack_under_way_cannot_bring_it_back(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.provider.delete_instance("i", force=True)
        desk.refuses("Invalid lock token", desk.ack, token, patch(2))
        assert desk.provider.list_instances() == []

    def test_an_activity_under_way_cannot_either(self, desk: Desk) -> None:
        desk.begin(worker_items=[activity()])
        _, token, _ = desk.take()
        desk.provider.delete_instance("i", force=True)
        said = "Lock token not found: completed, cancelled or deleted"
        desk.refuses(said, desk.provider.ack_work_item, token, completed())

    def test_the_id_is_free_and_shows_nothing_of_before(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), event(2, event_kinds.KeyValueSet(key="k", value="v")), metadata=COMPLETED)
        desk.provider.delete_instance("i")
        desk.begin("i")
        info = desk.provider.get_instance_info("i")
        assert (info.status, info.output) == ("Running", None)
        assert desk.provider.read("i") == [started()]
        assert desk.provider.get_kv_all_values("i") == {}

    @pytest.mark.parametrize("child", ["i::sub::1-2", "given"])
    @pytest.mark.parametrize("taken", [False, True])
    def test_a_child_that_was_asked_for_and_has_not_begun_goes_with_its_parent(
        self,
        desk: Desk,
        child: str,
        taken: bool,  # noqa: FBT001 - parametrised
    ) -> None:
        asked = start(child, parent_instance="i", parent_id=2, parent_execution_id=1)
        desk.begin("i", orchestrator_items=[asked, CancelInstance(instance=child, reason="not awaited")])
        token = desk.fetch()[1] if taken else None
        gone = desk.provider.delete_instance("i", force=True)
        assert (gone.instances_deleted, gone.queue_messages_deleted) == (1, 2)
        assert desk.provider.get_queue_depths() == QueueDepths()
        if token is not None:
            desk.refuses("Invalid lock token", desk.ack, token, started(child))
        desk.begin("i")
        desk.send(asked)
        assert [type(message) for message in desk.fetch()[0].messages] == [StartOrchestration]

    def test_a_start_that_another_has_asked_for_too_stays(self, desk: Desk) -> None:
        parents = ("i", "other")
        for name in parents:
            desk.begin(name)
        desk.send(*(start("c", parent_instance=name, parent_id=2, parent_execution_id=1) for name in parents))
        gone = desk.provider.delete_instance("i", force=True)
        assert (gone.instances_deleted, gone.queue_messages_deleted) == (1, 1)
        (left,) = desk.fetch()[0].messages
        assert isinstance(left, StartOrchestration)
        assert left.parent_instance == "other"

    def test_deleted_and_made_anew_in_one_commit_of_the_store(self, desk: Desk) -> None:
        desk.end()
        desk.provider.delete_instance("i")
        desk.begin()
        desk.harness.restart()
        assert desk.provider.read("i") == [started()]

    def test_tokens_are_not_used_again(self, desk: Desk) -> None:
        desk.begin()
        token = desk.turn()
        desk.provider.delete_instance("i", force=True)
        desk.send(start())
        assert int(desk.fetch()[1]) > int(token)

    def test_many_are_deleted_by_a_filter_oldest_end_first(self, desk: Desk) -> None:
        for name in ("a", "b", "c", "d"):
            desk.end(name)
            desk.advance(10)
        desk.begin("running")
        assert desk.provider.delete_instance_bulk(InstanceFilter(limit=2)).instances_deleted == 2
        assert desk.provider.list_instances() == ["running", "d", "c"]
        before = desk.now_ms - 10_000
        assert desk.provider.delete_instance_bulk(InstanceFilter(completed_before=before)).instances_deleted == 1
        assert desk.provider.list_instances() == ["running", "d"]

    @pytest.mark.parametrize("ids", [None, ("a", "stopped", "going", "z")])
    def test_bulk_deletion_takes_what_was_to_go_on_as_new_and_has_no_message_waiting(
        self, desk: Desk, ids: tuple[str, ...] | None
    ) -> None:
        desk.end("a")
        desk.advance(10)
        desk.end("stopped", CONTINUED)
        desk.advance(10)
        desk.end("z")
        desk.advance(10)
        desk.begin("going")
        going = ContinueAsNew(instance="going", orchestration="flow", input="{}")
        desk.ack(desk.turn("going"), metadata=CONTINUED, orchestrator_items=[going])
        bulk = desk.provider.delete_instance_bulk
        assert bulk(InstanceFilter(instance_ids=ids, limit=1)).instances_deleted == 1
        assert desk.provider.list_instances() == ["going", "z", "stopped"]
        before = desk.now_ms - 20_000
        assert bulk(InstanceFilter(instance_ids=ids, completed_before=before)).instances_deleted == 0
        assert bulk(InstanceFilter(instance_ids=ids, completed_before=before + 1)).instances_deleted == 1
        assert desk.provider.list_instances() == ["going", "z"]
        assert bulk(InstanceFilter(instance_ids=ids)).instances_deleted == 1
        # One whose message waits, or is being worked on, runs.
        assert desk.fetch()[0].messages == (going,)
        assert bulk(InstanceFilter(instance_ids=ids)).instances_deleted == 0
        assert desk.provider.list_instances() == ["going"]

    def test_bulk_deletion_takes_the_tree_of_a_root_that_was_to_go_on_as_new(self, desk: Desk) -> None:
        desk.end("root", CONTINUED)
        desk.end("child", CONTINUED, "root")
        desk.end("other", CONTINUED)
        desk.end("runs", ExecutionMetadata(status=Status.RUNNING), "other")
        assert desk.provider.delete_instance_bulk(InstanceFilter()).instances_deleted == 2
        assert desk.provider.list_instances() == ["runs", "other"]

    def test_the_parts_of_a_filter_all_count(self, desk: Desk) -> None:
        desk.end("a")
        desk.end("b")
        desk.begin("c")
        bulk = desk.provider.delete_instance_bulk
        assert bulk(InstanceFilter(instance_ids=())).instances_deleted == 0
        assert bulk(InstanceFilter(instance_ids=("a", "x"), completed_before=0)).instances_deleted == 0
        assert bulk(InstanceFilter(instance_ids=("a", "c", "x"))).instances_deleted == 1
        assert desk.provider.list_instances() == ["c", "b"]

    def test_trees_with_a_member_that_runs_are_passed_by(self, desk: Desk) -> None:
        desk.end("root")
        desk.end("child", ExecutionMetadata(status=Status.RUNNING), "root")
        desk.end("other")
        assert desk.provider.delete_instance_bulk(InstanceFilter()).instances_deleted == 1
        assert desk.provider.list_instances() == ["child", "root"]

    def test_children_count_but_are_no_roots(self, desk: Desk) -> None:
        desk.end("root")
        desk.end("child", COMPLETED, "root")
        assert desk.provider.delete_instance_bulk(InstanceFilter(instance_ids=("child",))).instances_deleted == 0
        assert desk.provider.delete_instance_bulk(InstanceFilter(limit=1)).instances_deleted == 2

    def test_trees_go_by_themselves_thirty_days_after_their_end(self, desk: Desk) -> None:
        desk.end("root")
        desk.end("child", COMPLETED, "root")
        desk.begin("running")
        desk.advance(30 * 86_400 - 1)
        desk.harness.tick()
        assert desk.provider.list_instances() == ["running", "child", "root"]
        desk.advance(1)
        desk.harness.tick()
        assert desk.provider.list_instances() == ["running"]

    def test_a_tree_with_a_member_that_runs_does_not_go_by_itself(self, desk: Desk) -> None:
        desk.end("root")
        desk.end("child", ExecutionMetadata(status=Status.RUNNING), "root")
        desk.advance(31 * 86_400)
        desk.harness.tick()
        seq = desk.harness.seq
        desk.harness.tick()
        assert desk.harness.seq == seq
        assert desk.provider.list_instances() == ["child", "root"]

    def test_a_limit_below_one_is_refused(self, desk: Desk) -> None:
        desk.refuses("limit must be >= 1", desk.provider.delete_instance_bulk, InstanceFilter(limit=0))


class ProviderPruning(ProviderTopic):
    """Old executions."""

    @pytest.mark.parametrize("keep", [None, 0, 1])
    def test_all_but_the_current_execution_go(self, desk: Desk, keep: int | None) -> None:
        desk.continued(executions=4)
        gone = desk.provider.prune_executions("i", PruneOptions(keep_last=keep))
        assert gone == PruneResult(instances_processed=1, executions_deleted=3, events_deleted=6)
        assert desk.provider.list_executions("i") == [4]
        assert desk.provider.read_with_execution("i", 2) == []

    def test_the_last_ones_stay(self, desk: Desk) -> None:
        desk.continued(executions=5)
        desk.provider.prune_executions("i", PruneOptions(keep_last=3))
        assert desk.provider.list_executions("i") == [3, 4, 5]

    def test_young_ones_stay(self, desk: Desk) -> None:
        desk.continued(executions=4)
        ended = desk.provider.get_execution_info("i", 2).completed_at
        desk.provider.prune_executions("i", PruneOptions(completed_before=ended))
        assert desk.provider.list_executions("i") == [2, 3, 4]

    def test_both_must_agree(self, desk: Desk) -> None:
        desk.continued(executions=4)
        ended = desk.provider.get_execution_info("i", 2).completed_at
        desk.provider.prune_executions("i", PruneOptions(keep_last=3, completed_before=ended))
        assert desk.provider.list_executions("i") == [2, 3, 4]
        desk.provider.prune_executions("i", PruneOptions(keep_last=3, completed_before=desk.now_ms))
        assert desk.provider.list_executions("i") == [2, 3, 4]

    @counts_writes
    def test_the_current_execution_stays_even_when_it_is_over(self, desk: Desk) -> None:
        desk.end()
        with desk.harness.unchanged():
            desk.provider.prune_executions("i", PruneOptions(completed_before=desk.now_ms + 1000))

    def test_an_execution_that_runs_stays(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), started(execution=2), execution=2)
        desk.provider.prune_executions("i", PruneOptions())
        assert desk.provider.list_executions("i") == [1, 2]

    def test_an_unknown_instance_cannot_be_pruned(self, desk: Desk) -> None:
        desk.refuses("instance not found: 'x'", desk.provider.prune_executions, "x", PruneOptions())

    def test_many_are_pruned_by_a_filter_those_that_run_too(self, desk: Desk) -> None:
        desk.continued("a", executions=3)
        desk.continued("b", executions=2)
        gone = desk.provider.prune_executions_bulk(InstanceFilter(), PruneOptions())
        assert gone == PruneResult(instances_processed=2, executions_deleted=3, events_deleted=6)

    def test_a_time_in_the_filter_matches_what_has_ended_only(self, desk: Desk) -> None:
        desk.continued("a", executions=2)
        desk.continued("b", executions=2)
        desk.ack(desk.turn("b"), execution=2, metadata=COMPLETED)
        chosen = InstanceFilter(completed_before=desk.now_ms + 1000)
        assert desk.provider.prune_executions_bulk(chosen, PruneOptions()).executions_deleted == 1
        assert desk.provider.list_executions("a") == [1, 2]

    def test_a_time_in_the_filter_matches_what_was_to_go_on_as_new_and_has_no_message_waiting(self, desk: Desk) -> None:
        desk.continued("a", executions=2)
        desk.ack(desk.turn("a"), execution=2, metadata=CONTINUED)
        chosen = InstanceFilter(completed_before=desk.now_ms)
        assert desk.provider.prune_executions_bulk(chosen, PruneOptions()).executions_deleted == 0
        chosen = InstanceFilter(completed_before=desk.now_ms + 1)
        assert desk.provider.prune_executions_bulk(chosen, PruneOptions()).executions_deleted == 1
        assert desk.provider.list_executions("a") == [2]

    def test_keys_survive(self, desk: Desk) -> None:
        desk.begin()
        desk.ack(desk.turn(), event(2, event_kinds.KeyValueSet(key="k", value="v")), metadata=CONTINUED)
        desk.ack(desk.turn(), started(execution=2), execution=2)
        desk.provider.prune_executions("i", PruneOptions())
        assert desk.provider.get_kv_all_values("i") == {"k": "v"}

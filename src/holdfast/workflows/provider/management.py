"""The provider's management: lists, counts, trees, deletion, pruning, published state."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ProviderError
from holdfast.model.outcomes import Deleted
from holdfast.model.payloads import NULL
from holdfast.model.records import pair
from holdfast.model.times import FOREVER, Timestamp, at_milliseconds, milliseconds
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.commands import DeleteEnded, DeleteInstances, PruneExecutions
from holdfast.model.workflows.history import (
    DeleteInstanceResult,
    ExecutionInfo,
    InstanceFilter,
    InstanceInfo,
    InstanceTree,
    PruneOptions,
    PruneResult,
    QueueDepths,
    Status,
    SystemMetrics,
)
from holdfast.model.workflows.instances import Execution, Instance, InstanceStatus, KeyValue, execution_key
from holdfast.rules.workflows.instances import effective_status, ended_at, not_found, root_of, tree_of
from holdfast.stores.protocol import InstanceQuery, View
from holdfast.workflows.provider.calls import Asking, each, instance_id, refuse, struct_of, text, told, typed, whole
from holdfast.workflows.provider.filters import SystemStats
from holdfast.workflows.provider.payloads import events_of, text_of

#: Statuses that make an instance count as running, if a message says that it goes on.
_GOING = (InstanceStatus.RUNNING, InstanceStatus.CONTINUED_AS_NEW)


class Managing(Asking):
    """Look at instances, and remove them."""

    # --- lists and counts -------------------------------------------------------------------------------------------

    @told
    def list_instances(self) -> list[str]:
        """Give the ids of all instances, newest first."""
        with self._view() as view:
            return [found.instance_id for found in view.instances(InstanceQuery())]

    @told
    def list_instances_by_status(self, status: str) -> list[str]:
        """Give the ids of the instances whose current execution has this status, newest first."""
        operation = "list_instances_by_status"
        if status not in list(Status):
            refuse(operation, f"unknown status {status!r}")
        wanted = InstanceStatus[Status(status).name]
        statuses = _GOING if wanted in _GOING else (wanted,)
        with self._view() as view:
            found = view.instances(InstanceQuery(statuses=statuses))
            return [one.instance_id for one in found if effective_status(view, one) is wanted]

    @told
    def list_executions(self, instance: str) -> list[int]:
        """Give the executions of an instance, ascending; of an unknown one, none."""
        operation = "list_executions"
        with self._view() as view:
            return [found.execution_id for found in view.executions(instance_id(operation, "instance", instance))]

    @told
    def get_instance_info(self, instance: str) -> InstanceInfo:
        """Describe an instance."""
        operation = "get_instance_info"
        with self._view() as view:
            found = _demand(view, operation, instance)
            execution = view.get(Execution, execution_key(instance, found.current_execution_id))
            status = effective_status(view, found)
        return InstanceInfo(
            instance_id=found.instance_id,
            orchestration_name=found.orchestration_name,
            orchestration_version=found.orchestration_version or "unknown",
            current_execution_id=found.current_execution_id,
            status=Status[status.name],
            output=None if execution is None else text_of(self._blobs, execution.output),
            created_at=milliseconds(found.created_at),
            updated_at=milliseconds(found.updated_at),
            parent_instance_id=found.parent_instance_id,
        )

    @told
    def get_execution_info(self, instance: str, execution_id: int) -> ExecutionInfo:
        """Describe an execution."""
        operation = "get_execution_info"
        instance_id(operation, "instance", instance)
        number = whole(operation, "execution_id", execution_id)
        with self._view() as view:
            found = view.get(Execution, execution_key(instance, number))
        if found is None:
            raise ProviderError.permanent(operation, f"execution not found: {instance!r} {number}")
        return ExecutionInfo(
            execution_id=found.execution_id,
            status=Status[found.status.name],
            output=text_of(self._blobs, found.output),
            started_at=milliseconds(found.started_at),
            completed_at=None if found.completed_at is None else milliseconds(found.completed_at),
            event_count=found.event_count,
        )

    @told
    def get_system_metrics(self) -> SystemMetrics:
        """Count instances, executions and events."""
        with self._view() as view:
            totals = view.flow_totals()
            paused = view.instances(InstanceQuery(statuses=(InstanceStatus.CONTINUED_AS_NEW,)))
            going = sum(effective_status(view, found) is InstanceStatus.RUNNING for found in paused)
        having = totals.instances
        return SystemMetrics(
            total_instances=sum(having.values()),
            total_executions=totals.executions,
            running_instances=having.get(InstanceStatus.RUNNING, 0) + going,
            completed_instances=having.get(InstanceStatus.COMPLETED, 0),
            failed_instances=having.get(InstanceStatus.FAILED, 0),
            cancelled_instances=having.get(InstanceStatus.CANCELLED, 0),
            total_events=totals.events,
        )

    @told
    def get_queue_depths(self) -> QueueDepths:
        """Count what waits and is in nobody's hands."""
        now = self.engine.look().now
        with self._view() as view:
            totals = view.mail_totals(now)
        return QueueDepths(
            orchestrator_queue=totals.queued,
            worker_queue=totals.activities,
            timer_queue=totals.timers,
            parked=totals.parked,
        )

    # --- trees ------------------------------------------------------------------------------------------------------

    @told
    def list_children(self, instance: str) -> list[str]:
        """Give the direct children of an instance, oldest first; of an unknown one, none."""
        operation = "list_children"
        with self._view() as view:
            return list(view.children(instance_id(operation, "instance", instance)))

    @told
    def get_parent_id(self, instance: str) -> str | None:
        """Give the parent of an instance, or None for a root."""
        operation = "get_parent_id"
        with self._view() as view:
            return _demand(view, operation, instance).parent_instance_id

    @told
    def get_instance_tree(self, instance: str) -> InstanceTree:
        """Give the tree that an instance belongs to, from its root down."""
        operation = "get_instance_tree"
        with self._view() as view:
            root = root_of(view, _demand(view, operation, instance))
            return InstanceTree(root_id=root.instance_id, all_ids=tuple(tree_of(view, root.instance_id)))

    # --- removing ---------------------------------------------------------------------------------------------------

    @told
    def delete_instance(self, instance: str, force: bool = False) -> DeleteInstanceResult:  # noqa: FBT001, FBT002 - the order is the contract's
        """Delete a root with its whole tree; one that runs only by `force`."""
        operation = "delete_instance"
        command = DeleteInstances(
            instance_ids=(instance_id(operation, "instance", instance),),
            force=typed(operation, "force", force, bool),
            tree=True,
        )
        return _deleted(self._ask(operation, command, Deleted))

    @told
    def delete_instances_atomic(self, ids: Sequence[str], force: bool = False) -> DeleteInstanceResult:  # noqa: FBT001, FBT002 - the order is the contract's
        """Delete these instances, which must be whole trees, all or none; unknown ids do not count."""
        operation = "delete_instances_atomic"
        command = DeleteInstances(
            instance_ids=tuple(instance_id(operation, "ids", name) for name in each(operation, "ids", ids)),
            force=typed(operation, "force", force, bool),
        )
        return _deleted(self._ask(operation, command, Deleted))

    @told
    def delete_instance_bulk(self, filter: InstanceFilter) -> DeleteInstanceResult:  # noqa: A002 - the name is the contract's
        """Delete ended roots with their trees, oldest end first."""
        operation = "delete_instance_bulk"
        chosen = _filter(operation, filter)
        command = DeleteEnded(
            instance_ids=chosen.instance_ids,
            completed_before=_time(chosen.completed_before),
            limit=chosen.limit,
        )
        return _deleted(self._ask(operation, command, Deleted))

    @told
    def prune_executions(self, instance: str, options: PruneOptions) -> PruneResult:
        """Delete old executions of an instance."""
        operation = "prune_executions"
        name = instance_id(operation, "instance", instance)
        return _pruned([self._ask(operation, _prune(operation, name, options), Deleted)])

    @told
    def prune_executions_bulk(self, filter: InstanceFilter, options: PruneOptions) -> PruneResult:  # noqa: A002 - the name is the contract's
        """Delete old executions of many instances, those that run too; each instance is a commit of its own."""
        operation = "prune_executions_bulk"
        chosen = _filter(operation, filter)
        before = _time(chosen.completed_before)
        with self._view() as view:
            if chosen.instance_ids is None:
                found = list(view.instances(InstanceQuery()))
            else:
                named = (view.get(Instance, name) for name in dict.fromkeys(chosen.instance_ids))
                found = [instance for instance in named if instance is not None]
            ends = [(ended_at(view, one), one) for one in found]
        wanted = [(end or FOREVER, one.seq, one) for end, one in ends if before is None or (end or FOREVER) < before]
        wanted.sort(key=lambda one: one[:2])
        names = [one.instance_id for _, _, one in wanted[: chosen.limit]]
        return _pruned(self._ask_all(operation, [_prune(operation, name, options) for name in names], Deleted))

    # --- published state --------------------------------------------------------------------------------------------

    @told
    def get_custom_status(self, instance: str, last_seen_version: int) -> tuple[str | None, int] | None:
        """Give what an instance says of itself, if that is newer than what the caller has seen."""
        operation = "get_custom_status"
        instance_id(operation, "instance", instance)
        seen = typed(operation, "last_seen_version", last_seen_version, int)
        with self._view() as view:
            found = view.get(Instance, instance)
        if found is None or found.custom_status_version <= max(seen, 0):
            return None
        return text_of(self._blobs, found.custom_status), found.custom_status_version

    @told
    def get_kv_value(self, instance: str, key: str) -> str | None:
        """Give the value of a key, as the running execution has it."""
        operation = "get_kv_value"
        instance_id(operation, "instance", instance)
        with self._view() as view:
            found = view.get(KeyValue, pair(instance, text(operation, "key", key)))
        return None if found is None else text_of(self._blobs, found.live)

    @told
    def get_kv_all_values(self, instance: str) -> dict[str, str]:
        """Give all keys with their values, as the running execution has them."""
        operation = "get_kv_all_values"
        with self._view() as view:
            found = view.keys(instance_id(operation, "instance", instance))
        return {one.key: text_of(self._blobs, one.live) or "" for one in found if one.live != NULL}

    @told
    def get_instance_stats(self, instance: str) -> SystemStats | None:
        """Say how large an instance is; None for an unknown one."""
        operation = "get_instance_stats"
        instance_id(operation, "instance", instance)
        with self._view() as view:
            found = view.get(Instance, instance)
            if found is None:
                return None
            execution = view.get(Execution, execution_key(instance, found.current_execution_id))
            rows = [] if execution is None else view.history(execution.history_id, limit=1)
            values = [one.live for one in view.keys(instance) if one.live != NULL]
        first = events_of(self._blobs, rows, found.current_execution_id)
        started = first[0].kind if first else None
        carried = started.carry_forward_events if isinstance(started, event_kinds.OrchestrationStarted) else ()
        return SystemStats(
            history_event_count=0 if execution is None else execution.event_count,
            history_size_bytes=0 if execution is None else execution.history_bytes,
            queue_pending_count=len(carried),
            kv_user_key_count=len(values),
            kv_total_value_bytes=sum(len((text_of(self._blobs, value) or "").encode()) for value in values),
        )


def _demand(view: View, operation: str, instance: str) -> Instance:
    found = view.get(Instance, instance_id(operation, "instance", instance))
    if found is None:
        refusal = not_found(instance)
        raise ProviderError.permanent(operation, refusal.message) from refusal.error()
    return found


def _time(unix_ms: int | None) -> Timestamp | None:
    return None if unix_ms is None else at_milliseconds(unix_ms)


def _filter(operation: str, chosen: InstanceFilter) -> InstanceFilter:
    typed(operation, "filter", chosen, InstanceFilter)
    if typed(operation, "limit", chosen.limit, int) < 1:
        refuse(operation, "limit must be >= 1")
    struct_of(operation, "filter", chosen, InstanceFilter)
    if chosen.instance_ids is None:
        return chosen
    names = tuple(instance_id(operation, "instance_ids", name) for name in chosen.instance_ids)
    return InstanceFilter(instance_ids=names, completed_before=chosen.completed_before, limit=chosen.limit)


def _prune(operation: str, instance: str, options: PruneOptions) -> PruneExecutions:
    struct_of(operation, "options", options, PruneOptions)
    return PruneExecutions(
        instance_id=instance, keep_last=options.keep_last, completed_before=_time(options.completed_before)
    )


def _deleted(gone: Deleted) -> DeleteInstanceResult:
    return DeleteInstanceResult(
        instances_deleted=gone.instances,
        executions_deleted=gone.executions,
        events_deleted=gone.events,
        queue_messages_deleted=gone.messages,
    )


def _pruned(gone: Sequence[Deleted]) -> PruneResult:
    return PruneResult(
        instances_processed=sum(one.instances for one in gone),
        executions_deleted=sum(one.executions for one in gone),
        events_deleted=sum(one.events for one in gone),
    )

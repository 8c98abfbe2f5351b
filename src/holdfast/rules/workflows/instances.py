"""Instances as a whole: trees, deletion, pruning, handlers that came, answers to questions.

A tree is a root and all its descendants; it goes whole or not at all. Deletion is one commit, after which nothing can
bring the instance back: an ack under way finds neither its lock nor its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice

from holdfast.errors import DecisionClosed, DecisionNotFound, InvalidOperation, InvalidValue, WorkflowNotFound
from holdfast.model.events import (
    DecisionAnswered,
    Event,
    HandlersAnnounced,
    InstanceDeleted,
    InstancePruned,
    JobCancelled,
    JobPruned,
    MessageDropped,
)
from holdfast.model.outcomes import Deleted, Done, Refusal, Swept, refuse
from holdfast.model.times import FOREVER, Timestamp
from holdfast.model.workflows.commands import (
    AnnounceHandlers,
    AnswerDecision,
    DeleteEnded,
    DeleteInstances,
    PruneExecutions,
)
from holdfast.model.workflows.decisions import ANSWERS, expiry_of
from holdfast.model.workflows.decisions import Decision as Question
from holdfast.model.workflows.instances import OVER, Execution, Instance, InstanceStatus, Message, execution_key
from holdfast.rules.decision import Decision, answer
from holdfast.rules.schedules.overlaps import next_in_line
from holdfast.rules.state import Lane, State
from holdfast.rules.workflows.messages import Post, held_back
from holdfast.rules.workflows.state import InstanceQuery

#: Why the jobs of an instance end with it.
DELETED = "its workflow was deleted"


# --- looking around ---------------------------------------------------------------------------------------------------


def effective_status(state: State, instance: Instance) -> InstanceStatus:
    """Give the status of an instance: one that goes on as new is running while the message that says so waits."""
    if instance.status is InstanceStatus.CONTINUED_AS_NEW:
        waits = any(message.kind == "ContinueAsNew" for message in state.beginnings(instance.instance_id))
        return InstanceStatus.RUNNING if waits else instance.status
    return instance.status


def ended_at(state: State, instance: Instance) -> Timestamp | None:
    """Give when an instance ended, or None if it has not.

    One that was to go on as new, and that no message begins again, ended with its last execution.
    """
    if instance.status is not InstanceStatus.CONTINUED_AS_NEW:
        return instance.completed_at if instance.status in OVER else None
    if effective_status(state, instance) is InstanceStatus.RUNNING:
        return None
    last = state.get(Execution, execution_key(instance.instance_id, instance.current_execution_id))
    return None if last is None else last.completed_at


def root_of(state: State, instance: Instance) -> Instance:
    """Give the root of the tree an instance belongs to. One whose parent is gone is a root itself."""
    seen = {instance.instance_id}
    while instance.parent_instance_id is not None and instance.parent_instance_id not in seen:
        above = state.get(Instance, instance.parent_instance_id)
        if above is None:
            break
        instance = above
        seen.add(instance.instance_id)
    return instance


def tree_of(state: State, instance_id: str) -> list[str]:
    """Give an instance with all its descendants, parents first."""
    found = [instance_id]
    for member in found:
        found.extend(child for child in state.children(member) if child not in found)
    return found


def not_found(instance_id: str) -> Refusal:
    """Say that there is no such instance."""
    return refuse(WorkflowNotFound, f"instance not found: {instance_id!r}", instance=instance_id)


def _of_a_tree(instance_id: str, root: Instance) -> Refusal:
    message = f"{instance_id!r} is a sub-orchestration of {root.instance_id!r}: delete the root"
    return refuse(InvalidOperation, message, instance=instance_id)


def _still_running(instance_id: str) -> Refusal:
    """Say that an instance has not ended; one that has not begun neither."""
    message = f"instance {instance_id!r} is still running"
    return refuse(InvalidOperation, message, hint="By force it is deleted all the same.", instance=instance_id)


# --- deletion ---------------------------------------------------------------------------------------------------------


def decide_delete(state: State, command: DeleteInstances) -> Decision:
    """Delete instances that are whole trees, all or none."""
    ids: Sequence[str] = tuple(dict.fromkeys(command.instance_ids))
    if command.tree:
        (root_id,) = ids
        if state.get(Instance, root_id) is None:
            return _delete_not_begun(state, root_id, command)
    found = [instance for name in ids if (instance := state.get(Instance, name)) is not None]
    for instance in found:
        root = root_of(state, instance)
        if root.instance_id not in ids:
            return answer(_of_a_tree(instance.instance_id, root))
    if command.tree:
        ids = tree_of(state, ids[0])
        found = [instance for name in ids if (instance := state.get(Instance, name)) is not None]
    named = set(ids)
    for instance in found:
        for child in state.children(instance.instance_id):
            if child not in named:
                root = root_of(state, instance)
                message = f"cannot delete {root.instance_id!r} without its child {child!r}: name the whole tree"
                return answer(refuse(InvalidOperation, message, instance=child))
    for instance in found:
        if not command.force and effective_status(state, instance) is InstanceStatus.RUNNING:
            return answer(_still_running(instance.instance_id))
    return deletion(state, found, command.cmd)


def _delete_not_begun(state: State, instance_id: str, command: DeleteInstances) -> Decision:
    """Delete what has had no turn yet: there is no record, and its start goes with all that waits behind it."""
    start = next((message for message in state.beginnings(instance_id) if message.is_to_begin), None)
    if start is None:
        return answer(not_found(instance_id))
    above = None if start.parent_instance_id is None else state.get(Instance, start.parent_instance_id)
    if above is not None:
        return answer(_of_a_tree(instance_id, root_of(state, above)))
    if not command.force:
        return answer(_still_running(instance_id))
    return deletion(state, [_unbegun(start)], command.cmd)


def _unbegun(start: Message) -> Instance:
    """Give the instance that a start would begin."""
    at, name = start.stored_at, start.orchestration or ""
    return Instance(start.instance_id, name, created_at=at, updated_at=at, seq=0, schedule_id=start.schedule_id)


def decide_delete_ended(state: State, command: DeleteEnded) -> Decision:
    """Delete ended roots with their trees, oldest end first; trees with a member that runs are left alone."""
    trees = islice(ended_trees(state, command.instance_ids, command.completed_before), command.limit)
    return deletion(state, [instance for tree in trees for instance in tree], command.cmd)


def ended_trees(state: State, ids: Sequence[str] | None, before: Timestamp | None) -> Iterator[list[Instance]]:
    """Walk the trees whose root ended before a time, and of which no member runs; oldest end first."""
    return trees_at_rest(state, _ended(state, ids, before))


def trees_at_rest(state: State, ended: Iterable[Instance]) -> Iterator[list[Instance]]:
    """Walk the trees of those that are roots, of which no member runs."""
    for root in ended:
        if root.parent_instance_id is not None and root_of(state, root) is not root:
            continue
        tree = [found for name in tree_of(state, root.instance_id) if (found := state.get(Instance, name)) is not None]
        if not any(effective_status(state, member) is InstanceStatus.RUNNING for member in tree):
            yield tree


def _ended(state: State, ids: Sequence[str] | None, before: Timestamp | None) -> Iterator[Instance]:
    """Walk the ended instances a filter names, oldest end first."""
    walk: Iterable[tuple[Timestamp, Instance]]
    if ids is None:
        over = (found for found in state.due(Lane.ROOT, before or FOREVER) if isinstance(found, Instance))
        stopped = state.instances(InstanceQuery(statuses=(InstanceStatus.CONTINUED_AS_NEW,)))
        walk = merge(_with_ends(state, over), sorted(_with_ends(state, stopped), key=_by_end), key=_by_end)
    else:
        named = (found for name in dict.fromkeys(ids) if (found := state.get(Instance, name)) is not None)
        walk = sorted(_with_ends(state, named), key=_by_end)
    for ended, instance in walk:
        if before is None or ended < before:
            yield instance


def _with_ends(state: State, instances: Iterable[Instance]) -> Iterator[tuple[Timestamp, Instance]]:
    """Give those that have ended, each with the time."""
    return ((ended, found) for found in instances if (ended := ended_at(state, found)) is not None)


def _by_end(found: tuple[Timestamp, Instance]) -> tuple[Timestamp, str]:
    ended, instance = found
    return ended, instance.instance_id


def deletion(state: State, instances: Sequence[Instance], cmd: str) -> Decision:
    """Delete these instances with all that belongs to them, and the children they asked for that have not begun.

    Those would run, and answer whoever has the parent's id by then.
    """
    events: list[Event] = []
    executions = recorded = messages = 0
    names = {instance.instance_id for instance in instances}
    starts = [start for name in names for start in state.starts_under(name) if start.instance_id not in names]
    unbegun = {start.instance_id: _unbegun(start) for start in starts if _is_all(state, start, starts)}
    for start in starts:
        if start.instance_id not in unbegun:
            events.append(MessageDropped(message=start.seq, reason="deleted", cmd=cmd))
            messages += 1
    for instance in (*instances, *unbegun.values()):
        name = instance.instance_id
        having = state.executions(name)
        mail = state.mail(name)
        jobs = state.activities_of(name)
        events.append(
            InstanceDeleted(
                instance_id=name,
                executions=tuple(execution.execution_id for execution in having),
                messages=tuple(message.seq for message in mail),
                keys=tuple(found.key for found in state.keys(name)),
                decisions=tuple(found.decision_id for found in state.decisions(name)),
                cmd=cmd,
            )
        )
        for job in jobs:
            if not job.has_ended:
                events.append(JobCancelled(job_id=job.job_id, reason=DELETED, token=job.token, cmd=cmd))
                messages += 1
            events.append(JobPruned(job_id=job.job_id, cmd=cmd))
        executions += len(having)
        recorded += sum(execution.event_count for execution in having)
        messages += len(mail)
    events += next_in_line(state, [instance.schedule_id for instance in instances], names, cmd)
    gone = Deleted(instances=len(instances), executions=executions, events=recorded, messages=messages)
    return answer(gone, *events)


def _is_all(state: State, start: Message, starts: Sequence[Message]) -> bool:
    """Tell whether there is nothing of an instance but such starts and what waits for it behind them."""
    others = (one for one in state.beginnings(start.instance_id) if one not in starts)
    return state.get(Instance, start.instance_id) is None and next(others, None) is None


# --- pruning ----------------------------------------------------------------------------------------------------------


def decide_prune_executions(state: State, command: PruneExecutions) -> Decision:
    """Delete old executions, never the current one nor one that runs."""
    instance = state.get(Instance, command.instance_id)
    if instance is None:
        return answer(not_found(command.instance_id))
    gone = list(_outdated(state.executions(instance.instance_id), instance, command))
    if not gone:
        return answer(Deleted(instances=1))
    pruned = InstancePruned(
        instance_id=instance.instance_id,
        executions=tuple(execution.execution_id for execution in gone),
        cmd=command.cmd,
    )
    count = sum(execution.event_count for execution in gone)
    return answer(Deleted(instances=1, executions=len(gone), events=count), pruned)


def _outdated(executions: Sequence[Execution], instance: Instance, command: PruneExecutions) -> Iterator[Execution]:
    """Walk the executions that are neither among the last ones to be kept nor too young."""
    for execution in executions[: len(executions) - max(1, command.keep_last or 0)]:
        done = execution.completed_at
        if execution.execution_id == instance.current_execution_id or done is None:
            continue
        if command.completed_before is None or done < command.completed_before:
            yield execution


# --- handlers and answers ---------------------------------------------------------------------------------------------


def decide_announce(state: State, command: AnnounceHandlers) -> Decision:
    """Deliver at once what was given back for want of code that is there now."""
    known = set(command.handlers)
    messages: list[int] = []
    instances: list[str] = []
    for turn in state.stuck_turns():
        mail = state.mail(turn.instance_id)
        if not known.intersection(_wanted(state, turn.instance_id, mail)):
            continue
        instances.append(turn.instance_id)
        messages += held_back(mail)
    announced = HandlersAnnounced(
        handlers=command.handlers,
        messages=tuple(messages),
        instances=tuple(instances),
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Swept(count=len(instances)), announced)


def _wanted(state: State, instance_id: str, mail: Sequence[Message]) -> set[str]:
    """Name the code an instance waits for: by its name alone, and with its version."""
    instance = state.get(Instance, instance_id)
    if instance is not None:
        name, version = instance.orchestration_name, instance.orchestration_version
        return {name, f"{name} {version}"}
    return {text for start in mail if start.orchestration for text in (start.orchestration, _versioned(start))}


def _versioned(start: Message) -> str:
    return f"{start.orchestration} {start.version}"


def decide_answer(state: State, command: AnswerDecision, now: Timestamp) -> Decision:
    """Take the first answer to a question, and send it on."""
    question = state.get(Question, command.decision_id)
    if question is None:
        message = f"there is no decision {command.decision_id}."
        return answer(refuse(DecisionNotFound, message, decision=command.decision_id))
    if question.closed_at is not None or question.answered_by is not None:
        message = f"decision {command.decision_id} is closed. Nothing was changed."
        return answer(refuse(DecisionClosed, message, decision=command.decision_id))
    expires_at = expiry_of(question)
    if expires_at is not None and expires_at <= now:
        # The workflow hears of that first, whenever it hears.
        message = f"decision {command.decision_id} expired at {expires_at}. Nothing was changed."
        return answer(refuse(DecisionClosed, message, decision=command.decision_id))
    if question.options is not None and command.chosen not in question.options:
        listed = ", ".join(question.options)
        message = f"chosen: {command.chosen!r} is not one of {listed}. Nothing was changed."
        return answer(refuse(InvalidValue, message, field="chosen"))
    asked = (question.instance_id, f"{ANSWERS}{question.event_id}")
    if (command.message.instance_id, command.message.name) != asked:
        # Who may answer may not say anything else to anybody, nor close a question that nobody answers.
        message = f"message: an answer goes to {asked[0]!r}, which asked, as {asked[1]!r}. Nothing was changed."
        return answer(refuse(InvalidValue, message, field="message"))
    post = Post(state, command, now)
    post.send(command.message)
    answered = DecisionAnswered(decision_id=command.decision_id, by=command.by, cmd=command.cmd, actor=command.actor)
    return answer(Done(), answered, *post.events)

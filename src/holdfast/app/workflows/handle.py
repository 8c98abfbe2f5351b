"""A handle on one instance of a workflow: look at it, wait for it, speak to it. It keeps an id and nothing else.

Not for workflow code: what is read from the store could not be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec

from holdfast.app.completion_waiter import PENDING, sentence_of, until, within
from holdfast.app.workflows.result_errors import cancelled, failed
from holdfast.app.workflows.rewind import fail_command, fork_command, reset_command
from holdfast.app.workflows.state import InstanceState, error_of, state_of
from holdfast.engine.engine import Engine
from holdfast.engine.workflow_reasons import instance_reason
from holdfast.errors import InvalidValue, Refused, WorkflowNotFound
from holdfast.json_decoders import reader_of
from holdfast.model.payloads import NULL, pack
from holdfast.model.times import milliseconds
from holdfast.model.workflows.commands import NewMessage, TellInstance
from holdfast.model.workflows.event_kinds import OrchestrationFailed
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import Execution, InstanceStatus, execution_key
from holdfast.model.workflows.work_items import CancelInstance, QueueMessage, WorkItem, encode_item
from holdfast.rules.explain import Reason
from holdfast.stores.protocol import InstanceQuery, StartQuery, View
from holdfast.workflows.api.context import encoded
from holdfast.workflows.api.definitions import packed_call
from holdfast.workflows.api.operations import demand_instance_id, demand_signal_name
from holdfast.workflows.api.signal_types import check_signal
from holdfast.workflows.api.workflow import demand_outside
from holdfast.workflows.provider.payloads import events_of, text_of

if TYPE_CHECKING:
    from holdfast.app.aio.workflows import AioInstance
    from holdfast.app.application import Holdfast
    from holdfast.workflows.api.definitions import Definition

R = TypeVar("R")


class Instance(Generic[R]):
    """One durable run of a workflow."""

    def __init__(
        self, app: Holdfast, instance_id: str, definition: Definition | None = None, *, created: bool = True
    ) -> None:
        """Hold the instance of that id; nothing is read before it is asked for."""
        #: The application it belongs to.
        self.app = app
        self._definition = definition
        #: The instance's id.
        self.id = instance_id
        #: False if the start met an instance that was there before.
        self.created = created

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Instance {self.id}>"

    def _engine(self, doing: str) -> Engine:
        demand_outside(f"instance.{doing}")
        return self.app.engine

    # --- looking ----------------------------------------------------------------------------------------------------

    def status(self) -> InstanceState:
        """Give the instance as it is now: status, what it says of itself, what it waits for, what blocks it.

        Raises WorkflowNotFound.
        """
        engine = self._engine("status")
        with engine.read() as view:
            return self.look(view)

    def look(self, view: View) -> InstanceState:
        """Give the instance as it is in a view of the store. Raises WorkflowNotFound."""
        return state_of(view, self.app.engine.store.blobs, self.id)

    @property
    def kv(self) -> Published:
        """The values that the workflow shows by key."""
        self._engine("kv")
        return Published(self)

    def explain(self) -> Reason:
        """Give the one reason why it is where it is, with what it waits for. Raises WorkflowNotFound."""
        return instance_reason(self._engine("explain"), self.id)

    def history(self, execution_id: int | None = None) -> list[Event]:
        """Give the events of an execution, by default the current one; none of one that has not begun.

        Raises WorkflowNotFound, HistoryCorrupt.
        """
        engine = self._engine("history")
        with engine.read() as view:
            number = self.look(view).execution_id if execution_id is None else execution_id
            execution = view.get(Execution, execution_key(self.id, number))
            rows = [] if execution is None else view.history(execution.history_id)
        return events_of(engine.store.blobs, rows, number, self.id)

    def executions(self) -> Sequence[Execution]:
        """List its executions, oldest first."""
        with self._engine("executions").read() as view:
            self.look(view)
            return view.executions(self.id)

    def children(self) -> list[Instance[Any]]:
        """List the instances it called, oldest first."""
        with self._engine("children").read() as view:
            self.look(view)
            return [Instance(self.app, child) for child in view.children(self.id)]

    # --- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> InstanceState:
        """Wait until the instance has ended.

        Raises TimeoutError after `timeout` seconds, saying what it waits for, which changes nothing; and at once the
        NondeterminismError, WorkflowCodeError, HistoryCorrupt or InvalidArguments that blocks it.
        """
        return self._until("wait", lambda state: state.has_ended, timeout)

    def wait_status(self, after: int = 0, timeout: float | None = None) -> InstanceState:
        """Wait until it has said something of itself for the time number `after` + 1, or has ended.

        >>> state = run.wait_status(); state = run.wait_status(state.custom_status_version)  # doctest: +SKIP

        Raises as `wait` does.
        """
        return self._until("wait_status", lambda one: one.custom_status_version > after or one.has_ended, timeout)

    def _until(self, doing: str, is_enough: Callable[[InstanceState], bool], timeout: float | None) -> InstanceState:
        with within(self.app, timeout) as ends_at:
            state = until(self._engine(doing), lambda view: self.seen(view, is_enough), ends_at)
            if state is None:
                raise self.late(timeout)
            return state

    def seen(self, view: View, is_enough: Callable[[InstanceState], bool]) -> InstanceState | Literal["pending"]:
        """Give the instance once it is as wished. Raises what blocks it, or WorkflowNotFound."""
        state = self.look(view)
        if is_enough(state):
            return state
        if state.blocked is not None:
            raise error_of(self.id, state.blocked)
        return PENDING

    def late(self, timeout: float | None) -> TimeoutError:
        """Give the error of a wait that ran out, with what the instance waits for."""
        return TimeoutError(
            f"instance {self.id!r} is RUNNING after {timeout:g} s{sentence_of(self.explain)}. It goes on."
        )

    def result(self, timeout: float | None = None) -> R:
        """Wait for what the workflow returns.

        Raises WorkflowFailed or WorkflowCancelled if it has no result, and what `wait` raises.
        """
        with within(self.app, timeout):
            return self.outcome(self.wait(timeout))

    def outcome(self, state: InstanceState) -> R:
        """Give the result of an ended instance, or raise what it ended in; `result` without the waiting."""
        engine = self._engine("result")
        with engine.read() as view:
            execution = view.get(Execution, execution_key(self.id, state.execution_id))
            if execution is None:
                raise WorkflowNotFound(f"instance {self.id!r} was deleted meanwhile.", instance=self.id)
            last = view.history(execution.history_id, execution.last_event_id - 1)
        blobs = engine.store.blobs
        definition = self._definition_of(state)
        if state.status is InstanceStatus.COMPLETED:
            text = text_of(blobs, execution.output) or "null"
            if definition is None:
                plain: R = msgspec.json.decode(text)
                return plain
            value: R = definition.codec.unpack_result(msgspec.Raw(text.encode()))
            return value
        ended = events_of(blobs, last, state.execution_id, self.id)
        kind = ended[-1].kind if ended else None
        details = kind.details if isinstance(kind, OrchestrationFailed) else None
        if state.status is InstanceStatus.CANCELLED:
            raise cancelled(state, details)
        raise failed(state, details, () if definition is None else definition.raises)

    def _definition_of(self, state: InstanceState) -> Definition | None:
        return self.app.workflows.get(state.workflow, state.version) or self._definition

    # --- speaking to it ---------------------------------------------------------------------------------------------

    def signal(self, name: str, data: Any = None, *, hold: float = 0) -> None:
        """Send it a signal; it is kept until the workflow reads it.

        With `hold` it is also taken for an instance that is not there yet, and kept so many seconds. Raises
        WorkflowNotFound, WorkflowFinished; InvalidValue also for data that are not of the type which the workflow
        declares, if this program or a live worker has the workflow.
        """
        demand_signal_name(name)
        text = encoded(data, "data")
        if not 0 <= hold < float("inf"):
            raise InvalidValue(f"hold: {hold} is no number of seconds. Nothing was sent.", field="hold")
        self._check_type(name, text)
        self._tell("signal", QueueMessage(instance=self.id, name=name, data=text), hold or None)

    def _check_type(self, name: str, text: str) -> None:
        """Refuse data that are not of the type which this program's own code declares. Raises InvalidValue."""
        engine = self._engine("signal")
        if not any(name in one.signals for one in self.app.workflows.all()):
            return
        try:
            with engine.read() as view:
                state = self.look(view)
        except Refused:  # not there yet, or not to be seen: what is sent is judged elsewhere
            return
        definition = self.app.workflows.get(state.workflow, state.version)
        if definition is not None and not state.has_ended:
            check_signal(definition, self.id, name, text)

    def cancel(self, reason: str = "", *, force: bool = False) -> None:
        """Ask it to stop: its code may clean up for as long as its `cancel_grace`; with `force` it ends at once.

        Raises WorkflowNotFound, WorkflowFinished.
        """
        self._tell("cancel", CancelInstance(instance=self.id, reason=reason, force=force))

    # --- having it go on, or end ------------------------------------------------------------------------------------

    def reset(self, to: int | None = None, *, reason: str = "") -> None:
        """Have it go on from event `to`, as its next execution; by default from before the turn that failed.

        Only for what has ended or is blocked. Activities open then are run again under their old idempotency keys,
        timers set again; signals that came later are delivered again. Raises WorkflowNotFound, InvalidOperation if it
        runs, InvalidValue if there is no such event, HistoryCorrupt if the events up to it cannot be read.
        """
        engine = self._engine("reset")
        with engine.read() as view:
            command = reset_command(
                view,
                engine.store.blobs,
                self.id,
                to=to,
                now_ms=milliseconds(engine.look().now),
                cmd=engine.new_id(),
                reason=reason,
            )
        engine.ask(command)

    def fork(
        self,
        to: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the contract's name
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the same
    ) -> Instance[R]:
        """Begin another instance with a copy of its history up to event `to`; open work is its own.

        With `input`, the arguments by name, it begins at the start. By default it goes on where this one stands, or
        from before the turn that failed. Raises WorkflowAlreadyStarted if the id is taken, and what `reset` raises but
        for one that runs.
        """
        engine = self._engine("fork")
        fork = engine.new_id() if id is None else demand_instance_id(id)
        with engine.read() as view:
            definition = self._definition_of(self.look(view))
            command = fork_command(
                view,
                engine.store.blobs,
                self.id,
                fork=fork,
                to=to,
                given=None if input is None else _arguments(definition, input),
                now_ms=milliseconds(engine.look().now),
                seed=UUID(engine.new_id()).int & MAX_SEED,
                cmd=engine.new_id(),
            )
        engine.ask(command)
        return Instance(self.app, fork, definition)

    def fail(self, reason: str = "") -> None:
        """End it as FAILED without its code, and tell its parent: only if it is blocked, or its history damaged.

        Raises WorkflowNotFound, WorkflowFinished, InvalidOperation if it is neither.
        """
        engine = self._engine("fail")
        with engine.read() as view:
            now_ms = milliseconds(engine.look().now)
            command = fail_command(view, engine.store.blobs, self.id, reason=reason, now_ms=now_ms, cmd=engine.new_id())
        engine.ask(command)

    def _tell(self, doing: str, item: WorkItem, hold_s: float | None = None) -> None:
        engine = self._engine(doing)
        try:
            message = NewMessage(item=msgspec.Raw(encode_item(item)))
        except (ValueError, TypeError) as problem:
            raise InvalidValue(f"instance.{doing}: {problem}. Nothing was sent.") from None
        engine.ask(TellInstance(cmd=engine.new_id(), message=message, hold_s=hold_s))

    @property
    def aio(self) -> AioInstance[R]:
        """The same calls, to be awaited."""
        from holdfast.app.aio.workflows import AioInstance  # noqa: PLC0415 - only programs that await pay for it

        return AioInstance(self)


#: Seeds have 63 bits.
MAX_SEED = 2**63 - 1


def _arguments(definition: Definition | None, given: Mapping[str, Any]) -> str:
    """Write arguments down, as the function's annotations say where it is known."""
    if definition is None:
        return bytes(pack(dict(given), "input")).decode()
    return packed_call(definition.codec, definition.name, (), dict(given))


class Published:
    """`run.kv`: the values that a workflow shows by key, as its running execution has them."""

    def __init__(self, instance: Instance[Any]) -> None:
        self._instance = instance

    def get(self, key: str, default: Any = None, *, type: Any = Any) -> Any:  # noqa: A002 - as `hf.kv.get`
        """Give a key's value. Raises WorkflowNotFound."""
        text = self._texts().get(key)
        return default if text is None else reader_of(type).decode(text)

    def all(self) -> dict[str, Any]:
        """Give all keys with their values. Raises WorkflowNotFound."""
        return {key: msgspec.json.decode(text) for key, text in self._texts().items()}

    def _texts(self) -> dict[str, str]:
        engine = self._instance.app.engine
        with engine.read() as view:
            self._instance.look(view)
            found = [one for one in view.keys(self._instance.id) if one.live != NULL]
        return {one.key: text_of(engine.store.blobs, one.live) or "null" for one in found}


def listed(app: Holdfast, status: InstanceStatus | str | None, workflow: str | None, limit: int) -> list[Instance[Any]]:
    """List instances, newest first; before them those that no worker has begun yet (`status().has_begun`).

    Raises InvalidValue for a status that is none.
    """
    demand_outside("hf.instances")
    if limit < 1:
        raise InvalidValue(f"limit: {limit} is below 1.", field="limit")
    wanted = None if status is None else _status(status)
    # One that goes on as new is running, until the message that says so is gone.
    going = (InstanceStatus.RUNNING, InstanceStatus.CONTINUED_AS_NEW)
    statuses = None if wanted is None else going if wanted is InstanceStatus.RUNNING else (wanted,)
    query = InstanceQuery(statuses=statuses, orchestration_name=workflow, limit=limit)
    with app.engine.read() as view:
        begun = [found.instance_id for found in view.instances(query)]
        starts = view.unbegun(StartQuery(orchestration_name=workflow, limit=limit)) if wanted in (None, *going) else ()
        # Of a coordinator each look is one of its own: an instance may begin between the two.
        ids = dict.fromkeys([*(start.instance_id for start in starts), *begun])
        return [Instance(app, instance_id) for instance_id in list(ids)[:limit]]


def _status(name: str) -> InstanceStatus:
    try:
        found = InstanceStatus(name)
    except ValueError:
        found = InstanceStatus.CONTINUED_AS_NEW
    if found is InstanceStatus.CONTINUED_AS_NEW:
        known = ", ".join(one for one in InstanceStatus if one is not InstanceStatus.CONTINUED_AS_NEW)
        raise InvalidValue(f"status: {name!r} is not one of {known}.", field="status")
    return found

"""A world with workflow instances: the rules alone, with items and events read as admission reads them."""

import msgspec
from world import World

from holdfast.engine.workflow_admission import admitted_flow
from holdfast.model.commands import EndSessions, Expire, Prune
from holdfast.model.error_details import Category, ErrorDetails
from holdfast.model.workflows import commands as f
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.decisions import decision_id
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityExecute,
    QueueMessage,
    ResumeInstance,
    StartOrchestration,
    TimerFired,
)
from holdfast.stores.sidecar.memory import MemoryBlobs
from holdfast.testing.clock import ManualClock

encode = msgspec.json.encode


def raw(struct):
    return msgspec.Raw(encode(struct))


class FlowWorld(World):
    def __init__(self):
        super().__init__()
        self.blobs = MemoryBlobs(ManualClock(), lambda *_: None)

    def decide(self, command):
        known = isinstance(command, f.FlowCommand)
        return super().decide(admitted_flow(command, self.blobs) if known else command)

    # --- short verbs ------------------------------------------------------------------------------------------------

    def send(self, item, **more):
        return self.do(f.SendMessage(message=f.NewMessage(item=raw(item)), **more))

    def begin(self, name="i"):
        self.send(StartOrchestration(instance=name, orchestration="flow", input="{}"))

    def fetch(self, **more):
        return self.do(f.FetchTurn(**{"lock_s": 30.0} | more)).turn

    def ack(self, token, *events, execution=1, **more):
        delta = f.Delta(events=tuple(f.NewEvent(event=raw(event)) for event in events))
        return self.do(f.AckTurn(token=token, execution_id=execution, delta=delta, **more))

    def turn(self, name="i"):
        self.send(QueueMessage(instance=name, name="s", data="1"))
        return self.fetch().token


def event(event_id, kind, name="i", execution=1, **more):
    return Event(event_id=event_id, instance=name, execution_id=execution, timestamp_ms=1, kind=kind, **more)


def first(name="i", execution=1):
    return event(1, event_kinds.OrchestrationStarted(name="flow", version="1.0.0", input="{}"), name, execution)


def delta(*events):
    return f.Delta(events=tuple(f.NewEvent(event=raw(event)) for event in events))


def reset_of(w, name="i", **more):
    """A reset of an instance to its first event."""
    execution = w.tables.executions(name)[-1]
    number = execution.execution_id
    end = event(2**31 - 1, event_kinds.OrchestrationFailed(details=GIVEN_UP), name, number)
    given = {
        "history_id": execution.history_id,
        "last_event_id": execution.last_event_id,
        "until": 1,
        "begins": delta(first(name, number)),
        "ending": delta(end),
        "messages": (again(ResumeInstance(instance=name, execution_id=number + 1)),),
    }
    return f.ResetInstance(instance_id=name, **given | more)


def fork_of(w, name="i", new="copy", **more):
    """A fork of an instance from its first event."""
    del w
    given = {"execution_id": 1, "until": 1, "begins": delta(first(new))}
    return f.ForkInstance(instance_id=name, fork=new, **given | more)


def again(item, at=None):
    return f.Again(message=f.NewMessage(item=raw(item)), at=at)


GIVEN_UP = ErrorDetails(category=Category.APPLICATION, kind="Cancelled", message="given up")


def flowing():
    """Instances as they go: turns, checkpoints, expiries, activities, questions, sessions, deletion."""
    w = FlowWorld()
    w.send(QueueMessage(instance="i", name="early", data="1"))
    w.send(QueueMessage(instance="ghost", name="never", data="1"), hold_s=5.0)
    w.begin()
    work = ActivityExecute(instance="i", execution_id=1, id=2, name="send", input="x", session_id="s")
    timer = TimerFired(instance="i", execution_id=1, id=3, fire_at_ms=4_000_000_000_000)
    w.ack(
        w.fetch().token,
        first(),
        activities=(f.NewActivity(job_id="a", item=raw(work)),),
        messages=(f.NewMessage(item=raw(timer)),),
    )
    token = w.do(f.FetchActivity(worker_id="w", lease_s=30.0, affinity_owner="me", affinity_s=60.0)).grants[0].token
    w.do(f.RenewSessions(owner_ids=("me",), lock_s=90.0, idle_s=60.0))
    done = ActivityCompleted(instance="i", execution_id=1, id=2, result="ok")
    w.do(f.AckActivity(token=token, completion=f.NewMessage(item=raw(done))))
    token = w.fetch().token
    w.send(QueueMessage(instance="i", name="s", data="2"))
    w.do(f.FetchMore(token=token))
    w.wait(20)
    w.do(f.RenewTurn(token=token, lock_s=30.0))
    asked = event(4, event_kinds.DecisionRequested(prompt="?", options=("yes",)))
    w.ack(token, event(3, event_kinds.KeyValueSet(key="k", value="v")), asked, hold_s=30.0)
    w.ack(token, event(5, event_kinds.CustomStatusUpdated(status="half")), cancelled_timers=(3,))
    said = f.NewMessage(item=raw(QueueMessage(instance="i", name="@decision/4", data='{"chosen":"yes","by":"me"}')))
    w.do(f.AnswerDecision(decision_id=decision_id("i", 1, 4), message=said, chosen="yes", by="me"))
    turn = w.fetch()
    w.do(f.ParkMessages(token=turn.token, messages=(turn.messages[0].seq,)))
    w.do(f.AbandonTurn(token=turn.token, reason="no code"))
    w.do(f.AnnounceHandlers(handlers=("flow",)))
    w.turn()
    w.wait(40)
    w.do(Expire())
    w.ack(w.fetch(session_id="before").token, metadata=f.Metadata(status=InstanceStatus.CONTINUED_AS_NEW))
    w.turn()
    w.wait(31)
    w.do(Expire())
    w.fetch(session_id="before")
    w.do(EndSessions(session_id="now"))
    w.ack(w.fetch().token, first(execution=2), execution=2)
    w.do(f.PruneExecutions(instance_id="i"))
    w.wait(3600)
    w.do(f.CleanSessions())
    w.do(Prune())
    w.ack(w.turn(), execution=2, metadata=f.Metadata(status=InstanceStatus.FAILED))
    w.do(reset_of(w))
    w.do(fork_of(w))
    w.do(f.DeleteInstances(instance_ids=("i",), force=True, tree=True))
    return w

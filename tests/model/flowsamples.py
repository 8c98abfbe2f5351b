"""One command, event and answer of every kind about workflow instances."""

import msgspec

from holdfast.model import events as ev
from holdfast.model import outcomes as o
from holdfast.model.jobs import Backoff, RetryMode
from holdfast.model.times import Timestamp
from holdfast.model.workflows import commands as f
from holdfast.model.workflows.instances import InstanceStatus

NOW = Timestamp("2026-01-01T00:00:00.000000Z")
RAW = msgspec.Raw(b'{"a":1}')
MESSAGE = f.NewMessage(item=RAW, instance_id="i", kind="TimerFired", execution_id=1, event_id=2, fire_at=NOW)
ACTIVITY = f.NewActivity(
    job_id="j", item=RAW, owner='["i",1,2]', judged=True, retry_mode=RetryMode.CHAIN, backoff=Backoff(jitter=0)
)
DELTA = f.Delta(
    events=(f.NewEvent(event=RAW, event_id=1),),
    orchestration_name="n",
    said=True,
    custom_status=msgspec.Raw(b'"s"'),
    keys=(f.KeyWish(key="k", value=msgspec.Raw(b'"v"'), at_ms=5), f.KeyWish()),
    asked=(ev.Asked("d", 2, RAW, ("yes",)),),
    closed=(ev.Closed("d", RAW),),
)
METADATA = f.Metadata(status=InstanceStatus.COMPLETED, output=msgspec.Raw(b'"o"'), waiting_on=("a", "b"))

COMMANDS = [
    f.SendMessage(message=MESSAGE, delay_s=1.5, hold_s=2.0),
    f.FetchTurn(lock_s=30.0, n=2, session_id="s", versions=(f.VersionRange(low=(1, 0, 0), high=(2, 0, 0)),)),
    f.FetchMore(token=7),
    f.AckTurn(
        token=7,
        execution_id=1,
        delta=DELTA,
        activities=(ACTIVITY,),
        messages=(MESSAGE,),
        metadata=METADATA,
        cancelled=('["i",1,2]',),
        cancelled_timers=(3,),
        hold_s=5.0,
    ),
    f.AbandonTurn(token=7, delay_s=1.0, given_back=True, reason="r"),
    f.RenewTurn(token=7, lock_s=30.0),
    f.ParkMessages(token=7, messages=(1, 2)),
    f.AppendHistory(instance_id="i", execution_id=1, delta=DELTA),
    f.StartActivity(activity=ACTIVITY),
    f.FetchActivity(worker_id="w", lease_s=30.0, queues=None, affinity_owner="me", affinity_s=5.0),
    f.AckActivity(token=7, completion=MESSAGE, failed=True, error="e", details=RAW, retryable=True),
    f.AbandonActivity(token=7, delay_s=1.0, given_back=True),
    f.RenewActivity(token=7, lease_s=30.0),
    f.RenewSessions(owner_ids=("a", "b"), lock_s=30.0, idle_s=5.0),
    f.CleanSessions(limit=7),
    f.DeleteInstances(instance_ids=("a", "b"), force=True, tree=True),
    f.DeleteEnded(instance_ids=("a",), completed_before=NOW, limit=5),
    f.PruneExecutions(instance_id="i", keep_last=3, completed_before=NOW),
    f.AnnounceHandlers(handlers=("flow", "flow 1.0.0")),
    f.AnswerDecision(decision_id="d", message=MESSAGE, chosen="yes", by="me"),
    f.StartInstance(message=MESSAGE, signals=(f.NewMessage(item=RAW),)),
    f.TellInstance(message=MESSAGE, hold_s=60.0),
    f.ResetInstance(
        instance_id="i",
        history_id=5,
        last_event_id=9,
        until=4,
        begins=DELTA,
        ending=DELTA,
        output=msgspec.Raw(b'"o"'),
        messages=(f.Again(message=MESSAGE, at=NOW),),
        keys=DELTA.keys,
        reason="r",
    ),
    f.ForkInstance(
        instance_id="i", fork="j", execution_id=1, until=4, begins=DELTA, messages=(f.Again(message=MESSAGE),)
    ),
    f.FailInstance(instance_id="i", execution_id=1, last_event_id=9, ending=DELTA, messages=(MESSAGE,), damaged=True),
    f.ImportInstance(
        instance_id="i",
        executions=(f.Ended(execution_id=1, status=InstanceStatus.FAILED, delta=DELTA, output=RAW),),
        keys=DELTA.keys,
    ),
]

EVENTS = [
    ev.MessageStored(
        instance_id="i",
        kind="k",
        item=RAW,
        digest="d",
        due_at=NOW,
        parked="orphan",
        drop_at=NOW,
        tells_of="j",
        woken=(4,),
    ),
    ev.MessageParked(message=5, reason="unreadable"),
    ev.MessageUnparked(message=5),
    ev.MessageDropped(message=5, reason="orphan"),
    ev.TurnLocked(instance_id="i", token=7, locked_until=NOW, messages=(1, 2), session_id="s"),
    ev.TurnTagged(instance_id="i", token=7, messages=(3,)),
    ev.TurnExtended(instance_id="i", token=7, locked_until=NOW),
    ev.TurnAbandoned(instance_id="i", token=7, visible_at=NOW, counted=False, reason="r", woken=(4,)),
    ev.TurnExpired(instance_id="i", token=7, reason="timeout", counted=True, woken=(4,)),
    ev.TurnCommitted(
        instance_id="i",
        execution_id=1,
        token=7,
        orchestration_name="n",
        digest="d",
        status=InstanceStatus.COMPLETED,
        output=msgspec.Raw(b'"o"'),
        waiting_on=(),
        said=True,
        keys=(ev.KeyChange("k", msgspec.Raw(b'"v"'), 5),),
        kept_keys=("k",),
        asked=DELTA.asked,
        closed=DELTA.closed,
        held_until=NOW,
    ),
    ev.HistoryAppended(instance_id="i", execution_id=1, event_id=1, event=RAW),
    ev.InstanceDeleted(instance_id="i", executions=(1, 2), messages=(3,), keys=("k",), decisions=("d",)),
    ev.InstancePruned(instance_id="i", executions=(1,)),
    ev.InstanceReset(instance_id="i", execution_id=2, copied_from=1, until=4, messages=(7,), reason="r"),
    ev.InstanceForked(instance_id="i", fork="j", execution_id=1, until=4),
    ev.DecisionAnswered(decision_id="d", by="me"),
    ev.AffinityClaimed(session="s", owner_id="o", locked_until=NOW),
    ev.AffinityExtended(session="s", locked_until=NOW, active=True),
    ev.AffinityRemoved(session="s"),
    ev.HandlersAnnounced(handlers=("flow",), messages=(1,), instances=("i",)),
]

ANSWERS = [
    o.Fetched(
        turn=o.LockedTurn(
            instance_id="i",
            token=7,
            messages=(o.Delivered(1, RAW),),
            attempts=1,
            orchestration_name="n",
            history_id=5,
            keys=(o.Kept("k", msgspec.Raw(b'"v"'), 5),),
        )
    ),
    o.Brought(messages=(o.Delivered(1, RAW),)),
    o.Begun(instance_id="i", created=False),
    o.Deleted(instances=1, executions=2, events=3, messages=4),
]

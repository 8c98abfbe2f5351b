"""Instances of a schedule, from the rules alone: every log they leave can be replayed."""

import msgspec
from flowworld import FlowWorld, first
from world import content, replay

from holdfast.model.commands import DeleteSchedule, Fire, Prune, PutSchedule
from holdfast.model.schedules import NewSchedule, Overlap, Schedule
from holdfast.model.workflows import commands as f
from holdfast.model.workflows.instances import Instance, InstanceStatus
from holdfast.rules.schedules.overlaps import fire_id, latest_instance, start_of

OVER = f.Metadata(status=InstanceStatus.COMPLETED)


class Clockwork(FlowWorld):
    """A schedule that begins an instance every hour."""

    def __init__(self, overlap=Overlap.QUEUE):
        super().__init__()
        new = NewSchedule(name="hourly", workflow="flow", interval_s=3600.0, overlap=overlap)
        self.do(PutSchedule(schedule_id="s", schedule=new))

    @property
    def schedule(self):
        return self.tables.get(Schedule, "s")

    def fire(self):
        self.wait(3600)
        at = self.schedule.next_fire_at
        self.do(Fire(schedule_id="s", expected=at))
        return fire_id("s", at)

    def finish(self, **more):
        turn = self.fetch()
        self.ack(turn.token, first(turn.instance_id), metadata=msgspec.structs.replace(OVER, **more))
        return turn.instance_id


def test_the_log_of_a_queue_of_instances_replays_to_the_same_state():
    w = Clockwork()
    names = [w.fire() for _ in range(3)]
    assert [w.finish(retention_s=60.0) for _ in names] == names
    assert w.fetch() is None
    w.wait(60)
    w.do(Prune())
    assert not list(w.tables.all(Instance))
    assert content(replay(w.groups)) == content(w.tables)


def test_the_same_fire_again_gives_what_it_began():
    w = Clockwork()
    at = w.schedule.next_fire_at
    w.wait(3600)
    assert [job.created for job in w.do(Fire(schedule_id="s", expected=at)).jobs] == [True]
    assert [job.created for job in w.do(Fire(schedule_id="s", expected=at)).jobs] == [False]
    assert w.finish() == fire_id("s", at)
    assert w.fetch() is None


def test_those_that_wait_go_on_although_the_schedule_is_gone():
    w = Clockwork()
    names = [w.fire() for _ in range(2)]
    w.do(DeleteSchedule(schedule_id="s"))
    assert [w.finish() for _ in names] == names


def test_a_signal_reaches_one_that_waits_for_its_turn():
    w = Clockwork()
    names = [w.fire() for _ in range(2)]
    w.turn(names[0])  # what is sent to one that has begun changes nothing here
    told = f.TellInstance(message=f.NewMessage(item=_signal(names[1])))
    w.do(told)
    w.ack(w.tables.turn_by_token(_token(w)).token, first(names[0]), metadata=OVER)
    turn = w.fetch()
    assert turn.instance_id == names[1]
    assert len(turn.messages) == 2


def test_a_signal_that_came_before_reaches_one_that_waits_for_its_turn():
    w = Clockwork()
    w.fire()
    name = fire_id("s", w.schedule.next_fire_at)
    w.do(f.TellInstance(message=f.NewMessage(item=_signal(name)), hold_s=86_400.0))
    assert w.fire() == name
    w.finish()
    turn = w.fetch()
    assert turn.instance_id == name
    assert len(turn.messages) == 2


def _signal(name):
    return msgspec.Raw(msgspec.json.encode({"type": "QueueMessage", "instance": name, "name": "s", "data": "1"}))


def _token(world):
    (turn,) = [turn for turn in world.tables._turns.values() if turn.locked_until is not None]
    return turn.token


def test_the_latest_is_that_of_the_last_fire_else_one_that_runs():
    w = Clockwork(Overlap.SKIP)
    assert latest_instance(w.tables, w.schedule) is None
    begun = w.fire()
    assert latest_instance(w.tables, w.schedule) == begun
    w.fire()  # skipped
    assert latest_instance(w.tables, w.schedule) == begun


def test_a_start_of_a_schedule_is_the_same_as_one_by_hand():
    by_schedule = start_of("flow", "i", msgspec.Raw(b'{"a":1}'))
    w = FlowWorld()
    item = msgspec.Raw(b'{"type":"StartOrchestration","instance":"i","orchestration":"flow","input":"{\\"a\\":1}"}')
    w.do(f.StartInstance(message=f.NewMessage(item=item)))
    (message,) = w.tables.mail("i")
    assert (message.digest, message.orchestration, message.kind, message.item) == (
        by_schedule.digest,
        by_schedule.orchestration,
        by_schedule.kind,
        by_schedule.item,
    )

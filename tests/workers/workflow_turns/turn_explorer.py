"""Explores orders of events around the machine of turns, without threads: a schedule is a list of choices.

A world has one memory store, a manual clock and two workers, each with a real machine and a real player. What threads,
steps, the main loop and people do is cut into single actions; a schedule says which of the possible actions comes
next. After the schedule the world goes on fairly until every instance has ended.

Checked after every action: each message that the store acknowledged is in the queue, recorded in a history, or named in
the feed as dropped. In the end: every instance has its result, and no lock was waited for that nobody lost.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
from turnskit import App

from holdfast.engine.maintenance import tick
from holdfast.model.events import MessageDropped, MessageStored, TurnCommitted, decode_event
from holdfast.model.times import seconds_between
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.instances import OVER, Message, Turn, message_key
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityExecute,
    ActivityFailed,
    CancelInstance,
    QueueMessage,
    StartOrchestration,
    SubOrchCompleted,
    SubOrchFailed,
    TimerFired,
    WorkItem,
)
from holdfast.rules.state import Lane
from holdfast.testing.clock import ManualClock
from holdfast.workers.workflow_turns import NEVER
from holdfast.workers.workflow_turns.machine import IDLE_S, LOCK_S, TurnMachine
from holdfast.workers.workflow_turns.player import Player, Work
from holdfast.workflows.runtime.execution_cache import Residents

_ITEM = msgspec.json.Decoder(WorkItem)
#: Actions after which a world that has not ended is called stuck.
LIMIT = 3000


class Stuck(AssertionError):
    """An instance does not end, or only when a lock has run out that nobody lost."""


class Lost(AssertionError):
    """An acknowledged message is nowhere."""


@dataclass
class Program:
    """A workflow, what is sent to it while it runs, and what it must come to."""

    name: str
    define: Callable[[App], object]
    #: Each is a sender: what it sends, in order.
    senders: list[list[Callable[[App], None]]]
    expected: Callable[[object], bool]
    #: Seconds of timers in it.
    timers_s: float = 0.0
    has_activities: bool = False


class SimWorker:
    """A worker whose threads, steps and main loop do one thing at a time, when they are told to."""

    def __init__(self, app: App, number: int) -> None:
        self.app, self.number = app, number
        self.engine = app.hf.engine
        names = [name for one in app.definitions.all() for name in (one.name, f"{one.name} {one.version}")]
        self.machine = TurnMachine(2, names, None)
        self.player = Player(self.engine, app.definitions, Residents(), self.machine.may_commit)
        #: Turns that threads are to play; what each thread has in hand: inputs taken, or a report to be given.
        self.waiting: list = []
        self.inside: dict[int, tuple] = {}
        #: Steps that run, with what they give.
        self.steps: list[tuple] = []
        #: What was sent and not answered yet.
        self.sent: tuple | None = None
        self.is_stopping = self.is_dead = False
        #: How much was done here; and where everything stood when there was nothing to send.
        self.acts = 0
        self._nothing: tuple = ()

    @property
    def now(self) -> float:
        return self.engine.time.clock.monotonic()

    def actions(self) -> list[tuple[str, Callable[[], None]]]:
        """Return what could happen next here, in a fixed order."""
        found: list = []
        if self.is_dead:
            return found
        found += [(f"w{self.number} take {turn.instance}", partial(self._take, turn)) for turn in self.waiting]
        for token, (turn, inputs, report) in list(self.inside.items()):
            verb, act = ("play", self._play) if report is None else ("report", self._report)
            found.append((f"w{self.number} {verb} {turn.instance}", partial(act, token)))
            del inputs
        found += [(f"w{self.number} step {step[0].instance}", partial(self._end_step, step)) for step in self.steps]
        if self.sent is not None:
            found.append((f"w{self.number} answer", self._answer))
        elif self._has_cycle():
            found.append((f"w{self.number} send", self._send))
        return found

    def _has_cycle(self) -> bool:
        machine = self.machine
        if self._mark() == self._nothing:
            return False  # there was nothing to send, and nothing has happened since
        return bool(machine._outbox or machine.turns or (machine.policy.hope and machine.room())) or self._sees_mail()

    def _mark(self) -> tuple:
        with self.engine.read() as view:
            return view.seq, self.now, self.acts

    def _sees_mail(self) -> bool:
        if not self.machine.room():
            return False
        with self.engine.read() as view:
            at, first = self.engine.look().now, view.next_due(Lane.MAIL)
            return (first is not None and first <= at) or any(True for _ in view.candidates(at))

    def _effects(self) -> None:
        effects, self.machine.effects = self.machine.effects, []
        for effect in effects:
            if effect.kind == "play":
                self.waiting.append(effect.turn)
            else:
                self.steps = [step for step in self.steps if step[0] is not effect.turn]
                self.player._residents.take(effect.turn.instance)

    def _take(self, turn) -> None:
        self.acts += 1
        assert turn.token not in self.inside, "two threads play one turn"
        self.waiting.remove(turn)
        inputs = self.machine.take(turn, self.now)
        if inputs is not None:
            turn.work = turn.work or Work()
            self.inside[turn.token] = (turn, inputs, None)
        self._effects()

    def _play(self, token) -> None:
        self.acts += 1
        turn, inputs, _ = self.inside[token]
        self.inside[token] = (turn, inputs, self.player.play(turn, inputs, self.now))

    def _report(self, token) -> None:
        self.acts += 1
        turn, _, report = self.inside.pop(token)
        calls, turn.work.calls = turn.work.calls, ()
        if turn.work.resident is not None and report.is_last:
            self.player.keep(turn.work.resident, turn.locked)
        is_over = turn.is_over
        self.steps = [step for step in self.steps if not (step[0] is turn and step[1].step_no in report.stopped)]
        if self.machine.played(turn, report, self.now):
            self.waiting.append(turn)
        if not is_over:
            self.steps += [(turn, call) for call in calls]
        self._effects()

    def _end_step(self, step) -> None:
        self.acts += 1
        turn, call = step
        self.steps.remove(step)
        self.machine.step_ended(turn, call.step_no, call.outcome(call.function(*call.args, **call.kwargs)))
        self._effects()

    def _send(self) -> None:
        """Look at the store, do what time asks for, and have the store decide; the answer is not heard yet."""
        with self.engine.read() as view:
            at = self.engine.look().now
            first = view.next_due(Lane.MAIL)
            self.machine.policy.looked(view.seq, NEVER if first is None else seconds_between(at, first), self.now)
            mail = [
                turn
                for turn in self.machine.watched()
                if any(message.seq not in turn.held for message in view.visible(turn.instance, at))
            ]
            self.machine.mail(mail)
            if self.machine.room():
                self.machine.policy.hope_again(lambda: any(True for _ in view.candidates(at)))
        self.machine.tick(self.now)
        self._effects()
        errands = self.machine.commands(self.now)
        self._nothing = () if errands or self.machine._lingers else self._mark()
        if errands:
            self.sent = (errands, self.engine.submit_many([errand.command for errand in errands]))

    def _answer(self) -> None:
        self.acts += 1
        (errands, replies), self.sent = self.sent, None
        self.machine.answered(errands, replies, self.engine.look().now, self.now)
        self._effects()

    def stop(self, *, drain: bool) -> None:
        """End in order: with `drain` steps may end, else everything is given back."""
        self.is_stopping = self.player.is_draining = True
        self.machine.drain(self.now)
        if not drain:
            self.machine.stop(self.now)
        self._effects()

    def kill(self) -> None:
        """End at once: nothing more is done or said."""
        self.is_dead = True
        self.waiting, self.inside, self.steps, self.sent = [], {}, [], None

    @property
    def locks(self) -> list[int]:
        """Return the tokens of the locks it believes to hold."""
        return list(self.machine.turns)


@dataclass
class World:
    """One run of a program."""

    program: Program
    #: Who ends, and how, at some moment of the schedule.
    ending: str = ""
    log: list[str] = field(default_factory=list)
    checked: int = 0

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.app = App("memory:", clock=self.clock)
        self.workflow = self.program.define(self.app)
        self.app.start(self.workflow)
        self.workers = [SimWorker(self.app, 1), SimWorker(self.app, 2)]
        self.senders = [list(sender) for sender in self.program.senders]
        self.was_killed = False
        self.lost_s = 0.0
        self.pauses = 3
        self._seen = 0
        self._unsettled: dict[int, WorkItem] = {}
        #: Instances that something was sent to and that have not ended.
        self._running: set[str] = set()

    # --- what can happen ----------------------------------------------------------------------------------------------

    def actions(self) -> list[tuple[str, Callable[[], None]]]:
        """Return all that could happen next, in a fixed order."""
        found = [one for worker in self.workers for one in worker.actions()]
        found += [(f"send {number}", partial(self._say, s)) for number, s in enumerate(self.senders) if s]
        if self.program.has_activities and self._activities():
            found.append(("activity", self._run_activity))
        if self.ending:
            found.append((self.ending, self._end_worker))
        if self.pauses:
            found.append(("pause", self._pause))
        return found

    def _say(self, sender: list) -> None:
        """Let a sender send the next thing; what cannot be said yet is tried again."""
        if sender[0](self.app) is not False:
            sender.pop(0)

    def _pause(self) -> None:
        """Let enough time pass for a commit beside a running step."""
        self.pauses -= 1
        self.clock.advance(IDLE_S * 1.2)

    def _activities(self) -> bool:
        depths = self.app.provider.get_queue_depths()
        return depths.worker_queue > 0

    def _run_activity(self) -> None:
        fetched = self.app.provider.fetch_work_item(30.0)
        if fetched is None:
            return
        item, token, *_ = fetched
        assert isinstance(item, ActivityExecute)
        done = ActivityCompleted(instance=item.instance, execution_id=item.execution_id, id=item.id, result="1")
        self.app.provider.ack_work_item(token, done)

    def _end_worker(self) -> None:
        ending, self.ending = self.ending, ""
        worker = self.workers[0]
        if ending == "kill":
            worker.kill()
            self.was_killed = True
        else:
            worker.stop(drain=ending == "drain")

    def do(self, name: str, act: Callable[[], None]) -> None:
        """Let one thing happen, and check."""
        self.log.append(name)
        act()
        self.check()

    # --- how it goes on -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Go on fairly until every instance has ended."""
        for _ in range(LIMIT):
            if self.is_over:
                return self._check_end()
            actions = self.actions()
            moved = False
            for name, act in actions:
                if name in {label for label, _ in self.actions()}:
                    before = self._mark()
                    self.do(name, act) if not name.endswith("send") else self._cycle(name)
                    moved = moved or self._mark() != before
            if not moved:
                self._wait()
        raise Stuck(self._story(f"not ended after {LIMIT} rounds"))

    def _cycle(self, name: str) -> None:
        worker = self.workers[int(name[1]) - 1]
        self.do(name, worker._send)

    def _mark(self) -> tuple:
        with self.app.hf.engine.read() as view:
            seq = view.seq
        return (
            seq,
            [(len(w.waiting), len(w.inside), len(w.steps), w.sent is None, len(w.machine.turns)) for w in self.workers],
        )

    def _wait(self) -> None:
        """Let time pass until something is due."""
        now = self.clock.monotonic()
        due = [worker.machine.due_at(now) for worker in self.workers if not worker.is_dead]
        with self.app.hf.engine.read() as view:
            at = self.app.hf.engine.look().now
            times = [view.next_due(lane) for lane in (Lane.MAIL, Lane.TURN)]
        due += [now + max(0.0, seconds_between(at, one)) for one in times if one is not None]
        later = [one for one in due if now < one < NEVER]
        step = min(later, default=now + 1.0) - now
        self.clock.advance(step + 0.001)
        self.lost_s += step
        tick(self.app.hf.engine)
        if self.lost_s > 10 * LOCK_S:
            raise Stuck(self._story("nothing happens any more"))

    @property
    def is_over(self) -> bool:
        """Whether everything was sent, and every instance has ended."""
        return not any(self.senders) and not self._running

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """See that every message the store acknowledged is in the queue, in a history, or named as dropped."""
        store = self.app.hf.engine.store
        for entry in store.feed(self._seen):
            self._seen = entry.seq
            match decode_event(entry.event, seq=entry.seq, file="feed"):
                case MessageStored() as stored:
                    self._unsettled[entry.seq] = _ITEM.decode(stored.item)
                    self._running.add(stored.instance_id)
                case MessageDropped() as dropped:
                    self._unsettled.pop(dropped.message, None)
                case TurnCommitted(status=status, instance_id=instance_id) if status in OVER:
                    self._running.discard(instance_id)
                case _:
                    pass
        with self.app.hf.engine.read() as view:
            gone = [seq for seq in self._unsettled if view.get(Message, message_key(seq)) is None]
        for seq in gone:
            item = self._unsettled.pop(seq)
            self.checked += 1
            if not self._is_recorded(item):
                raise Lost(self._story(f"message {seq} is lost: {item}"))

    def _is_recorded(self, item: WorkItem) -> bool:
        provider = self.app.provider
        name = item.parent_instance if isinstance(item, SubOrchCompleted | SubOrchFailed) else item.instance
        histories = (provider.read_with_execution(name, number) for number in reversed(provider.list_executions(name)))
        return any(_records(event, item) for history in histories for event in history)

    def _check_end(self) -> None:
        outcome = self.app.result()
        if not self.program.expected(outcome):
            raise Lost(self._story(f"it came to {outcome!r}"))
        if not self.was_killed and self.lost_s > self.program.timers_s + LOCK_S / 2:
            raise Stuck(self._story(f"it stood still for {self.lost_s:.0f} s, until a lock ran out"))
        self._settle_workers()
        with self.app.hf.engine.read() as view:
            held = [turn for turn in view.due(Lane.TURN, "9999-12-31T00:00:00.000000Z") if isinstance(turn, Turn)]
        if held and not self.was_killed:
            raise Stuck(self._story(f"locks are held by nobody: {held}"))

    def _settle_workers(self) -> None:
        for _ in range(200):
            actions = [
                one for worker in self.workers if worker.machine.turns or worker.sent for one in worker.actions()
            ]
            if not actions:
                return
            for name, act in actions[:1]:
                self.do(name, act)
            if not any(worker.machine.turns and not worker.is_dead for worker in self.workers):
                return
            self.clock.advance(0.02)

    def _story(self, what: str) -> str:
        return "\n  ".join([f"{self.program.name}: {what}", *self.log])

    def close(self) -> None:
        self.app.hf.close()


def _records(event, item: WorkItem) -> bool:
    kind = event.kind
    match item:
        case StartOrchestration():
            return isinstance(kind, event_kinds.OrchestrationStarted)
        case QueueMessage():
            is_signal = isinstance(kind, event_kinds.QueueEventDelivered) and (kind.name, kind.data) == (
                item.name,
                item.data,
            )
            return is_signal or (item.name.startswith("@decision/") and isinstance(kind, event_kinds.DecisionResolved))
        case CancelInstance():
            return isinstance(kind, event_kinds.OrchestrationCancelRequested | event_kinds.OrchestrationFailed)
        case ActivityCompleted() | ActivityFailed():
            answers = (event_kinds.ActivityCompleted, event_kinds.ActivityFailed)
            return isinstance(kind, answers) and event.source_event_id == item.id
        case TimerFired():
            answers = (event_kinds.TimerFired, event_kinds.DecisionResolved, event_kinds.OrchestrationFailed)
            return isinstance(kind, answers) and (event.source_event_id == item.id or event.source_event_id is None)
        case SubOrchCompleted() | SubOrchFailed():
            answers = (event_kinds.SubOrchestrationCompleted, event_kinds.SubOrchestrationFailed)
            return isinstance(kind, answers) and event.source_event_id == item.parent_id
        case _:
            return isinstance(kind, event_kinds.OrchestrationStarted)


# --- schedules --------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What an exploration did."""

    schedules: int = 0
    steps: int = 0
    messages: int = 0

    def __str__(self) -> str:
        return f"{self.schedules} schedules, {self.steps} steps, {self.messages} messages checked"


def run(program: Program, choose: Callable[[int, int], int | None], ending: str, tally: Tally) -> None:
    """Run one schedule: `choose(step, possible)` gives the number of the next action, None: go on fairly."""
    world = World(program, ending)
    try:
        for step in itertools.count():
            actions = world.actions()
            if not actions or world.is_over:
                break
            chosen = choose(step, len(actions))
            if chosen is None:
                break
            world.do(*actions[chosen])
        world.finish()
    finally:
        world.close()
        tally.schedules += 1
        tally.steps += len(world.log)
        tally.messages += world.checked


class Orders:
    """All schedules that differ in `depth` choices after the first `skip`; those are random, the same each time."""

    def __init__(self, depth: int, skip: int) -> None:
        self._depth, self._skip = depth, skip
        self._path: list[int] = []
        self._widths: list[int] = []
        self._source = random.Random(skip)

    def choose(self, step: int, possible: int) -> int | None:
        """Give the number of the next action; None after the last choice."""
        at = step - self._skip
        if at < 0:
            return self._source.randrange(possible)
        if at >= self._depth:
            return None
        self._widths.append(possible)
        if at == len(self._path):
            self._path.append(0)
        return self._path[at]

    def advance(self) -> bool:
        """Go on to the next schedule; False: that was the last one."""
        path = self._path[: len(self._widths)]
        while path and path[-1] == self._widths[len(path) - 1] - 1:
            path.pop()
        if path:
            path[-1] += 1
        self._path, self._widths, self._source = path, [], random.Random(self._skip)
        return bool(path)


def every_order(program: Program, depth: int, skip: int, ending: str, tally: Tally, limit: int) -> None:
    """Run schedules in every order of `depth` actions after the first `skip`, at most `limit` of them."""
    orders = Orders(depth, skip)
    for _ in range(limit):
        run(program, orders.choose, ending, tally)
        if not orders.advance():
            return


def random_orders(program: Program, seeds: range, length: int, ending: str, tally: Tally) -> None:
    """Run schedules of `length` random choices, one for each seed."""
    for seed in seeds:
        source = random.Random(seed)

        def choose(step: int, possible: int, source: random.Random = source) -> int | None:
            return source.randrange(possible) if step < length else None

        run(program, choose, ending, tally)

"""Workers without threads: their pumps, slots and handlers take one step at a time, in an order that a test chooses.

Everything that a thread or another process does is an input: a round of a pump, the end of a handler, time, a wish, a
cancellation, a store that is busy, a death. While a pump waits for its commit, others go on: inputs may also come just
before and just after it. A `Script` chooses which comes next, so the same script gives the same run.

After each input the state of the store is compared with what the workers have done. `Wrong` says what does not fit.
"""

import random

import msgspec

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import end_lapsed
from holdfast.errors import StoreBusy
from holdfast.model import events as ev
from holdfast.model.commands import Cancel, EndSession, Enqueue, Lease, NewJob, Retention
from holdfast.model.jobs import ENDED, Backoff, Job, JobStatus
from holdfast.model.times import seconds_between
from holdfast.rules.jobs.suspects import must_run_alone
from holdfast.rules.state import Lane
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.clock import ManualClock
from holdfast.workers.handlers.leased_job import Stop
from holdfast.workers.handlers.outcome import GaveUp, Raised, Returned, Snoozed
from holdfast.workers.main_loop import Pump
from holdfast.workers.slots import Slots
from holdfast.workers.task_registry import Registry, TaskSpec
from holdfast.workers.work_filter import Scope

SPEC = TaskSpec(name="t", run=lambda: None, codec=SignatureCodec(lambda: None), isolation="thread")
FAR = "9999-12-31T23:59:59.999999Z"
#: Rounds after which everything must have ended once nothing disturbs any more.
LAST_ROUNDS = 300
MOST_JOBS = 6
MOST_WORKERS = 4


class Wrong(AssertionError):
    """The store and the workers do not fit together."""


class _Killed(Exception):
    """The process of a worker died here."""


# --- choosing ---------------------------------------------------------------------------------------------------------


class Script:
    """Chooses by a list of numbers, then always the first; notes how many there were to choose from."""

    prefers_work = False

    def __init__(self, numbers=()):
        self._numbers = tuple(numbers)
        self.sizes = []

    def choose(self, size):
        at = len(self.sizes)
        self.sizes.append(size)
        return self._numbers[at] if at < len(self._numbers) else 0

    def is_over(self, depth):
        return len(self.sizes) >= depth

    def following(self, depth):
        """Give the next script in the order of all of them up to a depth, or None."""
        taken = [*self._numbers, *[0] * len(self.sizes)][: min(depth, len(self.sizes))]
        while taken:
            taken[-1] += 1
            if taken[-1] < self.sizes[len(taken) - 1]:
                return taken
            taken.pop()
        return None


class Chance:
    """Chooses by a seed, for as many inputs as a depth says; ordinary work more often than trouble."""

    prefers_work = True

    def __init__(self, seed):
        self._random = random.Random(seed)
        self.chosen = 0

    def choose(self, size):
        self.chosen += 1
        return self._random.randrange(size)

    def is_over(self, depth):
        return self.chosen >= depth


# --- a worker ---------------------------------------------------------------------------------------------------------


class Marked:
    """The marks of one worker, as another process would read them."""

    def __init__(self):
        self.received = 0
        self.waiting = set()

    def join(self, worker):
        del worker

    def receive(self, worker, received, waiting):
        del worker
        self.received = max(self.received, received)
        self.waiting.update(waiting)

    def clear(self, token):
        self.waiting.discard(token)

    def unbegun(self, tokens):
        return tuple(token for token in tokens if token in self.waiting or token > self.received)


class UnhurriedSlots(Slots):
    """Slots whose pump does not sleep: when it wakes is an input."""

    def wait(self, timeout):
        del timeout
        self._poked = False


class Handlers:
    """A runner: what was started runs until an input ends it. As threads do, it takes a timeout for an outcome."""

    def __init__(self, world, name, desk):
        self.world = world
        self.name = name
        self.desk = desk
        self.running = []

    def start(self, assignment):
        self.world.started(self, assignment)
        self.running.append(assignment)

    def stop(self, assignment):
        if assignment.stop is Stop.TIMEOUT:
            self.desk.settle(assignment, assignment.stopped())

    def close(self):
        pass

    def end(self, assignment, outcome):
        self.running.remove(assignment)
        self.world.outcomes[assignment.grant.token] = outcome
        following = self.desk.end_for_next(assignment, outcome)
        if following is not None:
            self.start(following)


class OneWorker:
    """A pump with its slots and handlers, on an engine of its own as another process has."""

    def __init__(self, world, name, size, *, ahead):
        self.name = name
        self.size = size
        self.engine = Engine(world.store, clock=world.clock)
        self.engine.told = world.committed
        self.marks = Marked()
        self.is_dead = self.is_buried = self.is_busy = False
        registry = Registry()
        registry.add(SPEC)
        scope = Scope(worker_id=name, namespace="", queues=("default",), tasks=registry)

        def runners(desk):
            self.handlers = Handlers(world, name, desk)
            return {"thread": self.handlers}

        self.slots = UnhurriedSlots(size, world.clock.monotonic, runners, self.marks, name)
        self.pump = Pump(self.engine, self.slots, scope, Retention())
        self.pump._mean_s = 0.0 if ahead else 1.0
        self._submit = self.pump._messenger.submit
        self.pump._messenger.submit = lambda *what: world.submitting(self, self._submit, *what)
        #: Whether the end had been asked for when its round began.
        self.was_draining = False

    @property
    def is_over(self):
        return self.is_dead or self.pump._is_over()

    def step(self):
        """One round of the loop in `Pump.run`, without its sleep."""
        self.was_draining = self.pump.is_draining
        try:
            if not self.pump.cycle() and not self.pump._is_over():
                self.pump._rest()
        except StoreBusy:
            self.pump._outlook.fade()
            return False
        return True

    def holds(self):
        """Give the tokens whose end it has still to report."""
        ended = [held.grant.token for held, _ in (*self.pump._outbox, *self.slots._ended)]
        return {*ended, *self.slots._open}


# --- the world --------------------------------------------------------------------------------------------------------


class World:
    """Two workers and a client on one store, and what has happened so far."""

    def __init__(self, script, *, size=2, jobs=3, workers=2, ahead=True, suspects=0, inputs=None):
        self.script = script
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.client = Engine(self.store, clock=self.clock)
        self.client.told = self.committed
        #: The inputs there are; None for all.
        self._inputs = inputs
        self.outcomes = {}
        self.started_tokens = {}
        self.ended = {}
        self.enqueued = []
        self.trace = []
        self.inputs_taken = 0
        self._nesting = 0
        self._size, self._ahead = size, ahead
        self.workers = []
        for _ in range(workers):
            self.begin()
        for number in range(jobs):
            self.enqueue()
            if number + 1 == suspects:
                self._lose_twice()

    def _lose_twice(self):
        """Have a worker die with all there is, twice."""
        for _ in range(2):
            grants = self.client.ask(Lease(worker_id="early", n=9, session_id="early")).grants
            self.started_tokens |= {grant.token: grant.job.job_id for grant in grants}
            self.client.ask(EndSession(session_id="early"))

    # --- inputs -------------------------------------------------------------------------------------------------------

    def begin(self):
        self.workers.append(OneWorker(self, f"w{len(self.workers)}", self._size, ahead=self._ahead))

    def enqueue(self):
        number = len(self.enqueued)
        job = NewJob(
            job_id=f"j{number}",
            job_type="t",
            params=msgspec.Raw(b"{}"),
            max_attempts=2,
            max_expiries=3,
            lease_s=30.0,
            priority=number % 2,
            timeout_s=None if number % 2 else 10.0,
            backoff=Backoff(base_s=1.0, jitter=0.0),
        )
        self.client.ask(Enqueue(jobs=(job,)))
        self.enqueued.append(job.job_id)

    def possible(self, within=None):
        """List the inputs there may be now: (name, what to do). `within`: the worker that waits for its commit."""
        found = []

        def add(name, work):
            if self._inputs is None or name.split()[0] in self._inputs:
                found.append((name, work))

        for worker in self.workers:
            if worker.is_dead:
                if not worker.is_buried:
                    add(f"bury {worker.name}", lambda w=worker: self.bury(w))
                continue
            if worker is not within and not worker.is_over:
                add(f"step {worker.name}", lambda w=worker: self.step(w))
            for number, held in enumerate(worker.handlers.running):
                token = held.grant.token
                kinds = {
                    "return": Returned(msgspec.Raw(b"%d" % token)),
                    "raise": Raised("x"),
                    "snooze": Snoozed(1.0),
                    "give_up": GaveUp("no more"),
                }
                for kind, outcome in kinds.items():
                    if number == 0 or kind == "return":
                        add(f"{kind} {token}", lambda w=worker, h=held, o=outcome: w.handlers.end(h, o))
            if not worker.is_over:
                add(f"drain {worker.name}", lambda w=worker: w.pump.drain(5.0))
                add(f"hurry {worker.name}", lambda w=worker: w.pump.hurry())
                add(f"stir {worker.name}", lambda w=worker: w.pump._stir())
                if not worker.is_busy and worker is not within:
                    add(f"busy {worker.name}", lambda w=worker: setattr(w, "is_busy", True))
            add(f"kill {worker.name}", lambda w=worker: self.kill(w))
        for seconds in (0.6, 11.0, 31.0):
            add(f"advance {seconds}", lambda s=seconds: self.clock.advance(s))
        add("expire", lambda: end_lapsed(self.client))
        if len(self.enqueued) < MOST_JOBS:
            add("enqueue", self.enqueue)
        if len(self.workers) < MOST_WORKERS and any(worker.is_over for worker in self.workers):
            add("begin", self.begin)
        for job_id in self.enqueued[:2]:
            if job_id not in self.ended:
                add(f"cancel {job_id}", lambda j=job_id: self.client.submit(Cancel(job_id=j)))
        return found

    def take_one(self, within=None):
        found = self.possible(within)
        if not found:
            return
        if self.script.prefers_work:
            found += [one for one in found if one[0].startswith(("step", "return"))] * 5
        name, work = found[self.script.choose(len(found))]
        self.trace.append(f"  {name}" if within else name)
        self.inputs_taken += 1
        work()
        if within is None:
            self.check()

    def step(self, worker):
        was_busy, at = worker.is_busy, self.clock.monotonic()
        try:
            answered = worker.step()
        except _Killed:
            return
        if answered and not was_busy and self.clock.monotonic() == at and not worker.is_dead:
            self._demand_renewed(worker)

    def submitting(self, worker, submit, *what):
        """Send a commit of a pump, with what others do before and after it."""
        if any(isinstance(command, Lease) for command in what[0]) and worker.was_draining:
            raise Wrong(f"{worker.name} leases although it was told to end")
        self._meanwhile(worker)
        if worker.is_busy:
            worker.is_busy = False
            raise StoreBusy("the store is busy.")
        answered = submit(*what)
        self._meanwhile(worker)
        return answered

    def _meanwhile(self, worker):
        if self._nesting or (self._inputs is not None and "meanwhile" not in self._inputs):
            return
        self._nesting += 1
        try:
            while self.script.choose(2):
                self.take_one(within=worker)
        finally:
            self._nesting -= 1
        if worker.is_dead:
            raise _Killed

    @staticmethod
    def kill(worker):
        """End its process: its handlers are no more. If it waits for a commit, nobody hears the answer."""
        worker.is_dead = True
        worker.handlers.running.clear()

    def bury(self, worker):
        """Have somebody notice that the process is gone."""
        worker.is_buried = True
        session = worker.engine.session_id
        with self.client.read() as view:
            held = [job.token for job in view.local_leases() if job.session_id == session]
        self.client.ask(EndSession(session_id=session, unbegun=worker.marks.unbegun(held)))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def started(self, handlers, assignment):
        """A handler begins."""
        grant = assignment.grant
        if grant.token in self.started_tokens:
            raise Wrong(f"token {grant.token} is run twice")
        if len(handlers.running) >= next(one.size for one in self.workers if one.name == handlers.name):
            raise Wrong(f"{handlers.name} runs more handlers than it has slots")
        self.started_tokens[grant.token] = grant.job.job_id
        # What has timed out has been reported, although it runs on.
        beside = [one.grant for one in handlers.running if one.grant.token in handlers.desk._open]
        if beside and any(must_run_alone(one.lost) for one in (grant, *beside)):
            raise Wrong(f"{grant.job.job_id} runs beside {[one.job.job_id for one in beside]}, not alone")
        with self.client.read() as view:
            for worker in self.workers:
                for other in worker.handlers.running:
                    run = view.run_by_token(grant.job.job_id, other.grant.token)
                    if run is not None and run.status is None:
                        raise Wrong(f"{grant.job.job_id} runs twice: {other.grant.token} is still leased")

    def committed(self, commit):
        """Compare what became durable with what handlers did."""
        for event in commit.events:
            job_id = getattr(event, "job_id", None)
            if job_id in self.ended:
                raise Wrong(f"{job_id} has ended, and then: {event}")
            token = getattr(event, "token", None)
            begun = token in self.started_tokens
            outcome = self.outcomes.get(token)
            match event:
                case ev.JobCompleted() if not isinstance(outcome, Returned) or outcome.result != event.result:
                    raise Wrong(f"{job_id} is completed with {event.result}, but {token} ended in {outcome}")
                case ev.JobFailed() if not isinstance(outcome, Raised) and event.error_kind != "timeout":
                    raise Wrong(f"{job_id} failed, but {token} ended in {outcome}")
                case ev.LeaseReleased() if event.begun is not begun:
                    raise Wrong(f"{job_id} is released as begun={event.begun}, but it had begun={begun}")
                case ev.LeaseExpired(reason="restart" | "not_begun") if event.counted is not begun:
                    raise Wrong(f"{job_id} is lost with its worker, counted={event.counted}, but it had begun={begun}")
                case _:
                    pass
            if _ends(event):
                self.ended[job_id] = event

    def check(self):
        """Demand that every job waits, has ended, or is held by somebody who knows of it."""
        now = self.client.look().now
        with self.client.read() as view:
            jobs = [view.get(Job, job_id) for job_id in self.enqueued]
        holders = {worker.name: worker for worker in self.workers}
        for job_id, job in zip(self.enqueued, jobs, strict=True):
            if job is None:
                raise Wrong(f"{job_id} was acknowledged and is not there")
            if (job.status in ENDED) is not (job_id in self.ended):
                raise Wrong(f"{job_id} is {job.status}, but its end was {self.ended.get(job_id)}")
            if job.status is not JobStatus.RUNNING or job.lease_expires_at <= now:
                continue
            holder = holders[job.worker_id]
            if not holder.is_dead and job.token not in holder.holds():
                raise Wrong(f"{job_id} is leased to {holder.name}, which does not know of it")
        for worker in self.workers:
            if worker.is_over and not worker.is_dead:
                self._demand_nothing_held(worker, jobs, now)

    @staticmethod
    def _demand_nothing_held(worker, jobs, now):
        left = [j.job_id for j in jobs if j.worker_id == worker.name and j.lease_expires_at > now]
        if left or worker.holds():
            raise Wrong(f"{worker.name} has ended and still holds {left or worker.holds()}")

    def _demand_renewed(self, worker):
        """After a round no lease that is held has less than two thirds of its time left."""
        now = self.client.look().now
        with self.client.read() as view:
            for held in worker.slots.held():
                job = view.get(Job, held.grant.job.job_id)
                if job is None or job.token != held.grant.token or held.stop is Stop.LOST:
                    continue
                most = min(job.lease_s * 2 / 3, seconds_between(now, job.deadline_at or FAR))
                if seconds_between(now, job.lease_expires_at) < most - 0.2:
                    raise Wrong(f"{worker.name} did not renew {job.job_id}")

    # --- to the end ---------------------------------------------------------------------------------------------------

    def explore(self, depth):
        """Take inputs as the script chooses, then let everything end, and check that it has."""
        while not self.script.is_over(depth) and self.possible():
            self.take_one()
        self.finish()

    def finish(self):
        """Disturb nobody any more; demand that all jobs end and all workers stop."""
        self._nesting = 1
        self.trace.append("finish")
        last = OneWorker(self, "last", 2, ahead=False)
        self.workers.append(last)
        for worker in self.workers:
            worker.is_busy = False
        for round_ in range(LAST_ROUNDS):
            if len(self.ended) == len(self.enqueued):
                break
            for worker in self.workers:
                if worker.is_dead and not worker.is_buried:
                    self.bury(worker)
                if not worker.is_over:
                    worker.pump._stir()
                    self.step(worker)
                for held in list(worker.handlers.running):
                    worker.handlers.end(held, Returned(msgspec.Raw(b"%d" % held.grant.token)))
            self.clock.advance(0.25 if round_ % 8 else 6.0)
            self.check()
        missing = [job_id for job_id in self.enqueued if job_id not in self.ended]
        if missing:
            raise Wrong(f"these never end: {missing}")
        for worker in self.workers:
            if not worker.is_dead:
                worker.pump.hurry()
                for _ in range(5):
                    if not worker.is_over:
                        self.step(worker)
                if not worker.is_over:
                    raise Wrong(f"{worker.name} does not stop")
        self.check()
        with self.client.read() as view:
            if any(True for _ in view.due(Lane.LEASE, FAR)):
                raise Wrong("a job is leased after all workers have stopped")


def _ends(event):
    match event:
        case ev.JobCompleted() | ev.JobSkipped() | ev.JobDead() | ev.JobCancelled():
            return True
        case ev.JobFailed() | ev.LeaseExpired() | ev.LeaseReleased() | ev.JobSnoozed():
            return event.to in ENDED
        case _:
            return False


# --- many of them -----------------------------------------------------------------------------------------------------


class Explored:
    """How much was explored."""

    def __init__(self):
        self.schedules = self.inputs = self.jobs = 0

    def run(self, script, depth, **options):
        """Explore one order. Raises Wrong with the inputs that led there."""
        world = World(script, **options)
        try:
            world.explore(depth)
        except Exception as problem:
            given = "".join(f"\n{line}" for line in world.trace)
            kind = problem if isinstance(problem, Wrong) else f"{type(problem).__name__}: {problem}"
            raise Wrong(f"{kind}\nafter these inputs:{given}") from problem
        self.schedules += 1
        self.inputs += world.inputs_taken
        self.jobs += len(world.enqueued)

    def every(self, depth, **options):
        """Explore every order of inputs up to a depth."""
        numbers = []
        while numbers is not None:
            script = Script(numbers)
            self.run(script, depth, **options)
            numbers = script.following(depth)

    def some(self, seeds, depth, **options):
        """Explore the orders of these seeds."""
        for seed in seeds:
            try:
                self.run(Chance(seed), depth, **options)
            except Wrong as problem:
                raise Wrong(f"seed {seed}: {problem}") from problem

    def __str__(self):
        return f"{self.schedules:,} schedules, {self.inputs:,} inputs, {self.jobs:,} jobs checked"

"""What tests of the parts around a stint stand on: empty stints, a crew whose work the test does, code to close."""

import threading
from types import SimpleNamespace

from holdfast.model.outcomes import LockedTurn
from holdfast.workers.workflow_turns.pending_commands import Ledger
from holdfast.workers.workflow_turns.turn_state import Stint
from holdfast.workers.workflow_turns.wakeup import Alarm


def stint(token=1, execution=None):
    """A turn under way, of an execution if there is one."""
    locked = LockedTurn(instance_id=f"i{token}", token=token, messages=(), attempts=1)
    made = Stint(locked, age_s=0.0, renew_at=10.0, lost_at=30.0, fetched_at=0.0)
    made.turn = None if execution is None else SimpleNamespace(execution=execution, has_news=False)
    return made


class Clockwork:
    """A ledger with its alarm, a time that stands still, and a count of who woke the pump."""

    def __init__(self):
        self.time = 100.0
        self.pokes = 0
        self.lock = threading.Lock()
        self.alarm = Alarm(self.lock, lambda: self.time, self._poke)
        self.ledger = Ledger(self.lock, self.alarm)

    def _poke(self):
        self.pokes += 1

    def sleep(self, until=float("inf")):
        """Let the pump sleep, and forget who woke it."""
        with self.lock:
            self.pokes = 0
            return self.alarm.sleep(until)

    def post(self, errand):
        with self.lock:
            self.ledger.post(errand)

    def begin(self, one):
        """Have a stint under way."""
        self.ledger.stints[one.token] = one
        return one

    @property
    def sent(self):
        """What is to be sent, by kind."""
        return [errand.kind for errand in self.ledger.outbox]


class HandCrew:
    """A crew without threads: the test does what it was given, when it likes."""

    def __init__(self):
        self.work = []
        self.is_full = False

    def put(self, work):
        if self.is_full:
            raise RuntimeError("can't start new thread")
        self.work.append(work)

    def do(self):
        """Do what is there by now, in order."""
        ready, self.work = self.work, []
        for one in ready:
            one()


class Code:
    """An execution as far as those who part with it know it."""

    definition = SimpleNamespace(is_blocking=False)

    def __init__(self, instance="i1", problem=None):
        self.instance = instance
        self.closed = []
        self._problem = problem

    def close(self, *, clean_up=True):
        self.closed.append(clean_up)
        if self._problem is not None:
            raise self._problem

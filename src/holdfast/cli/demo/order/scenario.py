"""The order, step by step: start, work, kill, start a worker again, carry on. Tells the stage; judges nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from holdfast.app.workflows.handle import Instance
from holdfast.cli.demo.order.verify import Evidence, Recorded, Sight
from holdfast.cli.demo.order.workflow import FATAL, PROGRAM, Line, application
from holdfast.cli.demo.worker_processes import Hand, crew
from holdfast.errors import HoldfastError, StoreError
from holdfast.failpoints import reach
from holdfast.model.workflows.history import Event

#: The number of the order.
ORDER = 7
#: Seconds between two looks.
LOOK_S = 0.02
#: Seconds that each part may take before the demo gives up.
STUCK_S = 90.0


class Plan(NamedTuple):
    """Where it is played."""

    url: str
    #: The file that steps write to, beside the store.
    record: Path


class Stage(Protocol):
    """Where the story is shown."""

    def started(self, hand: Hand) -> None:
        """Tell that the order is durable, and who works on it."""

    def recorded(self, steps: Sequence[Recorded]) -> None:
        """Tell which steps are recorded now."""

    def killed(self, hand: Hand, under_way: Sequence[str]) -> None:
        """Tell that the worker was killed within these steps."""

    def restarted(self, hand: Hand) -> None:
        """Tell that another worker was started."""

    def carried_on(self, seconds: float) -> None:
        """Tell that the order goes on, so long after that."""


def play(plan: Plan, stage: Stage) -> Evidence:
    """Play the story on a store of its own; give what can be known of it afterwards."""
    hf, order = application(plan.url, plan.record)
    with hf:
        run = order.options(id=f"order-{ORDER}").start(ORDER)
        watch = _Watch(run, plan.record, stage)
        with crew(1, PROGRAM, plan.url, str(plan.record)) as (first,):
            stage.started(first)
            watch.until(lambda: watch.is_ended or any(line.step == FATAL for line in watch.lines()), first)
            first.kill()
        at_kill = watch.sight()
        stage.killed(first, at_kill.under_way())
        with crew(1, PROGRAM, plan.url, str(plan.record)) as (second,):
            stage.restarted(second)
            ready, seen = hf.engine.look().monotonic, len(at_kill.record)
            watch.until(lambda: watch.is_ended or len(watch.lines()) > seen, second)
            carried_on_s = hf.engine.look().monotonic - ready
            stage.carried_on(carried_on_s)
            watch.until(lambda: watch.is_ended, second)
        reach("demo.carried_on")
        try:
            returned, failure = run.result(timeout=0), ""
        except (HoldfastError, TimeoutError) as problem:
            returned, failure = [], str(problem)
        return Evidence(
            order=ORDER,
            at_kill=at_kill,
            at_end=watch.sight(),
            returned=returned,
            failure=failure,
            findings=hf.engine.store.check(),
            carried_on_s=carried_on_s,
        )


class _Watch:
    """Looks at the order again and again, and tells what is new."""

    def __init__(self, run: Instance[list[str]], record: Path, stage: Stage) -> None:
        self._run = run
        self._record = record
        self._stage = stage
        self._rest = threading.Event()

    @property
    def is_ended(self) -> bool:
        return self._run.status().has_ended

    def lines(self) -> list[Line]:
        """Read the record."""
        lines = self._record.read_bytes().splitlines() if self._record.exists() else []
        decode = msgspec.json.Decoder(Line).decode
        return [decode(line) for line in lines]

    def sight(self) -> Sight:
        """See what both witnesses say now; the record first, as a step begins before it is recorded."""
        return Sight(record=self.lines(), history=self._history())

    def _history(self) -> list[Event]:
        try:
            return self._run.history()
        except HoldfastError:
            return []  # what cannot be read is gone: the verdict says so, and `store check` why

    def until(self, wanted: Callable[[], bool], hand: Hand) -> None:
        """Tell what is recorded until it is as wanted. Raises StoreError if it never is."""
        clock = self._run.app.engine.look
        began = clock().monotonic
        while not wanted():
            self._stage.recorded(self.sight().recorded())
            if hand.process.poll() is not None:
                raise StoreError("the worker of the demo has ended; what it said stands above.")
            if clock().monotonic - began > STUCK_S:
                raise StoreError(f"the order has not come further for {STUCK_S:.0f} s; the demo gives up.")
            self._rest.wait(LOOK_S)
        self._stage.recorded(self.sight().recorded())

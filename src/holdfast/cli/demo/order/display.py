"""How the order is shown: a line for each thing that happens, then a table: each step at the kill and at the end.

The story goes to stderr, the table to stdout. Nothing is redrawn, so it reads the same in a pipe.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from holdfast.cli.demo.order.verify import Evidence, Recorded
from holdfast.cli.demo.order.workflow import STEPS
from holdfast.cli.demo.worker_processes import Hand
from holdfast.cli.render import status_labels
from holdfast.cli.render.output import Output, Record
from holdfast.cli.render.tables import Column, lines
from holdfast.cli.render.terminal import Screen, put, say, screen

_NUMBERS = {step: number for number, step in enumerate(STEPS, 1)}


class Told:
    """The story, line by line."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self._looks = screen("auto", sys.stderr)
        self._told: set[str] = set()

    def _line(self, look: status_labels.Look, text: str) -> None:
        say(f"{self._looks.glyph(look)} {text}")

    def started(self, hand: Hand) -> None:
        """Tell that the order is durable, and who works on it."""
        self._line(
            status_labels.COMPLETED, f"a workflow of {len(STEPS)} steps is started, durable before the call returned"
        )
        self._line(status_labels.RUNNING, f"a worker (pid {hand.pid}) runs it")

    def recorded(self, steps: Sequence[Recorded]) -> None:
        """Tell which steps are recorded now."""
        for one in steps:
            if one.step not in self._told:
                self._told.add(one.step)
                self._line(status_labels.COMPLETED, f"step {_NUMBERS.get(one.step, '?')}  {one.step}")

    def killed(self, hand: Hand, under_way: Sequence[str]) -> None:
        """Tell that the worker was killed within these steps."""
        steps = ", ".join(f"step {_NUMBERS[step]}, {step}" for step in under_way) or "nothing"
        self._line(status_labels.DEAD, f"the worker (pid {hand.pid}) is killed with SIGKILL in {steps}")

    def restarted(self, hand: Hand) -> None:
        """Tell that another worker was started."""
        self._line(status_labels.RUNNING, f"another worker (pid {hand.pid}) is started")

    def carried_on(self, seconds: float) -> None:
        """Tell that the order goes on, so long after that."""
        self._line(status_labels.COMPLETED, f"the workflow goes on where it was, {seconds:.1f} s later")


def tell(evidence: Evidence, problems: Sequence[str], output: Output) -> None:
    """Write each step at the kill and at the end, and the verdict."""
    for line in ["", *_table(evidence, output.screen), "", *_verdict(evidence, problems, output.screen), ""]:
        put(line)


def record_of(evidence: Evidence, problems: Sequence[str]) -> Record:
    """Give the same as programs read it."""
    at_kill = [one.step for one in evidence.at_kill.recorded()]
    return {
        "problems": list(problems),
        "steps": list(STEPS),
        "recorded_at_kill": at_kill,
        "under_way_at_kill": evidence.at_kill.under_way(),
        "recorded": [one.step for one in evidence.at_end.recorded()],
        "executions": {step: len(evidence.at_end.began(step)) for step in STEPS},
        "result": list(evidence.returned),
        "carried_on_s": evidence.carried_on_s,
    }


def _table(evidence: Evidence, looks: Screen) -> list[str]:
    before = {one.step for one in evidence.at_kill.recorded()}
    after = {one.step for one in evidence.at_end.recorded()}
    under_way = evidence.at_kill.under_way()
    recorded = f"{looks.glyph(status_labels.COMPLETED)} recorded"

    def then(step: str) -> str:
        return (
            recorded
            if step in before
            else f"{looks.glyph(status_labels.RUNNING)} under way"
            if step in under_way
            else "-"
        )

    rows = [
        [
            f"{_NUMBERS[step]} {step}",
            kind,
            then(step),
            recorded if step in after else f"{looks.glyph(status_labels.FAILED)} missing",
            {1: "once", 2: "twice"}.get(executed := len(evidence.at_end.began(step)), f"{executed} times"),
        ]
        for step, kind in STEPS.items()
    ]
    columns = ("STEP", "AS", "AT THE KILL", "AT THE END", "EXECUTED")
    return lines([Column(title) for title in columns], rows, looks)


def _verdict(evidence: Evidence, problems: Sequence[str], looks: Screen) -> list[str]:
    if problems:
        found = [f"{looks.glyph(status_labels.FAILED)} {problem}" for problem in problems]
        return [*found, looks.paint(f"Not as promised: {len(found)} findings.", status_labels.FAILED)]
    before = len(evidence.at_kill.recorded())
    said = [
        f"{before} steps were recorded at the kill: all are there, and none was run again",
        "the one under way was run again, under the same idempotency key",
        f"{len(STEPS)} steps recorded, each once; the result is right",
    ]
    return [f"{looks.glyph(status_labels.COMPLETED)} {line}" for line in said]

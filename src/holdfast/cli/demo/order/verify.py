"""Is the order's evidence in order? Pure: facts in, problems out.

Two witnesses: the history in the store, and the record that the steps kept beside it. What was recorded at the kill is
acknowledged: it must stand in the history afterwards as it stood then, and must not have been run again. Only what was
under way may be run twice, and then under one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.cli.demo.order.workflow import STEPS, Line, receipt
from holdfast.cli.demo.record import Said
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event
from holdfast.stores.protocol import Finding


class Recorded(msgspec.Struct, frozen=True):
    """One step as the history has it."""

    step: str
    value: str


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What both witnesses say at one instant."""

    history: Sequence[Event]
    record: Sequence[Line]

    def recorded(self) -> list[Recorded]:
        """Give the steps that the history has results of, in its order."""
        asked = {event.event_id: event.kind for event in self.history}
        found: list[Recorded] = []
        for event in self.history:
            match event.kind:
                case event_kinds.StepCompleted(name=name, result=result):
                    found.append(Recorded(name, result))
                case event_kinds.ActivityCompleted(result=result):
                    job = asked.get(event.source_event_id or 0)
                    found.append(Recorded(job.name if isinstance(job, event_kinds.ActivityScheduled) else "?", result))
                case _:
                    pass
        return found

    def began(self, step: str) -> list[Line]:
        """Give the executions of a step that began, by the record."""
        return [line for line in self.record if line.step == step and line.said is Said.BEGAN]

    def under_way(self) -> list[str]:
        """Give the steps that began and are not recorded."""
        recorded = {one.step for one in self.recorded()}
        return [step for step in STEPS if self.began(step) and step not in recorded]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that the verdict rests on."""

    order: int
    at_kill: Sight
    at_end: Sight
    #: What it returned, as JSON; why it did not, where it did not.
    returned: Sequence[str] = ()
    failure: str = ""
    findings: Sequence[Finding] = ()
    #: Seconds from the start of the second worker until the order went on; None: it never did.
    carried_on_s: float | None = None


def judge(evidence: Evidence) -> list[str]:
    """Hold the witnesses against each other; give what is not as promised."""
    return [
        *_nothing_shown(evidence),
        *_lost(evidence),
        *_recorded_twice(evidence),
        *_run_again(evidence),
        *(f"store check: {found.message}" for found in evidence.findings),
    ]


def _nothing_shown(evidence: Evidence) -> Iterator[str]:
    if not evidence.at_kill.recorded():
        yield "no step was recorded when the worker was killed, so nothing was shown"
    if not evidence.at_kill.under_way():
        yield "no step was under way when the worker was killed, so nothing was shown"


def _lost(evidence: Evidence) -> Iterator[str]:
    """Look for what was acknowledged and is gone, changed or not done."""
    for before, after in zip(evidence.at_kill.history, evidence.at_end.history, strict=False):
        if before != after:
            yield f"event {before.event_id} of the history is not what it was when the worker was killed"
    missing = len(evidence.at_kill.history) - len(evidence.at_end.history)
    if missing > 0:
        yield f"{missing} events that were recorded at the kill are gone"
    done = {one.step: one.value for one in evidence.at_end.recorded()}
    ended = {line.step for line in evidence.at_end.record if line.said is Said.ENDED}
    for step in STEPS:
        if step not in done:
            yield f"step {step} is not recorded"
        elif msgspec.json.decode(done[step]) != receipt(step, evidence.order):
            yield f"step {step} has a result that is not its own"
        elif step not in ended:
            yield f"step {step} is recorded, but no execution did it"
    if evidence.failure:
        yield f"the order did not end well: {evidence.failure}"
    elif list(evidence.returned) != [receipt(step, evidence.order) for step in STEPS]:
        yield "the order has a result that is not its own"


def _recorded_twice(evidence: Evidence) -> Iterator[str]:
    steps = [one.step for one in evidence.at_end.recorded()]
    for step in dict.fromkeys(steps):
        if steps.count(step) != 1:
            yield f"step {step} is recorded {steps.count(step)} times"


def _run_again(evidence: Evidence) -> Iterator[str]:
    """Look for executions beyond the first that nothing explains."""
    under_way = evidence.at_kill.under_way()
    for step in STEPS:
        began = evidence.at_end.began(step)
        allowed = 2 if step in under_way else 1
        if len(began) > allowed:
            yield f"step {step} was executed {len(began)} times, and {allowed} would be explained"
        if len({line.key for line in began}) > 1:
            yield f"step {step} was executed again under another key"

"""How an instance's reason is written for people: its look, and the commands that would change it.

The sentence itself comes from `rules.workflows.explain`, the same everywhere.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Sequence

from holdfast.app.workflows.decisions import DecisionState
from holdfast.app.workflows.state import InstanceState
from holdfast.cli.render import status_labels
from holdfast.model.error_details import CODE_ERROR, CORRUPT, INPUT
from holdfast.model.ids import JobId
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.rules.explain import Reason

_ENDED = {
    InstanceStatus.COMPLETED: status_labels.COMPLETED,
    InstanceStatus.FAILED: status_labels.FAILED,
    InstanceStatus.CANCELLED: status_labels.CANCELLED,
}
_GOING = {"blocked": status_labels.STUCK, "unregistered": status_labels.STUCK, "messages_waiting": status_labels.READY}

#: Jobs that are named.
NAMED = 3
#: What for, and the command.
Way = tuple[str, str]


def look_of(state: InstanceState, reason: Reason) -> status_labels.Look:
    """Give how an instance is drawn."""
    if state.status in _ENDED:
        return _ENDED[state.status]
    if reason.code == "waiting":
        asks = any(line.startswith("decision ") for line in state.waiting_on)
        return status_labels.ASKING if asks else status_labels.WAITING
    return _GOING.get(reason.code, status_labels.RUNNING)


def ways_on(
    state: InstanceState, reason: Reason, questions: Sequence[DecisionState], jobs: Sequence[JobId]
) -> list[Way]:
    """Give what would change an instance that has this reason, these open questions and these jobs under way."""
    name = shlex.quote(state.id)
    cancel = ("ask it to stop", f"holdfast workflows cancel {name}")
    worker = ("start a worker of the application that has its workflow", "holdfast worker APP")
    match reason.code:
        case "ended":
            return _after_the_end(state, name)
        case "blocked":
            return _blocked(reason, name)
        case "unregistered":
            # Its code cannot clean up where there is none.
            return [worker, ("end it without its code", f"holdfast workflows cancel {name} --force")]
        case "messages_waiting":
            return [worker, cancel]
        case "turn_running":
            return [cancel]
        case _:
            return [*_answers(questions), *_signals(state, name), *_jobs(jobs), cancel]


def _answers(questions: Sequence[DecisionState]) -> list[Way]:
    return [
        (
            f"answer {one.prompt!r}",
            f"holdfast decisions resolve {shlex.quote(one.id)} "
            + ("|".join(map(shlex.quote, one.options)) if one.options else "--message TEXT"),
        )
        for one in questions
    ]


def _signals(state: InstanceState, name: str) -> list[Way]:
    # As `workflows.runtime.wait_description` words them: signal 'paid'
    said = [line.removeprefix("signal ") for line in state.waiting_on if line.startswith("signal ")]
    return [
        (f"send signal {one}", f"holdfast workflows signal {name} {shlex.quote(ast.literal_eval(one))} --data JSON")
        for one in said
    ]


def _jobs(jobs: Sequence[JobId]) -> list[Way]:
    return [("see what would change its job", f"holdfast explain {shlex.quote(job)}") for job in jobs[:NAMED]]


def _blocked(reason: Reason, name: str) -> list[Way]:
    fail = ("give it up", f"holdfast workflows fail {name}")
    if reason.holder == CORRUPT:
        return [("see what is damaged", "holdfast store check"), fail]
    if reason.holder == INPUT:
        return [("go on, with code that takes its input", "holdfast worker APP"), fail]
    if reason.holder == CODE_ERROR:
        return [
            ("see the error with the code you have", f"holdfast workflows replay APP {name}"),
            ("go on, with code that gets further", "holdfast worker APP"),
            fail,
        ]
    return [
        ("see the difference with the code you have", f"holdfast workflows replay APP {name}"),
        ("go on, with code that does what was recorded", "holdfast worker APP"),
        ("begin again before what differs", f"holdfast workflows reset {name}"),
        fail,
    ]


def _after_the_end(state: InstanceState, name: str) -> list[Way]:
    if state.status is InstanceStatus.COMPLETED:
        return []
    return [
        ("see how it got there", f"holdfast workflows history {name}"),
        ("go on from before it ended", f"holdfast workflows reset {name}"),
        ("try it as another instance", f"holdfast workflows fork {name}"),
    ]

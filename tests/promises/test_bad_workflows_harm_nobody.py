"""Bad input to workflows, row by row: a clear error in Python and on the command line, nothing lost, others go on.

Each row is brought about on every store, while others wait and while others start. Then a program asks, the command
line asks, a worker of another process life goes on, and the row is healed: what was promised to it is still there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.cli.root import cli
from holdfast.errors import (
    ActivityError,
    ChildError,
    HistoryCorrupt,
    StepError,
    WorkflowAlreadyStarted,
    WorkflowFailed,
    WorkflowFinished,
    WorkflowNotFound,
)
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.testing.corruption import corrupt_history
from holdfast.workflows.api.definitions import Definitions

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 60
LARGE = 20_000_000


def application(url: str) -> Holdfast:
    """Make the application: what goes on, and what goes wrong."""
    hf = Holdfast(url)

    @hf.task(name="odd_task", max_attempts=1)
    def odd_task() -> Any:
        return object()

    @hf.workflow
    async def fine(n: int) -> int:
        return n + 1

    @hf.workflow
    async def patient() -> str:
        return await hf.signal("go", type=str)

    @hf.workflow
    async def bystander() -> str:
        return await hf.signal("go", type=str)

    @hf.workflow
    async def odd() -> Any:
        return {1, 2} if await hf.step(lambda: True) else object()

    @hf.workflow
    async def careful() -> list[str]:
        kinds = []
        try:
            await hf.step(object)
        except StepError as problem:
            kinds.append(problem.details.kind)
        try:
            await odd_task.call()
        except ActivityError as problem:
            kinds.append(problem.details.kind)
        return kinds

    @hf.workflow
    async def large() -> int:
        text = await hf.step(lambda: "x" * LARGE)
        await hf.signal("go")
        return len(text)

    @hf.workflow
    async def tells(target: str) -> str:
        hf.send_signal(target, "go", "late")
        return "told"

    @hf.workflow
    async def takes(target: str) -> str:
        try:
            await fine.options(id=target).call(7)
        except ChildError as problem:
            return problem.message
        return "taken"

    hf.does = {one.name: one for one in (fine, patient, bystander, odd, careful, large, tells, takes)}
    return hf


class Place:
    """A store, and one application after the other on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.hf = application(url)

    def start(self, name: str, *args: Any, id: str = "x") -> Any:  # noqa: A002 - as in the call it makes
        return self.hf.does[name].start(*args, id=id)

    def forget(self, name: str) -> None:
        """Have no code for a workflow, as a program it was deleted from."""
        kept = [one for one in self.hf.workflows.all() if one.name != name]
        self.hf.workflows = Definitions(SignatureCodec)
        for one in kept:
            self.hf.workflows.add(one)

    def settle(self) -> None:
        """Work until nothing is left to do."""
        worker = self.hf.worker(until_idle=True)
        worker.start()
        assert worker.join(LONG)

    def reopen(self) -> None:
        """Be another program on the same store, with all its code; in memory no other can be."""
        if self.url == "memory:":
            self.hf.workflows = application("memory:").workflows
        else:
            self.hf.close()
            self.hf = application(self.url)

    def run(self, command: str) -> tuple[int, str]:
        """Run a command while nobody has the store open: some have one process."""
        self.hf.close()
        told = CliRunner().invoke(cli, shlex.split(command), env={"HOLDFAST_STORE": self.url})
        return told.exit_code, told.output

    @property
    def x(self) -> Any:
        return self.hf.instance("x")


class Row(NamedTuple):
    """One kind of bad input."""

    name: str
    #: Brings it about.
    cause: Callable[[Place], object]
    #: What a program calls, the error it gets, if any, and words of that or of what is returned.
    call: Callable[[Place], object]
    error: type[Exception] | None
    said: str
    #: What a person types, the exit code, and words of the answer.
    commands: tuple[tuple[str, int, str], ...]
    #: Makes it good again, as far as that can be; and what the instance comes to.
    heal: Callable[[Place], object]
    end: Any


def nothing(_place: Place) -> None:
    """Need no healing."""


def start_unknown(place: Place) -> None:
    @place.hf.workflow(name="rare")
    async def rare(n: int) -> int:
        return n

    rare.start(5, id="x")
    place.forget("rare")
    place.settle()


def know(place: Place) -> None:
    @place.hf.workflow(name="rare")
    async def rare(n: int) -> int:
        return n


def end_and_tell(place: Place) -> None:
    place.start("fine", 1)
    place.settle()
    teller = place.start("tells", "x", id="teller")
    place.settle()
    assert teller.result(timeout=0) == "told"


def end_and_take(place: Place) -> None:
    place.start("fine", 1)
    place.settle()
    taker = place.start("takes", "x", id="taker")
    place.settle()
    assert "already exists" in taker.result(timeout=0)


def delete_code(place: Place) -> None:
    place.start("patient")
    place.settle()
    place.forget("patient")
    place.x.signal("go", "kept")
    place.settle()


def damage(place: Place) -> None:
    place.start("patient")
    place.settle()
    corrupt_history(place.hf.engine.store, "x")
    place.x.signal("go", "kept")
    place.settle()


def start_and_settle(name: str, *args: Any) -> Callable[[Place], None]:
    def cause(place: Place) -> None:
        place.start(name, *args)
        place.settle()

    return cause


ROWS = (
    Row(
        "a workflow that nobody has",
        start_unknown,
        lambda place: place.x.result(timeout=0),
        TimeoutError,
        "no live worker has workflow 'rare'",
        (
            ("workflows wait x --timeout 0", 5, "no live worker has workflow 'rare'"),
            ("explain x", 0, "no live worker has workflow 'rare'"),
            ("workflows start nosuch --id y", 0, "y"),
            ("explain y", 0, "workflow"),
        ),
        know,
        5,
    ),
    Row(
        "an instance that is not there",
        start_and_settle("fine", 1),
        lambda place: place.hf.instance("nobody").result(timeout=0),
        WorkflowNotFound,
        "'nobody'",
        (
            ("workflows show nobody", 3, "'nobody'"),
            ("workflows signal nobody go", 3, "'nobody'"),
            ("workflows wait nobody --timeout 0", 3, "'nobody'"),
        ),
        nothing,
        2,
    ),
    Row(
        "a signal to an instance that has ended",
        end_and_tell,
        lambda place: place.x.signal("go", 1),
        WorkflowFinished,
        "'x' is COMPLETED since .* Nothing was sent",
        (
            ("workflows signal x go", 6, "'x' is COMPLETED since"),
            ("workflows cancel x", 6, "'x' is COMPLETED since"),
        ),
        nothing,
        2,
    ),
    Row(
        "a second start with the same input",
        start_and_settle("fine", 1),
        lambda place: (place.start("fine", 1).created, place.start("fine", 1).result(timeout=0)),
        None,
        "False, 2",
        (("workflows start fine --id x --input '{\"n\": 1}' -o json", 0, '"created": ?false'),),
        nothing,
        2,
    ),
    Row(
        "a second start with other input",
        end_and_take,
        lambda place: place.start("fine", 2),
        WorkflowAlreadyStarted,
        "'x' already, with other input. Nothing was started",
        (
            ("workflows start fine --id x --input '{\"n\": 2}'", 6, "'x' already, with other input"),
            ("workflows start patient --id x", 6, "'x' already"),
        ),
        nothing,
        2,
    ),
    Row(
        "a result that is not JSON",
        start_and_settle("odd"),
        lambda place: place.x.result(timeout=0),
        WorkflowFailed,
        "the result cannot be kept: .* cannot be encoded as JSON",
        (
            ("workflows wait x", 1, "cannot be encoded as JSON"),
            ("workflows history x", 0, "cannot be encoded as JSON"),
            ("explain x", 0, "cannot be encoded as JSON"),
        ),
        nothing,
        WorkflowFailed,
    ),
    Row(
        "a step and an activity whose results are not JSON",
        start_and_settle("careful"),
        lambda place: place.x.result(timeout=0),
        None,
        "'Encoding', 'Encoding'",
        (("workflows wait x", 0, '\\["Encoding","Encoding"\\]'),),
        nothing,
        ["Encoding", "Encoding"],
    ),
    Row(
        "a step's result of 20 MB",
        start_and_settle("large"),
        lambda place: place.x.result(timeout=0),
        TimeoutError,
        "waits for signal 'go'",
        (
            ("workflows show x", 0, "signal 'go'"),
            ("workflows history x", 0, "StepCompleted"),
            ("workflows export x --redact", 0, "holdfast history"),
        ),
        lambda place: place.x.signal("go"),
        LARGE,
    ),
    Row(
        "an instance whose code was deleted",
        delete_code,
        lambda place: place.x.result(timeout=0),
        TimeoutError,
        "no live worker has workflow 'patient' 1.0.0",
        (
            ("workflows wait x --timeout 0", 5, "no live worker has workflow 'patient' 1.0.0"),
            ("explain x", 0, "no live worker has workflow 'patient' 1.0.0"),
        ),
        nothing,  # the next program has it again
        "kept",
    ),
    Row(
        "a history that cannot be read",
        damage,
        lambda place: place.x.result(timeout=0),
        HistoryCorrupt,
        "'x' is blocked: execution 1, event 1: cannot be read",
        (
            ("workflows wait x", 7, "'x' is blocked: execution 1, event 1: cannot be read"),
            ("explain x", 0, "cannot be read"),
            ("workflows show x", 0, "cannot be read"),
            ("workflows history x", 7, "'x', execution 1, event 1: cannot be read"),
            ("workflows export x", 7, "'x', execution 1, event 1: cannot be read"),
            ("store check", 1, "'x', event 1: cannot be read"),
            ("doctor", 1, "instance x is blocked(.|\n)*end it with `holdfast workflows fail x`"),
            ("workflows fail x --reason damaged", 0, "FAILED"),
        ),
        lambda place: place.x.fail("damaged") if place.url == "memory:" else None,
        WorkflowFailed,
    ),
)


@pytest.fixture(params=["memory", "wal", "sqlite", "dir"])
def place(request, tmp_path):
    made = Place("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'flows'}")
    yield made
    made.hf.close()


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_bad_input_is_told_to_whoever_asks_and_harms_nobody(place, row):
    place.start("bystander", id="before")
    row.cause(place)
    place.hf.instance("before").signal("go", "on")
    place.start("fine", 10, id="after")
    place.settle()
    assert place.hf.instance("before").result(timeout=0) == "on"
    assert place.hf.instance("after").result(timeout=0) == 11
    assert re.search(row.said, told_by(row, place))
    if place.url != "memory:":
        for command, code, said in row.commands:
            told = place.run(command)
            assert told[0] == code, (command, *told)
            assert re.search(said, told[1]), (command, *told)
    place.reopen()
    row.heal(place)
    place.settle()
    end_of(place, row.end)


def told_by(row: Row, place: Place) -> str:
    """Give what a program is told."""
    if row.error is None:
        return str(row.call(place))
    with pytest.raises(row.error) as caught:
        row.call(place)
    return str(caught.value)


def end_of(place: Place, end: Any) -> None:
    if isinstance(end, type):
        with pytest.raises(end):
            place.x.result(timeout=0)
    else:
        assert place.x.result(timeout=0) == end
        assert place.x.status().status is InstanceStatus.COMPLETED

"""The order: a workflow of six steps, two of them jobs. Each says beside the store that it began and that it ended.

Run as a program it is one worker, which leaves when its standard input ends.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import msgspec

from holdfast.app.application import Holdfast
from holdfast.app.workflows.workflow import Workflow
from holdfast.cli.demo.record import Said, note, work

#: This module, as workers are started with it.
PROGRAM = "holdfast.cli.demo.order.workflow"
#: The steps in their order, and what they are recorded as.
STEPS = {"reserve": "step", "charge": "job", "pack": "step", "label": "step", "ship": "job", "mail": "step"}
#: Seconds that a step takes, as a call to somebody else would; and the one that the worker is killed in.
PAUSE_S, LONG_S = 0.15, 0.9
#: That one.
FATAL = "label"


class Line(msgspec.Struct, frozen=True):
    """One line of the record."""

    said: Said
    step: str
    #: The same on every attempt: what a payment service would be given.
    key: str


def receipt(step: str, order: int) -> str:
    """Give what a step must answer for this order."""
    return f"{step} of order {order}"


def application(url: str, record: Path) -> tuple[Holdfast, Workflow[[int], list[str]]]:
    """Make the application on a store."""
    hf = Holdfast(url)

    def perform(step: str, order: int) -> str:
        key = hf.idempotency_key()
        note(record, Line(Said.BEGAN, step, key))
        threading.Event().wait(LONG_S if step == FATAL else PAUSE_S)
        note(record, Line(Said.ENDED, step, key))
        return receipt(step, order)

    @hf.task(name="charge")
    def charge(order: int) -> str:
        return perform("charge", order)

    @hf.task(name="ship")
    def ship(order: int) -> str:
        return perform("ship", order)

    @hf.workflow(name="order")
    async def order(number: int) -> list[str]:
        return [
            await hf.step.options(name="reserve")(perform, "reserve", number),
            await charge.call(number),
            await hf.step.options(name="pack")(perform, "pack", number),
            await hf.step.options(name="label")(perform, "label", number),
            await ship.call(number),
            await hf.step.options(name="mail")(perform, "mail", number),
        ]

    return hf, order


def main(url: str, record: str) -> None:
    """Work until told to stop, or until whoever started this process is gone."""
    hf, _ = application(url, Path(record))
    work(hf, concurrency=1)


if __name__ == "__main__":
    main(*sys.argv[1:])

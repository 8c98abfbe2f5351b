"""What the demo's workers run: a picture in four sizes, with progress, and a line in a file beside the store.

Each execution writes that it began and that it ended, synced before it goes on. The store does not know of that file,
so the two can be held against each other. Run as a program it is one worker, which leaves when its standard input ends.

Late pictures are not finished before one worker is dead: however slowly the demo looks on, there is one to be killed in
the middle of its work.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.app.application import Holdfast
from holdfast.app.tasks.task import Task
from holdfast.cli.demo.record import Said, note, work
from holdfast.model.ids import JobId, RunId

#: This module, as workers are started with it.
PROGRAM = "holdfast.cli.demo.task"
#: Edges of the small pictures, in pixels.
SIZES = (32, 64, 96, 128)
#: Seconds that a size takes beside the arithmetic, as reading and writing real files would.
PAUSE_S = 0.06
#: Jobs a worker runs at a time.
SLOTS = 4


class Line(msgspec.Struct, frozen=True):
    """One line of the record."""

    said: Said
    job_id: JobId
    run_id: RunId


def drawn(picture: int, size: int) -> bytes:
    """Draw a picture of that edge, in shades of grey."""
    return bytes((picture * x * y // size) & 0xFF for y in range(size) for x in range(size))


def expected(picture: int) -> list[int]:
    """Give what the task must answer for this picture."""
    return [zlib.crc32(drawn(picture, size)) for size in SIZES]


def application(
    url: str, namespace: str, record: Path, hold: Callable[[int], object] = lambda _picture: None
) -> tuple[Holdfast, Task[[int], list[int]]]:
    """Make the demo's application on a store; `hold` comes before the last size of a picture."""
    hf = Holdfast(url, namespace=namespace)

    @hf.task(name="thumbnail")
    def thumbnail(picture: int) -> list[int]:
        run = hf.current
        note(record, Line(Said.BEGAN, run.job_id, run.run_id))
        sums = []
        for done, size in enumerate(SIZES, 1):
            if done == len(SIZES):
                hold(picture)
            sums.append(zlib.crc32(drawn(picture, size)))
            run.wait_cancelled(PAUSE_S)
            run.progress(done, len(SIZES), f"{size} pixels")
        note(record, Line(Said.ENDED, run.job_id, run.run_id))
        return sums

    return hf, thumbnail


def main(url: str, namespace: str, record: str, late: str) -> None:
    """Work until told to stop; pictures from number `late` on wait for a line on standard input."""
    gate, first = threading.Event(), int(late)
    hf, _ = application(url, namespace, Path(record), lambda picture: picture < first or gate.wait())
    work(hf, concurrency=SLOTS, gate=gate)


if __name__ == "__main__":
    main(*sys.argv[1:])

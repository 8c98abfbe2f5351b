"""What the demo's workers have in common: the file they write to beside the store, and how they begin and end.

The store does not know of that file, so the two can be held against each other.
"""

from __future__ import annotations

import os
import sys
import threading
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast.app.application import Holdfast


class Said(StrEnum):
    """What an execution says of itself."""

    BEGAN = "began"
    ENDED = "ended"


def note(record: Path, line: msgspec.Struct) -> None:
    """Append a line; it is on the disk when this returns."""
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, msgspec.json.encode(line) + b"\n")  # one write: lines of many processes do not mix
        os.fsync(file)
    finally:
        os.close(file)


def work(hf: Holdfast, *, concurrency: int, gate: threading.Event | None = None) -> None:
    """Work until told to stop, or until whoever started this process is gone: its standard input ends then.

    A line on standard input opens the gate, and so does its end: nothing waits there for the dead.
    """
    worker = hf.worker(concurrency=concurrency)

    def follow() -> None:
        sys.stdin.readline()
        if gate is not None:
            gate.set()
        sys.stdin.read()
        worker.stop()

    threading.Thread(target=follow, name="lifeline", daemon=True).start()
    print(worker.worker_id, flush=True)
    worker.run()
    hf.close()

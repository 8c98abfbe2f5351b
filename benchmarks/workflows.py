"""How many workflows a worker process runs in a second, on sqlite and wal; beside DBOS on SQLite in the same run.

Every acknowledgement is durable. Parties take turns, each measurement in a fresh process on a fresh store; rates are
medians. DBOS has no activities on other workers; ours stand beside its steps, and no ratio is asked of them. Beside the
rates stands what each workflow cost in processor time, which a busy machine distorts less.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks import Row, child_env
from benchmarks.flowparty import Measured

#: Seconds that one measurement may take.
PATIENCE_S = 300


class Sizes(NamedTuple):
    """How much is measured."""

    #: Turns of each party.
    turns: int = 3
    #: Workflows of a turn, with one step; a tenth of them with ten.
    many: int = 3000


#: What is measured: kind, and how many steps or activities.
PLAN = (("steps", 1), ("steps", 10), ("activities", 10))
#: How many times the peer's rate is asked of us.
TIMES = 10


def peer() -> str | None:
    """Name the peer that is measured beside us, if it is installed."""
    return None if find_spec("dbos") is None else f"DBOS {version('dbos')} (SQLite, its defaults)"


def measure(place: Path, party: str, kind: str, size: int, count: int) -> Measured:
    """Measure once, in a process of its own."""
    place.mkdir()
    words = [sys.executable, "-m", "benchmarks.flowparty", party, str(place / "flows")]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            [*words, kind, str(size), str(count)],
            env=child_env(),
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=True,
            text=True,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Measured(*json.loads(done.stdout))


def run(directory: Path, sizes: Sizes) -> Iterator[Row]:
    """Measure everything; takes some minutes with the usual sizes."""
    parties = ["sqlite", "sqlite-waiting", "wal", "wal-waiting"]
    for kind, size in PLAN:
        measured: dict[str, list[Measured]] = {party: [] for party in parties}
        if kind == "steps" and peer():
            measured["dbos"] = []
        for turn in range(sizes.turns):
            for party, found in measured.items():
                # The slow ones get fewer, so that all take about as long.
                count = max(10, sizes.many // size // (10 if party == "dbos" else 1))
                found.append(measure(directory / f"{party}-{kind}-{size}-{turn}", party, kind, size, count))
        medians = {
            party: Measured(*map(statistics.median, zip(*found, strict=True))) for party, found in measured.items()
        }
        theirs = medians.pop("dbos", None)
        noun = kind if size > 1 else "step"
        for party, ours in medians.items():
            scheme, _, waiting = party.partition("-")
            name = f"{scheme}: {size} {noun}, {'started before' if waiting else 'from start to end'}"
            if theirs is None:
                yield Row(name, ours.rate, "wf/s", None, "", holds=True)
            else:
                holds = ours.rate >= TIMES * theirs.rate
                yield Row(name, ours.rate, "wf/s", theirs.rate, f">= {TIMES} x", holds=holds)
            if waiting:
                cpu = None if theirs is None else theirs.cpu_us
                yield Row(f"{scheme}: {size} {noun}, processor time", ours.cpu_us, "us/wf", cpu, "", holds=True)

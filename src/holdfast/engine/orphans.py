"""Orphans: runs whose jobs are not there. Only damage leaves them behind, and only a person removes them.

The order: the runs are written to a file beside the store and synced, then removed by an ordinary command. Cut short in
between, it is simply run again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.engine.engine import Engine
from holdfast.errors import StoreFailed
from holdfast.model.commands import DropRuns
from holdfast.model.jobs import Job, Run
from holdfast.stores.opening import open_store, parse_url
from holdfast.stores.protocol import View

#: Runs that one commit removes.
AT_ONCE = 500


class OrphanPlan:
    """What would be written elsewhere and removed, told before it is done."""

    def __init__(self, url: str, runs: Sequence[Run]) -> None:
        self._url = url
        self._runs = runs

    @property
    def is_needed(self) -> bool:
        """Whether there is such a run."""
        return bool(self._runs)

    @property
    def lines(self) -> list[str]:
        """For people: which runs would go."""
        return [f"run {run.run_id} of {run.started_at} has no job {run.job_id}: would be removed" for run in self._runs]

    def apply(self) -> list[str]:
        """Write the runs to a file, then remove them. Raises StoreFailed if they cannot be written; none is gone."""
        engine = Engine(open_store(self._url))
        try:
            with engine.read() as view:
                runs = orphans(view)  # as they are now, under the lock of the store
            place = f"{parse_url(self._url).path}.orphans-{engine.new_id()}.jsonl"
            _write(place, runs)
            for at in range(0, len(runs), AT_ONCE):
                engine.ask(DropRuns(runs=tuple(run.run_id for run in runs[at : at + AT_ONCE])))
        finally:
            engine.close()
        return [f"{len(runs)} runs were written to {place} and removed"]


def plan_orphans(url: str) -> OrphanPlan:
    """Look for runs without a job; changes nothing."""
    store = open_store(url, readonly=True)
    try:
        with store.read() as view:
            return OrphanPlan(url, orphans(view))
    finally:
        store.close()


def orphans(view: View) -> list[Run]:
    """Give the runs whose jobs are not there, by id."""
    return [run for run in view.all(Run) if view.get(Job, run.job_id) is None]


def _write(place: str, runs: Sequence[Run]) -> None:
    """Write a new file, one JSON line a run, durably: the file, then its name."""
    try:
        fd = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.writelines(msgspec.json.encode(run) + b"\n" for run in runs)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(Path(place).parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        message = f"{place}: cannot be written: {error.strerror}. Nothing was removed."
        raise StoreFailed(message, hint="Check the directory and its space.", file=place) from error

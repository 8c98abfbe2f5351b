"""`holdfast doctor`: what is not well with a store, its place and its work. Silent when all is; changes nothing.

What is wrong is found elsewhere (`engine.health`, `stores.diagnostics`); here it is only gathered and shown.
"""

from __future__ import annotations

import platform
import sqlite3
import sys
from importlib.util import find_spec

import click
import msgspec

import holdfast
from holdfast.cli.render.output import output_for, output_options
from holdfast.cli.render.terminal import safe, say
from holdfast.cli.store_access.target import PATIENCE_S, existing, now, store_option, target
from holdfast.clock import SystemClock
from holdfast.engine.health import ailments
from holdfast.engine.hold_lengths import granted_lengths, last_event_at, was_set_back
from holdfast.errors import StoreDamaged
from holdfast.journal.repair import Problem
from holdfast.model.jobs import JobStatus
from holdfast.model.schedules import Schedule
from holdfast.model.times import stamp
from holdfast.model.workers import WorkerState
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.stores.diagnostics import clock_behind, measure, summary, weak_points
from holdfast.stores.opening import open_store
from holdfast.stores.protocol import Elsewhere, Finding, Store, View
from holdfast.stores.wal import finding

#: Extras of the package → what they bring.
EXTRAS = {"cli": ("click", "rich"), "web": ("starlette", "uvicorn", "httptools", "httpx2")}

Lines = list[tuple[str, str]]


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was looked at.")
@output_options("table", "json", "jsonl")
@store_option
def doctor(*, verbose: bool, output: str) -> None:
    """Say what is not well with the store, its place and its work, and what to do about it. Changes nothing.

    Silent if all is well. Exits 0 then, 1 with findings, 3 if there is no store.
    """
    out = output_for(output)
    findings, looked_at = _examine(target().url)
    if verbose:
        widest = max(len(title) for title, _ in looked_at)
        for title, text in looked_at:
            say(f"{title.ljust(widest)}  {safe(text)}")
    out.records(
        [msgspec.to_builtins(found) for found in findings],
        lambda: [f"{found.code}  {safe(found.message)}\n    {safe(found.remedy)}" for found in findings],
        key="code",
    )
    sys.exit(1 if findings else 0)


def _examine(url: str) -> tuple[list[Finding], Lines]:
    where, clock = existing(url), SystemClock()
    began = clock.monotonic()
    try:
        store = open_store(url, readonly=True, patience_s=PATIENCE_S)
    except StoreDamaged as damage:
        return [finding(Problem.of(damage))], _versions()
    try:
        # A coordinator decides by its own clock. Of its store only the work is seen from here, not the disk.
        if isinstance(store, Elsewhere):
            at = stamp(store.clock.now())
            place, looked_at = clock_behind(last_event_at(store), at, "the coordinator"), [("coordinator", url)]
        else:
            at = now()
            vitals = measure(url, where, store, clock.monotonic() - began, clock)
            place, looked_at = weak_points(vitals, at), [*summary(vitals)]
        granted = granted_lengths(store) if was_set_back(store, at) else None
        with store.read() as view:
            findings = [*place, *ailments(view, at, store.workers.all(), granted)]
            return findings, [*_versions(), *looked_at, *_work(view, store)]
    finally:
        store.close()


def _versions() -> Lines:
    extras = [name for name, parts in EXTRAS.items() if all(find_spec(part) for part in parts)]
    python = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    libraries = f"msgspec {msgspec.__version__}, SQLite {sqlite3.sqlite_version}"
    return [
        ("holdfast", f"{holdfast.__version__}, extras: {', '.join(extras) or 'none'}"),
        ("python", f"{python}, {libraries}"),
    ]


def _work(view: View, store: Store) -> Lines:
    counts = view.counts()
    waiting = sum(one.count for one in counts if one.status is JobStatus.QUEUED)
    running = sum(one.count for one in counts if one.status is JobStatus.RUNNING)
    states = [worker.state for worker in store.workers.all()]
    workflows = sorted(
        {code for worker in store.workers.all() if worker.state is WorkerState.READY for code in worker.workflows}
    )
    instances = view.flow_totals().instances.get(InstanceStatus.RUNNING, 0)
    schedules = sum(schedule.enabled for schedule in view.all(Schedule))
    return [
        ("workers", ", ".join(f"{states.count(state)} {state}" for state in WorkerState)),
        ("jobs", f"{waiting:,} wait, {running:,} run"),
        ("workflows", f"{instances:,} instances run; live workers have {', '.join(workflows) or 'none'}"),
        ("schedules", f"{schedules:,} are on"),
    ]

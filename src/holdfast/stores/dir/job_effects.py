"""What a batch makes of the files: record images, and the places they leave. It decides nothing and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.jobs import Job, Run
from holdfast.model.records import Authority, Record
from holdfast.stores.dir import store_files
from holdfast.stores.dir.format import job_file, record_files
from holdfast.stores.dir.format.atomic_write import image_of
from holdfast.stores.dir.format.camel_case import encode
from holdfast.stores.dir.format.file_names import name_of
from holdfast.stores.dir.format.record_files import STATE_OF
from holdfast.stores.dir.intent import Drop, Effect
from holdfast.stores.dir.job_locations import Places
from holdfast.stores.dir.tables import DirTables
from holdfast.stores.dir.workflow_effects import BatchPlan, flow_plan


def plan_of(
    tables: DirTables, places: Places, extras: Mapping[str, msgspec.Raw], errands: Mapping[str, list[Effect]]
) -> BatchPlan:
    """Work out what has to be written for the open batch; `errands` are further effects that go with a job's change."""
    changed = tables.changed()
    plan = flow_plan(tables, changed)
    effects = plan.effects
    jobs: dict[str, None] = {}
    for (kind, key), before in changed.items():
        after: Record | None = tables.records[kind].get(key)
        if kind is Job:
            jobs[key] = None
        elif kind is Run:
            jobs[_job_of(after, before)] = None
        elif kind is Authority:
            effects += _dispatch(after, before, tables.seq)
        elif kind not in record_files.FOLDERS:
            continue  # of an instance
        elif after is not None:
            effects.append(image_of(*record_files.place_of(after), tables.seq, record_files.write(after, tables.seq)))
        elif before is not None:
            effects.append(Drop(*record_files.place_of(before)))
    for job_id in jobs:
        effects += job_effects(tables, places, extras, job_id)
        effects += errands.get(job_id, ())
    return plan


def _job_of(after: Record | None, before: Record | None) -> str:
    run = after or before
    assert isinstance(run, Run)
    return run.job_id


def job_effects(tables: DirTables, places: Places, extras: Mapping[str, msgspec.Raw], job_id: str) -> list[Effect]:
    """Give what brings the file of one job to what the tables say."""
    name = name_of(job_id)
    now = places.folders.get(name)
    job: Job | None = tables.records[Job].get(job_id)
    if job is None:
        return [] if now is None else [Drop(now, name)]
    target = places.target(name, job_id, STATE_OF[job.status])
    text = job_file.write(job, job_file.kept_runs(tables, job, tables.ts), extras.get(job_id, job_file.EMPTY))
    image = image_of(target, name, job.seq, text)
    return [image] if now is None or now == target else [image, Drop(now, name)]


def _dispatch(after: Record | None, before: Record | None, seq: int) -> list[Effect]:
    """Give the file that says whether dispatch is paused, where that has changed. Tokens are counted elsewhere."""
    assert isinstance(after, Authority)
    old = before if isinstance(before, Authority) else None
    paused = (after.dispatch_paused, after.dispatch_reason)
    if paused == ((old.dispatch_paused, old.dispatch_reason) if old else (False, None)):
        return []
    said = store_files.dispatch_plan.write(store_files.Dispatch(*paused))
    return [image_of("", store_files.DISPATCH, seq, encode({"paused": after.dispatch_paused, **said, "seq": seq}))]

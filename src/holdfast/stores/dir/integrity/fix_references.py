"""Mending what goes beyond one file: keys whose job is gone, jobs whose key is gone, turns whose messages are gone."""

from __future__ import annotations

import msgspec

from holdfast.model.jobs import Job, JobStatus, KeyHold
from holdfast.model.records import HeldKey, key_of
from holdfast.model.workflows.instances import Turn
from holdfast.rules.jobs.unique_keys import hold_of, table_key
from holdfast.stores.dir.format import atomic_write, record_files
from holdfast.stores.dir.format.workflow_files import LOCK, folder_of
from holdfast.stores.dir.intent import Drop, Effect
from holdfast.stores.dir.tables import DirTables


def mended_keys(tables: DirTables) -> list[Effect]:
    """Bring keys and live jobs together again, in the tables; give what has to be written for it."""
    effects: list[Effect] = []
    jobs = tables.records[Job]
    for held in list(tables.records[HeldKey].values()):
        if held.hold in (KeyHold.WINDOW, KeyHold.FOREVER):
            continue
        job = jobs.get(held.job_id)
        if job is None or job.has_ended:
            tables.put(HeldKey, key_of(held), None)
            effects.append(Drop(*record_files.place_of(held)))
    for job in jobs.values():
        if job.key is None or job.has_ended or job.key_hold in (KeyHold.WINDOW, KeyHold.FOREVER):
            continue
        hold, key = hold_of(job), table_key(job)
        waits = job.status is JobStatus.QUEUED or job.key_hold is KeyHold.ACTIVE
        if hold is not None and key is not None and waits and key not in tables.records[HeldKey]:
            tables.put(HeldKey, key, hold)
            effects.append(
                atomic_write.image_of(*record_files.place_of(hold), tables.seq, record_files.write(hold, tables.seq))
            )
    return effects


def mended_turns(tables: DirTables) -> list[Effect]:
    """Take messages out of turns whose files are gone, in the tables; give what has to be written for it."""
    effects: list[Effect] = []
    for turn in list(tables.records[Turn].values()):
        there = {message.seq for message in tables.mail(turn.instance_id) if message.parked is None}
        left = tuple(seq for seq in turn.messages if seq in there)
        if left != turn.messages:
            mended = msgspec.structs.replace(turn, messages=left)
            tables.put(Turn, turn.instance_id, mended)
            effects.append(
                atomic_write.image_of(
                    folder_of(turn.instance_id), LOCK, tables.seq, record_files.write(mended, tables.seq)
                )
            )
    return effects

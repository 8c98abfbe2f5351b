"""A directory with a store, an engine on it, and the verbs of people: what they type, and what they see by `ls`."""

from __future__ import annotations

import itertools
import json
import os
from datetime import timedelta
from pathlib import Path

import msgspec

from holdfast.clock import SystemClock
from holdfast.engine import Engine
from holdfast.engine.file_adoption import adopt
from holdfast.engine.maintenance import recover
from holdfast.model.commands import Complete, Enqueue, Fail, Lease, NewJob
from holdfast.stores.dir import DirStore
from holdfast.testing import ManualClock
from holdfast.testing.simdisk import disk_of
from support.unsynced import Unsynced

STATES = ("pending", "running", "completed", "failed")


def job(job_id, params=None, **more):
    raw = msgspec.Raw(msgspec.json.encode({} if params is None else params))
    return NewJob(job_id=job_id, job_type=more.pop("job_type", "work"), params=raw, **more)


def seen_anew(images):
    """Leave out what is before the call behind a sync: for a process that comes after a death nothing has changed."""
    anew = images[:1]
    for before, image in itertools.pairwise(images):
        if before[2].kind not in {"sync", "sync_dir"} or before[1] != image[1]:
            anew.append(image)
    return anew


def is_new(seen, fs, heard):
    """Tell whether this disk was not `seen` before after as many steps, and note that it is now."""
    known = len(seen)
    seen.add((disk_of(fs._root), heard))
    return len(seen) > known


class Desk:
    """One store in one directory, open or closed."""

    def __init__(self, path: Path, *, clock=None, opened=True):
        self.path = path
        self.clock = clock or ManualClock(SystemClock().now())
        self.engine = None
        if opened:
            self.open()

    def open(self):
        store = DirStore.open(self.path, fs=Unsynced(self.path, create=True), clock=self.clock)
        self.engine = Engine(store, clock=self.clock)
        recover(self.engine)
        return self

    @property
    def store(self):
        return self.engine.store

    def close(self):
        if self.engine is not None:
            self.engine.close()
            self.engine = None

    def reopen(self):
        self.close()
        return self.open()

    def kill(self):
        """Leave everything as a process that is killed does: nothing is closed, the system lets go of its lock."""
        self.store._file_lock.release()
        self.engine = None

    def settle(self, *, running):
        """Have what people did noticed: by the next look, or by the next opening."""
        if running:
            self.look_on()
            for _ in range(2):  # a file that is gone is looked for twice
                self.clock.advance(1)
                self.look()
        else:
            self.open()
            self.look_on()

    def look(self):
        """See to everything that people did to files."""
        adopt(self.engine)
        self.look_on()

    def look_on(self):
        """See to what a look that is under way has found."""
        while self.store.has_more:
            adopt(self.engine)

    # --- commands -----------------------------------------------------------------------------------------------------

    def add(self, *jobs):
        return self.engine.ask(Enqueue(jobs=jobs))

    def take(self, n=1, **more):
        return self.engine.ask(Lease(worker_id="w", n=n, session_id=self.engine.session_id, **more)).grants

    def complete(self, grant, result=None):
        raw = msgspec.Raw(msgspec.json.encode(result))
        return self.engine.ask(Complete(job_id=grant.job.job_id, token=grant.token, result=raw))

    def fail(self, grant, **more):
        return self.engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="boom", **more))

    def job(self, job_id):
        return self.engine.job(job_id)

    # --- files --------------------------------------------------------------------------------------------------------

    def folder(self, state) -> Path:
        return self.path / "data" / "tasks" / state

    def make_folders(self):
        """Make what document 000 describes, without a store."""
        for state in STATES:
            self.folder(state).mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def ls(self, state):
        return sorted(path.name for path in self.folder(state).iterdir())

    def where(self):
        """Give every file of a job: name → states it is in."""
        found = {}
        for state in STATES:
            for path in self.folder(state).rglob("*.json"):
                found.setdefault(path.stem, []).append(state)
        return found

    def file(self, state, name) -> dict:
        return json.loads((self.folder(state) / f"{name}.json").read_text())

    def write(self, state, name, content, *, age_s=0.0):
        """Write a file as another program does: a dot name, then the real one."""
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        draft = self.folder(state) / f".{name}.new"
        draft.write_bytes(text)
        when = (self.clock.now() - timedelta(seconds=age_s)).timestamp()
        os.utime(draft, (when, when))
        draft.rename(self.folder(state) / f"{name}.json")

    def quarantined(self):
        place = self.path / "data" / "quarantine"
        return {path.name.split("-", 2)[2]: path for path in sorted(place.glob("*.json"))}

    def demand_sound(self, *, quarantined=0):
        found = self.store.check()
        assert [one for one in found if one.code != "quarantined"] == []
        assert len(found) == quarantined, found

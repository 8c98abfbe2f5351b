"""Ended jobs, read when somebody asks for them. What cannot be read is set aside, or told if we only look."""

from __future__ import annotations

import logging

from holdfast.journal.filesystem import FS
from holdfast.journal.fs_errors import telling
from holdfast.stores.dir.format import job_file
from holdfast.stores.dir.format.atomic_write import apply, image_of, path_of
from holdfast.stores.dir.format.job_file import JobFile
from holdfast.stores.dir.format.record_files import STATE_OF
from holdfast.stores.dir.format.record_text import Unreadable
from holdfast.stores.dir.intent import Drop
from holdfast.stores.dir.job_locations import is_in, state_of
from holdfast.stores.dir.opening import Opened
from holdfast.stores.dir.reader import Irregular, ended_file

log = logging.getLogger("holdfast.stores.dir")


def read_ended(fs: FS, root: str, opened: Opened, name: str, folder: str, *, readonly: bool) -> JobFile | None:
    """Read one file; None if it is not there, is none, or says nothing. Raises StoreError if the disk fails."""
    path, tables = path_of(folder, name), opened.tables
    with telling(root, f"reading {path}"):
        try:
            file = ended_file(fs, folder, state_of(folder), name, applied=tables.opened_at, made_at=tables.made_at)
        except Unreadable as problem:
            if readonly:
                log.warning("record.unreadable", extra={"file": path, "reason": str(problem)})
                opened.unreadable.append((path, str(problem)))
            else:
                opened.quarantine.take(folder, name, str(problem))
                opened.places.leave(name)
            return None
        except Irregular:
            log.warning("record.irregular", extra={"file": path, "store": root})
            return None
        except FileNotFoundError:
            # Taken away by hand, or moved meanwhile by the process whose store we only read.
            log.warning("record.gone", extra={"file": path, "store": root})
            opened.places.leave(name)
            return None
    target = STATE_OF[file.job.status]
    if not is_in(folder, target) and not readonly:
        log.warning("record.returned", extra={"file": path, "to": target, "job": file.job.job_id})
        image = image_of(target, name, file.job.seq, job_file.write(file.job, file.runs, file.extra))
        with telling(root, f"returning {path}"):
            apply(fs, [image, Drop(folder, name)], lambda _image, _seen: None)
        opened.places.arrive(name, target)
    if file.extra != job_file.EMPTY:
        opened.extras[file.job.job_id] = file.extra
    return file

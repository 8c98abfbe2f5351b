"""`workflow_histories`: keep the histories of runs that ended in tests, as a corpus for `holdfast workflows check`.

A run that took a way through the code which is kept already is not kept again, whatever its id and times: a corpus
grows with what workflows do, not with how often tests are run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.workflows.determinism.history_match import describe_event
from holdfast.workflows.replay.export import HistoryFile, file_of, write_file

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast

#: Characters of a digest that tell ways apart.
TELLING = 12
#: Instances that are looked at.
MOST = 10_000


@contextmanager
def workflow_histories(app: Holdfast, folder: str | Path) -> Iterator[None]:
    """Write every instance that has ended when the block does into a file of this folder.

    >>> with virtual(hf) as world, workflow_histories(hf, "histories"):  # doctest: +SKIP
    ...     world.run(onboard.start(42))
    """
    yield
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for run in app.instances(limit=MOST):
        state = run.status()
        if not state.has_ended:
            continue
        having = {one.execution_id: run.history(one.execution_id) for one in run.executions()}
        kept = file_of(run.id, str(state.status), having)
        path = place / _name(kept)
        if not path.exists():
            path.write_bytes(write_file(kept))


def _name(file: HistoryFile) -> str:
    """Give the name of a way: workflow, version, and a digest of what happened, without ids and times."""
    said = [describe_event(event).replace(file.instance, "") for one in file.executions for event in one.events]
    way = sha256("\n".join(said).encode()).hexdigest()[:TELLING]
    # A workflow's name is text from outside: no more of it than is safe in a file's name.
    shown = re.sub(r"[^A-Za-z0-9._-]", "_", f"{file.workflow}-{file.version}").lstrip(".")
    return f"{shown}-{way}.json"

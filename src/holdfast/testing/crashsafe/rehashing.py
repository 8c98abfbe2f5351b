"""Histories replayed by another process, whose strings hash otherwise: iteration over sets shows itself.

The other process imports the module that the workflow is a variable of; a workflow that is none cannot be found there.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec

from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.judging import Broken, Recorded, demand_replay
from holdfast.workers.task_registry import MAIN_AGAIN
from holdfast.workflows.api.workflow import Workflow

#: Seconds that the other process may take.
PATIENCE_S = 300
#: What a module is called that is run.
MAIN = "__main__"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the other process finds a workflow."""

    module: str
    file: str | None
    variable: str
    path: tuple[str, ...]
    #: What `python -m` was given, where the module is what is run.
    run_as: str | None = None


class _Task(msgspec.Struct, frozen=True):
    place: Place
    histories: tuple[Recorded, ...]


class Verdict(msgspec.Struct, frozen=True):
    """What a history was found to break."""

    at: int
    kind: str
    text: str


def place_of(workflow: Workflow[..., Any]) -> Place | None:
    """Find the variable of a module that is this workflow; None if there is none."""
    module = sys.modules.get(workflow.definition.function.__module__)
    for name, value in vars(module).items() if module is not None else ():
        if isinstance(value, Workflow) and value.definition is workflow.definition:
            assert module is not None
            return Place(
                module=module.__name__,
                file=getattr(module, "__file__", None),
                variable=name,
                path=tuple(sys.path),
                run_as=None if module.__spec__ is None else module.__spec__.name,
            )
    return None


def replay_elsewhere(place: Place, hash_seed: int, histories: Sequence[Recorded]) -> list[Verdict]:
    """Replay histories in a process of that hash seed, and give what they break."""
    task = msgspec.json.encode(_Task(place, tuple(histories)))
    done = subprocess.run(  # noqa: S603 - this interpreter, with words of ours alone
        [sys.executable, "-m", __name__],
        input=task,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise Broken("cannot be replayed elsewhere", f"importing {place.module} in another process failed: {said}")
    verdicts: list[Verdict] = msgspec.json.decode(done.stdout.rpartition(b"\n")[2], type=list[Verdict])
    return verdicts


def _found(place: Place) -> Workflow[..., Any]:
    sys.path[:] = place.path
    try:
        module = _loaded(place) if place.module == MAIN else importlib.import_module(place.module)
    except ModuleNotFoundError:
        module = _loaded(place)
    workflow: Workflow[..., Any] = getattr(module, place.variable)
    return workflow


def _loaded(place: Place) -> ModuleType:
    """Load a file under another name than `__main__`: what a script does when run stays undone."""
    name = MAIN_AGAIN if place.module == MAIN else place.module
    spec = importlib.util.spec_from_file_location(name, place.file or "")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if place.module == MAIN:
        # As the interpreter does for what it runs: tasks without a name are called after this, here as there.
        module.__spec__ = None if place.run_as is None else importlib.util.find_spec(place.run_as)
        module.__package__ = None if module.__spec__ is None else module.__spec__.parent
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Replay what stdin names, and write verdicts to stdout."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=_Task)
    definitions = Cast(_found(task.place)).definitions
    verdicts = []
    for at, recorded in enumerate(task.histories):
        try:
            demand_replay(definitions, recorded)
        except Broken as broken:
            verdicts.append(Verdict(at, broken.kind, broken.text))
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(verdicts))


if __name__ == MAIN:
    main()

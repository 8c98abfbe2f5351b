"""Histories replayed by another process, whose strings hash otherwise: iteration over sets shows itself.

The other process imports the module that the workflow is a variable of; a workflow that is none cannot be found there.
A module that calls `assert_crash_safe` while it is imported is refused, or each process would start the next. The other
process ends with the one that started it.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import msgspec

from holdfast.errors import InvalidOperation
from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.judging import Broken, Recorded, demand_replay
from holdfast.workers.task_registry import MAIN_AGAIN
from holdfast.workflows.api.workflow import Workflow
from holdfast.workflows.determinism.guard import Guard

#: Seconds that the other process may take.
PATIENCE_S = 300
#: Set in the other process: the pipe that closes when the process that started it ends.
LIFELINE = "HOLDFAST_REPLAY_LIFELINE"
#: What the other process leaves with if the module calls `assert_crash_safe` while it is imported.
CALLED_AGAIN = 75
#: Of prctl: the signal that this process gets when its parent ends. Linux.
_SET_PARENT_DEATH_SIGNAL = 1
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


def refuse_in_replay() -> None:
    """Refuse `assert_crash_safe` in the process that another call of it started. Raises InvalidOperation."""
    if LIFELINE in os.environ:
        raise InvalidOperation("assert_crash_safe: called in the process that replays histories for it.", replays=True)


def _called_when_imported(place: Place) -> InvalidOperation:
    return InvalidOperation(
        f"{place.file or place.module} calls assert_crash_safe when it is imported, and a process that replays "
        "histories imports it. That process was ended; the histories were not replayed under other hash seeds.",
        hint='Put the call into a function, or beneath `if __name__ == "__main__":`.',
        module=place.module,
    )


def replay_elsewhere(place: Place, hash_seed: int, histories: Sequence[Recorded]) -> list[Verdict]:
    """Replay histories in a process of that hash seed, and give what they break.

    Raises InvalidOperation if the module calls `assert_crash_safe` when it is imported.
    """
    task = msgspec.json.encode(_Task(place, tuple(histories)))
    watched, held = os.pipe()
    env = {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, with words of ours alone
            [sys.executable, "-m", __name__],
            input=task,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            pass_fds=(watched,),
            env={**os.environ, **env, LIFELINE: str(watched)},
        )
    finally:
        os.close(watched)
        os.close(held)
    if done.returncode == CALLED_AGAIN:
        raise _called_when_imported(place)
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


def _end_with_parent() -> None:
    """End this process when the one that started it ends: its end of the pipe closes then."""
    lifeline = int(os.environ[LIFELINE])

    def watch() -> None:
        os.read(lifeline, 1)
        os._exit(1)

    with suppress(AttributeError, OSError, ValueError):  # not every system has it; the thread needs the interpreter
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def main() -> None:
    """Replay what stdin names, and write verdicts to stdout."""
    _end_with_parent()
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=_Task)
    try:
        definitions = Cast(_found(task.place)).definitions
        definitions.guard = Guard()
    except InvalidOperation as problem:
        sys.exit(CALLED_AGAIN if problem.facts.get("replays") else str(problem))
    verdicts = []
    for at, recorded in enumerate(task.histories):
        try:
            demand_replay(definitions, recorded)
        except Broken as broken:
            verdicts.append(Verdict(at, broken.kind, broken.text))
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(verdicts))


if __name__ == MAIN:
    main()

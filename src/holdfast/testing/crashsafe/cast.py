"""The code that takes part in a run: workflows by name and version, the functions of activities by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import UnknownTask
from holdfast.workers.task_registry import TaskSpec
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.api.workflow import Workflow

#: Functions that stand for activities, by the name of the activity; or what makes such functions, anew for each run.
Stubs = Mapping[str, Callable[..., Any]] | Callable[[], Mapping[str, Callable[..., Any]]]


class Parts:
    """The activities of one run, by name."""

    def __init__(self, specs: dict[str, TaskSpec]) -> None:
        self._specs = specs

    def of(self, name: str) -> TaskSpec:
        """Give an activity's function. Raises UnknownTask."""
        found = self._specs.get(name)
        if found is None:
            raise UnknownTask(
                f"activity {name!r} has no function here. Nothing was shown.",
                hint="Give one in `stubs`, or use a workflow of an application that has the task.",
            )
        return found


class Cast:
    """Everything that a run of these workflows may call."""

    def __init__(self, *workflows: Workflow[..., Any], stubs: Stubs | None = None) -> None:
        """Take the first one's whole application, if it has one; `stubs` go before its tasks."""
        self.workflow = workflows[0]
        self._app = getattr(self.workflow, "_app", None)
        self._stubs = stubs
        if self._app is not None:
            self.definitions: Definitions = self._app.workflows
        else:
            self.definitions = Definitions(SignatureCodec)
            for workflow in workflows:
                self.definitions.add(workflow.definition)

    def parts(self) -> Parts:
        """Give the activities of one run."""
        found: dict[str, TaskSpec] = {}
        if self._app is not None:
            found = {name: spec for name in self._app.tasks.names() if (spec := self._app.tasks.get(name)) is not None}
        stubs = self._stubs() if callable(self._stubs) else self._stubs or {}
        for name, function in stubs.items():
            found[name] = TaskSpec(name=name, run=function, codec=SignatureCodec(function), isolation="thread")
        return Parts(found)

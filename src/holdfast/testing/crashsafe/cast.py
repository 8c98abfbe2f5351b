"""The code that takes part in a run: workflows by name and version, the functions of activities by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.app.codec import SignatureCodec
from holdfast.flows.definitions import Codec, Definitions
from holdfast.flows.workflows import Workflow

#: Functions that stand for activities, by the name of the activity; or what makes such functions, anew for each run.
Stubs = Mapping[str, Callable[..., Any]] | Callable[[], Mapping[str, Callable[..., Any]]]


class Part(msgspec.Struct, frozen=True):
    """The function of an activity."""

    function: Callable[..., Any]
    codec: Codec
    #: Exceptions that end it at once.
    no_retry: tuple[type[BaseException], ...] = ()


class Cast:
    """Everything that a run of one workflow may call."""

    def __init__(self, workflow: Workflow[..., Any], stubs: Stubs | None = None) -> None:
        """Take the workflow's whole application, if it has one; `stubs` go before its tasks."""
        self.workflow = workflow
        self._app = getattr(workflow, "_app", None)
        self._stubs = stubs
        if self._app is not None:
            self.definitions: Definitions = self._app.workflows
        else:
            self.definitions = Definitions(SignatureCodec)
            self.definitions.add(workflow.definition)

    def parts(self) -> dict[str, Part]:
        """Give the activities of one run."""
        found: dict[str, Part] = {}
        if self._app is not None:
            found = {
                name: Part(spec.run, spec.codec, spec.no_retry)
                for name in self._app.tasks.names()
                if (spec := self._app.tasks.get(name)) is not None
            }
        stubs = self._stubs() if callable(self._stubs) else self._stubs or {}
        for name, function in stubs.items():
            found[name] = Part(function, SignatureCodec(function))
        return found

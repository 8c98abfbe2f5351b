"""An instance as it is, also where each look at it is one of its own."""

import pytest

from holdfast import Holdfast
from holdfast.app.workflows.state import state_of
from holdfast.errors import WorkflowNotFound
from holdfast.model.workflows.instances import Instance


class Hurried:
    """A view in which an instance begins between two looks, as it may at a coordinator."""

    def __init__(self, view):
        self._view = view
        self._has_begun = False

    def get(self, kind, key):
        if kind is Instance and not self._has_begun:
            self._has_begun = True
            return None
        return self._view.get(kind, key)

    def __getattr__(self, name):
        return getattr(self._view, name)


def test_an_instance_that_begins_between_two_looks_is_found():
    with Holdfast("memory:") as hf:

        @hf.workflow
        async def nothing() -> None: ...

        nothing.start(id="it")
        hf.worker(until_idle=True).run()
        with hf.engine.read() as view:
            assert state_of(Hurried(view), hf.engine.store.blobs, "it").status == "COMPLETED"
            with pytest.raises(WorkflowNotFound):
                state_of(Hurried(view), hf.engine.store.blobs, "other")

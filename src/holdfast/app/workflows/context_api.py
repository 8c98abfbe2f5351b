"""What workflow code may call on its application: `hf.step`, `hf.now`, `hf.signal` and so on.

Each is `workflows.api.context`'s own, shown here by the same name; outside of a workflow it raises WorkflowNotAllowed.
Nothing here belongs to one application: which workflow calls is known from where the call comes from.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, overload

import msgspec

from holdfast.workflows.api import context

R = TypeVar("R")


class Inside:
    """The calls of workflow code."""

    #: `await hf.step(fn, *args)`: run a function here, now, and record what it gives.
    step = context.step
    #: Values by key that others can read while the workflow runs.
    kv = context.kv
    #: A logger that is silent in replay.
    log = context.log

    sleep = staticmethod(context.sleep)
    sleep_until = staticmethod(context.sleep_until)
    decision = staticmethod(context.decision)
    send_signal = staticmethod(context.send_signal)
    continue_as_new = staticmethod(context.continue_as_new)
    patched = staticmethod(context.patched)
    now = staticmethod(context.now)
    uuid = staticmethod(context.uuid)
    random = staticmethod(context.random)
    rng = staticmethod(context.rng)
    set_status = staticmethod(context.set_status)
    info = staticmethod(context.info)
    history_size = staticmethod(context.history_size)
    should_continue_as_new = staticmethod(context.should_continue_as_new)
    is_replaying = staticmethod(context.is_replaying)
    is_leaving = staticmethod(context.is_leaving)
    as_completed = staticmethod(context.as_completed)
    wait = staticmethod(context.wait)
    idempotency_key = staticmethod(context.idempotency_key)

    # Written out: of a function with overloads, `staticmethod` would show checkers the first one only.
    @overload
    @staticmethod
    def signal(name: str) -> Coroutine[Any, Any, Any]: ...

    @overload
    @staticmethod
    def signal(name: str, *, type: type[R]) -> Coroutine[Any, Any, R]: ...

    @staticmethod
    def signal(name: str, *, type: Any = msgspec.UNSET) -> Coroutine[Any, Any, Any]:  # noqa: A002 - the contract's name
        """Wait for the next signal of that name, oldest first; what came before the wait is kept for it.

        Its type is by default the one that the workflow declares for it: `@hf.workflow(signals={name: type})`.
        """
        return context.signal(name, type=type)

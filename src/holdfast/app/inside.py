"""What workflow code may call on its application: `hf.step`, `hf.now`, `hf.signal` and so on.

Each is `flows.face`'s own, shown here by the same name; outside of a workflow it raises WorkflowNotAllowed. Nothing
here belongs to one application: which workflow calls is known from where the call comes from.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, overload

from holdfast.flows import face

R = TypeVar("R")


class Inside:
    """The calls of workflow code."""

    #: `await hf.step(fn, *args)`: run a function here, now, and record what it gives.
    step = face.step
    #: Values by key that others can read while the workflow runs.
    kv = face.kv
    #: A logger that is silent in replay.
    log = face.log

    sleep = staticmethod(face.sleep)
    sleep_until = staticmethod(face.sleep_until)
    decision = staticmethod(face.decision)
    send_signal = staticmethod(face.send_signal)
    continue_as_new = staticmethod(face.continue_as_new)
    patched = staticmethod(face.patched)
    now = staticmethod(face.now)
    uuid = staticmethod(face.uuid)
    random = staticmethod(face.random)
    rng = staticmethod(face.rng)
    set_status = staticmethod(face.set_status)
    info = staticmethod(face.info)
    history_size = staticmethod(face.history_size)
    should_continue_as_new = staticmethod(face.should_continue_as_new)
    is_replaying = staticmethod(face.is_replaying)
    as_completed = staticmethod(face.as_completed)
    wait = staticmethod(face.wait)
    idempotency_key = staticmethod(face.idempotency_key)

    # Written out: of a function with overloads, `staticmethod` would show checkers the first one only.
    @overload
    @staticmethod
    def signal(name: str) -> Coroutine[Any, Any, Any]: ...

    @overload
    @staticmethod
    def signal(name: str, *, type: type[R]) -> Coroutine[Any, Any, R]: ...

    @staticmethod
    def signal(name: str, *, type: Any = Any) -> Coroutine[Any, Any, Any]:  # noqa: A002 - the contract's name
        """Wait for the next signal of that name, oldest first; what came before the wait is kept for it."""
        return face.signal(name, type=type)

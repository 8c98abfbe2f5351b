"""What workflow code may call on its application: `hf.step`, `hf.now`, `hf.signal` and so on.

Each is `flows.face`'s own, shown here by the same name; outside of a workflow it raises WorkflowNotAllowed. Nothing
here belongs to one application: which workflow calls is known from where the call comes from.
"""

from __future__ import annotations

from holdfast.flows import face


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
    signal = staticmethod(face.signal)
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

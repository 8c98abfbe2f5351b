"""Hand-made files: what people wish by what they do to a store's files, sent along the ordinary path.

The store finds the wishes and tidies up; here they are decided, each as one command, like everybody else's. Some at a
time, so that a script that puts ten thousand files there keeps nobody else waiting.
"""

from __future__ import annotations

import logging

import msgspec

from holdfast.engine.engine import Engine
from holdfast.errors import DuplicateKey
from holdfast.model.commands import Cancel, Enqueue
from holdfast.model.jobs import KeyHold
from holdfast.model.outcomes import Outcome, Refusal
from holdfast.stores.protocol import HandMade

log = logging.getLogger(__name__)


def adopt(engine: Engine) -> int:
    """Do what people wished since the last look, some at a time; give how many wishes were fulfilled."""
    store = engine.store
    if not isinstance(store, HandMade):
        return 0
    wishes = store.wishes(engine.new_id)
    asked = [(wish, wish.command) for wish in wishes if wish.command is not None]
    fulfilled = len(wishes) - len(asked)
    # In one commit: a script may have put thousands of files there.
    outcomes = engine.submit_many([command for _, command in asked]) if asked else []
    for (wish, command), decided in zip(asked, outcomes, strict=True):
        outcome = decided
        if isinstance(outcome, Refusal) and outcome.code == DuplicateKey.code and isinstance(command, Enqueue):
            outcome = _as_duplicate(engine, command, outcome)
        if isinstance(outcome, Refusal):
            log.warning("wish.refused", extra={"file": wish.file, "reason": outcome.message})
            store.refused(wish, outcome.message)
        else:
            log.info("wish.granted", extra={"file": wish.file, "command": type(command).__name__})
            store.granted(wish)
            fulfilled += 1
    return fulfilled


def _as_duplicate(engine: Engine, command: Enqueue, refusal: Refusal) -> Outcome:
    """Keep a job whose key is held as one that was cancelled, naming the holder: nobody else would tell its author."""
    (job,) = command.jobs
    kept = Enqueue(jobs=(msgspec.structs.replace(job, key=None, key_window_s=None, key_hold=KeyHold.ACTIVE),))
    reason = f"the key {job.key!r} is held by job {refusal.facts.get('job_id')}"
    created, _ = engine.submit_many([kept, Cancel(job_id=job.job_id, reason=reason)])
    return created

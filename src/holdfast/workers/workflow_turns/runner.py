"""What a thread of the crew does with a stint: it advances the turn until that waits, and carries out what it wants.

The pump has no part in this; what is to be sent goes into the ledger, where the pump finds it. A thread that began a
sync step runs it itself, and takes its outcome on if nobody else has taken the stint meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial

from holdfast.errors import StoreBusy, UsageError
from holdfast.model.workflows.commands import ParkMessages
from holdfast.workers.workflow_turns import NEVER, Errand
from holdfast.workers.workflow_turns.abandon import Parting, let_go
from holdfast.workers.workflow_turns.fetch_policy import Outlook
from holdfast.workers.workflow_turns.pending_commands import Ledger
from holdfast.workers.workflow_turns.step_run import Stage, StepOutcome, StepRun
from holdfast.workers.workflow_turns.thread_pool import Crew
from holdfast.workers.workflow_turns.turn_io import Archive
from holdfast.workers.workflow_turns.turn_state import (
    BROKEN_S,
    IDLE_S,
    Committed,
    Input,
    Opened,
    Outcome,
    Playing,
    StepEnded,
    Stint,
)
from holdfast.workers.workflow_turns.wakeup import Alarm
from holdfast.workflows.api.error_conversion import tell, text_of
from holdfast.workflows.api.steps import StepCall

log = logging.getLogger("holdfast.worker")


class Players:
    """The crew at its turns."""

    def __init__(
        self,
        crew: Crew,
        ledger: Ledger,
        playing: Playing,
        *,
        archive: Archive,
        parting: Parting,
        alarm: Alarm,
        stage: Stage,
        outlook: Outlook,
    ) -> None:
        self._crew = crew
        self._ledger = ledger
        self._lock = ledger.lock
        self._playing = playing
        self._archive = archive
        self._parting = parting
        self._alarm = alarm
        self._now = alarm.now
        self._stage = stage
        self._outlook = outlook

    def put(self, stint: Stint, one: Input) -> None:
        """Let a thread go on with a stint. The lock is held."""
        stint.inbox.append(one)
        if not stint.is_taken and not stint.is_gone and stint.inline != threading.get_ident():
            self._take(stint)

    def _take(self, stint: Stint) -> None:
        """Have a thread take what is in the inbox. The lock is held."""
        try:
            self._crew.put(partial(self._advance, stint))
            stint.is_taken = True
            self._ledger.expect(stint, coming=True)
        except RuntimeError as problem:  # the system has no thread left; it may have one when it is tried again
            self._ledger.send_back(stint, f"the turn could not be started: {problem}", counted=False, delay_s=BROKEN_S)

    # --- in a thread of the crew --------------------------------------------------------------------------------------

    def _advance(self, stint: Stint) -> None:
        """Go on with a stint until it waits: for a commit, for a step elsewhere, for messages."""
        is_dropped = False
        began = self._now()
        while True:
            with self._lock:
                inputs = list(stint.inbox)
                stint.inbox.clear()
                if stint.is_gone or not inputs:
                    stint.is_taken = False
                    self._ledger.expect(stint, coming=False)
                    is_dropped = stint.is_dropped
                    break
                self._ledger.expect(stint, coming=True)
                stint.is_begun = True
                stint.idle_at = NEVER
            step = self._play(stint, inputs)
            if step is not None and not self._run_inline(stint, step):
                break
        if is_dropped:
            let_go(stint)
        self._outlook.took(self._now() - began)

    def _run_inline(self, stint: Stint, step: StepRun) -> bool:
        """Run a step in this thread; tell whether this thread goes on with the stint, and nobody else does."""
        with self._lock:
            stint.is_taken, stint.inline = False, threading.get_ident()
            self._ledger.expect(stint, coming=False)
            if stint.inbox:
                self._take(stint)
        step.run_here()
        with self._lock:
            stint.inline = 0
            goes_on = bool(stint.inbox) and not stint.is_taken
            stint.is_taken = stint.is_taken or goes_on
            return goes_on

    def _play(self, stint: Stint, inputs: Sequence[Input]) -> StepRun | None:
        """Advance the turn; have done what it wants, but for a step that this thread can run itself."""
        playing = self._playing
        try:
            first = inputs[0]
            if isinstance(first, Opened):
                # Not within the code, in which an exception may strike at any instruction: the store is spoken to.
                ready = first.open()
                refused = playing.refused(stint, ready)
                if refused is not None:
                    return self._carry_out(stint, refused)
                inputs = [ready, *inputs[1:]]
            news = len(inputs) > 1 or not isinstance(first, Committed)
            now = self._now()
            if news and not stint.code.run(partial(playing.deliver, stint, inputs), now):
                return None
            wanted = playing.wanted(stint, now)
        except StoreBusy as problem:
            # What it begins with could not be read: no fault of the turn, which did not begin.
            log.warning("turn.unread", extra={"instance": stint.instance, "problem": problem.message})
            self._parting.give_back(stint, None, counted=False, delay_s=BROKEN_S)
            return None
        except UsageError as problem:
            self._parting.cannot_keep(stint, problem.message)
            return None
        except BaseException as problem:  # noqa: BLE001 - no reason to lose the instance:
            # a fault of ours, of the store, or of code that breaks what runs it.
            tell(log, "turn.broken", problem, {"instance": stint.instance})
            self._parting.give_back(stint, f"the turn broke: {text_of(problem)}", counted=True, delay_s=BROKEN_S)
            return None
        return self._carry_out(stint, wanted)

    def _carry_out(self, stint: Stint, wanted: Outcome) -> StepRun | None:
        if wanted.stopped:
            with self._lock:
                stopped = [stint.steps.pop(number, None) for number in wanted.stopped]
            for step in stopped:
                if step is not None:
                    step.stop()
        if wanted.resident is not None:
            self._archive.keep(wanted.resident, stint.locked)
        with self._lock:
            if stint.is_gone:
                return None
            if stint.unreadable:
                self._ledger.post(Errand("park", ParkMessages(token=stint.token, messages=stint.unreadable), stint))
                stint.unreadable = ()
            if wanted.ack is not None:
                self._ledger.post(Errand("ack", wanted.ack, stint, wanted.is_last, wanted.extends))
            elif wanted.abandon is not None:
                stint.is_sending = True
                self._ledger.post(Errand("abandon", wanted.abandon, stint, wanted.is_last))
            is_sending = wanted.ack is not None or wanted.abandon is not None
            if is_sending:
                self._ledger.expect(stint, coming=False)
        if is_sending:
            if wanted.is_last and wanted.resident is None:
                let_go(stint)
            return None
        return self._begin_steps(stint, wanted.steps)

    def _begin_steps(self, stint: Stint, calls: Sequence[StepCall]) -> StepRun | None:
        def ended(number: int, outcome: StepOutcome) -> None:
            with self._lock:
                stint.steps.pop(number, None)
                self.put(stint, StepEnded(number, outcome))

        runs = [StepRun(call, self._stage, ended) for call in calls]
        mine: StepRun | None = None
        with self._lock:
            if stint.is_gone:
                return None
            stint.steps.update((run.call.step_no, run) for run in runs)
        if stint.steps and stint.turn is not None and stint.turn.has_news and not stint.is_sending:
            stint.idle_at = self._now() + IDLE_S
            self._alarm.ring(stint.idle_at)
        for run in runs:
            if run.is_async:
                run.start_async()
            elif mine is None:
                mine = run
            else:
                self._crew.put(run.run_here)
        return mine

"""What the thread of a turn has to do with the store: it reads what the turn begins with, and admits what it decided.

Writes and sends nothing: what is admitted goes out with the pump. Of a stint it knows the lock alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from holdfast.engine.admission import admit_own
from holdfast.engine.engine import Engine
from holdfast.errors import HistoryCorrupt, StoreError
from holdfast.model.outcomes import LockedTurn
from holdfast.model.workflows.commands import AckTurn
from holdfast.model.workflows.event_kinds import OrchestrationStarted
from holdfast.model.workflows.history import Event, TurnCommit
from holdfast.model.workflows.instances import HistoryRow, history_key
from holdfast.workers.workflow_turns.turn_state import Ready, Stint
from holdfast.workflows.provider.payloads import events_of
from holdfast.workflows.provider.translation import ack_command, orchestration_item, readable
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.execution_cache import Residents

_OPERATION = "turn"


class Archive:
    """The histories of the instances whose turns run here, in the store and in memory."""

    def __init__(self, engine: Engine, residents: Residents) -> None:
        self._engine = engine
        self._residents = residents

    def open(self, locked: LockedTurn) -> Ready:
        """Read what a turn begins with: nothing of its history, if it is in memory here."""
        blobs = self._engine.store.blobs
        items, unreadable = readable(blobs, locked.messages)
        resident = self._residents.take(locked.instance_id)
        rows: Sequence[HistoryRow] = ()
        # What was delivered in vain before is begun from its history: it may have to be ended by that.
        if resident is not None and (locked.attempts > 1 or not self._is_same(resident, locked)):
            resident.close()
            resident = None
        if resident is None and locked.history_id is not None:
            with self._engine.read() as view:
                rows = view.history(locked.history_id)
        return Ready(orchestration_item(blobs, locked, items, rows), resident, unreadable)

    def keep(self, resident: Execution, locked: LockedTurn) -> None:
        """Keep an execution in memory until its next turn; nobody can fetch it before its lock is let go."""
        resident.history_id = locked.history_id
        self._residents.keep(resident)

    def _is_same(self, resident: Execution, locked: LockedTurn) -> bool:
        """Tell whether an execution in memory stands where the store's history of it ends.

        Another one may have had the same id and come as far: the seed of the first event tells them apart.
        """
        same = resident.execution_id == locked.execution_id and resident.last_event_id == locked.last_event_id
        if not same or locked.history_id is None:
            return False
        if resident.history_id is None:
            with self._engine.read() as view:
                row = view.get(HistoryRow, history_key(locked.history_id, 1))
            first: list[Event] = []
            with suppress(HistoryCorrupt):  # whoever replays it says so
                first = events_of(self._engine.store.blobs, [row] if row is not None else [], locked.execution_id)
            mine = resident.started.kind
            assert isinstance(mine, OrchestrationStarted)
            if not any(isinstance(one.kind, OrchestrationStarted) and one.kind.seed == mine.seed for one in first):
                return False
            resident.history_id = locked.history_id
        return resident.history_id == locked.history_id

    def command_of(self, stint: Stint, commit: TurnCommit, hold_s: float | None, *, keep: bool) -> AckTurn:
        """Admit a commit here, in the thread that ran the turn; where another process decides, that one does."""
        engine = self._engine
        asked = partial(ack_command, _OPERATION, stint.token, commit, engine.new_id, hold_s, keep=keep)
        if engine.is_authority:
            with suppress(StoreError):  # the pump meets the same trouble, and knows what to do
                return admit_own(asked(eventless=True), commit.history_delta, engine.store.blobs)
        return asked()

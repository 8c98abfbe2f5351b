"""Executions that stay in this process between their turns. Whether one does never changes an outcome."""

from __future__ import annotations

import threading
from collections import OrderedDict

from holdfast.workflows.runtime.execution import Execution


class Residents:
    """Suspended executions by instance, the least recently used first to go. Safe to share between threads."""

    def __init__(self, limit: int = 1000, blocking_limit: int = 64) -> None:
        """Keep at most `limit`, of which `blocking_limit` with a thread of their own."""
        self._limit = limit
        self._blocking_limit = blocking_limit
        self._mutex = threading.Lock()
        self._kept: OrderedDict[str, Execution] = OrderedDict()
        #: Instances whose executions have a thread of their own, in the same order. Apart: every turn asks for them,
        #: and a look through all that is kept took 0.1 ms with a thousand.
        self._blocking: dict[str, None] = {}

    def take(self, instance: str) -> Execution | None:
        """Give an execution out; whoever has it keeps it back or drops it."""
        with self._mutex:
            return self._pop(instance)

    def keep(self, execution: Execution) -> None:
        """Keep a suspended execution; an older one of the same instance goes."""
        with self._mutex:
            gone = [self._pop(execution.instance)]
            self._kept[execution.instance] = execution
            if execution.definition.is_blocking:
                self._blocking[execution.instance] = None
            # Threads first: one that goes makes room among all, and the eldest of all may have none.
            if len(self._blocking) > self._blocking_limit:
                gone.append(self._pop(next(iter(self._blocking))))
            if len(self._kept) > self._limit:
                gone.append(self._pop(next(iter(self._kept))))
        for one in gone:
            if one is not None and one is not execution:
                one.close()

    def discard(self, execution: Execution) -> None:
        """Keep this execution no longer; another one of the same instance stays."""
        with self._mutex:
            if self._kept.get(execution.instance) is execution:
                self._pop(execution.instance)

    def _pop(self, instance: str) -> Execution | None:
        self._blocking.pop(instance, None)
        return self._kept.pop(instance, None)

    def clear(self) -> None:
        """Let all go."""
        with self._mutex:
            gone, self._kept, self._blocking = list(self._kept.values()), OrderedDict(), {}
        for one in gone:
            one.close()

    def __len__(self) -> int:
        """Count them."""
        return len(self._kept)

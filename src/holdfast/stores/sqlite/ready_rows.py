"""The rows of one queue's ready jobs, in the order of dispatch: all, or those of some tasks.

Of some tasks they are found in three steps, each taken when the one before has not found enough: the line of the queue
as long as it holds nothing else, as in most queues; then a stretch of it without the others; then task by task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

import msgspec

from holdfast.rules.jobs.dispatch_order import PlaceKey
from holdfast.stores.sqlite.rows import Row
from holdfast.stores.sqlite.statements import COLUMNS, SQL

#: Jobs that are passed by in the second step, for each task: to find where its own begin costs about as much.
PASSED = 4

#: Of a job's row.
_TASK: Callable[[Row], str] = itemgetter(COLUMNS["jobs"].index("job_type"))
_PLACE: Callable[[Row], PlaceKey] = itemgetter(
    *map(COLUMNS["jobs"].index, ("rank", "position", "created_at", "job_id"))
)
#: Before and behind every place in a queue.
_FRONT, _END = (-(1 << 63), 0, "", ""), ((1 << 63) - 1, 0, "", "")


class ReadyRows:
    """The ready jobs of a queue in one state of the store; if `free`, those that need not wait for others."""

    def __init__(
        self,
        query: Callable[[str, tuple[Any, ...]], Generator[Row, None, None]],
        namespace: str,
        queue: str,
        *,
        free: bool,
    ) -> None:
        """Ask by `query`, which gives rows one by one."""
        self._query = query
        self._queue = (namespace, queue)
        self._free = (not free, not free)

    def all(self) -> Generator[Row, None, None]:
        """Walk all."""
        return self._query(SQL["ready"], (*self._queue, *_FRONT, *_END, True, None, *self._free))

    def of(self, tasks: Collection[str]) -> Iterator[Row]:
        """Walk those of these tasks."""
        if not tasks:
            return
        line = self.all()
        for row in line:
            if _TASK(row) not in tasks:
                break
            yield row
        else:
            return
        line.close()  # or the same statement would be prepared anew while this one is at work
        yield from self._from(_PLACE(row), tasks)

    def _from(self, start: Row, tasks: Collection[str]) -> Iterator[Row]:
        names = msgspec.json.encode(list(tasks)).decode()
        end = next(self._query(SQL["place_behind"], (*self._queue, *start, PASSED * len(tasks))), None)
        yield from self._query(SQL["ready"], (*self._queue, *start, *(end or _END), False, names, *self._free))
        if end is not None:
            heads = list(self._query(SQL["heads_of_tasks"], (names, *self._queue, *end)))
            lines = merge(*(self._line(task, tuple(head)) for task, *head in heads))
            yield from (row for _, row in lines if row is not None)

    def _line(self, task: str, head: Row) -> Iterator[tuple[Row, Row | None]]:
        """Walk the places and rows of a task's jobs; nothing is read before its turn among other lines has come."""
        yield head, None
        for row in self._query(SQL["ready_of_task"], (*self._queue, task, *head, *self._free)):
            yield _PLACE(row), row

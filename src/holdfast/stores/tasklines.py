"""Ready jobs of some tasks, however many of others stand before them in the queue.

Mostly whoever asks has code for all that waits: then the line of the queue is the shortest way, and the few of other
tasks are passed by. Behind so many of them that it is not, the way goes on task by task. `of_tasks` is that turn, for
every store; `TaskLines` are the lines of tasks in memory. A queue has them from the first such turn until it is empty:
others pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from typing import TypeVar

from holdfast.rules.order import PlaceKey
from holdfast.stores.ordered import OrderedSet

T = TypeVar("T")
QueueKey = tuple[str, str]

#: So many of other tasks are passed by. To begin the lines of a few tasks costs about as much.
PASSED = 32


def of_tasks(
    line: Iterable[T], task_of: Callable[[T], str], tasks: Collection[str], by_task: Callable[[T], Iterator[T]]
) -> Iterator[T]:
    """Walk what is of these tasks in a line; behind PASSED others, as `by_task` goes on from the last of them."""
    if not tasks:
        return
    passed = 0
    for one in line:
        if task_of(one) in tasks:
            yield one
            continue
        passed += 1
        if passed == PASSED:
            yield from by_task(one)
            return


class TaskLines:
    """The ready jobs of followed queues by task, each line in the order of dispatch."""

    def __init__(self) -> None:
        #: (namespace, queue) → task → its places. No line is empty, and no queue without lines.
        self._queues: dict[QueueKey, dict[str, OrderedSet[PlaceKey]]] = {}

    def __bool__(self) -> bool:
        """Tell whether any queue is followed."""
        return bool(self._queues)

    def follow(self, queue: QueueKey, line: Iterable[PlaceKey], task_of: Callable[[PlaceKey], str]) -> None:
        """Follow a queue from now on, beginning with its whole line."""
        if queue in self._queues:
            return
        places: dict[str, list[PlaceKey]] = {}
        for key in line:
            places.setdefault(task_of(key), []).append(key)
        self._queues[queue] = {task: OrderedSet(keys) for task, keys in places.items()}

    def add(self, queue: QueueKey, task: str, key: PlaceKey) -> None:
        """Note a job that became ready."""
        lines = self._queues.get(queue)
        if lines is not None:
            lines.setdefault(task, OrderedSet()).add(key)

    def discard(self, queue: QueueKey, task: str, key: PlaceKey) -> None:
        """Forget a job that is ready no more; a queue that is empty is no longer followed."""
        lines = self._queues.get(queue)
        if lines is None:
            return
        lines[task].discard(key)
        if not lines[task]:
            del lines[task]
            if not lines:
                del self._queues[queue]

    def walk(self, queue: QueueKey, tasks: Collection[str], start: PlaceKey) -> Iterator[PlaceKey]:
        """Walk the jobs of these tasks in a followed queue, from a place on."""
        lines = self._queues[queue]
        return merge(*(lines[task].walk(start) for task in lines.keys() & tasks))

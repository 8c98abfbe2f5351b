"""The ready jobs of some tasks, in memory, however many of others stand before them in the queue.

Mostly whoever asks has code for all that waits: then the line of the queue is the shortest way, and the few of other
tasks are passed by. Behind so many of them that it is not, the way goes on task by task, along lines that a queue has
from the first such turn until it is empty. Other queues pay nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge

from holdfast.model.jobs import Job
from holdfast.rules.jobs.dispatch_order import PlaceKey
from holdfast.stores.memory.indexes.sorted_set import OrderedSet

QueueKey = tuple[str, str]

#: So many jobs of others are passed by; and so many for each task, as to begin its line costs about as much.
PASSED, PASSED_EACH = 32, 4


class TaskLines:
    """The ready jobs of followed queues by task, each line in the order of dispatch."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        """Find the jobs of places among all `jobs`, by id."""
        self._jobs = jobs
        #: (namespace, queue) → task → its places. No line is empty, and no queue without lines.
        self._queues: dict[QueueKey, dict[str, OrderedSet[PlaceKey]]] = {}

    def __bool__(self) -> bool:
        """Tell whether any queue is followed."""
        return bool(self._queues)

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

    def walk(self, queue: QueueKey, line: Iterable[PlaceKey], tasks: Collection[str]) -> Iterator[PlaceKey]:
        """Walk the places of these tasks in a queue, whose whole line is given."""
        others = max(PASSED, PASSED_EACH * len(tasks))
        for key in line if tasks else ():
            if self._jobs[key[3]].job_type in tasks:
                yield key
                continue
            others -= 1
            if others <= 0:
                lines = self._queues.get(queue) or self._follow(queue, line)
                yield from merge(*(lines[task].walk(key) for task in lines.keys() & tasks))
                return

    def _follow(self, queue: QueueKey, line: Iterable[PlaceKey]) -> dict[str, OrderedSet[PlaceKey]]:
        """Give a queue lines by task, from now on."""
        places: dict[str, list[PlaceKey]] = {}
        for key in line:
            places.setdefault(self._jobs[key[3]].job_type, []).append(key)
        lines = self._queues[queue] = {task: OrderedSet(keys) for task, keys in places.items()}
        return lines

"""Which work a worker takes: as whom, in which namespace, from which queues, of which tasks."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.workers.task_registry import Registry


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which work a worker takes."""

    worker_id: str
    namespace: str
    queues: tuple[str, ...]
    tasks: Registry

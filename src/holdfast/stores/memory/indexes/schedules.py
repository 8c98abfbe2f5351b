"""Indexes in memory of templates and schedules: their names, who makes jobs from what, and when.

Part of `stores.memory.tables`, which owns the records; here are only their keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.records import Key, key_of
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.rules.state import Lane
from holdfast.stores.memory.indexes.id_sets import IdSets
from holdfast.stores.memory.indexes.sorted_set import OrderedSet, TimeKey


class ScheduleLines:
    """What has a name beside its id, and the schedules that wait for their time."""

    def __init__(self, due: Mapping[Lane, OrderedSet[TimeKey]]) -> None:
        self._due = due
        #: Kind → (namespace, name) → key.
        self._names: dict[type, dict[tuple[str, str], Key]] = {Template: {}, Schedule: {}}
        #: Template → the schedules that use it.
        self._users: IdSets[str, str] = IdSets()

    # --- following changes ------------------------------------------------------------------------------------------

    def reindex_template(self, before: Template | None, after: Template | None) -> None:
        """Follow a template."""
        self._rename(before, after)

    def _rename(self, before: Template | Schedule | None, after: Template | Schedule | None) -> None:
        if before is not None:
            self._names[type(before)].pop((before.namespace, before.name), None)
        if after is not None:
            self._names[type(after)][after.namespace, after.name] = key_of(after)

    def reindex_schedule(self, before: Schedule | None, after: Schedule | None) -> None:
        """Follow a schedule."""
        self._rename(before, after)
        for schedule, by in ((before, -1), (after, 1)):
            if schedule is None:
                continue
            if schedule.template_id is not None:
                self._users.note(schedule.template_id, schedule.schedule_id, by)
            if schedule.enabled and schedule.next_trigger_at is not None:
                due = (schedule.next_trigger_at, schedule.schedule_id)
                if by > 0:
                    self._due[Lane.SCHEDULE].add(due)
                else:
                    self._due[Lane.SCHEDULE].discard(due)

    # --- looking up -------------------------------------------------------------------------------------------------

    def key(self, kind: type[Template | Schedule], namespace: str, name: str) -> Key | None:
        """Give the key of the template or schedule of that name, or None."""
        return self._names[kind].get((namespace, name))

    def users(self, template_id: str) -> list[str]:
        """Give the keys of the schedules that make jobs from a template, in order."""
        return sorted(self._users.get(template_id, ()))

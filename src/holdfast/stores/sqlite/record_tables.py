"""All tables of records, in the order they are written. `meta` is no such table: its row is more than its record."""

from __future__ import annotations

from holdfast.stores.sqlite.plain_rows import DELIVERIES, GROUPS, RESERVATIONS, WEBHOOKS
from holdfast.stores.sqlite.rows import COMMANDS, HELD_KEYS, JOBS, QUEUES, RUNS, SCHEDULES, TEMPLATES, Table
from holdfast.stores.sqlite.workflow_rows import FLOW_TABLES

#: A job refers to its group, a run to its job, a schedule to its template. They are removed the other way.
BY_KIND: dict[type, Table] = {
    table.kind: table
    for table in (
        GROUPS,
        JOBS,
        RUNS,
        QUEUES,
        HELD_KEYS,
        COMMANDS,
        TEMPLATES,
        SCHEDULES,
        RESERVATIONS,
        WEBHOOKS,
        DELIVERIES,
        *FLOW_TABLES,
    )
}

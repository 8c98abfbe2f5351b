"""`dir:` — jobs as files that a person can read, write and move with `ls` and an editor.

    PATH/holdfast.json      which store this is             PATH/LOCK     who has it open
    PATH/data/tasks/{pending,running,completed,failed}/     one file a job, its runs inside
    PATH/data/{queues/settings,templates,schedules,groups,reservations,keys,webhooks,deliveries,commands}/
    PATH/data/instances/    one directory an instance       PATH/data/queues/{orchestrator,parked}/   their messages
    PATH/data/{sessions,decisions}/   one file a record     PATH/data/trash/  what was deleted, until it is swept
    PATH/data/intent/       the commit being applied        PATH/data/feed/   all events, one a line
    PATH/data/quarantine/   files that could not be used    PATH/data/{meta,dispatch}.json

The store keeps the tables of `memory:` and decides nothing. A commit is one intent file: renamed and its directory
synced, it has happened; then the records' files follow, then the feed, which marks the intent as applied. Legal order
of the calls of one commit, and none may be exchanged: intent durable → targets durable → sources gone → feed durable →
answer → intent gone. `docs/formats/dir.md` tells the format.
"""

from holdfast.stores.dir.store import DirStore

__all__ = ["DirStore"]

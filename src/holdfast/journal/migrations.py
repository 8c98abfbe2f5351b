"""Migrations: plain JSON of an older version, step by step, into this one.

Knows no Python type of the store: a migration sees dicts. A version newer than ours, a missing step or a failing one
refuses to go on, and nothing on disk is changed by any of it: migrated state reaches the disk with the next
checkpoint.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import MigrationFailed, NoPath, TooNew
from holdfast.journal.options import JournalOptions

#: Version of the files' layout, in `journal.json`.
FORMAT = 1

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def refuse_newer(what: str, found: int, supported: int) -> None:
    """Raise TooNew if `found` is beyond what this version reads."""
    if found > supported:
        raise TooNew(
            f"{what} has version {found}; this program reads up to {supported}. Nothing was changed.",
            hint="Use the version of Holdfast that wrote it, or a newer one.",
            found=found,
            supported=supported,
        )


def migrate_snapshot(what: str, doc: dict[str, Any], options: JournalOptions) -> None:
    """Bring a snapshot document to our version, in place. A missing `v` means 1."""
    version = doc.get("v", 1)
    refuse_newer(what, version, options.schema_version)
    for step in range(version, options.schema_version):
        migration = options.snapshot_migrations.get(step)
        if migration is None:
            raise _no_path(what, step, options.schema_version)
        try:
            migration(doc)
        except Exception as error:
            raise _failed(what, step, error) from error
    doc["v"] = options.schema_version


def check_event_version(what: str, version: int, options: JournalOptions) -> bool:
    """Tell whether events of this version have to be migrated. Raises if they cannot be read."""
    refuse_newer(what, version, options.event_version)
    for step in range(version, options.event_version):
        if step not in options.event_migrations:
            raise _no_path(what, step, options.event_version)
    return version < options.event_version


def migrate_event(what: str, raw: bytes | msgspec.Raw, version: int, options: JournalOptions) -> bytes:
    """Bring one event to our version; what it was stays on disk."""
    event = _decode(raw)
    for step in range(version, options.event_version):
        try:
            event = options.event_migrations[step](event)
        except Exception as error:
            raise _failed(what, step, error) from error
    return msgspec.json.encode(event)


def _no_path(what: str, step: int, target: int) -> NoPath:
    return NoPath(
        f"No migration leads {what} from version {step} to {step + 1}, on the way to {target}. Nothing was changed.",
        hint="Use a version of Holdfast that still has it.",
        found=step,
        supported=target,
    )


def _failed(what: str, step: int, error: Exception) -> MigrationFailed:
    return MigrationFailed(
        f"Migrating {what} from version {step} to {step + 1} failed: {error!r}. Nothing was changed.",
        hint="Report this with the message; the store still opens with the version that wrote it.",
        from_version=step,
        to_version=step + 1,
        reason=repr(error),
    )

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from journal_kit import NOW, QUIET, checkpoint, crashed, events, log_of, opened, put, segments

from holdfast.errors import MigrationFailed, NoPath, TooNew
from holdfast.testing import SimFS


def older() -> SimFS:
    """A journal of version 1: a snapshot at record 2, a record after it, a crash."""
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1, 2)
    checkpoint(journal, [{"name": "a"}, {"name": "b"}])
    put(journal, 3)
    return fs.reboot()


def rename(document):
    for row in document["state"]["rows"]:
        row["title"] = row.pop("name")


def shout(document):
    for row in document["state"]["rows"]:
        row["title"] = row["title"].upper()
    document["state"]["extra"] = [{"made": True}]


def double(event):
    return {**event, "n": event["n"] * 2}


def add_one(event):
    return {**event, "n": event["n"] + 1}


NEWER = replace(
    QUIET,
    schema_version=3,
    snapshot_migrations={1: rename, 2: shout},
    event_version=3,
    event_migrations={1: double, 2: add_one},
)


def test_a_snapshot_is_brought_up_step_by_step():
    loaded = opened(older(), NEWER).load()
    assert loaded.seq == 2
    assert [(table, json.loads(row)) for table, row in loaded.records] == [
        ("rows", {"title": "A"}),
        ("rows", {"title": "B"}),
        ("extra", {"made": True}),
    ]


def test_events_are_brought_up_while_reading_and_new_ones_are_left_alone():
    fs = older()
    journal = opened(fs, NEWER)
    journal.append([{"type": "t:put", "n": 50}], ts=NOW, v=3).wait()
    journal.append([{"type": "t:put", "n": 50}], ts=NOW, v=2).wait()
    found = {record.seq: (json.loads(record.event)["n"], record.v) for record in journal.read()}
    assert found == {1: (3, 3), 2: (5, 3), 3: (7, 3), 4: (50, 3), 5: (51, 3)}


def test_migrated_state_reaches_the_disk_only_with_the_next_checkpoint():
    fs = older()
    before = {path: data for path, data in fs.tree().items() if path.startswith(("log/", "snapshots/"))}
    journal = opened(fs, NEWER)
    list(journal.load().records)
    list(journal.read())
    assert {path: data for path, data in fs.tree().items() if path in before} == before
    checkpoint(journal, [{"title": "A"}])
    again = opened(fs.reboot(), NEWER)
    assert again.load().header.v == 3
    assert [json.loads(row) for _, row in again.load().records] == [{"title": "A"}]


def refuses(fs: SimFS, options, kind):
    before = {path: data for path, data in fs.tree().items() if path != "LOCK"}
    fs.put("log.bak.tmp", b"x")
    with pytest.raises(kind) as caught:
        opened(fs, options)
    after = {path: data for path, data in fs.tree().items() if path != "LOCK"}
    assert after == {**before, "log.bak.tmp": b"x"}, "a refusal changes no byte"
    return caught.value


def test_a_newer_snapshot_is_refused_and_both_versions_are_named():
    fs = SimFS()
    journal = opened(fs, replace(QUIET, schema_version=7))
    put(journal, 1)
    checkpoint(journal)
    error = refuses(fs.reboot(), QUIET, TooNew)
    assert (error.facts["found"], error.facts["supported"]) == (7, 1)
    assert "version 7" in error.message
    assert "up to 1" in error.message


def test_a_newer_event_is_refused_and_both_versions_are_named():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    journal.append([{"type": "t:put", "n": 2}], ts=NOW, v=4).wait()
    error = refuses(fs.reboot(), replace(QUIET, event_version=3, event_migrations={1: double, 2: add_one}), TooNew)
    assert (error.facts["found"], error.facts["supported"]) == (4, 3)
    assert "record 2" in error.message


def test_a_newer_format_is_refused():
    fs = crashed((1,))
    fs.put("journal.json", fs.tree()["journal.json"].replace(b'"format":1', b'"format":2'))
    error = refuses(fs, QUIET, TooNew)
    assert (error.facts["found"], error.facts["supported"]) == (2, 1)


def test_a_missing_step_for_a_snapshot_is_refused():
    error = refuses(older(), replace(NEWER, snapshot_migrations={1: rename}), NoPath)
    assert error.facts["found"] == 2


def test_a_missing_step_for_an_event_is_refused():
    error = refuses(older(), replace(NEWER, event_migrations={2: add_one}), NoPath)
    assert error.facts["found"] == 1


def test_a_failing_migration_of_a_snapshot_is_refused():
    error = refuses(older(), replace(NEWER, snapshot_migrations={1: rename, 2: lambda _: 1 // 0}), MigrationFailed)
    assert (error.facts["from_version"], error.facts["to_version"]) == (2, 3)
    assert "ZeroDivisionError" in error.facts["reason"]


def test_a_failing_migration_of_an_event_is_refused():
    options = replace(NEWER, event_migrations={1: double, 2: lambda event: event["nothing"]})
    error = refuses(older(), options, MigrationFailed)
    assert error.facts["from_version"] == 2


def test_what_an_event_says_about_versions_is_not_its_version():
    fs = SimFS()
    journal = opened(fs)
    journal.append([{"type": "t:put", "n": 1, "x": {"a": 1, "v": 9}}], ts=NOW).wait()
    assert events(opened(fs.reboot()))[0][1] == b'{"type":"t:put","n":1,"x":{"a":1,"v":9}}'


def test_a_damaged_newer_digit_is_damage_not_a_version():
    fs = SimFS()
    journal = opened(fs, replace(QUIET, schema_version=1))
    put(journal, 1)
    journal.append([{"type": "t:put", "n": 2}], ts=NOW, v=2).wait()
    put(journal, 3)
    fs = fs.reboot()
    fs.put(segments(fs)[0], log_of(fs).replace(b'"v":2', b'"v":3'))
    with pytest.raises(Exception, match="checksum") as caught:
        opened(fs, replace(QUIET, event_version=2, event_migrations={1: double}))
    assert type(caught.value).__name__ == "JournalDamaged"

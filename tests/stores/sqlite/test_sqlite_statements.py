"""The SQL of `sqlite:`: every block is used, prepares, and finds what it looks for by an index."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores import sqlite
from holdfast.stores.sqlite.schema import lay_out
from holdfast.stores.sqlite.statements import FILES, SQL, assigned, blocks, inserted, read_sql

READY, HELD_BACK = "ix_jobs_ready (namespace=? AND queue=?", "ix_jobs_held_back (namespace=? AND queue=?"
BY_TASK = "ix_jobs_task (namespace=? AND queue=? AND job_type=? AND (rank,position,created_at,job_id)>(?,?,?,?))"
NAMING = [f"ix_{index}_blob (<expr>=?)" for index in ("jobs_params", "jobs_result", "runs_params", "runs_details")]
#: Block → what its plan must search. Whatever is asked for on the way of a job is here.
SEARCHES = {
    "job": ["sqlite_autoindex_jobs_1 (job_id=?)"],
    "run": ["sqlite_autoindex_job_runs_1 (run_id=?)"],
    "queue": ["PRIMARY KEY (namespace=? AND name=?)"],
    "held_key": ["PRIMARY KEY (namespace=? AND unique_key=?)"],
    "command": ["PRIMARY KEY (cmd=?)"],
    "highest_ids": [
        "sqlite_autoindex_jobs_1",
        "sqlite_autoindex_job_runs_1",
        "sqlite_autoindex_instances_1",
        "sqlite_autoindex_turns_1",
        "ix_queue_instance",
    ],
    "ids_within": ["COVERING INDEX ix_jobs_list (namespace=?)"],
    "group_ids_within": ["COVERING INDEX ix_groups_list (namespace=?)"],
    "unbegun": [
        "ix_queue_start (instance_id>?)",
        "sqlite_autoindex_instances_1 (instance_id=?)",
        "ix_queue_start (instance_id=? AND rowid<?)",
    ],
    "ids_from": ["sqlite_autoindex_jobs_1 (job_id>?)"],
    "runs_of_job": ["ix_runs_job (job_id=?)"],
    "successors": ["ix_jobs_retry_of (retry_of=?)"],
    "ready": [READY, "ix_jobs_overlap (schedule_id=?)"],
    "place_behind": [f"{READY} AND (rank,position,created_at,job_id)>(?,?,?,?))"],
    "heads_of_tasks": [BY_TASK, "INTEGER PRIMARY KEY (rowid=?)"],
    "ready_of_task": [BY_TASK, "ix_jobs_overlap (schedule_id=?)"],
    "running": ["ix_jobs_active (namespace=? AND queue=?)"],
    "running_with": ["ix_jobs_limit (namespace=? AND limit_key=?)"],
    "running_of": ["ix_jobs_overlap (schedule_id=?)"],
    "active_of": ["ix_jobs_schedule (schedule_id=?)"],
    "template": ["sqlite_autoindex_job_templates_1 (template_id=?)"],
    "template_by_name": ["sqlite_autoindex_job_templates_2 (namespace=? AND name=?)"],
    "update_template": ["sqlite_autoindex_job_templates_1 (template_id=?)"],
    "schedule": ["sqlite_autoindex_schedules_1 (schedule_id=?)"],
    "schedule_by_name": ["sqlite_autoindex_schedules_2 (namespace=? AND name=?)"],
    "schedules_of": ["ix_schedules_template (template_id=?)"],
    "due_schedules": ["ix_schedules_due (next_trigger_at<?)"],
    "next_schedule": ["ix_schedules_due (next_trigger_at>?)"],
    "fire_schedule": ["sqlite_autoindex_schedules_1 (schedule_id=?)"],
    "update_schedule": ["sqlite_autoindex_schedules_1 (schedule_id=?)"],
    "group": ["sqlite_autoindex_job_groups_1 (group_id=?)"],
    "group_ids_from": ["sqlite_autoindex_job_groups_1 (group_id>?)"],
    "members": ["ix_jobs_group (group_id=?"],
    "turn_of": ["ix_jobs_turn (group_id=?"],
    "pass_turn": ["ix_jobs_turn (group_id=?", "INTEGER PRIMARY KEY (rowid=?)"],
    "groups_of_namespace": ["ix_groups_list (namespace=? AND (created_at,group_id)<(?,?))"],
    "ended_groups": ["ix_groups_ended (<expr><?)"],
    "starts": ["ix_runs_started (namespace=? AND queue=? AND started_at>?)"],
    "starts_with": ["ix_runs_key (namespace=? AND queue=? AND limit_key=? AND started_at>?)"],
    "queued": [f"{READY})", f"{HELD_BACK})"],
    "band": [f"{READY} AND rank=?)", f"{HELD_BACK} AND rank=?)"],
    "next_band": [f"{READY} AND rank>?)", f"{HELD_BACK} AND rank>?)"],
    "lowest_position": [f"{READY} AND rank=?)", f"{HELD_BACK} AND rank=?)"],
    "highest_position": [f"{READY} AND rank=?)", f"{HELD_BACK} AND rank=?)"],
    "job_after": [f"{READY} AND rank=? AND (position", f"{HELD_BACK} AND rank=? AND (position"],
    "job_before": [f"{READY} AND rank=? AND (position", f"{HELD_BACK} AND rank=? AND (position"],
    "due_leases": ["ix_jobs_lease (lease_expires_at<?)"],
    "due_ttl": ["ix_jobs_ttl (expires_at<?)"],
    "due_delayed": ["ix_jobs_delayed (not_before<?)"],
    "next_ended_queue": ["ix_jobs_ended ((namespace,queue)>(?,?))"],
    "ended_done": ["ix_jobs_ended (namespace=? AND queue=? AND <expr>=? AND finished_at<?)"],
    "ended_failed": ["ix_jobs_ended (namespace=? AND queue=? AND <expr>=? AND finished_at<?)"],
    "done_beyond": ["ix_jobs_ended (namespace=? AND queue=? AND <expr>=? AND finished_at>?)"],
    "failed_beyond": ["ix_jobs_ended (namespace=? AND queue=? AND <expr>=? AND finished_at>?)"],
    "due_commands": ["ix_commands_at (at<?)"],
    "due_keys": ["ix_keys_until (held_until<?)"],
    "jobs_of_status": ["ix_jobs_list (namespace=? AND status=? AND (created_at,job_id)<(?,?))"],
    "promote": ["ix_jobs_delayed (not_before<?)"],
    "lease_job": ["sqlite_autoindex_jobs_1 (job_id=?)"],
    "complete_job": ["sqlite_autoindex_jobs_1 (job_id=?)"],
    "update_job": ["sqlite_autoindex_jobs_1 (job_id=?)"],
    "edit_job": ["sqlite_autoindex_jobs_1 (job_id=?)"],
    "delete_job": ["sqlite_autoindex_jobs_1 (job_id=?)"],
    "end_run": ["sqlite_autoindex_job_runs_1 (run_id=?)"],
    "update_run": ["sqlite_autoindex_job_runs_1 (run_id=?)"],
    "delete_run": ["sqlite_autoindex_job_runs_1 (run_id=?)"],
    "blob": ["sqlite_autoindex_blobs_1 (sha256=?)"],
    "has_blob": ["sqlite_autoindex_blobs_1 (sha256=?)"],
    "renew_blob": ["sqlite_autoindex_blobs_1 (sha256=?)"],
    "old_blobs": ["ix_blobs_put_at (put_at<?)", *NAMING],
    "forget_blob": ["sqlite_autoindex_blobs_1 (sha256=?)", *NAMING],
    "last_line": ["PRIMARY KEY (run_id=?)"],
    "lines_of_run": ["PRIMARY KEY (run_id=? AND line_no>?)"],
    "has_old_lines": ["ix_logs_at (at<?)"],
    "forget_lines": ["ix_logs_at (at<?)", "PRIMARY KEY (run_id=? AND line_no=?)"],
    "delete_worker": ["PRIMARY KEY (worker_id=?)"],
    "save_wish": ["PRIMARY KEY (worker_id=?)"],
    "wish": ["PRIMARY KEY (worker_id=?)"],
    "events_after": ["INTEGER PRIMARY KEY"],
    "delete_events": ["INTEGER PRIMARY KEY"],
    "webhook": ["sqlite_autoindex_webhooks_1 (webhook_id=?)"],
    "delivery": ["sqlite_autoindex_webhook_deliveries_1 (delivery_id=?)"],
    "deliveries_of": ["ix_deliveries_list (webhook_id=?)"],
    "due_deliveries": ["ix_deliveries_due (<expr><?)"],
    "next_delivery": ["ix_deliveries_due"],
    "ended_deliveries": ["ix_deliveries_ended (finished_at<?)"],
    "next_ended_delivery": ["ix_deliveries_ended"],
    "delete_delivery": ["sqlite_autoindex_webhook_deliveries_1 (delivery_id=?)"],
    "instance": ["sqlite_autoindex_instances_1 (instance_id=?)"],
    "execution": ["sqlite_autoindex_executions_2 (instance_id=? AND execution_id=?)"],
    "event_row": ["PRIMARY KEY (history_id=? AND event_id=?)"],
    "message": ["INTEGER PRIMARY KEY (rowid=?)"],
    "turn": ["sqlite_autoindex_turns_1 (instance_id=?)"],
    "go_on_instance": ["sqlite_autoindex_instances_1 (instance_id=?)"],
    "lengthen_execution": ["sqlite_autoindex_executions_2 (instance_id=? AND execution_id=?)"],
    "hold_turn": ["sqlite_autoindex_turns_1 (instance_id=?)"],
    "key_value": ["sqlite_autoindex_instance_kv_1 (instance_id=? AND key=?)"],
    "turn_by_token": ["sqlite_autoindex_turns_2 (token=?)"],
    "due_turns": ["ix_turns_lock (locked_until<?)"],
    "timed_mail": ["ix_queue_timed (due_at<?)", "sqlite_autoindex_turns_1 (instance_id=?)"],
    "few_timed_mail": ["ix_queue_visible (visible_at<?)", "sqlite_autoindex_turns_1 (instance_id=?)"],
    "is_mail_heaped": ["ix_queue_visible (visible_at<?)"],
    "visible_mail": ["ix_queue_instance (instance_id=?)"],
    "mail": ["ix_queue_instance (instance_id=?)"],
    "beginnings": ["ix_queue_start (instance_id=?)"],
    "timers": ["ix_queue_timer (instance_id=? AND execution_id=? AND event_id=?)"],
    "due_mail": ["ix_queue_visible (visible_at<?)"],
    "due_parked": ["ix_queue_parked (drop_at<?)"],
    "executions_of": ["sqlite_autoindex_executions_2 (instance_id=?)"],
    "children": ["ix_instances_parent (parent_instance_id=?)"],
    "instances_of_status": ["ix_instances_status (status=? AND seq<?)"],
    "ended_instances": ["ix_instances_ended (completed_at<?)"],
    "history_of": ["PRIMARY KEY (history_id=? AND event_id>?)"],
    "keys_of": ["sqlite_autoindex_instance_kv_1 (instance_id=?)"],
    "decisions_of": ["ix_decisions_instance (instance_id=?)"],
    "leased": ["ux_jobs_activity (token=?)"],
    "activities": ["ix_jobs_owner (owner=?)"],
    "activities_of": ["ix_jobs_owner (owner>? AND owner<?)"],
    "affinities_of": ["ix_sessions_owner (owner_id=?)"],
    "due_affinities": ["ix_sessions_lock (locked_until<?)"],
    "is_spoken_of": ["ix_jobs_affinity (affinity=?)"],
}
#: Blocks that may sort what they found: a job has few runs and few retries, a template few schedules.
SORT = {
    "ids_within",
    "group_ids_within",
    "activities",
    "activities_of",
    "few_timed_mail",
    "mail",
    "members",
    "runs_of_job",
    "successors",
    "schedules_of",
}


@pytest.fixture(scope="module")
def db() -> Iterator[sqlite3.Connection]:
    fresh = sqlite3.connect(":memory:")
    lay_out(fresh)
    yield fresh
    fresh.close()


def plan(db: sqlite3.Connection, name: str) -> list[str]:
    sql = SQL[name]
    named = re.findall(r":(\w+)", sql)
    values = dict.fromkeys(named) if named else [None] * sql.count("?")
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def test_every_block_of_the_file_is_found_and_has_its_sentence():
    text = "".join(read_sql(file) for file in FILES)
    assert list(SQL) == re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
    for name in SQL:
        assert re.search(rf"^-- name: {name}\n-- [A-Z].*\.\n", text, re.MULTILINE), name


def test_every_block_is_used_and_every_use_has_a_block():
    folder = Path(sqlite.__file__).parent
    sources = "".join(file.read_text() for file in sorted(folder.glob("*.py")))
    used = set(re.findall(r'SQL\["(\w+)"\]', sources))
    for noun, plural in re.findall(r'(?:plain_table|_naming)\(\s*\w+,\s+"\w+",\s+"(\w+)",\s+"(\w+)"', sources):
        used |= {noun, f"all_{plural}", f"save_{noun}", f"delete_{noun}"}
    assert used == set(SQL)


@pytest.mark.parametrize("name", SQL)
def test_every_block_prepares_on_a_fresh_schema(db, name):
    plan(db, name)


@pytest.mark.parametrize("name", SEARCHES)
def test_what_is_asked_on_the_way_of_a_job_is_found_by_an_index(db, name):
    steps = plan(db, name)
    for index in SEARCHES[name]:
        assert any(step.startswith("SEARCH") and index in step for step in steps), steps
    scans = [step for step in steps if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"]
    assert not any("json_each" not in step for step in scans), steps
    assert name in SORT or not any("TEMP B-TREE" in step for step in steps), steps


def test_groups_that_live_are_found_without_passing_those_that_have_ended(db):
    assert plan(db, "live_groups") == ["SCAN job_groups USING INDEX ix_groups_live"]


@pytest.mark.parametrize(("name", "child"), [("save_execution", "history"), ("save_instance", "executions")])
def test_saving_again_does_not_look_at_what_refers_to_it(db, name, child):
    sql = SQL[name]
    pages = {page for (page,) in db.execute("SELECT rootpage FROM sqlite_schema WHERE tbl_name = ?", (child,))}
    steps = db.execute(f"EXPLAIN {sql}", [None] * sql.count("?")).fetchall()
    assert not any(step[1] in ("OpenRead", "OpenWrite") and step[3] in pages for step in steps)


def test_records_that_name_a_blob_are_found_without_passing_the_others(db):
    steps = plan(db, "named_blobs")
    for index in ("jobs_params", "jobs_result", "runs_params", "runs_details"):
        assert any(f"INDEX ix_{index}_blob" in step for step in steps), steps
    assert any("INDEX ix_runs_artifacts" in step for step in plan(db, "all_artifacts"))


def test_jobs_are_counted_without_reading_them(db):
    assert "SCAN jobs USING COVERING INDEX ix_jobs_list" in plan(db, "counts")


@pytest.mark.parametrize("name", ["count_mail", "count_activities", "count_instances"])
def test_what_waits_and_runs_is_counted_without_reading_what_it_carries(db, name):
    for step in plan(db, name):
        assert " INDEX " in step or re.fullmatch(r"SCAN CONSTANT ROW|SCALAR SUBQUERY \d", step), step


@pytest.mark.parametrize("name", ["granted_by", "local_leases"])
def test_what_looks_at_leases_walks_running_jobs_only(db, name):
    assert any(re.search("USING INDEX ix_jobs_(active|lease)", step) for step in plan(db, name))


def test_a_block_keeps_its_columns_and_parameters_in_step():
    found = blocks("-- name: x\n-- A sentence.\nSELECT {commands} FROM commands WHERE ({commands?});\n")
    assert found == {"x": "SELECT cmd, digest, outcome, at FROM commands WHERE (?, ?, ?, ?)"}


def test_the_columns_of_a_statement_are_read_from_it():
    assert inserted("INSERT INTO t (a, b,\n c) VALUES (?, ?, ?)") == ["a", "b", "c"]
    assert assigned("UPDATE t SET a = ?, b = NULL, c = 'X' WHERE d = ?") == {"a": "?", "b": None, "c": "X", "d": "?"}

"""What goes wrong around a store: each has its message and exit code, and no job is lost.

Where permissions, limits and locks matter, commands are processes of their own.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial

import msgspec
import pytest

MAIN = "from holdfast.cli import main; main()"
#: The patience with a full disk and with a busy database is too long for a test.
HASTY = """
from functools import partial
import holdfast.journal as journal
from holdfast.stores.sqlite import SqliteStore
journal.JournalOptions = partial(journal.JournalOptions, full_retries=0, full_retry_s=0)
SqliteStore.open = partial(SqliteStore.open, patience_s=0.1)
"""
LARGE = '{"x":"%s"}' % ("y" * 60_000)
#: Bytes a file may have: room for the store, and for a few large payloads at most.
SMALL_DISK = {"sqlite": 800_000, "wal": 400_000}
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


@pytest.fixture
def run(place):
    """Run a command as a process of its own."""

    def run(*args, url=place, stdin=None, program=MAIN, before=None):
        return subprocess.run(
            [sys.executable, "-c", program, *args],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOLDFAST_STORE": url},
            preexec_fn=before,
        )

    return run


def ids(told):
    assert told.returncode == 0, told.stderr
    return sorted(told.stdout.split())


def obey_permissions():
    """Let permissions bind root too."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def small_disk(place):
    room = SMALL_DISK[place.split(":")[0]]
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))


@pytest.fixture
def sealed(tmp_path):
    """Make everything below the directory read-only, until the test is over."""

    def chmod(directory, file):
        for path in (tmp_path, *tmp_path.rglob("*")):
            path.chmod(directory if path.is_dir() else file)

    yield lambda: chmod(0o555, 0o444)
    chmod(0o755, 0o644)


# --- nothing there, or something else ---------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["status"], ["jobs", "ls"], ["top"], ["workers", "ls"], ["jobs", "cancel", "a"]])
def test_a_store_that_is_missing_exits_3_and_none_is_made(holdfast, tmp_path, args):
    told = holdfast(*args)
    assert (told.exit_code, told.stdout) == (3, "")
    assert f"there is no store at {tmp_path / 'jobs'}. Check the path." in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["status"], ["jobs", "add", "work"]])
def test_a_directory_where_a_file_should_be_exits_7(holdfast, tmp_path, args):
    (tmp_path / "folder").mkdir()
    told = holdfast(*args, "--store", f"sqlite:{tmp_path / 'folder'}")
    assert told.exit_code == 7
    assert "is no file but a directory" in told.stderr
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("args", [["status"], ["jobs", "add", "work"]])
@pytest.mark.parametrize(("scheme", "said"), [("sqlite", "file is not a database"), ("wal", "is no directory")])
def test_a_file_that_is_something_else_exits_7_and_stays_as_it_is(holdfast, tmp_path, scheme, said, args):
    text = "what somebody wrote down\n" * 400
    (tmp_path / "notes").write_text(text)
    told = holdfast(*args, "--store", f"{scheme}:{tmp_path / 'notes'}")
    assert told.exit_code == 7
    assert said in told.stderr
    assert "Nothing was changed" in told.stderr
    assert (tmp_path / "notes").read_text() == text


@pytest.mark.parametrize("url", ["jobs.db", "sqlite:", "wal:x?durability=perhaps", "mongodb:x", ":"])
def test_a_url_that_is_none_exits_2(holdfast, url):
    told = holdfast("status", "--store", url)
    assert told.exit_code == 2
    assert url in told.stderr


# --- held, busy, full, read-only --------------------------------------------------------------------------------------


def test_a_log_that_another_process_holds_exits_6_and_names_it(run, opened, filled, place, holdfast):
    filled("a")
    with opened():
        told = run("jobs", "add", "work", "--id", "b", "-o", "json")
        seen = run("jobs", "ls", "-o", "ids")
    if place.startswith("sqlite:"):
        assert ids(seen) == ["a", "b"], "many processes may write"
        return
    problem = msgspec.json.decode(told.stderr)
    assert (told.returncode, problem["code"]) == (6, "store_locked")
    assert str(os.getpid()) in problem["message"]
    assert ids(seen) == ["a"]
    assert holdfast("jobs", "add", "work", "--id", "b").exit_code == 0


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_busy_database_exits_7_and_the_same_command_works_later(run, holdfast, filled, tmp_path):
    filled("a")
    with closing(sqlite3.connect(tmp_path / "jobs", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        told = run("jobs", "add", "work", "--id", "b", program=HASTY + MAIN)
        assert ids(run("jobs", "ls", "-o", "ids")) == ["a"], "reading goes on"
    assert told.returncode == 7
    assert "other processes kept the database locked. Nothing was written." in told.stderr
    assert holdfast("jobs", "add", "work", "--id", "b").stdout == "b\n"


def test_a_full_disk_exits_7_and_what_was_told_durable_stays(run, holdfast, place):
    told = []
    for n in range(9):
        add = ["jobs", "add", "work", "--id", f"job-{n}", "--params", "-"]
        told.append(run(*add, stdin=LARGE, program=HASTY + MAIN, before=partial(small_disk, place)))
    codes = [one.returncode for one in told]
    assert set(codes) == {0, 7}
    assert all("Traceback" not in one.stderr for one in told)
    refused = next(one for one in told if one.returncode)
    # The disk is made small by the limit that a process has for the size of a file.
    assert "size limit" in refused.stderr
    if place.startswith("wal:"):
        assert "holdfast: journal.failed: error A file has reached its size limit" in refused.stderr
    kept = {f"job-{n}" for n, code in enumerate(codes) if code == 0}
    assert kept <= set(holdfast("jobs", "ls", "-o", "ids").stdout.split())
    assert holdfast("store", "check", place).exit_code == 0
    again = holdfast("jobs", "add", "work", "--id", "job-8", "--params", "-", stdin=LARGE)
    assert again.exit_code == 0, "with space there is a way on"


def test_a_store_that_may_only_be_read_exits_7_and_stays_as_it_is(run, filled, place, sealed):
    filled("a")
    sealed()
    told = run("jobs", "add", "work", "--id", "b", before=obey_permissions)
    assert told.returncode == 7
    assert any(said in told.stderr for said in ("Permission denied", "check who may write"))
    seen = run("jobs", "ls", "-o", "ids", before=obey_permissions)
    if place.startswith("wal:"):
        assert ids(seen) == ["a"]
    else:
        # Reading it needs files beside it that only a writer can make.
        assert (seen.returncode, "check who may write to it and to its directory" in seen.stderr) == (7, True)
    assert ids(run("jobs", "ls", "-o", "ids")) == ["a"]


def test_a_place_where_nothing_may_be_made_exits_7(run, sealed, tmp_path):
    sealed()
    told = run("jobs", "add", "work", before=obey_permissions)
    assert (told.returncode, "Permission denied" in told.stderr) == (7, True)
    assert list(tmp_path.iterdir()) == []


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two words", "", "a\nb", "ü", "\x1b[2J", "x" * 129, "a;b", "$(id)"])
def test_a_queue_with_a_strange_name_exits_2_and_nothing_is_stored(holdfast, filled, rows, name):
    filled("a")
    for args in (["jobs", "add", "work", "--queue", name], ["jobs", "update", "a", "--queue", name]):
        told = holdfast(*args)
        assert told.exit_code == 2, args
        assert "is not a name" in told.stderr
        assert "\x1b" not in told.stderr
    assert holdfast("queues", "pause", name).exit_code == 2
    assert [(job["job_id"], job["queue"]) for job in rows("jobs", "ls")] == [("a", "default")]


@pytest.mark.parametrize("name", ["mail/eu-1", "a.b:c_d", "0"])
def test_a_queue_may_have_every_name_that_is_one(holdfast, rows, name):
    assert holdfast("jobs", "add", "work", "--id", "a", "--queue", name).exit_code == 0
    assert rows("queues", "show", name)["counts"]["QUEUED"] == 1


def test_a_task_name_that_is_none_and_parameters_that_are_no_object_exit_2(holdfast, filled, rows):
    filled("a")
    assert holdfast("jobs", "add", "no name").exit_code == 2
    for params in ("[1]", "nonsense", '{"a":NaN}', '{"a":1'):
        assert holdfast("jobs", "add", "work", "--params", params).exit_code == 2
    assert len(rows("jobs", "ls")) == 1

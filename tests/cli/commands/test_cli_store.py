"""`holdfast store` as people run it: output, exit codes, and nothing changed unless asked."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Engine, open_store
from holdfast.cli.root import cli
from holdfast.engine import orphans
from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.model.jobs import Run, RunStatus
from holdfast.stores.sqlite.rows import RUNS

LOST = Run(
    run_id="lost",
    job_id="gone",
    run_no=1,
    started_at="2026-01-01T00:00:00.000000Z",
    params_snapshot=msgspec.Raw(b"{}"),
    status=RunStatus.LOST,
    finished_at="2026-01-01T00:00:01.000000Z",
)


@pytest.fixture
def run():
    return lambda *args: CliRunner().invoke(cli, args)


@pytest.fixture(params=["wal", "sqlite"])
def url(request, tmp_path):
    where = f"{request.param}:{tmp_path / 'jobs'}"
    engine = Engine(open_store(where))
    for n in range(20):
        engine.submit(Enqueue(jobs=(NewJob(job_id=f"job-{n}", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    return where


def damage(path):
    """Flip a byte in the middle of the log."""
    (segment,) = sorted((path / "log").iterdir())[:1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


def test_a_store_that_is_well_says_so_and_exits_0(run, url):
    told = run("store", "check", url)
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "well\n")


def test_no_store_exits_3_and_makes_none(run, tmp_path):
    told = run("store", "check", f"sqlite:{tmp_path / 'none'}")
    assert told.exit_code == 3
    assert "there is no store" in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["check", "repair", "snapshot"])
def test_a_directory_that_holds_something_else_is_no_store_and_stays_as_it_is(run, tmp_path, verb):
    (tmp_path / "notes.txt").touch()
    told = run("store", verb, f"wal:{tmp_path}")
    assert told.exit_code == 3
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_url_that_is_none_exits_2_and_names_the_forms(run):
    told = run("store", "check", "jobs.db")
    assert told.exit_code == 2
    assert "sqlite:jobs.db" in told.stderr


def test_an_empty_list_of_findings_is_an_empty_json_array(run, url):
    assert run("store", "check", url, "-o", "json").stdout == "[]\n"


def test_damage_exits_1_with_file_line_and_offset(run, tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    engine = Engine(open_store(url))
    for n in range(20):
        engine.submit(Enqueue(jobs=(NewJob(job_id=f"job-{n}", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    damage(tmp_path / "jobs")
    told = run("store", "check", url, "-o", "json")
    assert told.exit_code == 1
    (finding,) = msgspec.json.decode(told.stdout)
    assert finding["code"] == "journal_damaged"
    assert finding["line"] > 1
    assert finding["offset"] > 0
    assert "holdfast store repair" in finding["remedy"]


def test_a_repair_shows_what_would_go_and_does_it_only_when_told(run, tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    engine = Engine(open_store(url))
    for n in range(20):
        engine.submit(Enqueue(jobs=(NewJob(job_id=f"job-{n}", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    damage(tmp_path / "jobs")
    before = {path: path.read_bytes() for path in (tmp_path / "jobs").rglob("*") if path.is_file()}
    planned = run("store", "repair", url)
    assert planned.exit_code == 1
    assert f"Nothing was changed. Run `holdfast store repair --yes {url}` to do this." in planned.stderr
    assert "would be lost" in planned.stdout
    assert "Nothing was changed" not in planned.stdout
    after = {path: path.read_bytes() for path in (tmp_path / "jobs").rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != "LOCK"} == {
        path: data for path, data in before.items() if path.name != "LOCK"
    }
    done = run("store", "repair", url, "--yes")
    assert done.exit_code == 0
    assert ": repaired; " in done.stdout
    assert "were lost: " in done.stdout
    for words in ("would be", "Nothing was changed", "Run "):
        assert words not in done.output
    assert run("store", "check", url).exit_code == 0
    assert list((tmp_path / "jobs").glob("log.bak*"))
    store = open_store(url)
    with store.read() as view:
        assert 0 < sum(count.count for count in view.counts()) < 20
    store.close()


@pytest.mark.parametrize("options", [(), ("--yes",), ("--accept-snapshot",)])
def test_repair_of_a_log_that_cannot_be_repaired_does_not_say_to_repair_it(run, tmp_path, options):
    url = f"wal:{tmp_path / 'jobs'}"
    engine = Engine(open_store(url))
    engine.submit(Enqueue(jobs=(NewJob(job_id="a", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    (segment,) = (tmp_path / "jobs" / "log").glob("*.jsonl")
    segment.rename(segment.with_name(segment.name.replace("0001-", "0009-")))  # the first records are missing
    told = run("store", "repair", url, *options)
    assert told.exit_code == 7
    assert "store repair" not in told.stderr
    assert "Restore the store from a copy" in told.stderr


def test_repair_that_needs_the_snapshot_says_the_whole_command(run, tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    engine = Engine(open_store(url))
    engine.submit(Enqueue(jobs=(NewJob(job_id="a", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.store.snapshot()
    engine.close()
    shutil.rmtree(tmp_path / "jobs" / "log")
    told = run("store", "repair", url)
    assert f"holdfast store repair --accept-snapshot {url}" in told.stderr
    planned = run("store", "repair", "--accept-snapshot", url)
    assert f"Run `holdfast store repair --accept-snapshot --yes {url}`" in planned.stderr
    assert run("store", "repair", "--accept-snapshot", "--yes", url).exit_code == 0
    assert run("store", "check", url).exit_code == 0


def test_after_a_repair_no_token_is_granted_that_the_lost_records_may_have_granted(run, tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    engine = Engine(open_store(url))
    for n in range(20):
        engine.submit(Enqueue(jobs=(NewJob(job_id=f"job-{n}", job_type="work", params=msgspec.Raw(b"{}")),)))
    granted = [engine.ask(Lease(worker_id="w")).grants[0].token for _ in range(20)]
    engine.close()
    damage(tmp_path / "jobs")
    assert run("store", "repair", url, "--yes").exit_code == 0
    for _ in range(2):  # and it stays so, however often the log is read again
        engine = Engine(open_store(url))
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        assert grant.token > max(granted)
        granted.append(grant.token)
        engine.close()
    engine = Engine(open_store(url))
    engine.store.snapshot()
    engine.close()
    engine = Engine(open_store(url))
    assert engine.ask(Lease(worker_id="w")).grants[0].token == granted[-1] + 1
    engine.close()


def test_a_snapshot_is_written_on_request(run, tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    engine = Engine(open_store(url))
    engine.submit(Enqueue(jobs=(NewJob(job_id="a", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    assert run("store", "snapshot", url).exit_code == 0
    assert len(list((tmp_path / "jobs" / "snapshots").iterdir())) == 1


def test_a_store_in_use_is_refused_with_its_holder(run, tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    store = open_store(url)
    told = run("store", "snapshot", url)
    assert told.exit_code == 6
    assert "is in use by pid" in told.stderr
    store.close()


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(args):
    program = (
        "import sys; sys.argv = ['holdfast', *sys.argv[1:]]; from holdfast.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'msgspec', 'sqlite3', 'asyncio', 'rich', 'backports.zstd', 'holdfast.engine', 'holdfast.stores'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    told = subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, check=True)
    assert told.stderr.strip() == "[]"


def test_without_its_extra_the_command_says_what_to_install():
    program = "import sys; sys.modules['click'] = None\nfrom holdfast.cli import main\nmain()\n"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "pip install 'holdfast[cli]'" in told.stderr


def orphan(path):
    """Put a run into the database whose job is not there, as damage would."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(RUNS.inserts[-1].sql, RUNS.inserts[-1].bind(RUNS.write(LOST)))
        db.commit()


def test_a_run_without_a_job_is_shown_written_to_a_file_and_removed(run, tmp_path):
    url = f"sqlite:{tmp_path / 'jobs'}"
    engine = Engine(open_store(url))
    engine.ask(Enqueue(jobs=(NewJob(job_id="a", job_type="work", params=msgspec.Raw(b"{}")),)))
    engine.close()
    orphan(tmp_path / "jobs")
    checked = run("store", "check", url)
    assert (checked.exit_code, "PERS-002" in checked.stdout) == (1, True)
    assert "holdfast store repair" in checked.stderr
    planned = run("store", "repair", url)
    assert (planned.exit_code, planned.stdout.count("has no job gone")) == (1, 1)
    assert list(tmp_path.glob("*.orphans-*")) == []
    done = run("store", "repair", url, "--yes")
    assert (done.exit_code, "1 runs were written to" in done.stdout) == (0, True)
    (file,) = tmp_path.glob("jobs.orphans-*.jsonl")
    assert msgspec.json.decode(file.read_bytes(), type=Run) == LOST
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("store", "check", url).exit_code == 0
    assert run("store", "repair", url, "--yes").exit_code == 6  # there is nothing left of that kind


def test_a_run_that_cannot_be_written_elsewhere_is_not_removed(run, tmp_path, monkeypatch):
    url = f"sqlite:{tmp_path / 'jobs'}"
    Engine(open_store(url)).close()
    orphan(tmp_path / "jobs")

    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as once:
        once.setattr(orphans.os, "fsync", full)
        told = run("store", "repair", url, "--yes")
    assert (told.exit_code, "Nothing was removed" in told.stderr) == (7, True)
    assert "PERS-002" in run("store", "check", url).stdout

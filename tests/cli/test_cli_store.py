"""`holdfast store` as people run it: output, exit codes, and nothing changed unless asked."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Engine, open_store
from holdfast.cli.root import cli
from holdfast.model.commands import Enqueue, Lease, NewJob


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
    assert "Nothing was changed" in planned.stderr
    after = {path: path.read_bytes() for path in (tmp_path / "jobs").rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != "LOCK"} == {
        path: data for path, data in before.items() if path.name != "LOCK"
    }
    assert run("store", "repair", url, "--yes").exit_code == 0
    assert run("store", "check", url).exit_code == 0
    assert list((tmp_path / "jobs").glob("log.bak*"))
    store = open_store(url)
    with store.read() as view:
        assert 0 < sum(count.count for count in view.counts()) < 20
    store.close()


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

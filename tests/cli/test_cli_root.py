"""What every command shares: a light start, errors on stderr, exit codes, completion."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import msgspec
import pytest
from click.testing import CliRunner

from holdfast import errors
from holdfast.cli import root
from holdfast.cli.render.errors import tell, wants_json

HEAVY = ["sqlite3", "asyncio", "rich", "backports.zstd", "holdfast.journal", "holdfast.app", "holdfast.workers"]
HELP = ["jobs", "jobs ls", "jobs add", "jobs wait", "queues", "queues ls", "dispatch pause", "status", "explain", "top"]
HELP += ["jobs logs", "workers", "workers ls", "workers stop", "demo", "dev", "bench"]


@pytest.mark.parametrize("command", HELP)
def test_the_help_of_a_command_opens_no_store_and_imports_nothing_heavy(command):
    program = (
        "import sys; heavy = sys.argv.pop(1).split(','); from holdfast.cli import main\n"
        "try: main()\n"
        "except SystemExit as left: assert not left.code\n"
        "print(sorted(set(heavy) & set(sys.modules)), file=sys.stderr)\n"
    )
    args = [sys.executable, "-c", program, ",".join(HEAVY), *command.split(), "--help"]
    told = subprocess.run(args, capture_output=True, text=True, check=True)
    assert told.stderr.strip() == "[]"
    assert "Usage: " in told.stdout


def test_completing_a_command_imports_none():
    env = {**os.environ, "_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast ", "COMP_CWORD": "1"}
    program = (
        "import sys; sys.argv = ['holdfast']; from holdfast.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'msgspec', 'holdfast.cli.commands.jobs'} & set(sys.modules)), file=sys.stderr)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [f"plain,{name}" for name in root.COMMANDS]
    assert told.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("jobs c", ["cancel"]),
        ("jobs ls --status r", ["running"]),
        ("jobs ls --li", ["--limit"]),
        ("--vers", ["--version"]),
    ],
)
def test_commands_options_and_statuses_are_completed(words, found):
    env = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": f"holdfast {words}"}
    told = CliRunner().invoke(root.cli, [], prog_name="holdfast", env={**env, "COMP_CWORD": str(len(words.split()))})
    assert [line.partition(",")[2] for line in told.stdout.split()] == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell):
    told = CliRunner().invoke(root.cli, ["completion", shell])
    assert told.exit_code == 0
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in told.stdout


def test_an_unknown_shell_or_command_exits_2():
    assert CliRunner().invoke(root.cli, ["completion", "tcsh"]).exit_code == 2
    assert CliRunner().invoke(root.cli, ["jbos"]).exit_code == 2
    assert CliRunner().invoke(root.cli, ["jobs", "ls", "--no-such"]).exit_code == 2


def test_a_line_that_cannot_be_parsed_is_a_problem_object_too():
    told = CliRunner().invoke(root.cli, ["jobs", "ls", "--no-such", "-o", "json"])
    assert told.exit_code == 2
    problem = msgspec.json.decode(told.stderr)
    assert problem["code"] == "usage_error"
    assert "--no-such" in problem["message"]


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["-o", "json"], True),
        (["-ojson"], True),
        (["--output=jsonl"], True),
        (["--output", "json"], True),
        (["-o", "table"], False),
        (["json"], False),
        (["-o"], False),
    ],
)
def test_json_is_recognised_as_written(args, wanted):
    assert wants_json(args) is wanted


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidValue("x"), 2),
        (errors.JobNotFound("x"), 3),
        (errors.InvalidOperation("x"), 6),
        (errors.StoreLocked("x"), 6),
        (errors.StoreFull("x"), 7),
        (errors.JournalDamaged("x", file="log", line=3), 7),
        (errors.JobFailed("x"), 1),
        (errors.JobCancelled("x"), 4),
        (TimeoutError("x"), 5),
        (PermissionError(13, "Permission denied", "jobs"), 7),
        (click.UsageError("x"), 2),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (ZeroDivisionError("x"), 70),
    ],
)
def test_errors_exit_by_their_family(error, code, capsys):
    assert tell(error, []) == code
    assert tell(error, ["-o", "json"]) == code
    assert capsys.readouterr().out == ""


def test_a_problem_object_carries_the_facts(capsys):
    tell(errors.JournalDamaged("broken.", hint="Repair.", file="log", line=3), ["-o", "json"])
    assert msgspec.json.decode(capsys.readouterr().err) == {
        "code": "journal_damaged",
        "message": "broken.",
        "hint": "Repair.",
        "file": "log",
        "line": 3,
    }


def test_a_bug_of_ours_says_what_to_report(monkeypatch):
    @click.command()
    def broken():
        raise ZeroDivisionError("oh \x1b[2J")

    monkeypatch.setattr(root._Root, "get_command", lambda self, ctx, name: broken)
    told = CliRunner().invoke(root.cli, ["broken"])
    assert told.exit_code == 70
    assert "Traceback" in told.stderr
    assert "this is a bug of Holdfast" in told.stderr
    assert "\x1b" not in told.stderr


def test_a_reader_that_has_left_is_no_error(tmp_path):
    env = {**os.environ, "HOLDFAST_STORE": f"sqlite:{tmp_path / 'jobs'}"}
    holdfast = [sys.executable, "-c", "from holdfast.cli import main; main()"]
    subprocess.run([*holdfast, "jobs", "add", "work"], env=env, check=True, capture_output=True)
    reading, writing = os.pipe()
    os.close(reading)
    told = subprocess.run([*holdfast, "jobs", "ls"], env=env, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (told.returncode, told.stderr) == (0, b"")


def test_the_interpreter_runs_the_command_without_its_script():
    told = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"holdfast, version {root.holdfast.__version__}\n"


def test_an_option_before_the_command_says_where_it_belongs():
    told = CliRunner().invoke(root.cli, ["--store", "memory:", "jobs", "ls"])
    assert told.exit_code == 2
    assert "No such option '--store'. Options stand behind the command: holdfast jobs ls --store URL." in told.stderr

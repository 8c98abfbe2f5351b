"""Checkers see what the program does: the typed calls pass, and every wrong one is found on its own line."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ACCEPTED, REFUSED = sorted(HERE.glob("typed_*.py")), sorted(HERE.glob("wrong_*.py"))
_MYPY_LINE = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.*)$", re.MULTILINE)


def by_mypy(files, _folder):
    """Give file name → line → message of what mypy refuses. Nobody would read a cache of it again."""
    options = ["--strict", "--no-error-summary", "--no-warn-unused-configs", "--cache-dir", os.devnull]
    command = ["-m", "mypy", *options, *files]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode in (0, 1), done.stderr
    return [(Path(file).name, int(line), message) for file, line, message in _MYPY_LINE.findall(done.stdout)]


def by_pyright(files, folder):
    """Give file name → line → message of what pyright refuses."""
    for file in files:  # it takes relative paths only
        shutil.copy(file, folder)
    settings = {
        "include": [file.name for file in files],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        # What is asked here is whether calls fit, not whether the file that makes them is tidy.
        "reportUnusedCoroutine": False,
        "reportUnusedExpression": False,
        "reportUnusedCallResult": False,
        "pythonVersion": "3.11",
    }
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    command = ["-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(project)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=250
    )
    if done.returncode not in (0, 1):
        pytest.skip(f"pyright cannot run here: {(done.stderr or done.stdout)[-300:]}")
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"])
        for one in found
        if one["severity"] == "error"
    ]


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def problems(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    check = by_mypy if request.param == "mypy" else by_pyright
    return check([*ACCEPTED, *REFUSED], folder)


def test_typed_calls_are_accepted(problems):
    names = {file.name for file in ACCEPTED}
    assert [problem for problem in problems if problem[0] in names] == []


@pytest.mark.parametrize("refused", REFUSED, ids=lambda file: file.stem)
def test_every_wrong_call_is_refused_on_its_line_and_nothing_else(problems, refused):
    marked = {number for number, line in enumerate(refused.read_text().splitlines(), start=1) if "  # wrong: " in line}
    assert len(marked) > 5
    found = {line: message for file, line, message in problems if file == refused.name}
    assert {line: message for line, message in found.items() if line not in marked} == {}
    assert marked - found.keys() == set()

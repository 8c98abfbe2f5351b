"""README and guides work as printed: their programs and commands run in order, and say what the page says they say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"# (\w+\.py)\n")


def run(command, place):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        command, cwd=place, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=120
    )
    assert told.returncode == 0, f"{command}\n{told.stdout}{told.stderr}"
    return told.stdout


@pytest.fixture
def place(tmp_path):
    """Where a page is run. What it started and noted in a `.pid` is ended, should the page not have come to that."""
    yield tmp_path
    for noted in tmp_path.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(noted.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_works_as_printed(page, place):
    """`text` is what the program before it says; a program whose first line names a file is kept under that name."""
    said = None
    for number, (language, text) in enumerate(_BLOCK.findall(page.read_text())):
        match language:
            case "python":
                name = found[1] if (found := _NAME.match(text)) else f"block{number}.py"
                (place / name).write_text(text)
                said = run([sys.executable, name], place)
            case "sh":
                said = run(["sh", "-e", "-c", text], place)
            case "text":
                assert said == text
            case "console" | "" if page.name == "README.md":
                pass  # what needs a clone, and the tree of folders
            case _:
                pytest.fail(f"a block of {page.name} is marked {language!r} and would not be run")

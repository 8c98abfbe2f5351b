"""An example in a directory of its own, run as its README says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(tmp_path):
    """Copy an example's folder and give its program: `python app.py …`, told from where it stands."""

    def copied(name):
        shutil.copytree(EXAMPLES / name, tmp_path, dirs_exist_ok=True)

        def run(*args, env=None):
            command = [sys.executable, "app.py", *args]
            told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            assert told.returncode == 0, told.stdout + told.stderr
            return told.stdout.splitlines()

        return run

    return copied

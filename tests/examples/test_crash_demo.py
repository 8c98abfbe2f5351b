"""The demo that kills its own worker, run as users run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "crash_demo" / "demo.py"


def test_the_demo_survives_its_crash_and_counts_everything(tmp_path):
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    told = subprocess.run([sys.executable, DEMO, url], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "acknowledged 300, completed 300, missing 0" in told.stdout
    assert "store check: well" in told.stdout

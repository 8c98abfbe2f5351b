"""Running workflows changes nothing in the standard library for the other code of the process."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("mode", ["default", "guarded"])
def test_turns_replace_no_function_and_install_no_audit_hook(mode):
    program = Path(__file__).with_name("globals_program.py")
    done = subprocess.run([sys.executable, program, mode], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("nothing changed\n", 0), done.stderr

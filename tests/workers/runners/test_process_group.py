"""Process groups: which descendants of a command are found when it ends."""

import os
import signal
import subprocess
import sys

import pytest

from holdfast.workers.runners import process_group

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descendants are found in /proc")

MARK = "0123456789abcdef"


@pytest.fixture
def start():
    """Start a program with `MARK` in its environment; it is killed after the test."""
    started = []

    def start(*argv, **env):
        process = subprocess.Popen(argv, env={**os.environ, process_group.MARK: MARK, **env})
        started.append(process)
        return str(process.pid)

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_process_that_replaces_its_program_always_has_its_mark(start, tmp_path):
    script = tmp_path / "again"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o755)
    pid = start(str(script))
    missed = sum(not process_group._has_mark(pid, MARK) for _ in range(5_000))
    assert missed == 0


def test_process_without_environment_has_no_mark(start):
    pid = start("env", "-i", "sleep", "1000")
    while process_group._has_mark(pid, MARK):  # until `env` has replaced itself
        pass
    assert not process_group._has_mark(pid, MARK)


def test_zombie_and_kernel_thread_have_no_mark(start):
    pid = start("true")
    os.waitid(os.P_PID, int(pid), os.WEXITED | os.WNOWAIT)
    assert not process_group._has_mark(pid, MARK)
    assert not process_group._has_mark("2", MARK)

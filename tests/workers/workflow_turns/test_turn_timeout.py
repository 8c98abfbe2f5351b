"""A turn that is broken off leaves nothing behind in the interpreter."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from holdfast.workers.workflow_turns.threads import Code

code, inside, go, ended = Code(), threading.Event(), threading.Event(), []

def work():
    inside.set()
    {body}

thread = threading.Thread(target=lambda: ended.append(code.run(work, 0.0)))
thread.start()
inside.wait()
code.break_off()
go.set()
thread.join()
sys.setprofile(lambda *_: None)
(lambda: None)()
sys.setprofile(None)
print(ended)
"""


@pytest.mark.parametrize("body", ["while True: pass", "go.wait()"])
def test_a_debugger_or_profiler_works_after_a_turn_was_broken_off(body):
    # In a process of its own: one that fails here does not end, and no signal handler runs in it.
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)], capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout.strip() == "[False]"

"""What the library logs is told with its facts, on one line, and only where nobody else listens."""

from __future__ import annotations

import logging
import subprocess
import sys

from holdfast.cli.render.log_format import told

PROGRAM = """
import logging, sys
if "own" in sys.argv:
    logging.basicConfig(format="mine %(message)s")
from holdfast.cli.render.log_format import show_events
show_events()
show_events()
log = logging.getLogger("holdfast.worker")
log.info("run.discarded")
log.warning("lease.lost", extra={"job": "a\\x1b[2J", "code": 7})
if "broken" in sys.argv:
    try:
        raise KeyError("what broke")
    except KeyError:
        log.exception("request.broke")
"""


def said(*args):
    told = subprocess.run([sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, check=True)
    assert told.stdout == ""
    return told.stderr


def test_warnings_are_told_once_with_their_facts():
    assert said() == "holdfast: lease.lost: job a\\x1b[2J, code 7\n"


def test_what_broke_unforeseen_is_told_with_where():
    _, first, *rest = said("broken").splitlines()
    assert first == "holdfast: request.broke"
    assert (rest[0], rest[-1]) == ("Traceback (most recent call last):", "KeyError: 'what broke'")


def test_an_application_that_listens_gets_them_alone():
    assert said("own") == "mine lease.lost\n"


def test_an_event_without_facts_is_its_name():
    assert told(logging.makeLogRecord({"msg": "journal.no_flusher"})) == "journal.no_flusher"

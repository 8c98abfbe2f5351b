"""The page on the protocol is true: its requests are sent as printed, and get the answers that it prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


def run(text, place, env):
    told = subprocess.run(
        ["sh", "-e", "-c", text], cwd=place, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert told.returncode == 0, f"{text}\n{told.stdout}{told.stderr}"
    return told.stdout


@contextmanager
def served(place, env):
    command = ["holdfast", "serve", "--store", "wal:store", "--port", "0", "--access", "access.json"]
    with subprocess.Popen(command, cwd=place, env=env, stderr=subprocess.PIPE, text=True) as serving:
        try:
            yield serving.stderr.readline().split()[0]
        finally:
            serving.terminate()


def matches(printed, said):
    """`…` is what differs from run to run; everything else is as printed, and nothing more is said."""
    if printed == "…":
        return said is not None
    if isinstance(printed, dict) and isinstance(said, dict):
        return printed.keys() == said.keys() and all(matches(printed[key], said[key]) for key in printed)
    if isinstance(printed, list) and isinstance(said, list):
        return len(printed) == len(said) and all(map(matches, printed, said))
    return printed == said


def test_the_protocol_works_with_curl_as_printed(tmp_path):
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (_, tokens), *blocks = _BLOCK.findall(PAGE.read_text())
    run(tokens, tmp_path, env)
    said, answers = "", 0
    with served(tmp_path, env) as url:
        for language, text in blocks:
            if language == "sh":
                said = run(text, tmp_path, {**env, "HOLDFAST_URL": url})
            else:
                assert language == "json", f"a block is marked {language!r} and would not be read"
                assert matches(json.loads(text), json.loads(said)), f"{text}\nis printed; said was\n{said}"
                answers += 1
    assert answers == sum(language == "sh" for language, _ in blocks), "a request without its answer"


def test_an_answer_that_differs_is_seen():
    assert matches({"a": "…", "b": [1]}, {"a": 7, "b": [1]})
    assert not matches({"a": "…"}, {"a": 7, "b": 1})
    assert not matches({"a": [1]}, {"a": [1, 2]})
    assert not matches({"a": "…"}, {"a": None})

"""`holdfast serve`, as people at a terminal meet it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import httpx2
import pytest

from holdfast.engine.engine import Engine
from holdfast.model.commands import Reserve
from holdfast.stores.opening import open_store

#: Runs the command line without some packages.
BARE = "import sys; [sys.modules.__setitem__(name, None) for name in {}]; from holdfast.cli import main; main()"


@pytest.fixture
def env(tmp_path):
    return {**os.environ, "HOLDFAST_STATE_DIR": str(tmp_path / "state")}


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "httpx2"])
def test_without_its_extra_it_says_what_to_install(missing, env):
    command = [sys.executable, "-c", BARE.format([missing]), "serve", "--port", "0"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert "needs the extra `web`" in ended.stderr
    assert "pip install 'holdfast[web]'" in ended.stderr


def test_the_line_it_begins_with_says_what_opening_took_and_what_was_ended(tmp_path, env):
    command = [sys.executable, "-c", BARE.format([]), "serve", "--port", "0", "--store", f"wal:{tmp_path / 'jobs'}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as serving:
        first = serving.stderr.readline()
        httpx2.post(f"{first.split()[0]}/api/v1/jobs", json={"job_type": "t"}).raise_for_status()
        serving.kill()
    assert first.split()[1:] == ["serves", f"wal:{tmp_path / 'jobs'}"]
    # A reservation of a program that is gone, and a write that did not end.
    engine = Engine(open_store(f"wal:{tmp_path / 'jobs'}"))
    assert engine.submit(Reserve(queue="q", reservation_id="r", reserved_by="me", session_id="gone")).status == "ACTIVE"
    engine.close()
    *_, newest = sorted((tmp_path / "jobs" / "log").iterdir())
    with newest.open("ab") as log:
        log.write(b"torn")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as serving:
        # Before it the log says of its tail that it was cut.
        told = next(line for line in serving.stderr if " serves " in line)
        serving.send_signal(signal.SIGTERM)
        serving.stderr.read()
    took = r"3 records in \d+\.\d\d s, 1 lease or reservation ended, 4 bytes cut"
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+ serves \S+: {took}\n", told), told


def test_what_goes_wrong_while_it_serves_is_told_with_its_facts(tmp_path, env):
    access = tmp_path / "access.json"
    command = [sys.executable, "-c", BARE.format([]), "serve", "--port", "0", "--access", str(access)]
    with subprocess.Popen(
        [*command, "--store", f"wal:{tmp_path / 'jobs'}"], stderr=subprocess.PIPE, text=True, env=env
    ) as serving:
        url = serving.stderr.readline().split()[0]
        access.write_text("nonsense", encoding="utf-8")
        access.chmod(0o600)
        shown = {"Authorization": "Bearer nobodys"}
        assert httpx2.get(f"{url}/api/v1/facing", headers=shown).status_code == 401
        serving.send_signal(signal.SIGTERM)
        told = serving.stderr.read()
    assert f"serve.access_file: file {access}, problem" in told
